//! Hears of changes in directories, from inotify.
//!
//! Asks for changes alone. Watchers that also ask for openings wake a thread for each child that is started from a
//! watched directory, which costs as much as all else that a node does for it. Another platform needs another version
//! of this file.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// Room for the events of one read, in bytes.
const BUFFER: usize = 16 * 1024;

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// Something at this path is not as it was.
    Changed(&'a Path),
    /// What was at this path is gone or has moved, or something else has taken its place: its watches are void.
    Moved(&'a Path),
    /// Something was missed.
    Lost,
}

/// Watched directories. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct Directories {
    watches: inotify::Watches,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    paths: Mutex<HashMap<WatchDescriptor, PathBuf>>,
    /// Written to when it is time to end.
    stop: OwnedFd,
}

impl Shared {
    fn paths(&self) -> MutexGuard<'_, HashMap<WatchDescriptor, PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directories {
    /// Watches nothing yet. `hear` is called on a thread of its own.
    ///
    /// # Errors
    /// When the system gives no instance of inotify, or no thread.
    pub(crate) fn open(hear: impl FnMut(Heard<'_>) + Send + 'static) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { paths: Mutex::default(), stop });
        let (watches, listening) = (inotify.watches(), shared.clone());
        let thread = std::thread::Builder::new()
            .name("weft-inotify".into())
            .spawn(move || listening.listen(inotify, hear))?;
        Ok(Self { watches, shared, thread: Some(thread) })
    }

    /// Watches one directory, without those below it.
    ///
    /// # Errors
    /// When there is no such directory, or no watch left.
    pub(crate) fn watch(&mut self, path: &Path) -> io::Result<()> {
        let mask = WatchMask::ATTRIB
            | WatchMask::CREATE
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::CLOSE_WRITE
            | WatchMask::MODIFY
            | WatchMask::MOVE
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        // Under the lock, so that its events find its path.
        let mut paths = self.shared.paths();
        let descriptor = self.watches.add(path, mask)?;
        paths.insert(descriptor, path.to_owned());
        Ok(())
    }

    /// Watches it no more. Nothing happens when its watch is gone already.
    pub(crate) fn unwatch(&mut self, path: &Path) {
        let mut paths = self.shared.paths();
        let descriptor = paths.iter().find(|(_, watched)| *watched == path).map(|(found, _)| found.clone());
        if let Some(descriptor) = descriptor {
            paths.remove(&descriptor);
            let _ = self.watches.remove(descriptor);
        }
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn listen(&self, mut inotify: Inotify, mut hear: impl FnMut(Heard<'_>)) {
        let mut buffer = [0; BUFFER];
        loop {
            let mut ready = [PollFd::new(&inotify, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) if !ready[1].revents().is_empty() => return,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return hear(Heard::Lost),
            }
            match inotify.read_events(&mut buffer) {
                Ok(events) => events.for_each(|event| self.tell(&event, &mut hear)),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(_) => return hear(Heard::Lost),
            }
        }
    }

    fn tell(&self, event: &Event<&std::ffi::OsStr>, hear: &mut impl FnMut(Heard<'_>)) {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            return hear(Heard::Lost);
        }
        let path = {
            let mut paths = self.paths();
            match event.mask.contains(EventMask::IGNORED) {
                // The watch is gone, and what ended it was told.
                true => return drop(paths.remove(&event.wd)),
                false => paths.get(&event.wd).cloned(),
            }
        };
        // One that was unwatched meanwhile.
        let Some(directory) = path else { return };
        let path = event.name.map_or_else(|| directory.clone(), |name| directory.join(name));
        let moved = EventMask::DELETE
            | EventMask::DELETE_SELF
            | EventMask::MOVED_FROM
            | EventMask::MOVED_TO
            | EventMask::MOVE_SELF
            | EventMask::UNMOUNT;
        match event.mask.intersects(moved) {
            true => hear(Heard::Moved(&path)),
            false => hear(Heard::Changed(&path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::mpsc, time::Duration};

    use super::*;

    /// The next change that is heard of, as a word and a path.
    fn next(heard: &mpsc::Receiver<(&'static str, PathBuf)>) -> (&'static str, PathBuf) {
        heard.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    fn listen() -> (Directories, mpsc::Receiver<(&'static str, PathBuf)>) {
        let (sender, heard) = mpsc::channel();
        let directories = Directories::open(move |what| {
            let _ = sender.send(match what {
                Heard::Changed(path) => ("changed", path.to_owned()),
                Heard::Moved(path) => ("moved", path.to_owned()),
                Heard::Lost => ("lost", PathBuf::new()),
            });
        });
        (directories.unwrap(), heard)
    }

    #[test]
    fn changes_are_heard_and_reading_and_running_are_not() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        fs::write(&a, "1").unwrap();
        let (mut directories, heard) = listen();
        directories.watch(root.path()).unwrap();
        for _ in 0..100 {
            fs::read(&a).unwrap();
        }
        fs::rename(&a, &b).unwrap();
        assert_eq!([next(&heard), next(&heard)], [("moved", a), ("moved", b.clone())]);
        fs::write(&b, "2").unwrap();
        assert_eq!(next(&heard), ("changed", b));
    }

    #[test]
    fn a_directory_that_is_gone_says_so_and_one_that_is_unwatched_is_silent() {
        let root = tempfile::tempdir().unwrap();
        let (gone, quiet) = (root.path().join("gone"), root.path().join("quiet"));
        fs::create_dir(&gone).unwrap();
        fs::create_dir(&quiet).unwrap();
        let (mut directories, heard) = listen();
        directories.watch(&gone).unwrap();
        directories.watch(&quiet).unwrap();
        directories.unwatch(&quiet);
        fs::write(quiet.join("x"), "").unwrap();
        fs::remove_dir(&gone).unwrap();
        assert_eq!(next(&heard), ("moved", gone.clone()));
        assert!(directories.watch(&gone).is_err());
        assert!(directories.shared.paths().is_empty());
        drop(directories);
        assert!(heard.recv().is_err(), "the thread is gone");
    }
}
