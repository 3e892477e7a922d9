//! Keeps an inventory current: reads again soon after a change, and every so often because watchers miss things
//! (network mounts, programs installed elsewhere).
//!
//! One thread owns the loader and everything that changes; the system's watcher only leaves notes for it.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    directories::{Directories, Heard},
    inventory::Inventory,
    loader::{Config, Loader},
    platform::Identity,
    walk::{Tree, tree},
};

/// Most directories that are watched; changes below the others are found by the rescan.
const MAX_WATCHES: usize = 4096;
/// While changes go on, a load starts after this many debounce times at the latest.
const LONGEST_DEBOUNCE: u32 = 8;
/// After a load, the next one that a change asks for waits this many times as long as the load took: a skill
/// that writes beside itself does not keep a core busy.
const REST: u32 = 4;
/// Most removed paths that are remembered between two loads; beyond it every watch is set again.
const MAX_REMOVED: usize = 256;

/// How far above a root that is not there its next directory is looked for.
const ABOVE: usize = 3;

/// Whether, how soon and how often to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchOptions {
    /// Whether to look at all. Without it skills are read again only when somebody asks for that.
    pub watch: bool,
    /// How long it must be quiet after a change before skills are read again.
    pub debounce: Duration,
    /// How often skills are read again without any change seen.
    pub rescan: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { watch: true, debounce: Duration::from_millis(250), rescan: Duration::from_secs(30) }
    }
}

/// Keeps an inventory current until it is dropped. Dropping waits for its thread.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Loads once, and then again whenever something may have changed. The receiver has the first inventory
    /// already; it gets another only when that differs.
    ///
    /// # Errors
    /// When the system gives no thread. That watching fails is no error: then the rescan alone finds changes.
    pub fn start(
        loader: Loader,
        options: WatchOptions,
    ) -> io::Result<(Self, watch::Receiver<Arc<Inventory>>)> {
        Self::start_with(loader, options, Box::new(|notes| Directories::open(move |heard| notes.take(heard))))
    }

    fn start_with(
        mut loader: Loader,
        options: WatchOptions,
        open: Open,
    ) -> io::Result<(Self, watch::Receiver<Arc<Inventory>>)> {
        let shared = Arc::new(Shared::new(loader.config(), options));
        let mut watches = Watches::new(Arc::clone(&shared), options, open);
        let mut inventory = loader.load(None);
        // What changes between a load and its watches would go unseen until the rescan.
        if watches.update(&inventory, &Removed::default()) {
            inventory = loader.load(Some(&inventory));
            if watches.update(&inventory, &Removed::default()) {
                shared.lock().note(Instant::now());
            }
        }
        let current = Arc::new(inventory);
        let (sender, receiver) = watch::channel(Arc::clone(&current));
        let keeper = Keeper { shared: Arc::clone(&shared), loader, watches, current, sender };
        let thread =
            std::thread::Builder::new().name("weft-skills".to_owned()).spawn(move || keeper.run())?;
        Ok((Self { shared, thread: Some(thread) }, receiver))
    }

    /// Reads the skills again now, without waiting for the outcome.
    pub fn rescan_now(&self) {
        self.shared.lock().rescan = true;
        self.shared.wake.notify_all();
    }

    /// Works from another configuration from now on, and reads the skills again at once, without waiting for the
    /// outcome. Until then nothing is clean.
    pub fn reconfigure(&self, config: Config, options: WatchOptions) {
        let mut state = self.shared.lock();
        state.news = Some((config, options));
        state.rescan = true;
        drop(state);
        self.shared.wake.notify_all();
    }

    /// Whether every directory is watched and nothing was seen to change since the last load began. When it is
    /// not, a digest may be out of date and has to be taken again before it is relied on.
    pub fn is_clean(&self) -> bool {
        let state = self.shared.lock();
        state.watching && !state.rescan && !state.loading && state.first.is_none()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported when it happened.
            let _ = thread.join();
        }
    }
}

