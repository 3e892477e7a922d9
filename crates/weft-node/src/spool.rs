//! What children said and no coordinator has taken yet, on disk.
//!
//! One file without a name, so that nothing of it outlives the node, in blocks that every attempt shares. A block goes
//! back when nobody names it any more; when none is named, another file takes the place of this one. The disk is never
//! touched under the lock, so that a slow one holds up only who uses it.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use weft_core::limits;

/// Size of a block: one chunk of a large result, or several pieces of stderr.
const BLOCK: u32 = limits::CHUNK_BYTES as u32;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Spool(Arc<Shared>);

struct Shared {
    directory: PathBuf,
    blocks: Mutex<Blocks>,
    /// Blocks that stderr may use. A result always finds room.
    for_stderr: u32,
}

struct Blocks {
    file: Arc<File>,
    free: Vec<u32>,
    /// Blocks in the file.
    made: u32,
}

impl Blocks {
    fn new(directory: &Path) -> io::Result<Self> {
        Ok(Self { file: Arc::new(tempfile::tempfile_in(directory)?), free: Vec::new(), made: 0 })
    }

    fn used(&self) -> u32 {
        self.made - u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }
}

/// A block of the file for as long as this lives.
pub(crate) struct Block {
    spool: Spool,
    file: Arc<File>,
    index: u32,
}

/// Bytes in the file.
#[derive(Clone)]
pub(crate) struct Extent {
    block: Arc<Block>,
    start: u32,
    len: u32,
}

/// A block that one writer fills from its start.
pub(crate) struct Filling {
    block: Arc<Block>,
    filled: u32,
}

impl Spool {
    /// A spool in this directory, which must exist.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        Self::with_limit(directory, limits::SPOOL_BYTES)
    }

    fn with_limit(directory: &Path, bytes: u64) -> io::Result<Self> {
        Ok(Self(Arc::new(Shared {
            directory: directory.to_owned(),
            blocks: Mutex::new(Blocks::new(directory)?),
            for_stderr: u32::try_from(bytes / u64::from(BLOCK)).unwrap_or(u32::MAX),
        })))
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty block for stderr; `None` when the spool is full.
    pub(crate) fn block(&self) -> Option<Filling> {
        let mut blocks = self.blocks();
        (blocks.used() < self.0.for_stderr).then(|| self.take(&mut blocks))
    }

    /// Keeps one chunk of a result. Blocks on the disk.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub(crate) fn keep(&self, chunk: &[u8]) -> io::Result<Extent> {
        let mut filling = self.take(&mut self.blocks());
        let extent = filling.reserve(chunk.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        extent.write(chunk)?;
        Ok(extent)
    }

    fn take(&self, blocks: &mut Blocks) -> Filling {
        let index = blocks.free.pop().unwrap_or_else(|| {
            blocks.made += 1;
            blocks.made - 1
        });
        let file = blocks.file.clone();
        Filling { block: Arc::new(Block { spool: self.clone(), file, index }), filled: 0 }
    }

    /// Whether the file takes room that nobody uses.
    pub(crate) fn is_idle(&self) -> bool {
        let blocks = self.blocks();
        blocks.made > 0 && blocks.used() == 0
    }

    /// Gives the disk back what nobody uses. Blocks on the disk.
    ///
    /// # Errors
    /// When there can be no other file.
    pub(crate) fn trim(&self) -> io::Result<()> {
        let fresh = Blocks::new(&self.0.directory)?;
        let mut blocks = self.blocks();
        // Somebody may have taken a block meanwhile.
        let done = if blocks.used() == 0 { std::mem::replace(&mut *blocks, fresh) } else { fresh };
        drop(blocks);
        drop(done);
        Ok(())
    }
}

impl Filling {
    /// Takes the next bytes of the block; `None` when that many are not left.
    pub(crate) fn reserve(&mut self, len: usize) -> Option<Extent> {
        let len = u32::try_from(len).ok().filter(|len| *len <= BLOCK - self.filled)?;
        let start = self.filled;
        self.filled += len;
        Some(Extent { block: self.block.clone(), start, len })
    }
}

impl Extent {
    /// Fills it. Blocks on the disk.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.block.file.write_all_at(bytes, self.position())
    }

    /// What it holds. Blocks on the disk, which rarely means more than a copy: it was written a moment ago.
    pub(crate) fn read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.len as usize];
        self.block.file.read_exact_at(&mut bytes, self.position())?;
        Ok(bytes.into())
    }

    /// In bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len.into()
    }

    /// Takes in what follows it in the file, up to `most` bytes in all. Whether it did.
    pub(crate) fn join(&mut self, next: &Self, most: u64) -> bool {
        let follows = Arc::ptr_eq(&self.block, &next.block) && self.start + self.len == next.start;
        let joins = follows && self.len() + next.len() <= most;
        if joins {
            self.len += next.len;
        }
        joins
    }

    fn position(&self) -> u64 {
        u64::from(self.block.index) * u64::from(BLOCK) + u64::from(self.start)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.spool.blocks().free.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(spool: &Spool) -> u64 {
        spool.blocks().file.metadata().unwrap().len()
    }

    #[test]
    fn what_was_kept_is_read_again_whoever_else_writes() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let (mut a, mut b) = (spool.block().unwrap(), spool.block().unwrap());
        let pieces: Vec<_> = (0..40u8)
            .map(|n| {
                let extent = if n % 2 == 0 { a.reserve(1000) } else { b.reserve(1000) }.unwrap();
                extent.write(&[n; 1000]).unwrap();
                extent
            })
            .collect();
        let result = spool.keep(&[b'r'; BLOCK as usize]).unwrap();
        for (n, extent) in pieces.iter().enumerate() {
            assert_eq!(extent.read().unwrap(), vec![n as u8; 1000]);
        }
        assert_eq!(result.read().unwrap(), vec![b'r'; BLOCK as usize]);
    }

    #[test]
    fn a_full_spool_refuses_stderr_and_takes_results_and_blocks_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::with_limit(dir.path(), 3 * u64::from(BLOCK)).unwrap();
        let blocks: Vec<_> = std::iter::from_fn(|| spool.block()).collect();
        assert_eq!(blocks.len(), 3);
        let result = spool.keep(b"result").unwrap();
        assert_eq!(length(&spool), 3 * u64::from(BLOCK) + 6);
        drop(blocks);
        assert!(!spool.is_idle());
        spool.trim().unwrap();
        assert_eq!(result.read().unwrap(), "result");
        drop(result);
        assert!(spool.is_idle());
        spool.trim().unwrap();
        assert_eq!(length(&spool), 0);
        assert!(!spool.is_idle() && spool.block().is_some());
    }

    #[test]
    fn pieces_that_follow_one_another_become_one_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let mut block = spool.block().unwrap();
        let mut first = block.reserve(10).unwrap();
        let (second, third) = (block.reserve(10).unwrap(), block.reserve(10).unwrap());
        assert!(!first.join(&third, 100));
        assert!(first.join(&second, 100));
        assert!(!first.join(&third, 29));
        assert_eq!(first.len(), 20);
        assert!(block.reserve(BLOCK as usize).is_none());
    }
}
