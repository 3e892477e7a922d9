//! The values that an operator gives to skills: found when they are needed, shown to nobody.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use weft_core::entries::Secret;

use crate::{host::Environment, platform, report::shown_path};

/// Largest file that a value is read from, in bytes.
const FILE: u64 = 64 * 1024;
/// Longest value, in bytes.
const VALUE: usize = 32_768;

/// Why a secret has no value now. Says where it should come from, and nothing of what it is.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The node has no such variable.
    #[error("the variable {0} of the node is not set")]
    Unset(String),
    /// The file cannot be read.
    #[error("the file {}: {source}", shown_path(.path))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is larger than any value can be.
    #[error("the file {} has more than {FILE} bytes", shown_path(.path))]
    LargeFile {
        /// The file.
        path: PathBuf,
    },
    /// It is longer than a variable may be.
    #[error("the value has more than {VALUE} bytes")]
    Long,
    /// No variable can hold it.
    #[error("the value has a NUL byte in it")]
    Nul,
    /// There is nothing in it, where the skill needs something.
    #[error("the value is blank")]
    Blank,
}

/// The value of a secret now. It may be blank, which counts as if it had not been given: see [`is_blank`]. Blocks
/// while it reads a file, which it does anew each time.
///
/// # Errors
/// When there is no value, or none that a variable could have.
pub fn resolve(secret: &Secret, environment: &Environment) -> Result<OsString, SecretError> {
    let value = match secret {
        Secret::Plain(value) => OsString::from(value),
        Secret::Variable(name) => match environment.get(name) {
            Some(value) => value.to_owned(),
            None => return Err(SecretError::Unset(name.clone())),
        },
        Secret::File(path) => OsString::from_vec(read(path)?),
    };
    if value.len() > VALUE {
        return Err(SecretError::Long);
    }
    if value.as_bytes().contains(&0) {
        return Err(SecretError::Nul);
    }
    Ok(value)
}

/// Whether a value says nothing.
pub fn is_blank(value: &OsStr) -> bool {
    value.to_string_lossy().trim().is_empty()
}

/// The content of a file without the end of its last line.
fn read(path: &Path) -> Result<Vec<u8>, SecretError> {
    let unreadable = |source| SecretError::File { path: path.to_owned(), source };
    // A mounted secret is a link, and the reader follows none.
    let target = path.canonicalize().map_err(unreadable)?;
    let (content, _) = platform::read_regular(&target, FILE).map_err(unreadable)?;
    let Some(mut content) = content else { return Err(SecretError::LargeFile { path: path.to_owned() }) };
    if content.last() == Some(&b'\n') {
        content.pop();
        if content.last() == Some(&b'\r') {
            content.pop();
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn file(path: &Path) -> Result<OsString, SecretError> {
        resolve(&Secret::File(path.to_owned()), &Environment::default())
    }

    #[test]
    fn a_value_comes_from_the_configuration_a_variable_or_a_file() {
        let environment: Environment = [("TOKEN", "from the node"), ("EMPTY", "")].into_iter().collect();
        let value = |secret| resolve(&secret, &environment).unwrap();
        assert_eq!(value(Secret::Plain("x".into())), "x");
        assert_eq!(value(Secret::Variable("TOKEN".into())), "from the node");
        assert!(is_blank(&value(Secret::Variable("EMPTY".into()))));
        let unset = resolve(&Secret::Variable("UNSET".into()), &environment).unwrap_err();
        assert_eq!(unset.to_string(), "the variable UNSET of the node is not set");
    }

    #[test]
    fn a_file_is_read_anew_each_time_without_the_end_of_its_last_line() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("..data"), directory.path().join("token"));
        symlink("..data", &link).unwrap();
        for (content, value) in
            [("a", "a"), ("b\n", "b"), ("c\r\n", "c"), ("d\n\n", "d\n"), ("", ""), (" e ", " e ")]
        {
            fs::write(&path, content).unwrap();
            assert_eq!(file(&link).unwrap(), value, "{content:?}");
        }
    }

    #[test]
    fn what_no_variable_can_hold_is_refused_and_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "hunter2\0").unwrap();
        assert!(matches!(file(&path), Err(SecretError::Nul)));
        fs::write(&path, "x".repeat(VALUE)).unwrap();
        assert_eq!(file(&path).unwrap().len(), VALUE);
        fs::write(&path, "x".repeat(VALUE + 1)).unwrap();
        assert!(matches!(file(&path), Err(SecretError::Long)));
        fs::write(&path, "x".repeat(FILE as usize + 1)).unwrap();
        assert!(matches!(file(&path), Err(SecretError::LargeFile { .. })));
        let long = Secret::Plain("hunter2".repeat(VALUE));
        let error = resolve(&long, &Environment::default()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn a_fifo_or_a_directory_is_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [fifo.as_path(), directory.path(), &directory.path().join("none")] {
            let error = file(path).unwrap_err();
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }
}
