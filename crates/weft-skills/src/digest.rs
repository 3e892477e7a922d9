//! The digest of a skill: SHA-256 over its files, so that the same files give the same digest on every host.
//!
//! Each file counts with its path, the bits of its mode that matter, and the SHA-256 of its raw bytes. A link
//! counts with its text, and with the file it leads to while that is under the root. Nested skills, pruned
//! trees, compiled Python and what the manifest ignores are left out; where an entry could run what is left
//! out, the digest is *partial*.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, fs, io,
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use sha2::{Digest as _, Sha256};
use weft_core::{ids::Digest, limits};

use crate::{
    frontmatter, manifest,
    platform::{self, FileStamp},
    walk::{Tree, bytes, tree},
};

/// What to digest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// The source's root, links resolved.
    pub(crate) root: &'a Path,
    /// The skill's directory, links resolved.
    pub(crate) directory: &'a Path,
    /// The entry, links resolved.
    pub(crate) entry: Option<&'a Path>,
    pub(crate) ignore: &'a Ignore,
}

/// A digest, and whether something that the entry may run is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digested {
    pub(crate) digest: Digest,
    pub(crate) partial: bool,
}

/// Bounds on the files of one skill.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes: u64,
    pub(crate) files: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes: limits::DIGEST_BYTES, files: limits::DIGEST_FILES }
    }
}

/// Digests of files by their stamp, shared between a loader and the copies it made. What was not used from the
/// end of one load to the end of the next is forgotten. The lock is never held while a file is read.
#[derive(Clone, Default)]
pub(crate) struct Cache(Arc<Mutex<Sums>>);

#[derive(Default)]
struct Sums {
    known: HashMap<FileStamp, [u8; 32]>,
    used: HashMap<FileStamp, [u8; 32]>,
    /// How many files were read to the end.
    #[cfg(test)]
    read: usize,
}

/// Most files that are remembered, about 30 MB; more are read each time. A file that changes all the time would
/// fill the memory of a node that never loads again.
const MOST_SUMS: usize = 1 << 17;

impl Cache {
    /// Ends a load.
    pub(crate) fn turn(&self) {
        let mut sums = self.sums();
        sums.known = std::mem::take(&mut sums.used);
    }

    /// Nothing in here panics while it holds the lock.
    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_up(&self, stamp: FileStamp) -> Option<[u8; 32]> {
        let mut sums = self.sums();
        let sum = sums.used.get(&stamp).or_else(|| sums.known.get(&stamp)).copied()?;
        sums.used.insert(stamp, sum);
        Some(sum)
    }

    fn file(&self, path: &Path) -> io::Result<(u32, [u8; 32])> {
        let metadata = path.symlink_metadata()?;
        if let Some(sum) = self.look_up(FileStamp::of(&metadata)) {
            return Ok((platform::mode_that_matters(&metadata), sum));
        }
        let now = SystemTime::now();
        let (file, metadata) = platform::open_regular(path)?;
        let stamp = FileStamp::of(&metadata);
        let mode = platform::mode_that_matters(&metadata);
        let mut hash = Sha256::new();
        // Not to the end: a log that grows while it is read would have none.
        let mut content = (&file).take(metadata.len());
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => hash.update(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let sum = hash.finalize().into();
        let same = stamp.settled(now) && FileStamp::of(&file.metadata()?) == stamp;
        let mut sums = self.sums();
        #[cfg(test)]
        {
            sums.read += 1;
        }
        if same && sums.used.len() < MOST_SUMS {
            sums.used.insert(stamp, sum);
        }
        Ok((mode, sum))
    }

    #[cfg(test)]
    pub(crate) fn files_read(&self) -> usize {
        self.sums().read
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

/// A cache never changes an answer, so two values that differ in it alone are the same.
impl PartialEq for Cache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cache {}

/// Most tries for files that come and go while they are read, as those of a running skill do.
const TRIES: usize = 3;

/// The digest of a skill's files.
pub(crate) fn digest(subject: Subject<'_>, bounds: Bounds, cache: &Cache) -> io::Result<Digested> {
    let mut tries = 1;
    loop {
        match attempt(subject, bounds, cache) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES => tries += 1,
            outcome => return outcome,
        }
    }
}

fn attempt(subject: Subject<'_>, bounds: Bounds, cache: &Cache) -> io::Result<Digested> {
    let mut listing = Listing::new(subject, bounds);
    if listing.read()? {
        return listing.sum(cache);
    }
    // Too much: what decides how the skill runs still counts.
    listing.items.clear();
    listing.partial = true;
    for name in [manifest::NAME, frontmatter::NAME] {
        let path = subject.directory.join(name);
        if path.is_file() {
            listing.items.insert(name.as_bytes().to_vec(), Item::File(path.canonicalize()?));
        }
    }
    listing.sum(cache)
}

/// One entry that counts.
pub(crate) enum Item {
    File(PathBuf),
    /// Its text, and the file it leads to while that is under the root.
    Link {
        text: Vec<u8>,
        file: Option<PathBuf>,
    },
    /// A FIFO, socket or device.
    Special,
    /// A directory that this process may not read.
    Closed,
}

/// The entries that count, by path.
pub(crate) struct Listing<'a> {
    subject: Subject<'a>,
    bounds: Bounds,
    bytes: u64,
    /// By path relative to the directory, with `/` between components.
    items: BTreeMap<Vec<u8>, Item>,
    directories: usize,
    partial: bool,
}

impl<'a> Listing<'a> {
    fn new(subject: Subject<'a>, bounds: Bounds) -> Self {
        Self { subject, bounds, bytes: 0, items: BTreeMap::new(), directories: 0, partial: false }
    }

