//! Reading manifests: bounded, below the root only, without waiting, and once for each state of a file.

use std::{collections::HashMap, io, path::Path, sync::Arc, time::SystemTime};

use weft_core::limits;

use crate::{
    frontmatter::Document,
    manifest::{Manifest, Refusal},
    platform::{self, FileStamp},
    report::{Problem, shown_path},
};

/// Files that were read and understood, by stamp, so that a rescan does not compile every schema again.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) manifests: Parsed<Manifest>,
    pub(crate) documents: Parsed<Document>,
}

impl Files {
    /// Ends a load: what it did not read is forgotten.
    pub(crate) fn turn(&mut self) {
        self.manifests.turn();
        self.documents.turn();
    }
}

/// What files of one kind say.
#[derive(Debug)]
pub(crate) struct Parsed<T> {
    known: HashMap<FileStamp, Arc<T>>,
    used: HashMap<FileStamp, Arc<T>>,
}

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), used: HashMap::new() }
    }
}

impl<T> Parsed<T> {
    pub(crate) fn turn(&mut self) {
        self.known = std::mem::take(&mut self.used);
    }

    /// Reads a file below `root` and parses it, unless that was done before.
    pub(crate) fn read(
        &mut self,
        path: &Path,
        root: &Path,
        parse: impl FnOnce(&[u8]) -> Result<T, Refusal>,
    ) -> (Option<FileStamp>, Result<Arc<T>, Refusal>) {
        let unreadable = |error: &io::Error| Refusal::of(Problem::error("file", error.to_string()));
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error) => return (None, Err(unreadable(&error))),
        };
        if !target.starts_with(root) {
            let message =
                format!("the file {} escapes allowlist root {}", shown_path(&target), shown_path(root));
            return (None, Err(Refusal::of(Problem::error("file", message))));
        }
        if let Ok(metadata) = target.symlink_metadata() {
            let stamp = FileStamp::of(&metadata);
            if let Some(value) = self.used.get(&stamp).or_else(|| self.known.get(&stamp)).cloned() {
                self.used.insert(stamp, Arc::clone(&value));
                return (Some(stamp), Ok(value));
            }
        }
        let now = SystemTime::now();
        let (content, stamp) = match platform::read_regular(&target, limits::MANIFEST_BYTES) {
            Ok(read) => read,
            Err(error) => return (None, Err(unreadable(&error))),
        };
        let Some(content) = content else {
            let message = format!("the file is larger than {} bytes", limits::MANIFEST_BYTES);
            return (Some(stamp), Err(Refusal::of(Problem::error("file", message))));
        };
        let parsed = parse(&content).map(Arc::new);
        if let Ok(value) = &parsed
            && stamp.settled(now)
        {
            self.used.insert(stamp, Arc::clone(value));
        }
        (Some(stamp), parsed)
    }
}
