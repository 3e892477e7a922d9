//! The `plugins` block of a node's file.

use std::{collections::BTreeMap, path::PathBuf};

use crate::{check::Check, entries::mapping, free::Free, home::Home, table::Place, tree::Kind};

/// Where a node finds plugins, and what its operator says of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugins {
    /// Whether plugins count at all.
    pub enabled: bool,
    /// Directories of plugins, or directories that hold some.
    pub paths: Vec<PathBuf>,
    /// What is said of single plugins, by their id.
    pub entries: BTreeMap<String, Plugin>,
}

/// What is said of one plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plugin {
    /// Whether it counts. `None`: silent.
    pub enabled: Option<bool>,
    /// The plugin's own settings; null when there are none.
    pub config: Free,
}

impl Default for Plugins {
    fn default() -> Self {
        Self { enabled: true, paths: Vec::new(), entries: BTreeMap::new() }
    }
}

impl Plugins {
    pub(crate) fn read(place: &Place<'_>, check: &mut Check, home: &Home) -> Self {
        let mut plugins = Self::default();
        let Some(mut table) = place.table(check) else { return plugins };
        if let Some(enabled) = table.get(check, "enabled").and_then(|place| place.flag(check)) {
            plugins.enabled = enabled;
        }
        if let Some(mut load) = table.get(check, "load").and_then(|place| place.table(check)) {
            if let Some(place) = load.get(check, "paths") {
                plugins.paths = place.paths(check, home);
            }
            load.finish(check);
        }
        if let Some(place) = table.get(check, "entries") {
            for (id, place) in place.members(check).unwrap_or_default() {
                plugins.entries.insert(id.to_owned(), Plugin::read(&place, check));
            }
        }
        table.finish(check);
        plugins
    }
}

impl Plugin {
    fn read(place: &Place<'_>, check: &mut Check) -> Self {
        let mut plugin = Self::default();
        if matches!(place.kind(), Kind::Null) {
            return plugin;
        }
        let Some(mut table) = place.table(check) else { return plugin };
        plugin.enabled = table.get(check, "enabled").and_then(|place| place.flag(check));
        if let Some(place) = mapping(&mut table, check, "config") {
            plugin.config = Free(place.value());
        }
        table.finish(check);
        plugin
    }
}
