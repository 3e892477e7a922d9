//! The option that names a configuration file, and what a file means for each role.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use weft_config::{Configuration, CoordinatorFile, Follower, Home, Loaded, NodeFile, Reload};
use weft_core::prompt::Limits;
use weft_skills::{Plugins, Source, WatchOptions};

use crate::{compat, exit::Failure};

/// Where packages put the skills that come with weft.
const BUNDLED: &str = "/usr/share/weft/skills";

/// The file of a daemon.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigOption {
    /// Configuration file, YAML or JSON; read again when it changes. Flags and variables outrank it
    #[arg(long = "config", env = "WEFT_CONFIG", value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
}

/// A file that is followed, or none.
pub(crate) struct Followed<T>(Option<(PathBuf, Follower<T>)>);

impl ConfigOption {
    /// Reads the file for the first time, if there is to be one.
    pub(crate) fn open<T: Configuration>(&self) -> Result<Followed<T>, Failure> {
        let Some(path) = self.path.clone() else { return Ok(Followed(None)) };
        let follower = Follower::open(path.clone(), home()).map_err(Failure::usage)?;
        Ok(Followed(Some((path, follower))))
    }
}

impl<T: Configuration + Default> Followed<T> {
    /// What holds now; warns of what is odd in it.
    pub(crate) fn first(&self) -> std::sync::Arc<T> {
        let Some((path, follower)) = &self.0 else { return std::sync::Arc::default() };
        let loaded = follower.watch().borrow().clone();
        for warning in &loaded.warnings {
            tracing::warn!(file = %path.display(), %warning, "configuration");
        }
        loaded.value.clone()
    }

    /// Has the file read at once; `None` when there is none.
    pub(crate) fn reload(&self) -> Option<Reload> {
        self.0.as_ref().map(|(_, follower)| follower.reload())
    }

    /// Tells each change, for ever.
    pub(crate) async fn follow(self, changed: impl Fn(&std::path::Path, &Loaded<T>)) {
        let Some((path, follower)) = self.0 else { return std::future::pending().await };
        let mut loaded = follower.watch();
        let tell = async {
            while loaded.changed().await.is_ok() {
                let now = loaded.borrow_and_update().clone();
                changed(&path, &now);
            }
        };
        tokio::select! {
            () = follower.run() => {}
            () = tell => {}
        }
    }
}

/// The home directory of whoever runs this.
pub(crate) fn home() -> Home {
    Home::new(home_directory())
}

fn home_directory() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// What a coordinator can change while it runs.
pub(crate) fn settings(file: &CoordinatorFile) -> weft_coordinator::Settings {
    let default = Limits::default();
    weft_coordinator::Settings {
        agents: file.agents.clone(),
        prompt: Limits {
            skills: file.max_skills_in_prompt.unwrap_or(default.skills),
            chars: file.max_prompt_chars.unwrap_or(default.chars),
        },
        sessions_follow: file.watch,
    }
}

/// Says of a node what its file says of skills, plugins and agents.
pub(crate) fn say_of_skills(file: &NodeFile, managed: Vec<PathBuf>, config: &mut weft_node::Config) {
    config.sources = sources(file, managed);
    config.plugins = plugins(file);
    config.watch = WatchOptions {
        watch: file.skills.watch,
        // Zero would read a file once for each of its writes.
        debounce: file.skills.debounce.max(Duration::from_millis(1)),
        ..WatchOptions::default()
    };
    config.host.config = file.document.0.clone();
    config.entries = file.skills.entries.clone();
    config.allow_bundled = file.skills.allow_bundled.clone();
    config.allow_always = file.skills.allow_always;
    config.agents = file.agents.clone();
    config.compat = compat::union(config.compat, &file.compat);
}

/// All layers, the highest first.
fn sources(file: &NodeFile, managed: Vec<PathBuf>) -> Vec<Source> {
    let common = file.agents.defaults.workspace.as_ref();
    let workspaces: Vec<_> = file
        .agents
        .list
        .iter()
        .filter_map(|(id, agent)| Some((id.clone(), agent.workspace.as_ref().or(common)?)))
        .collect();
    let own = workspaces.iter().flat_map(|(agent, directory)| {
        [Source::workspace(agent.clone(), directory), Source::project(agent.clone(), directory)]
    });
    let personal = home_directory().filter(|_| file.skills.personal).map(Source::personal);
    let bundled = file.skills.bundled_dir.clone().unwrap_or_else(|| BUNDLED.into());
    own.chain(personal)
        .chain(managed.into_iter().map(Source::managed))
        .chain([Source::bundled(bundled)])
        .chain(file.skills.extra_dirs.iter().map(Source::extra))
        .collect()
}

fn plugins(file: &NodeFile) -> Plugins {
    if !file.plugins.enabled {
        return Plugins::default();
    }
    let said = |(id, plugin): (&String, &weft_config::Plugin)| Some((id.clone(), plugin.enabled?));
    Plugins {
        paths: file.plugins.paths.clone(),
        enabled: file.plugins.entries.iter().filter_map(said).collect(),
    }
}
