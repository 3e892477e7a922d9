//! What this system offers for holding process trees together.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, set_child_subreaper};
use weft_core::outcome::Exit;

use crate::config::{BuildError, ContainmentChoice};
use crate::linux::cgroup::{Group, NoCgroup, Pool};
use crate::linux::clone::{self, Call, Failure, Placement, Recipe, Stack};
use crate::linux::proc::Orphans;
use crate::linux::reap;
use crate::linux::tag::Lease;

/// What holds the process trees of an executor together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Containment {
    /// A cgroup per slot, below the executor's own at this path.
    Cgroup {
        /// Directory of the executor's group.
        path: PathBuf,
    },
    /// An inherited tag on every process, with orphans re-parented to this process.
    Tag,
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Containment::Cgroup { path } => write!(f, "cgroup {}", path.display()),
            Containment::Tag => f.write_str("tag"),
        }
    }
}

/// What an executor found when it was built, for a doctor's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// What is in use.
    pub containment: Containment,
    /// Why it is not a cgroup, when it is not.
    pub no_cgroup: Option<NoCgroup>,
    /// Whether `clone3` works; container runtimes often block it. Without it a child enters its cgroup by
    /// itself.
    pub clone3: bool,
    /// Whether the kernel lists children (`/proc/PID/task/TID/children`). Without that, every end scans all
    /// processes.
    pub child_lists: bool,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "containment {}", self.containment)?;
        if let Some(why) = &self.no_cgroup {
            write!(f, " (cgroup: {why})")?;
        }
        write!(f, ", start by {}", if self.clone3 { "clone3" } else { "clone" })?;
        if !self.child_lists {
            f.write_str(", no child lists: every end scans /proc")?;
        }
        Ok(())
    }
}

/// What the slots share of the system.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) call: Call,
    /// A child enters its group by itself instead of being born there.
    pub(crate) enter: bool,
    pub(crate) orphans: Option<Orphans>,
    pool: Mutex<Option<Pool>>,
    pub(crate) probe: Probe,
}

impl Ground {
    /// Looks once at what the system can do, and starts two or three children that do nothing.
    pub(crate) fn survey(choice: ContainmentChoice) -> Result<Ground, BuildError> {
        Ground::survey_with(choice, &[Call::Clone3, Call::Clone])
    }

    fn survey_with(choice: ContainmentChoice, calls: &[Call]) -> Result<Ground, BuildError> {
        let unsupported = |what| move |source| BuildError::Unsupported { what, source };
        clone::keep_exit_statuses().map_err(unsupported("set the default action of SIGCHLD"))?;
        set_child_subreaper(Pid::from_raw(1))
            .map_err(|errno| unsupported("become a sub-reaper")(errno.into()))?;
        let mut stack = Stack::new().map_err(unsupported("map a stack for children"))?;
        let call = working_call(calls, &mut stack).map_err(unsupported("start a child"))?;
        let orphans = Orphans::open().ok();

        let cgroup = match choice {
            ContainmentChoice::Tag => Err(NoCgroup::NotAsked),
            ContainmentChoice::Auto | ContainmentChoice::Cgroup => {
                Pool::make().and_then(|pool| Ok((placement(call, &mut stack, &pool)?, pool)))
            }
        };
        let (pool, enter, no_cgroup) = match cgroup {
            Ok((enter, pool)) => (Some(pool), enter, None),
            Err(why) if choice == ContainmentChoice::Cgroup => return Err(BuildError::Cgroup(why)),
            Err(why) => (None, false, Some(why)),
        };
        let containment = pool
            .as_ref()
            .map_or(Containment::Tag, |pool| Containment::Cgroup { path: pool.path().to_owned() });
        let probe =
            Probe { containment, no_cgroup, clone3: call == Call::Clone3, child_lists: orphans.is_some() };
        Ok(Ground { call, enter, orphans, pool: Mutex::new(pool), probe })
    }

    /// Makes the group of a slot, when there are groups.
    pub(crate) fn group(&self, slot: usize) -> Result<Option<Group>, BuildError> {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pool) = &*pool else { return Ok(None) };
        let made = pool.group(slot);
        made.map(Some).map_err(|source| BuildError::Unsupported { what: "make the cgroup of a slot", source })
    }

    /// Removes the cgroups.
    pub(crate) fn release(&self) {
        drop(self.pool.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    pub(crate) fn placement<'a>(&self, group: Option<&'a Group>) -> Placement<'a> {
        match group {
            None => Placement::Inherit,
            Some(group) if self.enter || group.was_killed() => Placement::Enter(group.enter()),
            Some(group) => Placement::Born(group.directory()),
        }
    }
}