    /// The files of a skill; `None` when there are too many to count them all.
    pub(crate) fn of(subject: Subject<'a>, bounds: Bounds) -> io::Result<Option<Self>> {
        let mut listing = Self::new(subject, bounds);
        Ok(listing.read()?.then_some(listing))
    }

    /// Whether a path, relative to the directory, is that of a file, or of a link to one, whose content counts.
    pub(crate) fn has(&self, relative: &Path) -> bool {
        let item = self.items.get(&key(relative));
        matches!(item, Some(Item::File(_) | Item::Link { file: Some(_), .. }))
    }

    /// Each path, relative with `/` between components, and what stands there; in the order of the digest.
    pub(crate) fn items(&self) -> impl Iterator<Item = (&[u8], &Item)> {
        self.items.iter().map(|(path, item)| (path.as_slice(), item))
    }

    /// Lists the files. False when there are too many.
    fn read(&mut self) -> io::Result<bool> {
        let mut pending = vec![PathBuf::new()];
        while let Some(relative) = pending.pop() {
            self.directories += 1;
            if self.directories > self.bounds.files {
                return Ok(false);
            }
            let mut here = Vec::new();
            let mut nested = false;
            let entries = match fs::read_dir(self.subject.directory.join(&relative)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.partial = true;
                    self.items.insert(key(&relative), Item::Closed);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                let (name, kind) = (entry.file_name(), entry.file_type()?);
                nested |= (name == manifest::NAME || name == frontmatter::NAME) && !kind.is_dir();
                here.push((relative.join(&name), entry.path(), kind));
                if self.items.len() + here.len() > 2 * self.bounds.files {
                    return Ok(false);
                }
            }
            if nested && !relative.as_os_str().is_empty() {
                self.partial = true;
                continue;
            }
            for (relative, path, kind) in here {
                if let Some(below) = self.entry(relative, path, kind)? {
                    pending.push(below);
                }
                if self.items.len() > self.bounds.files || self.bytes > self.bounds.bytes {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Takes one entry in; a directory is handed back to be read.
    fn entry(&mut self, relative: PathBuf, path: PathBuf, kind: fs::FileType) -> io::Result<Option<PathBuf>> {
        let name = relative.file_name().unwrap_or_default().to_string_lossy();
        match tree(&name) {
            Tree::Versions if !kind.is_file() => return Ok(None),
            Tree::Pruned if !kind.is_file() => {
                self.partial = true;
                return Ok(None);
            }
            Tree::Scratch if !kind.is_file() => return Ok(None),
            _ => {}
        }
        let is_manifest = relative == Path::new(manifest::NAME) || relative == Path::new(frontmatter::NAME);
        if self.subject.ignore.matches(&relative) && !is_manifest {
            self.partial = true;
            return Ok(None);
        }
        if kind.is_dir() {
            return Ok(Some(relative));
        }
        if name.ends_with(".pyc") {
            return Ok(None);
        }
        let item = if kind.is_symlink() {
            self.link(&path)?
        } else if kind.is_file() {
            self.bytes += path.symlink_metadata()?.len();
            Item::File(path)
        } else {
            Item::Special
        };
        self.items.insert(key(&relative), item);
        Ok(None)
    }

    fn link(&mut self, path: &Path) -> io::Result<Item> {
        let text = bytes(&fs::read_link(path)?).to_vec();
        let file = match path.canonicalize() {
            // Leads nowhere: there is nothing to run.
            Err(_) => None,
            Ok(target) if !target.starts_with(self.subject.root) => {
                self.partial = true;
                None
            }
            Ok(target) => match target.symlink_metadata() {
                Ok(metadata) if metadata.is_file() => {
                    self.bytes += metadata.len();
                    Some(target)
                }
                _ => {
                    self.partial |= !self.lists(&target);
                    None
                }
            },
        };
        Ok(Item::Link { text, file })
    }

    /// Whether the files of a directory are listed under its own path.
    fn lists(&self, directory: &Path) -> bool {
        directory.strip_prefix(self.subject.directory).is_ok_and(|relative| {
            relative.components().all(|name| tree(&name.as_os_str().to_string_lossy()) == Tree::Plain)
        })
    }

    fn sum(mut self, cache: &Cache) -> io::Result<Digested> {
        let mut hash = Sha256::new();
        begin(&mut hash);
        for (path, item) in &self.items {
            field(&mut hash, path);
            match item {
                Item::File(file) => content(&mut hash, b'f', file, cache, &mut self.partial)?,
                Item::Link { text, file } => {
                    hash.update(b"l");
                    field(&mut hash, text);
                    if let Some(file) = file {
                        content(&mut hash, b'f', file, cache, &mut self.partial)?;
                    }
                }
                Item::Special => hash.update(b"s"),
                Item::Closed => hash.update(b"u"),
            }
        }
        // The entry always counts, also when it lies elsewhere or in a tree that is left out.
        if let Some(entry) = self.subject.entry {
            let relative = entry.strip_prefix(self.subject.directory);
            self.partial |= relative.is_err();
            let listed =
                relative.is_ok_and(|relative| matches!(self.items.get(&key(relative)), Some(Item::File(_))));
            if !listed {
                content(&mut hash, b'e', entry, cache, &mut self.partial)?;
            }
        }
        Ok(Digested { digest: Digest::from_bytes(hash.finalize().into()), partial: self.partial })
    }
}

fn content(hash: &mut Sha256, kind: u8, file: &Path, cache: &Cache, partial: &mut bool) -> io::Result<()> {
    match cache.file(file) {
        Ok((mode, sum)) => {
            hash.update([kind]);
            content_of(hash, mode, &sum);
            Ok(())
        }
        // What this process may not read, its children may run all the same.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            hash.update(b"u");
            *partial = true;
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// What every digest of a skill begins with.
pub(crate) fn begin(hash: &mut Sha256) {
    hash.update(b"weft-skill-v1\n");
}

/// A file's mode and the sum of its bytes.
pub(crate) fn content_of(hash: &mut Sha256, mode: u32, sum: &[u8; 32]) {
    hash.update(mode.to_le_bytes());
    hash.update(sum);
}

/// With its length first, so that no two lists of fields have the same bytes.
pub(crate) fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

fn key(relative: &Path) -> Vec<u8> {
    let mut key = Vec::new();
    for component in relative.components() {
        if !key.is_empty() {
            key.push(b'/');
        }
        key.extend_from_slice(component.as_os_str().as_encoded_bytes());
    }
    key
}

/// The `digest_ignore` of a manifest: paths relative to the skill's directory. `*` stands for any run of
/// characters within a name; a pattern without `/` means that name at any depth; a directory means all below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ignore(Vec<Vec<String>>);

impl Ignore {
    /// Fails with the pattern that is not relative or blank.
    pub(crate) fn compile(patterns: &[String]) -> Result<Self, String> {
        let mut compiled = Vec::new();
        for pattern in patterns {
            let names: Vec<String> = pattern.trim_end_matches('/').split('/').map(str::to_owned).collect();
            let names = match names.split_first() {
                Some((first, rest)) if first == "." && !rest.is_empty() => rest.to_vec(),
                _ => names,
            };
            if names.iter().any(|name| name.trim().is_empty() || name == "." || name == "..") {
                return Err(pattern.clone());
            }
            // The slash at the end or the dot at the start binds a single name to the top.
            let anchored = names.len() > 1 || pattern.contains('/');
            compiled.push(if anchored { names } else { [String::new()].into_iter().chain(names).collect() });
        }
        Ok(Self(compiled))
    }

    fn matches(&self, relative: &Path) -> bool {
        let names: Vec<_> = relative.components().map(|name| name.as_os_str().to_string_lossy()).collect();
        self.0.iter().any(|pattern| match pattern.split_first() {
            Some((first, rest)) if first.is_empty() => {
                names.last().is_some_and(|name| rest.first().is_some_and(|pattern| like(pattern, name)))
            }
            _ => {
                names.len() == pattern.len()
                    && pattern.iter().zip(&names).all(|(pattern, name)| like(pattern, name))
            }
        })
    }
}

/// Whether a name fits a pattern with `*`. Linear but for one step back per star.
fn like(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            n = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use proptest::prelude::*;

    use super::*;

    fn write(root: &Path, relative: &str, content: &str) {
        let path = root.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn ignoring(root: &Path, patterns: &[&str]) -> Digested {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let ignore = Ignore::compile(&patterns).unwrap();
        let root = root.canonicalize().unwrap();
        let entry = root.join("run");
        let entry = entry.exists().then(|| entry.canonicalize().unwrap());
        let subject = Subject { root: &root, directory: &root, entry: entry.as_deref(), ignore: &ignore };
        digest(subject, Bounds::default(), &Cache::default()).unwrap()
    }

    fn plain(root: &Path) -> Digested {
        ignoring(root, &[])
    }

    #[test]
    fn the_same_files_elsewhere_have_the_same_digest() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (root, mode) in [(a.path(), 0o755), (b.path(), 0o700)] {
            write(root, "skill.json", "{}");
            write(root, "run", "x");
            write(root, "lib/a", "1");
            fs::set_permissions(root.join("run"), fs::Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(plain(a.path()), plain(b.path()));
        assert!(!plain(a.path()).partial);
    }

    #[test]
    fn what_nobody_wrote_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "run", "x");
        let before = plain(root);
        write(root, "__pycache__/a.pyc", "1");
        write(root, "lib.pyc", "1");
        write(root, ".git/HEAD", "1");
        assert_eq!(plain(root), before);
        write(root, "node_modules/x/index.js", "1");
        assert_eq!(plain(root).digest, before.digest);
        assert!(plain(root).partial);
    }

    #[test]
    fn nested_skills_are_left_out() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "run", "x");
        write(root, "group/a", "x");
        let before = plain(root);
        write(root, "group/nested/SKILL.md", "x");
        write(root, "group/nested/deep/file", "x");
        assert_eq!(plain(root).digest, before.digest);
        assert!(plain(root).partial);
        write(root, "group/a", "y");
        assert_ne!(plain(root).digest, before.digest);
    }

    #[test]
    fn ignored_files_are_left_out_and_make_the_digest_partial() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "run", "x");
        write(root, "a/keep.txt", "x");
        let before = plain(root);
        write(root, "a/x.log", "1");
        write(root, "tmp/deep/file", "1");
        write(root, "data/cache-1/file", "1");
        let after = ignoring(root, &["*.log", "tmp/", "./data/cache-*"]);
        assert_eq!(after.digest, before.digest);
        assert!(after.partial);
        assert_ne!(plain(root).digest, before.digest);
        // The entry counts whatever is ignored.
        let ignored = ignoring(root, &["run"]);
        write(root, "run", "y");
        assert_ne!(ignoring(root, &["run"]).digest, ignored.digest);
    }

    #[test]
    fn links_count_with_their_text_and_their_file() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("root");
        write(&root, "run", "x");
        write(&root, "..v1/lib", "1");
        write(&root, "..v2/lib", "2");
        symlink("..v1", root.join("..data")).unwrap();
        symlink("..data/lib", root.join("lib")).unwrap();
        let first = plain(&root);
        assert!(!first.partial);
        fs::remove_file(root.join("..data")).unwrap();
        symlink("..v2", root.join("..data")).unwrap();
        assert_ne!(plain(&root).digest, first.digest);
        write(temporary.path(), "outside", "x");
        symlink("../outside", root.join("out")).unwrap();
        let outside = plain(&root);
        assert!(outside.partial);
        write(temporary.path(), "outside", "y");
        assert_eq!(plain(&root), outside);
        symlink("nowhere", root.join("dangling")).unwrap();
        assert_ne!(plain(&root).digest, outside.digest);
    }

    #[test]
    fn a_link_to_a_directory_is_partial_unless_its_files_are_listed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "run", "x");
        write(root, "lib/a", "1");
        symlink("lib", root.join("same")).unwrap();
        symlink(".", root.join("loop")).unwrap();
        assert!(!plain(root).partial);
        write(root, "..v1/lib/a", "1");
        symlink("..v1/lib", root.join("versioned")).unwrap();
        assert!(plain(root).partial);
    }

