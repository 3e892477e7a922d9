//! The kernel, and what holds a skill's processes together.

use std::fs;

use weft_exec::{Config, Containment, Executor, Probe};

use super::Check;

/// The oldest kernel that can end a whole cgroup.
const CGROUP_KILL: (u32, u32) = (5, 14);
/// The oldest kernel on which a child can be waited for by descriptor.
const PIDFD: (u32, u32) = (5, 4);

/// Checks the host for a node whose skills lie in so many directories.
pub(super) fn checks(directories: usize) -> Vec<Check> {
    let mut checks = vec![kernel(rustix::system::uname().release().to_string_lossy().as_ref())];
    checks.push(cgroup(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default()));
    match Executor::build(Config { slots: 1, ..Config::default() }) {
        Ok(executor) => {
            checks.push(containment(executor.probe()));
            checks.push(start(executor.probe()));
            checks.push(sub_reaper());
            executor.close();
        }
        Err(error) => {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            checks.push(Check::fail(
                "containment",
                format!("{error}{cause}"),
                "no skill can run on this host",
            ));
        }
    }
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).ok()?;
        text.trim().parse().ok()
    };
    checks.push(inotify(limit("max_user_watches"), limit("max_user_instances"), directories));
    checks
}

fn kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let found = format!("Linux {release}");
    if version < PIDFD {
        Check::fail("kernel", found, "a node needs Linux 5.4 or later")
    } else if version < CGROUP_KILL {
        Check::warn("kernel", found, "from Linux 5.14 on, a node can use cgroups")
    } else {
        Check::ok("kernel", found)
    }
}

fn cgroup(membership: &str) -> Check {
    match membership.lines().find_map(|line| line.strip_prefix("0::")) {
        Some(path) => Check::ok("cgroup", format!("this process is in {path} of the cgroup v2 hierarchy")),
        None => Check::warn(
            "cgroup",
            "this process is in no cgroup v2 hierarchy",
            "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)",
        ),
    }
}

fn containment(probe: &Probe) -> Check {
    match (&probe.containment, &probe.no_cgroup) {
        (Containment::Cgroup { path }, _) => {
            let below = path.parent().unwrap_or(path).display();
            Check::ok("containment", format!("cgroup: one group a slot, below {below}"))
        }
        (Containment::Tag, why) => {
            let why = why.as_ref().map(|why| format!("; no cgroup: {why}")).unwrap_or_default();
            Check::warn(
                "containment",
                format!("tag: each child carries one, and a sub-reaper ends all that do{why}"),
                "this works; for the better way give the node a writable cgroup v2, in a unit of systemd by \
                 Delegate=yes",
            )
        }
    }
}

fn start(probe: &Probe) -> Check {
    match (probe.clone3, probe.child_lists) {
        (true, true) => Check::ok("start", "children start by clone3; the kernel lists children"),
        (false, true) => {
            Check::ok("start", "children start by clone, since clone3 is blocked; the kernel lists children")
        }
        (_, false) => Check::warn(
            "start",
            "the kernel does not list children, so the end of each skill scans all of /proc",
            "use a kernel with CONFIG_PROC_CHILDREN, and mount /proc without hidepid",
        ),
    }
}

/// Asked after the executor was built, which makes this process one.
fn sub_reaper() -> Check {
    match rustix::process::child_subreaper() {
        Ok(Some(_)) => Check::ok("sub-reaper", "orphans of skills come to the node"),
        other => {
            Check::fail("sub-reaper", format!("not possible: {other:?}"), "orphans of skills would be lost")
        }
    }
}

fn inotify(watches: Option<u64>, instances: Option<u64>, directories: usize) -> Check {
    let (Some(watches), Some(instances)) = (watches, instances) else {
        return Check::warn("inotify", "not available", "changes of skills are seen within 30 s only");
    };
    let found = format!(
        "{watches} watches and {instances} instances a user; the skills here need {directories} and 1"
    );
    // Others of the same user need some as well.
    if watches < 2 * directories as u64 || watches < 1024 || instances < 16 {
        let advice =
            "raise fs.inotify.max_user_watches and max_user_instances; else changes are seen within 30 s";
        return Check::warn("inotify", found, advice);
    }
    Check::ok("inotify", found)
}

#[cfg(test)]
mod tests {
    use weft_exec::NoCgroup;

    use super::{super::Verdict, *};

    #[test]
    fn kernels_are_told_apart() {
        for (release, verdict) in [
            ("6.18.0-rc1", Verdict::Ok),
            ("5.14.0-70.el9", Verdict::Ok),
            ("5.10.0", Verdict::Warn),
            ("4.18.0-x", Verdict::Fail),
            ("odd", Verdict::Fail),
        ] {
            assert_eq!(kernel(release).verdict, verdict, "{release}");
        }
    }

    #[test]
    fn a_tag_says_why_it_is_no_cgroup() {
        let probe = Probe {
            containment: Containment::Tag,
            no_cgroup: Some(NoCgroup::NoKillFile),
            clone3: true,
            child_lists: true,
        };
        let check = containment(&probe);
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.found.contains("cgroup.kill") && check.advice.contains("Delegate"), "{check:?}");
    }

    #[test]
    fn too_few_watches_are_a_warning() {
        assert_eq!(inotify(Some(100_000), Some(128), 40).verdict, Verdict::Ok);
        assert_eq!(inotify(Some(100_000), Some(128), 60_000).verdict, Verdict::Warn);
        assert_eq!(inotify(None, Some(128), 0).verdict, Verdict::Warn);
    }
}