/// The first of the calls that makes a child; the error of the last when none does.
fn working_call(calls: &[Call], stack: &mut Stack) -> io::Result<Call> {
    let lease = Lease::next()?;
    let mut refusal = io::Error::from(io::ErrorKind::Unsupported);
    for &call in calls {
        match try_child(call, stack, Placement::Inherit, &lease) {
            Ok(()) => return Ok(call),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// Whether children have to enter their group by themselves; an error when they cannot do that either.
fn placement(call: Call, stack: &mut Stack, pool: &Pool) -> Result<bool, NoCgroup> {
    let refused = |error: io::Error| NoCgroup::NoPlacement(error.to_string());
    let probe = pool.group_named("probe").map_err(refused)?;
    let lease = Lease::next().map_err(refused)?;
    let born =
        call == Call::Clone3 && try_child(call, stack, Placement::Born(probe.directory()), &lease).is_ok();
    let placed = if born {
        Ok(false)
    } else {
        try_child(call, stack, Placement::Enter(probe.enter()), &lease).map(|()| true)
    };
    remove_probe(probe.path());
    placed.map_err(refused)
}

fn remove_probe(path: &Path) {
    if let Err(error) = std::fs::remove_dir(path) {
        tracing::debug!(path = %path.display(), %error, "probe cgroup stays until the executor ends");
    }
}

fn try_child(call: Call, stack: &mut Stack, placement: Placement<'_>, lease: &Lease) -> io::Result<()> {
    let recipe = Recipe { image: None, stdio: None, placement, marks: Some(lease.marks()) };
    let failed = |Failure { step, errno }| {
        io::Error::other(format!("failed to {}: {}", step.verb(), io::Error::from_raw_os_error(errno)))
    };
    let child = clone::start(call, stack, &recipe).map_err(failed)?;
    match reap(&child.pidfd) {
        Some(Exit::Code(0)) => Ok(()),
        other => Err(io::Error::other(format!("a child that does nothing ended with {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::{Command, Config, Ending, Executor, Observer};

    struct Deaf;

    impl Observer for Deaf {
        fn started(&mut self, _: u32, _: std::time::SystemTime) {}
        fn stderr(&mut self, _: Bytes) {}
        fn stderr_dropped(&mut self, _: u64) {}
    }

    /// As under a container runtime's seccomp profile.
    #[test]
    fn everything_works_without_clone3() {
        for choice in [ContainmentChoice::Cgroup, ContainmentChoice::Tag] {
            let ground = match Ground::survey_with(choice, &[Call::Clone]) {
                Err(BuildError::Cgroup(_)) => continue,
                other => other.unwrap(),
            };
            assert!(!ground.probe.clone3);
            assert_eq!(ground.enter, choice == ContainmentChoice::Cgroup);
            let executor = Executor::build_on(Config { slots: 1, ..Config::default() }, ground).unwrap();
            let command = Command {
                program: "/bin/sh".into(),
                directory: "/".into(),
                environment: vec![(OsString::from("PATH"), OsString::from("/usr/bin:/bin"))],
                stdin: Bytes::from("setsid sleep 3901.5 >/dev/null 2>&1 &\ncat /proc/self/cgroup\n"),
                budget: Duration::from_secs(60),
                stop_grace: None,
            };
            for _ in 0..3 {
                let mut running = executor.try_start(command.clone(), Box::new(Deaf)).unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let report = runtime.block_on(running.wait());
                assert_eq!((&report.ending, report.leftovers_killed), (&Ending::Exited, 1), "{report:?}");
                let group = String::from_utf8_lossy(&report.stdout).into_owned();
                assert_eq!(group.contains("/slot-0"), choice == ContainmentChoice::Cgroup, "{group}");
            }
        }
    }

    #[test]
    fn probe_is_readable() {
        let probe = Probe {
            containment: Containment::Tag,
            no_cgroup: Some(NoCgroup::NoKillFile),
            clone3: false,
            child_lists: true,
        };
        assert_eq!(
            probe.to_string(),
            "containment tag (cgroup: the kernel has no cgroup.kill (Linux 5.14)), start by clone"
        );
    }
}
