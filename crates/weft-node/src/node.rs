//! Puts a node together and runs it.

use std::{path::Path, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use weft_core::{
    advert::Scope,
    ids::{JournalId, NodeId},
    skill::{Diagnostic, Severity},
};
use weft_daemon::{Drain, Readiness, TaskGroup};
use weft_exec::Executor;
use weft_skills::{ExactCopies, Loader, Watcher};

use crate::{
    config::Config,
    link::{Link, Unconnected},
    spool::Spool,
    state_dir::{StateDir, StateDirError},
    supervisor::{Ground, Supervisor},
};

/// Between two sweeps of the table of attempts.
const SWEEP: Duration = Duration::from_millis(250);
/// How long invocations that were told to end may take beyond their grace.
const KILL: Duration = Duration::from_secs(20);
/// How long a node that stops waits for a coordinator that records nothing.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Its state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// This host cannot run skills.
    #[error("cannot run skills here: {0}")]
    Executor(#[from] weft_exec::BuildError),
    /// Its directories cannot be watched.
    #[error("cannot watch the skills: {0}")]
    Watch(#[source] std::io::Error),
}

/// Changes a node while it runs.
#[derive(Clone)]
pub struct Handle(Supervisor);

impl Handle {
    /// Puts into effect what another configuration says of skills, plugins and agents, and reads the skills again. The
    /// rest of a configuration holds for a node's life.
    pub fn configure(&self, config: &Config) {
        self.0.configure(config);
    }

    /// Reads the skills again now.
    pub fn rescan(&self) {
        self.0.rescan();
    }

    /// Shows people at the coordinator that a file of the node's configuration is not in force, and why; `None` when all
    /// is well again.
    pub fn complain(&self, complaint: Option<(&Path, &str)>) {
        self.0.complain(complaint.map(|(path, why)| Diagnostic {
            severity: Severity::Error,
            path: path.display().to_string(),
            line: None,
            rule: "config".into(),
            message: format!("not in force, the last version is: {why}"),
            key: None,
            scope: Scope::All,
        }));
    }
}

/// A node that is ready to run.
pub struct Node {
    config: Config,
    id: NodeId,
    pub(crate) supervisor: Supervisor,
    pub(crate) tasks: TaskGroup,
    // Held for its lock.
    _state: StateDir,
}

impl Node {
    /// Takes the state directory, ends what an earlier life left running, loads the skills and makes the slots.
    /// Blocks.
    ///
    /// # Errors
    /// When the host or the state directory does not allow it.
    pub fn build(config: Config) -> Result<Self, BuildError> {
        let state = StateDir::take(&config.state_dir)?;
        let id = state.node_id()?;
        let mut exec = weft_exec::Config { stop_grace: config.stop_grace, ..weft_exec::Config::default() };
        if let Some(slots) = config.slots {
            exec.slots = slots;
        }
        let executor = Executor::build(exec)?;
        match executor.mark() {
            Ok(mark) => state.sweep_children(&mark)?,
            Err(error) => {
                tracing::warn!(%error, "cannot mark children: a crash of this node would leave them running")
            }
        }
        let (watcher, inventory) =
            Watcher::start(Loader::new(config.skills()), config.watch).map_err(BuildError::Watch)?;
        let exact = ExactCopies::open(config.state_dir.join("exact"))
            .map_err(|source| StateDirError::Io { path: config.state_dir.join("exact"), source })?;
        let spool = Spool::open(&config.state_dir)
            .map_err(|source| StateDirError::Io { path: config.state_dir.clone(), source })?;
        let tasks = TaskGroup::new();
        let supervisor = Supervisor::new(Ground {
            id: id.clone(),
            host: config.host.clone(),
            config: config.clone(),
            executor,
            watcher,
            inventory,
            exact,
            spool,
            tasks: tasks.clone(),
        });
        Ok(Self { config, id, supervisor, tasks, _state: state })
    }

    /// What changes it while it runs.
    pub fn handle(&self) -> Handle {
        Handle(self.supervisor.clone())
    }

    /// Its identity.
    pub fn id(&self) -> &NodeId {
        &self.id
    }

    /// How many skills it offers to every agent now.
    pub fn offers(&self) -> usize {
        let inventory = self.supervisor.inventory();
        let inventory = inventory.borrow();
        let offered = inventory.copies.iter().filter(|copy| copy.shadowed_by.is_none());
        offered.filter(|copy| copy.scope == Scope::All).count()
    }

    /// Runs until the drain has ended: finishes or ends what runs, and tells the coordinator. Not ready while it has
    /// none.
    pub fn run(self, drain: Drain, readiness: &Readiness) -> impl Future<Output = ()> + use<> {
        let unconnected = Unconnected::new(readiness.clone());
        self.run_with(drain, unconnected)
    }

    async fn run_with(self, drain: Drain, unconnected: Unconnected) {
        let Self { config, id, supervisor, tasks, _state } = self;
        tracing::info!(
            weft.node.id = %id, name = %config.name, slots = supervisor.slots(),
            skills = supervisor.inventory().borrow().copies.len(), "node ready"
        );
        let link_drain = Drain::new();
        let link = Link {
            // A journal in memory: a new life remembers nothing, and says so by a new id.
            journal: format!("j-{}", uuid::Uuid::now_v7().simple())
                .parse::<JournalId>()
                .expect("a UUID is a valid journal id"),
            boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .unwrap_or_default()
                .trim()
                .into(),
            node_id: id,
            supervisor: supervisor.clone(),
            drain: link_drain.clone(),
            previous_epoch: 0,
            unconnected,
            config: config.clone(),
        };
        tasks.spawn(link.run());
        let sweeper = supervisor.clone();
        let stop = link_drain.stop_token().clone();
        tasks.spawn(async move {
            let mut tick = interval(SWEEP);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut inventory = sweeper.inventory();
            loop {
                tokio::select! {
                    _ = tick.tick() => sweeper.sweep(),
                    Ok(()) = inventory.changed() => {
                        let sweeper = sweeper.clone();
                        let _ = tokio::task::spawn_blocking(move || sweeper.forget_exact_copies()).await;
                    }
                    () = stop.cancelled() => return,
                }
            }
        });

        drain.begun().await;
        supervisor.refuse_new();
        link_drain.begin();
        let limit = Instant::now() + config.drain;
        let (running, queued) = supervisor.load();
        tracing::info!(running, queued, limit_s = config.drain.as_secs(), "draining");
        tokio::select! {
            _ = timeout(config.drain, supervisor.idle()) => {}
            () = drain.stopped() => {}
        }
        supervisor.stop_all();
        // Whatever a child does, its node ends.
        if timeout(config.stop_grace + KILL, supervisor.idle()).await.is_err() {
            tracing::error!("stopping although invocations have not ended");
        }
        // As long as it takes something, what is left is worth waiting for.
        let mut untold = supervisor.untold();
        while timeout(LAST_WORDS, supervisor.told()).await.is_err() {
            let left = supervisor.untold();
            if left >= untold || Instant::now() >= limit || drain.stop_token().is_cancelled() {
                tracing::warn!(left, "stopping although the coordinator has not recorded all news");
                break;
            }
            untold = left;
        }
        link_drain.stop();
        drain.stop();
        let left = tasks.join(LAST_WORDS).await;
        if left > 0 {
            tracing::warn!(left, "tasks did not end in time");
        }
        let _ = tokio::task::spawn_blocking(move || supervisor.close()).await;
        tracing::info!("node stopped");
    }
}
