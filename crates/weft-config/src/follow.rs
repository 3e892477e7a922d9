//! Following a file: whoever holds the receiver always has the last version in which everything was right.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{Notify, watch};
use weft_core::ids::Digest;

use crate::{
    configuration::{Configuration, interpret},
    file::{self, Content, Stamp},
    finding::{Error, Finding, Parsed},
    home::Home,
};

/// Time between two looks at a file. Looking costs one `stat`; a notification by the system would miss mounts over
/// the network and links that are put in another's place.
const LOOK: Duration = Duration::from_secs(1);
/// A changed file must stay as it is for this part of the time between two looks: it may be half-written, and half
/// a file can be valid, or empty, and mean something else.
const SETTLE: u32 = 4;

/// What holds now.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The last version that was right. The same `Arc` as before when a change left its meaning as it was.
    pub value: Arc<T>,
    /// What is odd in it.
    pub warnings: Vec<Finding>,
    /// Why the file as it is now is not in force: it is gone, or these are its problems, one on each line.
    pub broken: Option<String>,
}

/// Follows one file. [`Follower::run`] does the work; the receiver shows the result.
#[derive(Debug)]
pub struct Follower<T> {
    path: PathBuf,
    home: Home,
    look: Duration,
    told: Arc<Notify>,
    loaded: watch::Sender<Arc<Loaded<T>>>,
    /// What the last word published was about.
    settled: State,
    /// What was seen since and may still be changing.
    unsettled: Option<State>,
}

/// Has a file read at once.
#[derive(Debug, Clone)]
pub struct Reload(Arc<Notify>);

impl Reload {
    /// Reads the file now, and takes it as it is: whoever asks says that it is whole.
    pub fn now(&self) {
        self.0.notify_one();
    }
}

/// What a file was found to be.
#[derive(Debug)]
enum State {
    /// The stamp is left out while it cannot be relied on.
    Text {
        stamp: Option<Stamp>,
        digest: Digest,
        readable_by_all: bool,
    },
    Unreadable(Error),
}

impl State {
    fn of(read: &Result<Content, Error>) -> Self {
        match read {
            Ok(content) => Self::Text {
                stamp: (!content.fresh).then_some(content.stamp),
                digest: Digest::of(content.text.as_bytes()),
                readable_by_all: content.readable_by_all,
            },
            Err(error) => Self::Unreadable(error.clone()),
        }
    }

    fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Text { stamp, .. } => *stamp,
            Self::Unreadable(_) => None,
        }
    }

    /// Whether both would be taken for the same, also when the file was written anew.
    fn means(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Text { digest: a, readable_by_all: open_a, .. },
                Self::Text { digest: b, readable_by_all: open_b, .. },
            ) => a == b && open_a == open_b,
            (Self::Unreadable(a), Self::Unreadable(b)) => a == b,
            _ => false,
        }
    }
}

impl<T: Configuration> Follower<T> {
    /// Reads a file for the first time. Blocks on the file system.
    ///
    /// # Errors
    /// As [`Configuration::load`].
    pub fn open(path: PathBuf, home: Home) -> Result<Self, Error> {
        let named = |error: Error| error.in_file(&path);
        let read = file::read(&path).map_err(named);
        let settled = State::of(&read);
        let Parsed { value, warnings } = interpret(&read?, &home).map_err(named)?;
        let first = Loaded { value: Arc::new(value), warnings, broken: None };
        let (loaded, _) = watch::channel(Arc::new(first));
        Ok(Self { path, home, look: LOOK, told: Arc::default(), loaded, settled, unsettled: None })
    }

    /// Looks this often, for tests.
    #[must_use]
    pub fn every(self, look: Duration) -> Self {
        Self { look, ..self }
    }

    /// What holds, now and from now on.
    pub fn watch(&self) -> watch::Receiver<Arc<Loaded<T>>> {
        self.loaded.subscribe()
    }

    /// The handle for SIGHUP.
    pub fn reload(&self) -> Reload {
        Reload(Arc::clone(&self.told))
    }

    /// Follows the file; it never resolves. Dropping the future ends it at any point, and nothing is half done.
    pub async fn run(mut self) {
        loop {
            let wait = if self.unsettled.is_some() { self.look / SETTLE } else { self.look };
            let told = tokio::select! {
                () = self.told.notified() => true,
                () = tokio::time::sleep(wait) => false,
            };
            let known = if told || self.unsettled.is_some() { None } else { self.settled.stamp() };
            let path = self.path.clone();
            // Not on this thread: the disk may be at the other end of a network.
            let look = tokio::task::spawn_blocking(move || look(&path, known)).await;
            if let Ok(Some(read)) = look {
                self.consider(read, told);
            }
        }
    }

