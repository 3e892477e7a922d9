//! What depends on the operating system: how a file is opened without waiting, what identifies it, what its
//! mode means. All else in the crate is portable; another platform needs another version of this file.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::OFlags;

/// What identifies a directory, however many paths lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// What a `stat` says about a file's content: while it is the same, so is the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileStamp {
    identity: Identity,
    size: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// File systems tick at most this coarsely; a file younger than that can still change under the same stamp.
const TICK: Duration = Duration::from_millis(50);

impl FileStamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            identity: Identity::of(metadata),
            size: metadata.size(),
            mode: metadata.mode(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether a later change is sure to give another stamp. `now` must have been read before the content.
    pub(crate) fn settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = |(seconds, nanos): (i64, i64)| {
            let then = Duration::new(seconds.try_into().unwrap_or(0), nanos.try_into().unwrap_or(0));
            now.checked_sub(then)
        };
        age(self.changed).is_some_and(|age| age > TICK) && age(self.modified).is_some_and(|age| age > TICK)
    }
}

/// The bits of a file's mode that change what running it means. The others (group, umask) differ from host to
/// host for the same skill.
pub(crate) fn mode_that_matters(metadata: &Metadata) -> u32 {
    let mode = metadata.mode();
    (mode & 0o6000) | if mode & 0o111 == 0 { 0 } else { 0o100 }
}

pub(crate) fn has_execute_bit(metadata: &Metadata) -> bool {
    metadata.mode() & 0o111 != 0
}

/// Whether every user of the host can replace what is there. In a directory with the sticky bit nobody can replace
/// what belongs to another.
pub(crate) fn open_to_all(metadata: &Metadata) -> bool {
    let mode = metadata.mode();
    mode & 0o002 != 0 && !(metadata.is_dir() && mode & 0o1000 != 0)
}

/// Opens a regular file to read. Never waits for the other end of a FIFO and does not follow a link.
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    // Asked first because opening a device can have effects, and again after, because the file may have changed.
    if !path.symlink_metadata()?.is_file() {
        return Err(not_regular());
    }
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(not_regular()) }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Reads a whole regular file of at most `most` bytes; `None` for the content when it is larger.
pub(crate) fn read_regular(path: &Path, most: u64) -> io::Result<(Option<Vec<u8>>, FileStamp)> {
    let (file, metadata) = open_regular(path)?;
    let stamp = FileStamp::of(&metadata);
    if metadata.len() > most {
        return Ok((None, stamp));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok((if bytes.len() as u64 > most { None } else { Some(bytes) }, stamp))
}
