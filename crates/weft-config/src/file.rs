//! Reading a file from disk, within bounds.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::finding::{Error, Finding};

/// Largest configuration file, in bytes.
pub const MAX_BYTES: u64 = 1024 * 1024;

/// What tells one state of a file from another, without reading it. Links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    dev: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The state of the file now; `None` when there is none or it cannot be looked at.
    pub(crate) fn look(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

/// A file as it was read. It has no `Debug`: it may hold secrets.
pub(crate) struct Content {
    pub(crate) text: String,
    pub(crate) stamp: Stamp,
    /// It changed a moment ago, so a further change may leave the stamp as it is: clocks of file systems are coarse.
    pub(crate) fresh: bool,
    /// Every user of the host may read it.
    pub(crate) readable_by_all: bool,
}

/// Reads a file whole.
pub(crate) fn read(path: &Path) -> Result<Content, Error> {
    let unreadable = |error: io::Error| Error {
        missing: error.kind() == io::ErrorKind::NotFound,
        ..Error::of(Finding::whole(format!("cannot be read: {error}")))
    };
    // Opening a device may do something to it, so what it is comes first.
    regular(&std::fs::metadata(path).map_err(unreadable)?)?;
    // A pipe may have taken its place since: opened like this it does not block, and is refused below.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    regular(&metadata)?;
    let bytes = bytes(&mut file).map_err(unreadable)?;
    let stamp = Stamp::of(&metadata);
    if stamp != Stamp::of(&file.metadata().map_err(unreadable)?) {
        return Err(Error::of(Finding::whole("changed while it was read; try again")));
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::of(too_large()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        Error::of(Finding { line: Some(line), ..Finding::whole("is not UTF-8 here") })
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let fresh = u64::try_from(stamp.changed.0).is_ok_and(|changed| changed + 2 > now);
    Ok(Content { text, stamp, fresh, readable_by_all: metadata.mode() & 0o004 != 0 })
}

fn regular(metadata: &Metadata) -> Result<(), Error> {
    let what = match metadata {
        metadata if metadata.is_file() => return Ok(()),
        metadata if metadata.is_dir() => "is a directory; name the file in it",
        _ => "is not a regular file",
    };
    Err(Error::of(Finding::whole(what)))
}

fn bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn too_large() -> Finding {
    Finding::whole(format!("is larger than {MAX_BYTES} bytes, which is the limit"))
}
