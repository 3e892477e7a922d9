//! The home directory, which paths in a file may start with.

use std::path::{Path, PathBuf};

/// What `~/` at the start of a path stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Home(Option<PathBuf>);

impl Home {
    /// This directory; `None` or a relative one: there is no home, and a path that needs one is a problem.
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self(directory.filter(|directory| directory.is_absolute()))
    }

    /// The path that a text means.
    pub(crate) fn expand(&self, text: &str) -> Result<PathBuf, &'static str> {
        if text.is_empty() {
            return Err("must not be empty");
        }
        if text.contains('\0') {
            return Err("must not hold a NUL character");
        }
        let Some(rest) = text.strip_prefix('~') else { return Ok(text.into()) };
        let below = match (rest, rest.strip_prefix('/')) {
            ("", _) => "",
            (_, Some(below)) => below.trim_start_matches('/'),
            (_, None) => return Err("starts with the home directory of a named user; write it out"),
        };
        match &self.0 {
            None => Err("starts with ~/, and there is no home directory; write it out"),
            Some(home) if below.is_empty() => Ok(home.clone()),
            Some(home) => Ok(home.join(Path::new(below))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tilde_at_the_start_is_expanded() {
        let home = Home::new(Some("/home/u".into()));
        for (text, path) in [
            ("~/x", "/home/u/x"),
            ("~//etc", "/home/u/etc"),
            ("~", "/home/u"),
            ("/a/~/b", "/a/~/b"),
            ("x", "x"),
        ] {
            assert_eq!(home.expand(text), Ok(path.into()), "{text}");
        }
        assert!(home.expand("~root/x").is_err());
        assert!(home.expand("").is_err());
    }

    #[test]
    fn without_a_home_a_path_that_needs_one_is_a_problem() {
        for home in [Home::default(), Home::new(Some("relative".into()))] {
            assert!(home.expand("~/x").is_err());
            assert_eq!(home.expand("/x"), Ok("/x".into()));
        }
    }
}
