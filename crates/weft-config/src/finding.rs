//! What is wrong or odd in a file, and where.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// One thing in a file that is wrong, or only odd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The line, from 1, where it is known.
    pub line: Option<u64>,
    /// The column, from 1: only where the file cannot be read at all.
    pub column: Option<u64>,
    /// The dotted path of the key, such as `agents.list[2].skills[0]`. Empty: the file itself.
    pub path: String,
    /// What is wrong and what to do. It never shows a secret.
    pub message: String,
}

impl Finding {
    /// A finding that concerns the whole file.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self { line: None, column: None, path: String::new(), message: message.into() }
    }

    /// The finding as one line that starts with the file: `FILE:LINE: PATH: message`.
    pub fn in_file(&self, file: &Path) -> String {
        let mut place = file.display().to_string();
        for part in [self.line, self.column].into_iter().flatten() {
            place = format!("{place}:{part}");
        }
        format!("{place}: {}", self.sentence())
    }

    fn sentence(&self) -> String {
        match self.path.as_str() {
            "" => self.message.clone(),
            path => format!("{path}: {}", self.message),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, "line {line}, column {column}: ")?,
            (Some(line), None) => write!(f, "line {line}: ")?,
            (None, _) => {}
        }
        f.write_str(&self.sentence())
    }
}

/// A file that was read, and what is odd in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed<T> {
    /// What it says.
    pub value: T,
    /// What works, but hardly as meant.
    pub warnings: Vec<Finding>,
}

/// Why a file is refused: everything that is wrong with it. Printed with one line for each problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The file, when it was read from one.
    pub file: Option<PathBuf>,
    /// The problems in the order of the file's shape; at least one.
    pub problems: Vec<Finding>,
    /// There is no such file.
    pub missing: bool,
    /// How many of the problems are keys that nothing known here is like: the file may be meant for somebody else.
    pub strangers: usize,
}

impl Error {
    pub(crate) fn of(problem: Finding) -> Self {
        Self { file: None, problems: vec![problem], missing: false, strangers: 0 }
    }

    pub(crate) fn in_file(self, file: &Path) -> Self {
        Self { file: Some(file.to_owned()), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let feed = if index == 0 { "" } else { "\n" };
            match &self.file {
                Some(file) => write!(f, "{feed}{}", problem.in_file(file))?,
                None => write!(f, "{feed}{problem}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_prints_one_line_for_each_problem() {
        let with_path = Finding { line: Some(3), path: "a.b[1]".into(), ..Finding::whole("must be text") };
        let syntax = Finding { line: Some(4), column: Some(7), ..Finding::whole("not valid YAML") };
        let error = Error {
            problems: vec![with_path, syntax, Finding::whole("odd")],
            ..Error::of(Finding::whole(""))
        };
        assert_eq!(error.to_string(), "line 3: a.b[1]: must be text\nline 4, column 7: not valid YAML\nodd");
        assert_eq!(
            error.in_file(Path::new("/etc/n.yaml")).to_string(),
            "/etc/n.yaml:3: a.b[1]: must be text\n/etc/n.yaml:4:7: not valid YAML\n/etc/n.yaml: odd"
        );
    }
}
