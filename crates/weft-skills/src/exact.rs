//! Read-only copies of exactly one digest, for calls that must run what was seen and nothing else.
//!
//! Dangerous, approved and pinned calls start from such a copy. It is made at first use, file by file, while the
//! digest is taken over the very bytes that are written; another digest, and there is no copy. Later uses look at
//! the stamp of every file: what somebody touched is made anew.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest as _, Sha256};
use weft_core::ids::Digest;

use crate::{
    digest::{self, Bounds, Item, Listing},
    inventory::Copy,
    platform::{self, FileStamp},
};

/// Why there is no exact copy.
#[derive(Debug, thiserror::Error)]
pub enum ExactError {
    /// The digest leaves out something that the entry may run.
    #[error(
        "its digest is partial: it leaves out files that the skill may run, so an exact copy cannot be made; move them \
         out of the skill's directory, or into a place where they count"
    )]
    Partial,
    /// The skill has nothing to start.
    #[error("it has no entry")]
    NoEntry,
    /// The files are not those of the digest any more.
    #[error("the files now have digest {0}")]
    Changed(Digest),
    /// The files cannot be read, or the copy cannot be written.
    #[error("cannot copy {path}: {source}")]
    Io {
        /// What was copied.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

/// A read-only copy of the files of one digest. It stays on disk as long as somebody holds it.
#[derive(Debug)]
pub struct Exact {
    /// Where the child starts.
    pub directory: PathBuf,
    /// The file to start.
    pub entry: PathBuf,
    /// Every file of the copy, as it was left.
    stamps: Vec<(PathBuf, FileStamp)>,
}

impl Exact {
    fn is_untouched(&self) -> bool {
        self.stamps.iter().all(|(path, stamp)| {
            path.symlink_metadata().is_ok_and(|metadata| FileStamp::of(&metadata) == *stamp)
        })
    }
}

/// The exact copies of one node, in a directory of its own.
#[derive(Debug)]
pub struct ExactCopies {
    directory: PathBuf,
    made: Mutex<HashMap<Digest, Arc<Exact>>>,
}

impl ExactCopies {
    /// Takes a directory that nobody else uses. What is in it is removed: copies are cheap to make, and nobody
    /// watched them meanwhile.
    ///
    /// # Errors
    /// When the directory cannot be emptied or made.
    pub fn open(directory: PathBuf) -> io::Result<Self> {
        remove(&directory)?;
        fs::create_dir_all(&directory)?;
        fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        Ok(Self { directory, made: Mutex::default() })
    }

    fn made(&self) -> MutexGuard<'_, HashMap<Digest, Arc<Exact>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copy of a skill's files, made if need be. Blocks on the file system; two callers of one digest make it
    /// once.
    ///
    /// # Errors
    /// When the files are not those of the skill's digest, or cannot be copied.
    pub fn obtain(&self, copy: &Copy) -> Result<Arc<Exact>, ExactError> {
        if copy.partial {
            return Err(ExactError::Partial);
        }
        // Held while a copy is made: it is rare, and two at once would only race for the same directory.
        let mut made = self.made();
        if let Some(exact) = made.get(&copy.digest) {
            if exact.is_untouched() {
                return Ok(exact.clone());
            }
            tracing::warn!(skill = %copy.definition.key, path = %exact.directory.display(), "an exact copy was touched; making it anew");
            made.remove(&copy.digest);
        }
        let exact = Arc::new(self.make(copy)?);
        made.insert(copy.digest, exact.clone());
        Ok(exact)
    }

    /// Removes the copies that are neither used now nor named.
    pub fn retain(&self, named: &HashSet<Digest>) {
        let mut made = self.made();
        made.retain(|digest, exact| {
            let keep = named.contains(digest) || Arc::strong_count(exact) > 1;
            if !keep && let Err(error) = remove(&exact.directory) {
                tracing::warn!(path = %exact.directory.display(), %error, "cannot remove an exact copy");
            }
            keep
        });
    }

    fn make(&self, copy: &Copy) -> Result<Exact, ExactError> {
        let failed = |path: &Path, source| ExactError::Io { path: path.to_owned(), source };
        let source = copy.directory.canonicalize().map_err(|error| failed(&copy.directory, error))?;
        let entry = copy.entry.as_deref().ok_or(ExactError::NoEntry)?;
        let relative = entry.strip_prefix(&source).map_err(|_| ExactError::Partial)?;
        let to = self.directory.join(copy.digest.to_string().trim_start_matches("sha256:"));
        remove(&to).and_then(|()| fs::create_dir(&to)).map_err(|error| failed(&to, error))?;
        let listing = Listing::of(copy.subject(&source), Bounds::default())
            .map_err(|error| failed(&source, error))?
            .ok_or(ExactError::Partial)?;
        let digest = write(&listing, &to)?;
        if digest != copy.digest {
            let _ = remove(&to);
            return Err(ExactError::Changed(digest));
        }
        let stamps = seal(&to).map_err(|error| failed(&to, error))?;
        Ok(Exact { entry: to.join(relative), directory: to, stamps })
    }
}

/// Writes every listed file below `to` and digests the bytes that are written.
fn write(listing: &Listing<'_>, to: &Path) -> Result<Digest, ExactError> {
    let mut hash = Sha256::new();
    digest::begin(&mut hash);
    for (path, item) in listing.items() {
        let relative = Path::new(OsStr::from_bytes(path));
        let target = to.join(relative);
        let failed = |source| ExactError::Io { path: relative.to_owned(), source };
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        digest::field(&mut hash, path);
        match item {
            Item::File(file) => copy_file(&mut hash, file, &target).map_err(failed)?,
            Item::Link { text, file } => {
                hash.update(b"l");
                digest::field(&mut hash, text);
                match file {
                    // A link would lead to files that may change; the copy holds what it leads to now.
                    Some(file) => copy_file(&mut hash, file, &target).map_err(failed)?,
                    None => symlink(OsStr::from_bytes(text), &target).map_err(failed)?,
                }
            }
            // Nothing that a program reads as a file.
            Item::Special => hash.update(b"s"),
            Item::Closed => return Err(ExactError::Partial),
        }
    }
    Ok(Digest::from_bytes(hash.finalize().into()))
}

fn copy_file(hash: &mut Sha256, from: &Path, to: &Path) -> io::Result<()> {
    let (file, metadata) = platform::open_regular(from)?;
    let mode = platform::mode_that_matters(&metadata);
    // Not to the end, as for the digest: a log that grows while it is read would have none.
    let mut source = file.take(metadata.len());
    let mut target = File::create_new(to)?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        sum.update(&buffer[..read]);
        target.write_all(&buffer[..read])?;
    }
    hash.update(b"f");
    digest::content_of(hash, mode, &sum.finalize().into());
    let execute = if mode & 0o111 != 0 { 0o111 } else { 0 };
    target.set_permissions(Permissions::from_mode(0o444 | execute))
}