    fn consider(&mut self, read: Result<Content, Error>, told: bool) {
        let state = State::of(&read);
        if state.means(&self.settled) {
            self.unsettled = None;
            self.settled = state;
            return;
        }
        if told || self.unsettled.as_ref().is_some_and(|before| before.means(&state)) {
            self.unsettled = None;
            self.settled = state;
            match read.and_then(|content| interpret(&content, &self.home)) {
                Ok(parsed) => self.accept(parsed),
                Err(error) => self.refuse(&error.in_file(&self.path)),
            }
        } else {
            self.unsettled = Some(state);
        }
    }

    fn accept(&self, parsed: Parsed<T>) {
        let file = self.path.display();
        tracing::info!(%file, "configuration read anew");
        for warning in &parsed.warnings {
            tracing::warn!(%file, %warning, "configuration");
        }
        self.loaded.send_modify(|loaded| {
            let value = match *loaded.value == parsed.value {
                true => Arc::clone(&loaded.value),
                false => Arc::new(parsed.value),
            };
            *loaded = Arc::new(Loaded { value, warnings: parsed.warnings, broken: None });
        });
    }

    fn refuse(&self, error: &Error) {
        let file = self.path.display();
        match error.missing {
            true => tracing::warn!(%file, "configuration is gone; the last one stays in force"),
            false => tracing::warn!(%file, %error, "configuration is refused; the last one stays in force"),
        }
        self.loaded.send_modify(|loaded| {
            let value = Arc::clone(&loaded.value);
            let warnings = loaded.warnings.clone();
            *loaded = Arc::new(Loaded { value, warnings, broken: Some(error.to_string()) });
        });
    }
}