type Open = Box<dyn Fn(Notes) -> io::Result<Directories> + Send>;

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

/// What is to be done. A mutex and not a channel, so that a storm of events takes no memory.
#[derive(Debug)]
struct State {
    /// As configured.
    roots: Vec<PathBuf>,
    options: WatchOptions,
    /// What takes the place of the configuration at the next load.
    news: Option<(Config, WatchOptions)>,
    stop: bool,
    rescan: bool,
    /// A load runs that began when this state was last taken.
    loading: bool,
    /// Every directory that should be watched is.
    watching: bool,
    /// The first and the last change since the last load began.
    first: Option<Instant>,
    last: Option<Instant>,
    removed: Removed,
}

/// Paths whose watches are gone with them.
#[derive(Debug, Default)]
struct Removed {
    paths: Vec<PathBuf>,
    /// More than could be remembered.
    all: bool,
}

impl Removed {
    fn covers(&self, path: &Path) -> bool {
        self.all || self.paths.iter().any(|removed| path.starts_with(removed))
    }
}

impl State {
    /// When to load again unasked, after a load that ended then and with the rest that it needs. `None`: never.
    fn deadline(&self, ended: Instant, not_before: Instant) -> Option<Instant> {
        let WatchOptions { watch, debounce, rescan } = self.options;
        let at = ended + rescan;
        let at = match (self.first, self.last) {
            (Some(first), Some(last)) => {
                let quiet = (last + debounce).min(first + debounce * LONGEST_DEBOUNCE);
                at.min(quiet.max(not_before))
            }
            _ => at,
        };
        watch.then_some(at)
    }