/// Takes the write bits off every directory, and notes what each file looks like now.
fn seal(directory: &Path) -> io::Result<Vec<(PathBuf, FileStamp)>> {
    let mut stamps = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let metadata = path.symlink_metadata()?;
        if metadata.is_dir() {
            stamps.extend(seal(&path)?);
        } else {
            stamps.push((path, FileStamp::of(&metadata)));
        }
    }
    fs::set_permissions(directory, Permissions::from_mode(0o555))?;
    Ok(stamps)
}

/// Removes a copy, which nobody may write to. That there is none is fine.
fn remove(directory: &Path) -> io::Result<()> {
    match open_up(directory).and_then(|()| fs::remove_dir_all(directory)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn open_up(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        loader::{Config, Loader},
        source::Source,
    };

    fn skill(root: &Path, program: &str) -> PathBuf {
        let dir = root.join("exact");
        fs::create_dir_all(dir.join("data")).unwrap();
        fs::write(dir.join("run"), program).unwrap();
        fs::set_permissions(dir.join("run"), Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.join("data/file"), "one").unwrap();
        let link = dir.join("link");
        if link.symlink_metadata().is_err() {
            symlink("data/file", link).unwrap();
        }
        fs::write(
            dir.join("skill.json"),
            r#"{"name":"exact","description":"d","entry":"run","class":"safe"}"#,
        )
        .unwrap();
        dir
    }

    fn load(root: &Path) -> Arc<Copy> {
        let inventory = Loader::new(Config::new(vec![Source::managed(root)])).load(None);
        assert_eq!(inventory.copies.len(), 1, "{:?}", inventory.diagnostics);
        inventory.copies[0].clone()
    }

    #[test]
    fn a_copy_holds_what_was_loaded_whatever_happens_to_the_original() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = skill(root.path(), "#!/bin/sh\n");
        let copies = ExactCopies::open(state.path().join("exact")).unwrap();
        let loaded = load(root.path());
        let exact = copies.obtain(&loaded).unwrap();
        fs::write(dir.join("data/file"), "two").unwrap();
        assert_eq!(fs::read_to_string(exact.directory.join("data/file")).unwrap(), "one");
        assert_eq!(fs::read_to_string(exact.directory.join("link")).unwrap(), "one");
        assert_eq!(exact.entry.metadata().unwrap().permissions().mode() & 0o777, 0o555);
        assert_eq!(exact.directory.join("data/file").metadata().unwrap().permissions().mode() & 0o777, 0o444);
        assert!(Arc::ptr_eq(&exact, &copies.obtain(&loaded).unwrap()), "made once");
    }

    #[test]
    fn files_that_changed_before_the_copy_are_refused_and_leave_nothing() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = skill(root.path(), "#!/bin/sh\n");
        let copies = ExactCopies::open(state.path().join("exact")).unwrap();
        let loaded = load(root.path());
        fs::write(dir.join("data/file"), "two").unwrap();
        assert!(matches!(copies.obtain(&loaded), Err(ExactError::Changed(_))));
        assert_eq!(fs::read_dir(state.path().join("exact")).unwrap().count(), 0);
    }

    #[test]
    fn a_copy_that_somebody_touched_is_made_anew() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        skill(root.path(), "#!/bin/sh\n");
        let copies = ExactCopies::open(state.path().join("exact")).unwrap();
        let loaded = load(root.path());
        let exact = copies.obtain(&loaded).unwrap();
        open_up(&exact.directory).unwrap();
        fs::set_permissions(&exact.entry, Permissions::from_mode(0o755)).unwrap();
        fs::write(&exact.entry, "#!/bin/sh\necho evil\n").unwrap();
        drop(exact);
        let again = copies.obtain(&loaded).unwrap();
        assert_eq!(fs::read_to_string(&again.entry).unwrap(), "#!/bin/sh\n");
    }

    #[test]
    fn copies_that_nobody_names_go_and_a_new_life_begins_empty() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        skill(root.path(), "#!/bin/sh\n");
        let home = state.path().join("exact");
        let copies = ExactCopies::open(home.clone()).unwrap();
        let loaded = load(root.path());
        let exact = copies.obtain(&loaded).unwrap();
        copies.retain(&HashSet::new());
        assert!(exact.entry.exists(), "in use");
        drop(exact);
        copies.retain(&HashSet::from([loaded.digest]));
        assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
        drop(ExactCopies::open(home.clone()).unwrap());
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
    }

    #[test]
    fn a_partial_digest_has_no_exact_copy() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = skill(root.path(), "#!/bin/sh\n");
        fs::create_dir(dir.join("node_modules")).unwrap();
        fs::write(dir.join("node_modules/x.js"), "").unwrap();
        let copies = ExactCopies::open(state.path().join("exact")).unwrap();
        assert!(matches!(copies.obtain(&load(root.path())), Err(ExactError::Partial)));
    }
}
