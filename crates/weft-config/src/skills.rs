//! The `skills` block of a node's file: where skills come from, and what is said of single ones.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use weft_core::{entries::Entries, ids::SkillKey};

use crate::{agents::skill_list, check::Check, entries, home::Home, table::Place};

/// How long the disk must be quiet before a change is read, unless the file says otherwise.
pub const DEBOUNCE: Duration = Duration::from_millis(250);

/// Where a node's skills come from, and what its operator says of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skills {
    /// The managed directories, the first of which wins. A relative one stays as written: the loader skips it and
    /// says so. `None`: the file says nothing, and a flag or a variable may.
    pub dirs: Option<Vec<PathBuf>>,
    /// Whether `~/.agents/skills` counts.
    pub personal: bool,
    /// The directory of bundled skills.
    pub bundled_dir: Option<PathBuf>,
    /// The bundled skills that count. `None`: all; empty: none. (OpenClaw takes an empty list for all.)
    pub allow_bundled: Option<BTreeSet<SkillKey>>,
    /// Whether `always: true` in a document waives its gates.
    pub allow_always: bool,
    /// Directories of the lowest layer.
    pub extra_dirs: Vec<PathBuf>,
    /// Whether the disk is watched, beyond the periodic look.
    pub watch: bool,
    /// How long the disk must be quiet before a change is read.
    pub debounce: Duration,
    /// What is said of single skills.
    pub entries: Entries,
}

impl Default for Skills {
    fn default() -> Self {
        Self {
            dirs: None,
            personal: true,
            bundled_dir: None,
            allow_bundled: None,
            allow_always: false,
            extra_dirs: Vec::new(),
            watch: true,
            debounce: DEBOUNCE,
            entries: Entries::new(),
        }
    }
}

impl Skills {
    pub(crate) fn read(place: &Place<'_>, check: &mut Check, home: &Home) -> Self {
        let mut skills = Self::default();
        let Some(mut table) = place.table(check) else { return skills };
        skills.dirs = table.get(check, "dirs").map(|place| place.paths(check, home));
        if let Some(personal) = table.get(check, "personal").and_then(|place| place.flag(check)) {
            skills.personal = personal;
        }
        skills.bundled_dir = table.get(check, "bundledDir").and_then(|place| place.path(check, home));
        skills.allow_bundled = table.get(check, "allowBundled").and_then(|place| skill_list(&place, check));
        if let Some(always) = table.get(check, "allowAlways").and_then(|place| place.flag(check)) {
            skills.allow_always = always;
        }
        if let Some(place) = table.get(check, "load") {
            skills.read_load(&place, check, home);
        }
        if let Some(place) = table.get(check, "entries") {
            skills.entries = entries::read(&place, check, home);
        }
        table.finish(check);
        skills
    }

    fn read_load(&mut self, place: &Place<'_>, check: &mut Check, home: &Home) {
        let Some(mut table) = place.table(check) else { return };
        if let Some(place) = table.get(check, "extraDirs") {
            self.extra_dirs = place.paths(check, home);
        }
        if let Some(watch) = table.get(check, "watch").and_then(|place| place.flag(check)) {
            self.watch = watch;
        }
        let debounce = table.get(check, "watchDebounceMs").and_then(|place| place.whole(check, 0..=60_000));
        if let Some(milliseconds) = debounce {
            self.debounce = Duration::from_millis(milliseconds);
        }
        table.finish(check);
    }
}