    fn note(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

/// What is to be done before the next load, and with what.
struct Next {
    removed: Removed,
    news: Option<(Config, WatchOptions)>,
}

impl Shared {
    fn new(config: &Config, options: WatchOptions) -> Self {
        let state = State {
            roots: config.roots().cloned().collect(),
            options,
            news: None,
            stop: false,
            rescan: false,
            loading: false,
            watching: false,
            first: None,
            last: None,
            removed: Removed::default(),
        };
        Self { state: Mutex::new(state), wake: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next load. `None` when it is time to stop.
    fn wait(&self, ended: Instant, not_before: Instant) -> Option<Next> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            let deadline = state.deadline(ended, not_before);
            let now = Instant::now();
            if state.rescan || deadline.is_some_and(|deadline| now >= deadline) {
                state.rescan = false;
                (state.first, state.last) = (None, None);
                state.loading = true;
                let news = state.news.take();
                if let Some((config, options)) = &news {
                    state.roots = config.roots().cloned().collect();
                    state.options = *options;
                }
                return Some(Next { removed: std::mem::take(&mut state.removed), news });
            }
            state = match deadline {
                Some(deadline) => {
                    let woken = self.wake.wait_timeout(state, deadline - now);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Takes the system's events: leaves a note when one may matter.
struct Notes(Arc<Shared>);

impl Notes {
    fn take(&self, heard: Heard<'_>) {
        let now = Instant::now();
        let mut state = self.0.lock();
        if let Heard::Changed(path) | Heard::Moved(path) = heard
            && !matters(&state.roots, path)
        {
            return;
        }
        state.note(now);
        match heard {
            Heard::Lost => state.removed.all = true,
            Heard::Moved(_) if state.removed.paths.len() == MAX_REMOVED => {
                state.removed = Removed { paths: Vec::new(), all: true };
            }
            Heard::Moved(path) if !state.removed.all => state.removed.paths.push(path.to_owned()),
            Heard::Moved(_) | Heard::Changed(_) => {}
        }
        drop(state);
        self.0.wake.notify_all();
    }
}

/// Whether a change at a path can change the inventory. The directories above a root are watched for the root
/// alone; what an interpreter compiles beside a skill is no change of it.
fn matters(roots: &[PathBuf], path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if tree(&name) == Tree::Scratch || name.ends_with(".pyc") {
        return false;
    }
    let on_the_way = |root: &PathBuf| path.starts_with(root) || root.starts_with(path);
    let beside = |root: &PathBuf| path.parent().is_some_and(|parent| root.starts_with(parent));
    roots.iter().any(on_the_way) || !roots.iter().any(beside)
}

/// The next directory above a root: the one that it is in, or in which what leads to it would appear.
fn above(root: &Path) -> Option<(PathBuf, Identity)> {
    let mut above = root.ancestors().skip(1).take(ABOVE);
    above.find_map(|above| Some((above.to_owned(), Identity::of(&above.metadata().ok()?))))
}

/// The system's watcher and what it watches.
struct Watches {
    shared: Arc<Shared>,
    open: Open,
    options: WatchOptions,
    watcher: Option<Directories>,
    watched: HashMap<PathBuf, Identity>,
    said: bool,
}

impl Watches {
    fn new(shared: Arc<Shared>, options: WatchOptions, open: Open) -> Self {
        Self { shared, open, options, watcher: None, watched: HashMap::new(), said: false }
    }

    /// Watches the directories of an inventory and those above the roots. True when one of them was not watched
    /// before, so that it may have changed unseen.
    fn update(&mut self, inventory: &Inventory, removed: &Removed) -> bool {
        if !self.options.watch {
            (self.watcher, self.watched) = (None, HashMap::new());
            self.shared.lock().watching = false;
            return false;
        }
        let (wanted, complete) = self.wanted(inventory);
        let outcome = self.set(&wanted, removed);
        self.shared.lock().watching = complete && outcome.is_ok();
        let reason = match &outcome {
            Err(error) => Some(error.to_string()),
            Ok(_) if !complete => Some(format!("more than {MAX_WATCHES} directories")),
            Ok(_) => None,
        };
        if let Some(reason) = reason.filter(|_| !self.said) {
            self.said = true;
            tracing::warn!(
                reason,
                rescan_seconds = self.options.rescan.as_secs(),
                "cannot watch all skill directories; the rescan alone finds changes in the others"
            );
        }
        outcome.unwrap_or(false)
    }

    /// Each real directory once, the most telling first, and whether that is all.
    fn wanted(&self, inventory: &Inventory) -> (Vec<(PathBuf, Identity)>, bool) {
        let roots = self.shared.lock().roots.clone();
        let above = roots.iter().filter_map(|root| above(root));
        let mut seen = HashSet::new();
        let mut wanted: Vec<(PathBuf, Identity)> = Vec::new();
        let mut complete = true;
        for (path, identity) in above.chain(inventory.directories.iter().cloned()) {
            if seen.insert(identity) {
                if wanted.len() == MAX_WATCHES {
                    complete = false;
                    break;
                }
                wanted.push((path, identity));
            }
        }
        (wanted, complete)
    }

    fn set(&mut self, wanted: &[(PathBuf, Identity)], removed: &Removed) -> io::Result<bool> {
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            None => {
                self.watched.clear();
                self.watcher.insert((self.open)(Notes(Arc::clone(&self.shared)))?)
            }
        };
        let keep: HashMap<&Path, Identity> =
            wanted.iter().map(|(path, identity)| (path.as_path(), *identity)).collect();
        // The same path can be another directory by now, and the same inode a new one: set those again.
        let stale: Vec<PathBuf> = self
            .watched
            .iter()
            .filter(|(path, identity)| keep.get(path.as_path()) != Some(identity) || removed.covers(path))
            .map(|(path, _)| path.clone())
            .collect();
        for path in stale {
            watcher.unwatch(&path);
            self.watched.remove(&path);
        }
        let mut added = false;
        let mut failure = None;
        for (path, identity) in wanted {
            if self.watched.contains_key(path) {
                continue;
            }
            match watcher.watch(path) {
                Ok(()) => {
                    self.watched.insert(path.clone(), *identity);
                    added = true;
                }
                // Gone since the load: its removal is seen above it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let enough = error.kind() == io::ErrorKind::StorageFull;
                    failure = Some(error);
                    if enough {
                        break;
                    }
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(added),
        }
    }
}

/// The thread: everything that changes.
struct Keeper {
    shared: Arc<Shared>,
    loader: Loader,
    watches: Watches,
    current: Arc<Inventory>,
    sender: watch::Sender<Arc<Inventory>>,
}

impl Keeper {
    fn run(mut self) {
        let mut ended = Instant::now();
        let mut not_before = ended;
        while let Some(Next { removed, news }) = self.shared.wait(ended, not_before) {
            let begun = Instant::now();
            if let Some((config, options)) = news {
                self.loader.reconfigure(config);
                self.watches.options = options;
            }
            let inventory = self.loader.load(Some(&self.current));
            if self.watches.update(&inventory, &removed) {
                self.shared.lock().note(Instant::now());
            }
            self.publish(inventory);
            self.shared.lock().loading = false;
            ended = Instant::now();
            not_before = ended + ((ended - begun) * REST).min(self.watches.options.rescan);
        }
    }

    fn publish(&mut self, inventory: Inventory) {
        let same = inventory.revision == self.current.revision && inventory.copies == self.current.copies;
        self.current = Arc::new(inventory);
        if !same {
            self.sender.send_replace(Arc::clone(&self.current));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use weft_core::ids::SkillKey;

    use super::*;
    use crate::{
        source::Source,
        testing::{config, logged, script, skill, write},
    };

    type Receiver = watch::Receiver<Arc<Inventory>>;

    /// Never reached but by a defect: every wait ends as soon as what it waits for is there.
    const DEADLINE: Duration = Duration::from_secs(20);

    fn quick() -> WatchOptions {
        WatchOptions {
            debounce: Duration::from_millis(20),
            rescan: Duration::from_secs(3600),
            ..WatchOptions::default()
        }
    }

    fn no_watcher() -> Open {
        Box::new(|_| Err(io::Error::from_raw_os_error(24)))
    }

    /// Waits until an inventory is as wanted.
    fn until(receiver: &mut Receiver, what: &str, wanted: impl Fn(&Inventory) -> bool) -> Arc<Inventory> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let found =
                tokio::time::timeout(DEADLINE, receiver.wait_for(|inventory| wanted(inventory))).await;
            let last = found.unwrap_or_else(|_| panic!("waited for: {what}")).unwrap();
            Arc::clone(&last)
        })
    }

    fn has(inventory: &Inventory, name: &str) -> bool {
        inventory.winner(&SkillKey::normalise(name).unwrap()).is_some()
    }

    fn description(inventory: &Inventory, name: &str) -> String {
        let winner = inventory.winner(&SkillKey::normalise(name).unwrap());
        winner.map(|copy| copy.definition.description.clone()).unwrap_or_default()
    }

    #[test]
    fn skills_that_are_added_edited_and_removed_are_noticed() {
        let root = tempfile::tempdir().unwrap();
        let (watcher, mut receiver) = Watcher::start(Loader::new(config(&[root.path()])), quick()).unwrap();
        assert!(receiver.borrow().copies.is_empty());
        let directory = skill(root.path(), "group/x", "x", "");
        let added = until(&mut receiver, "added", |inventory| has(inventory, "x"));
        let text = fs::read_to_string(directory.join("skill.json")).unwrap().replace("case x", "edited");
        write(&directory.join("new.json"), text);
        fs::rename(directory.join("new.json"), directory.join("skill.json")).unwrap();
        let edited = until(&mut receiver, "edited", |inventory| description(inventory, "x") == "edited");
        assert!(edited.revision > added.revision);
        fs::remove_dir_all(&directory).unwrap();
        until(&mut receiver, "removed", |inventory| !has(inventory, "x"));
        skill(root.path(), "group/x", "x", "");
        until(&mut receiver, "added again", |inventory| has(inventory, "x"));
        let moved = root.path().join("moved");
        fs::rename(root.path().join("group"), &moved).unwrap();
        until(&mut receiver, "moved", |inventory| {
            inventory.copies.iter().any(|copy| copy.directory == moved.join("x"))
        });
        write(&moved.join("x/lib"), "1");
        until(&mut receiver, "a file in a moved directory", |inventory| {
            inventory.copies.iter().all(|copy| copy.digest_now().is_ok_and(|digest| digest == copy.digest))
        });
        drop(watcher);
        assert!(receiver.has_changed().is_err(), "the thread is gone");
    }

    #[test]
    fn a_root_that_appears_and_one_that_is_replaced_are_noticed() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("skills");
        let (_watcher, mut receiver) = Watcher::start(Loader::new(config(&[&root])), quick()).unwrap();
        skill(&root, "x", "x", "");
        until(&mut receiver, "root made", |inventory| has(inventory, "x"));
        fs::remove_dir_all(&root).unwrap();
        until(&mut receiver, "root removed", |inventory| !has(inventory, "x"));
        let other = temporary.path().join("other");
        skill(&other, "y", "y", "");
        fs::rename(&other, &root).unwrap();
        until(&mut receiver, "root replaced", |inventory| has(inventory, "y"));
        skill(&root, "z", "z", "");
        until(&mut receiver, "added to the new root", |inventory| has(inventory, "z"));
    }

    #[test]
    fn a_root_that_is_a_link_and_is_turned_is_noticed() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("current");
        for version in ["1", "2"] {
            skill(
                &temporary.path().join("releases").join(version),
                "x",
                "x",
                &format!(r#","version":"{version}""#),
            );
        }
        symlink("releases/1", &root).unwrap();
        let (_watcher, mut receiver) = Watcher::start(Loader::new(config(&[&root])), quick()).unwrap();
        assert_eq!(receiver.borrow().copies[0].definition.version, "1");
        symlink("releases/2", temporary.path().join("next")).unwrap();
        fs::rename(temporary.path().join("next"), &root).unwrap();
        until(&mut receiver, "turned", |inventory| {
            inventory.copies.first().is_some_and(|copy| copy.definition.version == "2")
        });
        skill(&root, "y", "y", "");
        until(&mut receiver, "added behind the turned link", |inventory| has(inventory, "y"));
    }

    #[test]
    fn a_mounted_volume_that_is_swapped_is_noticed() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        for version in ["1", "2"] {
            skill(root, &format!("..v{version}/x"), "x", &format!(r#","version":"{version}""#));
        }
        symlink("..v1", root.join("..data")).unwrap();
        symlink("..data/x", root.join("x")).unwrap();
        let (_watcher, mut receiver) = Watcher::start(Loader::new(config(&[root])), quick()).unwrap();
        let first = Arc::clone(&receiver.borrow().copies[0]);
        assert_eq!((first.definition.version.as_str(), &first.directory), ("1", &root.join("x")));
        assert!(first.check_unchanged().is_ok());
        symlink("..v2", root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        fs::remove_dir_all(root.join("..v1")).unwrap();
        assert!(first.check_unchanged().is_err());
        let second = until(&mut receiver, "swapped", |inventory| {
            inventory.copies.first().is_some_and(|copy| copy.definition.version == "2")
        });
        assert_eq!(second.copies[0].directory, root.join("x"));
        assert!(second.copies[0].check_unchanged().is_ok());
    }

    #[test]
    fn without_a_watcher_the_rescan_finds_changes() {
        let root = tempfile::tempdir().unwrap();
        let options = WatchOptions { rescan: Duration::from_millis(20), ..quick() };
        let loader = Loader::new(config(&[root.path()]));
        let (started, lines) = logged(|| Watcher::start_with(loader, options, no_watcher()));
        let (watcher, mut receiver) = started.unwrap();
        assert_eq!(lines.iter().filter(|line| line.contains("cannot watch")).count(), 1, "{lines:?}");
        assert!(!watcher.is_clean());
        let directory = skill(root.path(), "x", "x", "");
        until(&mut receiver, "added", |inventory| has(inventory, "x"));
        fs::remove_dir_all(directory).unwrap();
        until(&mut receiver, "removed", |inventory| !has(inventory, "x"));
    }

    #[test]
    fn a_rescan_on_demand_probes_programs_again() {
        let root = tempfile::tempdir().unwrap();
        let bin = tempfile::tempdir().unwrap();
        skill(root.path(), "x", "x", r#","metadata":{"requires":{"bins":["weft_case_tool"]}}"#);
        let mut config = config(&[root.path()]);
        config.host.skill_path = bin.path().into();
        let (watcher, mut receiver) =
            Watcher::start_with(Loader::new(config), quick(), no_watcher()).unwrap();
        assert!(!receiver.borrow().copies[0].eligible());
        script(&bin.path().join("weft_case_tool"), "#!/bin/sh\n");
        watcher.rescan_now();
        until(&mut receiver, "eligible", |inventory| inventory.copies[0].eligible());
        fs::remove_file(bin.path().join("weft_case_tool")).unwrap();
        watcher.rescan_now();
        until(&mut receiver, "ineligible", |inventory| !inventory.copies[0].eligible());
    }

    #[test]
    fn a_half_written_manifest_keeps_what_is_watched() {
        let root = tempfile::tempdir().unwrap();
        let directory = skill(root.path(), "x", "x", "");
        let (_watcher, mut receiver) = Watcher::start(Loader::new(config(&[root.path()])), quick()).unwrap();
        let text = fs::read_to_string(directory.join("skill.json")).unwrap();
        write(&directory.join("skill.json"), &text[..text.len() / 2]);
        let kept = until(&mut receiver, "reported", |inventory| !inventory.diagnostics.is_empty());
        assert!(has(&kept, "x"));
        write(&directory.join("skill.json"), text.replace("case x", "edited"));
        let edited = until(&mut receiver, "edited", |inventory| description(inventory, "x") == "edited");
        assert!(edited.diagnostics.is_empty());
    }

    #[test]
    fn trees_that_are_left_out_are_not_watched() {
        let root = tempfile::tempdir().unwrap();
        let directory = skill(root.path(), "x", "x", "");
        for index in 0..500 {
            write(&directory.join(format!("venv/lib/{index}/file")), "");
        }
        let mut loader = Loader::new(config(&[root.path()]));
        assert_eq!(loader.load(None).directories().count(), 2);
    }

    #[test]
    fn only_what_leads_to_a_root_matters_above_it() {
        let roots = ["/a/skills", "/b/c", "/w/.agents/skills"].map(PathBuf::from);
        for (path, expected) in [
            ("/a/skills", true),
            ("/a/skills/x/skill.json", true),
            ("/a/other", false),
            ("/b/other", false),
            ("/b/c/x", true),
            ("/b/c/__pycache__", false),
            ("/b/c/x.pyc", false),
            ("/a", true),
            ("/w/.agents", true),
            ("/w/.agents/skills", true),
            ("/w/.agents/other", false),
            ("/w/notes.md", false),
            ("/elsewhere/behind/a/link", true),
        ] {
            assert_eq!(matters(&roots, Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_storm_of_removals_costs_no_memory() {
        let shared = Arc::new(Shared::new(&config(&["/a"]), quick()));
        let notes = Notes(Arc::clone(&shared));
        for _ in 0..2 * MAX_REMOVED {
            notes.take(Heard::Moved(Path::new("/a/x")));
        }
        let state = shared.lock();
        assert!(state.first.is_some() && state.removed.all && state.removed.paths.is_empty());
    }

    #[test]
    fn what_follows_from_a_workspace_is_noticed_from_its_first_directory_on() {
        let workspace = tempfile::tempdir().unwrap();
        let agent: weft_core::ids::AgentId = "writer".parse().unwrap();
        let mut config = config::<&Path>(&[]);
        config.sources = vec![
            Source::workspace(agent.clone(), workspace.path()),
            Source::project(agent.clone(), workspace.path()),
        ];
        let (_watcher, mut receiver) = Watcher::start(Loader::new(config), quick()).unwrap();
        assert!(receiver.borrow().diagnostics.is_empty());
        for (directory, name) in [(".agents/skills", "x"), ("skills", "y")] {
            let key = SkillKey::normalise(name).unwrap();
            skill(&workspace.path().join(directory), name, name, "");
            until(&mut receiver, name, |inventory| inventory.winners(Some(&agent), &key).next().is_some());
        }
    }

    #[test]
    fn a_plugin_that_is_dropped_in_is_noticed() {
        let plugins = tempfile::tempdir().unwrap();
        let mut config = config::<&Path>(&[]);
        config.plugins.paths = vec![plugins.path().to_owned()];
        let (_watcher, mut receiver) = Watcher::start(Loader::new(config), quick()).unwrap();
        let root = plugins.path().join("p");
        write(&root.join("openclaw.plugin.json"), r#"{"id": "p", "skills": ["skills"]}"#);
        skill(&root, "skills/x", "x", "");
        until(&mut receiver, "dropped in", |inventory| has(inventory, "x"));
        skill(&root, "skills/y", "y", "");
        until(&mut receiver, "a skill in it", |inventory| has(inventory, "y"));
        write(&root.join("openclaw.plugin.json"), r#"{"id": "p"}"#);
        until(&mut receiver, "changed", |inventory| !has(inventory, "x"));
    }

    #[test]
    fn without_watching_only_who_asks_sees_changes() {
        let root = tempfile::tempdir().unwrap();
        let options = WatchOptions { watch: false, rescan: Duration::from_millis(1), ..quick() };
        let never: Open = Box::new(|_| panic!("nothing is watched"));
        let (watcher, mut receiver) =
            Watcher::start_with(Loader::new(config(&[root.path()])), options, never).unwrap();
        assert!(!watcher.is_clean());
        skill(root.path(), "x", "x", "");
        watcher.rescan_now();
        let first = until(&mut receiver, "asked", |inventory| has(inventory, "x"));
        skill(root.path(), "y", "y", "");
        let now = Instant::now();
        watcher.shared.lock().note(now);
        assert_eq!(
            watcher.shared.lock().deadline(now, now),
            None,
            "there is no time at which it looks by itself"
        );
        watcher.rescan_now();
        let second = until(&mut receiver, "asked again", |inventory| has(inventory, "y"));
        assert_eq!(second.revision, first.revision + 1);
        assert!(!watcher.is_clean());
    }

    #[test]
    fn another_configuration_is_read_and_watched_at_once() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        skill(old.path(), "x", "x", "");
        skill(new.path(), "y", "y", "");
        let (watcher, mut receiver) = Watcher::start(Loader::new(config(&[old.path()])), quick()).unwrap();
        let before = receiver.borrow_and_update().clone();
        watcher.reconfigure(config(&[new.path()]), quick());
        let after = until(&mut receiver, "reconfigured", |inventory| has(inventory, "y"));
        assert_eq!((after.revision, has(&after, "x")), (before.revision + 1, false));
        skill(new.path(), "z", "z", "");
        until(&mut receiver, "the new root is watched", |inventory| has(inventory, "z"));
        assert!(!watcher.shared.lock().roots.contains(&old.path().to_owned()));

        // Nothing changes that is told: what comes next is the next revision.
        let before = receiver.borrow_and_update().clone();
        watcher.reconfigure(config(&[new.path()]), quick());
        watcher.reconfigure(config(&[new.path()]), WatchOptions { watch: false, ..quick() });
        let mut switched_off = config(&[new.path()]);
        let entry = weft_core::entries::Entry { enabled: Some(false), ..Default::default() };
        switched_off.entries.insert(SkillKey::normalise("z").unwrap(), entry);
        watcher.reconfigure(switched_off, WatchOptions { watch: false, ..quick() });
        let off = until(&mut receiver, "switched off", |inventory| {
            inventory.copies.iter().any(|copy| !copy.eligible())
        });
        assert_eq!(off.revision, before.revision + 1);
        assert!(!watcher.is_clean(), "it does not watch any more");
        watcher.reconfigure(config(&[new.path()]), quick());
        let on =
            until(&mut receiver, "switched on", |inventory| inventory.copies.iter().all(|c| c.eligible()));
        skill(new.path(), "w", "w", "");
        let watched = until(&mut receiver, "watched again", |inventory| has(inventory, "w"));
        assert!(watched.revision > on.revision);
    }

    #[test]
    fn a_looser_reading_takes_what_was_refused_before() {
        let root = tempfile::tempdir().unwrap();
        skill(root.path(), "x", "x", r#","timeout_seconds":7200"#);
        let (watcher, mut receiver) = Watcher::start(Loader::new(config(&[root.path()])), quick()).unwrap();
        assert!(receiver.borrow().copies.is_empty());
        let longer = crate::Config { max_timeout: Duration::from_secs(7200), ..config(&[root.path()]) };
        watcher.reconfigure(longer, quick());
        until(&mut receiver, "taken", |inventory| has(inventory, "x"));
        watcher.reconfigure(config(&[root.path()]), quick());
        until(&mut receiver, "refused again", |inventory| !has(inventory, "x"));
    }

    /// Makes changes and returns when the last one began.
    fn burst(root: &Path, changes: usize, pause: Duration) -> Instant {
        let mut last = Instant::now();
        for n in 0..changes {
            std::thread::sleep(pause);
            last = Instant::now();
            write(&root.join("x/lib").join((n % 100).to_string()), n.to_string());
        }
        last
    }

    /// One revision for many changes, and the next for the next change. The debounce time is long enough for no busy
    /// machine to make a pause of that length between two changes.
    fn one_revision_for(changes: usize, pause: Duration) {
        let root = tempfile::tempdir().unwrap();
        skill(root.path(), "x", "x", "");
        fs::create_dir(root.path().join("x/lib")).unwrap();
        let options = WatchOptions { debounce: Duration::from_secs(1), ..quick() };
        let (watcher, mut receiver) = Watcher::start(Loader::new(config(&[root.path()])), options).unwrap();
        let before = receiver.borrow_and_update().revision;
        assert!(watcher.is_clean());
        let last = burst(root.path(), changes, pause);
        let after = until(&mut receiver, "the changes", |inventory| inventory.revision > before);
        assert!(last.elapsed() >= options.debounce, "it waited for the last change");
        assert_eq!(after.revision, before + 1);
        assert_eq!(after.copies[0].digest_now().unwrap(), after.copies[0].digest, "all changes are in it");
        // Revisions have no gaps, so that of one more change shows that there was no other before it.
        write(&root.path().join("x/more"), "");
        let more = until(&mut receiver, "one more", |inventory| inventory.revision > after.revision);
        assert_eq!(more.revision, before + 2);
    }

    #[test]
    fn a_burst_of_a_thousand_changes_is_one_revision() {
        one_revision_for(1000, Duration::ZERO);
    }

    #[test]
    fn vector_14_twenty_writes_within_200_ms_are_one_revision() {
        one_revision_for(20, Duration::from_millis(10));
    }
}