/// Reads a file, unless it is still the known one.
fn look(path: &Path, known: Option<Stamp>) -> Option<Result<Content, Error>> {
    if known.is_some() && known == Stamp::look(path) {
        return None;
    }
    Some(file::read(path).map_err(|error| error.in_file(path)))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use tokio::task::JoinSet;

    use super::*;
    use crate::NodeFile;

    const TICK: Duration = Duration::from_millis(8);

    /// A file in a directory of its own, and who follows it.
    struct Followed {
        directory: tempfile::TempDir,
        path: PathBuf,
        loaded: watch::Receiver<Arc<Loaded<NodeFile>>>,
        reload: Reload,
        _tasks: JoinSet<()>,
    }

    impl Followed {
        fn start(look: Duration, prepare: impl FnOnce(&Path) -> PathBuf) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = prepare(directory.path());
            let follower = Follower::open(path.clone(), Home::default()).unwrap().every(look);
            let (loaded, reload) = (follower.watch(), follower.reload());
            let mut tasks = JoinSet::new();
            tasks.spawn(follower.run());
            Self { directory, path, loaded, reload, _tasks: tasks }
        }

        fn plain(look: Duration) -> Self {
            Self::start(look, |directory| {
                let path = directory.join("node.yaml");
                fs::write(&path, "slots: 1").unwrap();
                path
            })
        }

        /// Waits until what holds is as asked.
        async fn until(
            &mut self,
            wanted: impl FnMut(&Arc<Loaded<NodeFile>>) -> bool,
        ) -> Arc<Loaded<NodeFile>> {
            let seen = tokio::time::timeout(Duration::from_secs(20), self.loaded.wait_for(wanted)).await;
            Arc::clone(&seen.expect("in time").expect("the follower lives"))
        }
    }

    #[tokio::test]
    async fn a_change_is_taken() {
        let mut file = Followed::plain(TICK);
        assert_eq!(file.loaded.borrow().value.slots, Some(1));
        fs::write(&file.path, "slots: 2").unwrap();
        file.until(|loaded| loaded.value.slots == Some(2)).await;
        // As editors do: another file in its place.
        let other = file.directory.path().join("other");
        fs::write(&other, "slots: 3").unwrap();
        fs::rename(&other, &file.path).unwrap();
        file.until(|loaded| loaded.value.slots == Some(3)).await;
    }

    #[tokio::test]
    async fn a_mistake_keeps_the_last_version_and_is_told_until_it_is_gone() {
        let mut file = Followed::plain(TICK);
        fs::write(&file.path, "slots: none\nnam: x").unwrap();
        let loaded = file.until(|loaded| loaded.broken.is_some()).await;
        assert_eq!(loaded.value.slots, Some(1));
        let path = file.path.display();
        let expected = format!(
            "{path}:1: slots: must be a number, not text\n{path}:2: nam: unknown key; did you mean name?"
        );
        assert_eq!(loaded.broken.as_deref(), Some(expected.as_str()));
        fs::write(&file.path, "slots: 5").unwrap();
        file.until(|loaded| loaded.broken.is_none() && loaded.value.slots == Some(5)).await;
    }

    #[tokio::test]
    async fn a_file_that_is_gone_keeps_the_last_version_and_may_come_back() {
        let mut file = Followed::plain(TICK);
        let first = Arc::clone(&file.loaded.borrow().value);
        fs::remove_file(&file.path).unwrap();
        let loaded = file.until(|loaded| loaded.broken.is_some()).await;
        assert!(Arc::ptr_eq(&loaded.value, &first));
        assert!(loaded.broken.as_deref().unwrap().contains("cannot be read: No such file"));
        fs::write(&file.path, "slots: 1").unwrap();
        let loaded = file.until(|loaded| loaded.broken.is_none()).await;
        assert!(Arc::ptr_eq(&loaded.value, &first), "the meaning is as before");
    }

    #[tokio::test]
    async fn the_links_of_a_config_map_may_be_swapped() {
        let version = |directory: &Path, name: &str, text: &str| {
            fs::create_dir(directory.join(name)).unwrap();
            fs::write(directory.join(name).join("node.yaml"), text).unwrap();
            symlink(name, directory.join("..data_tmp")).unwrap();
            fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
        };
        let mut file = Followed::start(TICK, |directory| {
            version(directory, "..2026_01", "slots: 1");
            symlink("..data/node.yaml", directory.join("node.yaml")).unwrap();
            directory.join("node.yaml")
        });
        version(file.directory.path(), "..2026_02", "slots: 2");
        fs::remove_dir_all(file.directory.path().join("..2026_01")).unwrap();
        let loaded = file.until(|loaded| loaded.value.slots == Some(2)).await;
        assert_eq!(loaded.broken, None);
    }

    #[tokio::test]
    async fn whoever_asks_need_not_wait_for_the_next_look() {
        let mut file = Followed::plain(Duration::from_secs(86_400));
        fs::write(&file.path, "slots: 2").unwrap();
        file.reload.now();
        file.until(|loaded| loaded.value.slots == Some(2)).await;
        fs::write(&file.path, "slots: [").unwrap();
        file.reload.now();
        let loaded = file.until(|loaded| loaded.broken.is_some()).await;
        assert_eq!(loaded.value.slots, Some(2));
    }

    fn follower(directory: &Path) -> Follower<NodeFile> {
        let path = directory.join("node.yaml");
        fs::write(&path, "slots: 1").unwrap();
        Follower::open(path, Home::default()).unwrap()
    }

    #[test]
    fn a_file_counts_once_it_stays_the_same_for_two_looks() {
        let directory = tempfile::tempdir().unwrap();
        let mut follower = follower(directory.path());
        let loaded = follower.watch();
        let mut look = |text: &str| {
            fs::write(&follower.path, text).unwrap();
            let read = file::read(&follower.path);
            follower.consider(read, false);
            (loaded.borrow().value.slots, loaded.borrow().broken.is_some())
        };
        // Half-written files, one of which is valid.
        assert_eq!(look(""), (Some(1), false));
        assert_eq!(look("slots: ["), (Some(1), false));
        assert_eq!(look("slots: [2"), (Some(1), false));
        assert_eq!(look("slots: 2"), (Some(1), false));
        assert_eq!(look("slots: 2"), (Some(2), false));
        assert_eq!(look("slots: ["), (Some(2), false));
        assert_eq!(look("slots: ["), (Some(2), true));
        // Back to what holds: the complaint is settled like any change.
        assert_eq!(look("slots: 2"), (Some(2), true));
        assert_eq!(look("slots: 2"), (Some(2), false));
    }

    #[test]
    fn an_unchanged_file_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.yaml");
        fs::write(&path, "slots: 1").unwrap();
        let stamp = Stamp::look(&path);
        assert!(look(&path, stamp).is_none());
        assert!(look(&path, None).is_some());
        fs::write(&path, "slots: 10").unwrap();
        assert!(look(&path, stamp).is_some());
        fs::remove_file(&path).unwrap();
        assert!(look(&path, stamp).is_some_and(|read| read.is_err_and(|error| error.missing)));
    }
}