    #[test]
    fn too_much_is_cut_to_manifest_and_entry() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for file in ["skill.json", "run", "a", "b", "c"] {
            write(&root, file, "0123456789");
        }
        let ignore = Ignore::default();
        let entry = root.join("run");
        let subject = Subject { root: &root, directory: &root, entry: Some(&entry), ignore: &ignore };
        let bounded = |bytes, files| digest(subject, Bounds { bytes, files }, &Cache::default()).unwrap();
        let full = bounded(50, 5);
        assert!(!full.partial);
        let cut = bounded(49, 5);
        assert!(cut.partial);
        assert_eq!(bounded(50, 4), cut);
        write(&root, "a", "9876543210");
        assert_eq!(bounded(49, 5), cut);
        write(&root, "run", "9876543210");
        assert_ne!(bounded(49, 5), cut);
    }

    #[test]
    fn a_fifo_does_not_block() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "run", "x");
        let before = plain(root.path());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_ne!(plain(root.path()).digest, before.digest);
    }

    #[test]
    fn stars_match_within_a_name() {
        for (pattern, name, fits) in [
            ("*", "abc", true),
            ("*.log", "x.log", true),
            ("*.log", "x.logs", false),
            ("a*b*c", "axxbxbxc", true),
            ("a*b*c", "axxbx", false),
            ("abc", "abc", true),
            ("", "", true),
        ] {
            assert_eq!(like(pattern, name), fits, "{pattern} {name}");
        }
    }

    type Files = BTreeMap<String, (Vec<u8>, bool)>;

    fn files() -> impl Strategy<Value = Files> {
        proptest::collection::btree_map(
            "[a-c]{1,2}/[a-z]{1,4}",
            (any::<[u8; 2]>().prop_map(Vec::from), any::<bool>()),
            1..8,
        )
    }

    fn build<'a>(root: &Path, files: impl Iterator<Item = (&'a String, &'a (Vec<u8>, bool))>) {
        for (path, (content, executable)) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            let mode = if *executable { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_order_in_which_files_were_made_does_not_matter(files in files()) {
            let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            build(a.path(), files.iter());
            build(b.path(), files.iter().rev());
            prop_assert_eq!(plain(a.path()), plain(b.path()));
        }

        #[test]
        fn any_change_of_content_mode_or_name_changes_the_digest(files in files(), pick: prop::sample::Index, what in 0..4) {
            let root = tempfile::tempdir().unwrap();
            build(root.path(), files.iter());
            let before = plain(root.path());
            let path = root.path().join(pick.get(&files.keys().collect::<Vec<_>>()));
            match what {
                0 => {
                    let mut content = fs::read(&path).unwrap();
                    content[0] ^= 1;
                    fs::write(&path, content).unwrap();
                }
                1 => {
                    let executable = path.metadata().unwrap().permissions().mode() & 0o100 != 0;
                    let mode = if executable { 0o644 } else { 0o755 };
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                }
                2 => fs::rename(&path, path.with_file_name("Renamed")).unwrap(),
                _ => fs::remove_file(&path).unwrap(),
            }
            prop_assert_ne!(plain(root.path()).digest, before.digest);
        }

        #[test]
        fn a_cache_never_changes_the_answer(first in files(), second in files()) {
            let root = tempfile::tempdir().unwrap();
            let canonical = root.path().canonicalize().unwrap();
            let ignore = Ignore::default();
            let subject = Subject { root: &canonical, directory: &canonical, entry: None, ignore: &ignore };
            let cache = Cache::default();
            for files in [&first, &second, &first] {
                build(root.path(), files.iter());
                for _ in 0..2 {
                    let cached = digest(subject, Bounds::default(), &cache).unwrap();
                    cache.turn();
                    prop_assert_eq!(cached, plain(root.path()));
                }
            }
        }
    }
}
