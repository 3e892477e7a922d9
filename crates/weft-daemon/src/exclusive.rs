//! A directory that one process uses at a time.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Why a directory cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ExclusiveError {
    /// Another process has it.
    #[error("another process uses the state directory {0}; give each one of its own with --state-dir")]
    InUse(PathBuf),
    /// The operating system refuses.
    #[error("cannot use the state directory {path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

/// A directory that this process alone uses, for as long as this lives.
#[derive(Debug)]
pub struct Exclusive {
    path: PathBuf,
    _lock: File,
}

impl Exclusive {
    /// Takes a directory, making it, for its owner alone, if needed. Blocks on the file system.
    ///
    /// # Errors
    /// When another process has it, or the operating system refuses.
    pub fn take(path: &Path) -> Result<Self, ExclusiveError> {
        let failed = |path: &Path, source| ExclusiveError::Io { path: path.to_owned(), source };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|source| failed(path, source))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path);
        let lock = lock.map_err(|source| failed(&lock_path, source))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(ExclusiveError::InUse(path.to_owned())),
            Err(errno) => Err(failed(&lock_path, errno.into())),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_one_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = Exclusive::take(&path).unwrap();
        assert!(matches!(Exclusive::take(&path), Err(ExclusiveError::InUse(_))));
        drop(first);
        assert_eq!(Exclusive::take(&path).unwrap().path(), path);
    }
}
