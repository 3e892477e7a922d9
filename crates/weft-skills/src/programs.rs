//! Where programs are on this host.

use std::{collections::HashMap, env, path::PathBuf};

use crate::{
    host::Host,
    platform,
    report::{shown, shown_path},
};

/// The programs of one load: each is looked for once.
pub(crate) struct Programs {
    path: Vec<PathBuf>,
    found: HashMap<String, Option<PathBuf>>,
}

impl Programs {
    pub(crate) fn new(host: &Host) -> Self {
        // A relative directory would mean another one in each working directory.
        let path = env::split_paths(&host.skill_path).filter(|directory| directory.is_absolute()).collect();
        Self { path, found: HashMap::new() }
    }

    /// Where a program is in the skill PATH, in words.
    pub(crate) fn find(&mut self, name: &str) -> Result<String, String> {
        if name.contains(['/', '\\', '\0']) {
            return Err("not the plain name of a program".to_owned());
        }
        let path = &self.path;
        let found = self.found.entry(name.to_owned()).or_insert_with(|| {
            path.iter().map(|directory| directory.join(name)).find(|candidate| {
                candidate.metadata().is_ok_and(|found| found.is_file() && platform::has_execute_bit(&found))
            })
        });
        match found {
            Some(path) => Ok(format!("found at {}", shown_path(path))),
            None => Err(format!("no executable {:?} in the skill PATH", shown(name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::testing;

    #[test]
    fn a_program_counts_only_as_a_regular_file_with_an_execute_bit() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host { skill_path: directory.path().into(), ..testing::host() };
        let find = |name| Programs::new(&host).find(name);
        let tool = directory.path().join("tool");
        assert!(find("tool").is_err());
        fs::write(&tool, "").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(find("tool").is_err());
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool").unwrap(), format!("found at {}", tool.display()));
        fs::remove_file(&tool).unwrap();
        fs::create_dir(&tool).unwrap();
        assert!(find("tool").unwrap_err().contains("tool"));
        assert!(find("../tool").is_err());
    }
}
