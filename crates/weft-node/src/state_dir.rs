//! The state directory: who this node is, that it is alone, and what its last life may have left running.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use weft_core::ids::NodeId;
use weft_daemon::{Exclusive, ExclusiveError};
use weft_exec::Mark;

/// How long processes that an earlier life left may take to be gone.
const SWEEP: Duration = Duration::from_secs(10);

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// It cannot be taken.
    #[error(transparent)]
    Exclusive(#[from] ExclusiveError),
    /// The operating system refuses.
    #[error("cannot use the state directory {path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The identity in it was damaged.
    #[error("{path} does not hold a node id: {message}; remove the file to make a new identity")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// A state directory that this process alone uses, for as long as this lives.
#[derive(Debug)]
pub(crate) struct StateDir(Exclusive);

impl StateDir {
    /// Takes a state directory, making it if needed.
    pub(crate) fn take(path: &Path) -> Result<Self, StateDirError> {
        Ok(Self(Exclusive::take(path)?))
    }

    /// The identity kept here, made at the first use.
    pub(crate) fn node_id(&self) -> Result<NodeId, StateDirError> {
        let path = self.0.path().join("node-id");
        let mut file = open(&path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|source| StateDirError::Io { path: path.clone(), source })?;
        if text.trim().is_empty() {
            text = format!("n-{}", uuid::Uuid::now_v7().simple());
            write(&mut file, &path, &text)?;
        }
        text.trim().parse().map_err(|error| StateDirError::Damaged { path, message: format!("{error}") })
    }

    /// Ends what an earlier life of this node left running, and notes how to find what this one starts.
    pub(crate) fn sweep_children(&self, ours: &Mark) -> Result<(), StateDirError> {
        let path = self.0.path().join("children");
        let mut file = open(&path)?;
        let failed = |source| StateDirError::Io { path: path.clone(), source };
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        match text.trim().parse::<Mark>() {
            Ok(mark) => {
                let swept = mark.sweep(SWEEP).map_err(failed)?;
                if swept.killed > 0 || !swept.left.is_empty() {
                    tracing::warn!(
                        killed = swept.killed,
                        left = ?swept.left,
                        "ended processes of skills that an earlier life of this node left running"
                    );
                }
            }
            Err(_) if text.trim().is_empty() => {}
            Err(error) => tracing::warn!(path = %path.display(), %error, "ignoring a damaged file"),
        }
        write(&mut file, &path, &ours.to_string())
    }
}

fn open(path: &Path) -> Result<File, StateDirError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|source| StateDirError::Io { path: path.to_owned(), source })
}

/// Replaces the content of an open file, on disk before this returns.
fn write(file: &mut File, path: &Path, text: &str) -> Result<(), StateDirError> {
    (|| {
        file.rewind()?;
        file.set_len(0)?;
        writeln!(file, "{text}")?;
        file.sync_all()
    })()
    .map_err(|source| StateDirError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_identity_stays_and_two_nodes_cannot_share_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let first = StateDir::take(&path).unwrap();
        let id = first.node_id().unwrap();
        assert!(matches!(StateDir::take(&path), Err(StateDirError::Exclusive(ExclusiveError::InUse(_)))));
        drop(first);
        assert_eq!(StateDir::take(&path).unwrap().node_id().unwrap(), id);
    }

    #[test]
    fn a_damaged_identity_is_said_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("node-id"), "../../etc").unwrap();
        let state = StateDir::take(dir.path()).unwrap();
        assert!(matches!(state.node_id(), Err(StateDirError::Damaged { .. })));
    }
}
