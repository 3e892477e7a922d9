//! Reading a file of a skill for somebody elsewhere: what its instructions refer to lies beside them.

use std::{
    io,
    path::{Component, Path},
};

use weft_core::limits;

use crate::{
    digest::{Bounds, Listing},
    inventory::Copy,
    platform,
};

/// Why a file of a skill cannot be read. The messages are for whoever asked: they say nothing of the host.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The path is not that of a file below the directory.
    #[error("the path is not a plain one below the skill's directory")]
    NotPlain,
    /// There is none.
    #[error("there is no such file")]
    NotFound,
    /// It is there, and no part of the skill: its digest does not cover it.
    #[error("it is no part of the skill: its digest leaves it out")]
    NotCovered,
    /// It lies elsewhere.
    #[error("it is a link that leaves the skill's directory")]
    Outside,
    /// It is a directory, or something else that has no content.
    #[error("it is not a regular file")]
    NotRegular,
    /// It has more bytes than can be read this way.
    #[error("it has more than {} bytes", limits::FILE_BYTES)]
    TooLarge,
    /// The files are not those that were asked for any more.
    #[error("the files of the skill have changed; look at the catalog again")]
    Changed,
    /// The system does not give it.
    #[error("it cannot be read: {}", .0.kind())]
    Io(#[source] io::Error),
}

impl Copy {
    /// The content of a file of the skill, which has the files that its digest names. Blocks on the file system.
    ///
    /// # Errors
    /// When there is no such file, it may not be read from elsewhere, or the files have changed.
    pub fn read_file(&self, path: &str) -> Result<Vec<u8>, ReadError> {
        let relative = Path::new(path);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || path.is_empty() || path.contains('\0') {
            return Err(ReadError::NotPlain);
        }
        let found = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::NotFound,
            _ => ReadError::Io(error),
        };
        let directory = self.directory.canonicalize().map_err(found)?;
        let file = directory.join(relative).canonicalize().map_err(found)?;
        if !file.starts_with(&directory) {
            return Err(ReadError::Outside);
        }
        if !file.metadata().map_err(found)?.is_file() {
            return Err(ReadError::NotRegular);
        }
        // What the digest leaves out (version control, other skills below this one) is nobody's business.
        let subject = self.subject(&directory);
        let listing = Listing::of(subject, Bounds::default()).map_err(found)?;
        if !listing.is_some_and(|listing| listing.has(relative)) {
            return Err(ReadError::NotCovered);
        }
        let content = platform::read_regular(&file, limits::FILE_BYTES).map_err(found)?.0;
        let content = content.ok_or(ReadError::TooLarge)?;
        // Afterwards: had it been another file's content, it would not have this digest.
        match self.digest_now() {
            Ok(digest) if digest == self.digest => Ok(content),
            Ok(_) => Err(ReadError::Changed),
            Err(error) => Err(ReadError::Io(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{Config, Loader, Source};

    #[test]
    fn files_of_the_skill_are_read_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let skill = root.path().join("s");
        fs::create_dir_all(skill.join("references")).unwrap();
        fs::write(skill.join("SKILL.md"), "---\nname: s\ndescription: d\n---\nsee references/x.md\n")
            .unwrap();
        fs::write(skill.join("references/x.md"), "more").unwrap();
        fs::write(skill.join("large"), vec![0; limits::FILE_BYTES as usize + 1]).unwrap();
        fs::write(root.path().join("secret"), "no").unwrap();
        symlink("../secret", skill.join("out")).unwrap();
        symlink("references/x.md", skill.join("in")).unwrap();
        fs::create_dir_all(skill.join(".git")).unwrap();
        fs::write(skill.join(".git/config"), "no").unwrap();
        fs::create_dir_all(skill.join("inner")).unwrap();
        fs::write(skill.join("inner/SKILL.md"), "---\nname: inner\ndescription: d\n---\n").unwrap();
        let inventory = Loader::new(Config::new(vec![Source::managed(root.path())])).load(None);
        let copy = inventory.copies.iter().find(|copy| copy.definition.name == "s").unwrap();
        assert_eq!(copy.read_file("references/x.md").unwrap(), b"more");
        assert_eq!(copy.read_file("in").unwrap(), b"more");
        assert!(matches!(copy.read_file("out"), Err(ReadError::Outside)));
        assert!(matches!(copy.read_file("references"), Err(ReadError::NotRegular)));
        assert!(matches!(copy.read_file("large"), Err(ReadError::TooLarge)));
        for path in [".git/config", "inner/SKILL.md"] {
            assert!(matches!(copy.read_file(path), Err(ReadError::NotCovered)), "{path}");
        }
        assert!(matches!(copy.read_file("gone"), Err(ReadError::NotFound)));
        assert!(matches!(copy.read_file("SKILL.md/x"), Err(ReadError::NotFound)));
        for path in ["", "../secret", "/etc/passwd", "references/../../secret", "./SKILL.md", "a\0b"] {
            assert!(matches!(copy.read_file(path), Err(ReadError::NotPlain)), "{path:?}");
        }
        fs::write(skill.join("references/x.md"), "other").unwrap();
        assert!(matches!(copy.read_file("references/x.md"), Err(ReadError::Changed)));
    }
}
