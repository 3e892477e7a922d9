//! The tag: a number no other process carries, kept in two resource limits.
//!
//! RLIMIT_RTTIME only concerns realtime scheduling and its values here are thousands of years; RLIMIT_LOCKS has
//! had no effect since Linux 2.4. Limits are inherited by every descendant, survive `setsid`, double forks and
//! exec, and can be read from outside, which makes them marks of origin that work without any privilege. They
//! are no fence: a skill that lowers one of them takes that mark off, which is why there are two, and why the
//! tree also follows process groups and parentage.
//!
//! But a limit that was lowered cannot be raised again. So there is something that no descendant of a skill
//! takes off: *both* limits are below ours, from its birth on. A child that another part of this process
//! started was born with our own limits. This is how [`is_stray`] tells an orphan that a skill left behind,
//! whatever it did, from a child that is somebody else's to wait for.
//!
//! Two holes are left, both for a skill that means harm and is in no cgroup:
//!
//! - With CAP_SYS_RESOURCE it can raise both limits to ours again. What it then orphans in a session of its own
//!   is taken for somebody else's child: neither killed nor reaped. (Such a skill can also kill weft.)
//! - If weft itself is killed, [`Mark::sweep`] finds what carries one of the marks, and orphans with both
//!   limits lowered, but not one that set both to the same number above 2^61, as if it were of another weft.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{clone, proc, tree};

/// A tag, unique among the starts of this boot for all practical purposes: 29 random bits for the process, 32
/// counted.
pub(crate) type Tag = u64;

/// How many tags a process has.
const SEQUENCE: u64 = 1 << 32;
/// How many it has when it carries a tag itself.
const NESTED_SEQUENCE: u64 = 1 << 24;

static SEQUENCES: OnceLock<Sequence> = OnceLock::new();

/// No tag of a weft that runs in no other one is below this, nor any of its skills' limits unless lowered.
const LOWEST: Tag = 1 << 61;

/// The invocations of this process, of all its executors, that have begun and are not proven gone.
static RUNNING: Mutex<Vec<Invocation>> = Mutex::new(Vec::new());

struct Sequence {
    low: Tag,
    high: Tag,
    /// Our own limit, below which a mark must stay.
    locks: u64,
    used: AtomicU64,
}

fn sequence() -> io::Result<&'static Sequence> {
    if let Some(sequence) = SEQUENCES.get() {
        return Ok(sequence);
    }
    let ours = clone::marks(None)?;
    let (low, high) = range(ours.rttime);
    Ok(SEQUENCES.get_or_init(|| Sequence { low, high, locks: ours.locks, used: AtomicU64::new(0) }))
}

/// Two hard limits, which is where a tag is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    /// RLIMIT_RTTIME.
    pub(crate) rttime: u64,
    /// RLIMIT_LOCKS.
    pub(crate) locks: u64,
}

impl Marks {
    pub(crate) fn carry(self, tag: Tag) -> bool {
        self.rttime == tag || self.locks == tag
    }

    fn are_within(self, low: Tag, high: Tag) -> bool {
        [self.rttime, self.locks].iter().any(|&mark| low < mark && mark <= high)
    }

    fn are_below(self, ours: Marks) -> bool {
        self.rttime < ours.rttime && self.locks < ours.locks
    }
}

/// Says whether a child of ours that is no leader was left behind by a skill and has no invocation that will
/// see to it: it must be reaped, and ended if it lives.
///
/// A child that some other part of this process started is never a stray, unless it lowered both of its
/// limits itself.
pub(crate) fn is_stray(pid: u32, group: u32, marks: Marks, ours: Marks, running: &[Invocation]) -> bool {
    let theirs = |invocation: &Invocation| {
        let Invocation { tag, leader } = *invocation;
        marks.carry(tag) || leader == Some(pid) || leader == Some(group)
    };
    let of_the_past = || SEQUENCES.get().is_some_and(|ours| marks.are_within(ours.low, ours.high));
    (marks.are_below(ours) || of_the_past()) && !running.iter().any(theirs)
}

/// An invocation that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Invocation {
    tag: Tag,
    leader: Option<u32>,
}

/// Those of this process.
pub(crate) fn running() -> Vec<Invocation> {
    all_running().clone()
}

/// Whether no other invocation has begun that is not proven gone.
pub(crate) fn is_alone(tag: Tag) -> bool {
    all_running().iter().all(|invocation| invocation.tag == tag)
}

fn all_running() -> MutexGuard<'static, Vec<Invocation>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tag of one start. To be kept until nothing of it is left: what carries it after that is a stray.
#[derive(Debug)]
pub(crate) struct Lease {
    tag: Tag,
    locks: u64,
}

impl Lease {
    /// The next unused tag of this process. Every executor in the process draws from the same sequence.
    pub(crate) fn next() -> io::Result<Lease> {
        let sequence = sequence()?;
        let used = sequence.used.fetch_add(1, Ordering::Relaxed);
        let tag = sequence.high - used % (sequence.high - sequence.low);
        all_running().push(Invocation { tag, leader: None });
        Ok(Lease { tag, locks: tag.min(sequence.locks.saturating_sub(1)) })
    }

    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    /// What the child is to carry.
    pub(crate) fn marks(&self) -> Marks {
        Marks { rttime: self.tag, locks: self.locks }
    }

    /// Its leader was started: whatever is in that process group belongs to it too.
    pub(crate) fn led_by(&self, leader: u32) {
        let mut running = all_running();
        let ours = running.iter_mut().filter(|invocation| invocation.tag == self.tag);
        ours.for_each(|invocation| invocation.leader = Some(leader));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        all_running().retain(|invocation| invocation.tag != self.tag);
    }
}

/// The tags of this process: `low < tag <= high`. Below our own limit, as only root may raise one: a weft
/// that runs inside a skill of another weft carries that skill's tag.
fn range(ours: u64) -> (Tag, Tag) {
    let random = RandomState::new().hash_one(std::process::id());
    if ours == u64::MAX {
        let low = LOWEST | ((random & 0x1fff_ffff) << 32);
        (low, low + SEQUENCE - 1)
    } else {
        let high = ours.saturating_sub(1 + random % NESTED_SEQUENCE).max(2);
        (high.saturating_sub(NESTED_SEQUENCE).max(1), high)
    }
}

/// What marks every process that was ever started by the executors of one process. To be written down when a
/// node starts: after a crash, [`Mark::sweep`] finds what that node left running, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    boot: String,
    low: Tag,
    high: Tag,
}

impl Mark {
    /// The mark of the calling process.
    pub(crate) fn ours() -> io::Result<Mark> {
        let Sequence { low, high, .. } = *sequence()?;
        Ok(Mark { boot: boot_id()?, low, high })
    }

    /// Kills every process that carries the mark, and their descendants, until none is left or the limit is
    /// reached. Does nothing after a reboot. To be used for a process that has ended, never for one that
    /// lives.
    ///
    /// A process whose marks were taken off counts when it can only be a dead weft's orphan: both limits have
    /// numbers that neither a tag nor the calling process has, and its parent is the calling process or one
    /// above it. (A living weft keeps the orphans of its own skills.) What is not found even so: see the
    /// second hole at the head of `linux/tag.rs`.
    ///
    /// # Errors
    ///
    /// When the boot id cannot be read, so that nothing is known.
    pub fn sweep(&self, limit: Duration) -> io::Result<Swept> {
        let mut swept = Swept { killed: 0, left: Vec::new() };
        if boot_id()? != self.boot {
            return Ok(swept);
        }
        let give_up = Instant::now() + limit;
        let mut killed = HashSet::new();
        let reapers = proc::and_above(std::process::id());
        let without_limits = clone::marks(None)? == Marks { rttime: u64::MAX, locks: u64::MAX };
        loop {
            swept.left = tree::kill_marked(|pid, stat| {
                let Some(marks) = proc::marks(pid) else { return false };
                let lowered = without_limits && marks.are_below(Marks { rttime: LOWEST, locks: LOWEST });
                marks.are_within(self.low, self.high) || (lowered && reapers.contains(&stat.parent))
            });
            killed.extend(swept.left.iter().copied());
            swept.killed = u32::try_from(killed.len()).unwrap_or(u32::MAX);
            if swept.left.is_empty() || Instant::now() >= give_up {
                return Ok(swept);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// How many processes were killed.
    pub killed: u32,
    /// Processes that were still there at the limit.
    pub left: Vec<u32>,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:x}-{:x}", self.boot, self.low, self.high)
    }
}

/// The text is not a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a mark: expected boot-id/low-high")]
pub struct InvalidMark;

impl FromStr for Mark {
    type Err = InvalidMark;

    fn from_str(text: &str) -> Result<Mark, InvalidMark> {
        let (boot, range) = text.split_once('/').ok_or(InvalidMark)?;
        let (low, high) = range.split_once('-').ok_or(InvalidMark)?;
        let number = |text| u64::from_str_radix(text, 16).map_err(|_| InvalidMark);
        let mark = Mark { boot: boot.to_owned(), low: number(low)?, high: number(high)? };
        // A range that reaches an unlimited process would be everybody's.
        if mark.boot.is_empty() || mark.low == 0 || mark.low >= mark.high || mark.high >= 1 << 62 {
            return Err(InvalidMark);
        }
        Ok(mark)
    }
}

fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_stay_below_an_inherited_one() {
        let (low, high) = range(u64::MAX);
        assert!(low < high && high < 1 << 62);
        let (nested_low, nested_high) = range(low + 1);
        assert!(nested_low < nested_high && nested_high < low + 1);
    }

    #[test]
    fn tags_never_repeat() {
        let mut seen: Vec<Tag> = (0..100).map(|_| Lease::next().unwrap().tag()).collect();
        let mark = Mark::ours().unwrap();
        assert!(seen.iter().all(|&tag| mark.low < tag && tag <= mark.high));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn stray_is_what_has_both_limits_lowered_or_a_tag_of_the_past() {
        const FREE: u64 = u64::MAX;
        let (past, lease) = (Lease::next().unwrap().tag(), Lease::next().unwrap());
        lease.led_by(500);
        let (tag, running) = (lease.tag(), running());
        let ours = Marks { rttime: FREE, locks: FREE };
        let stray = |pid, group, rttime, locks| is_stray(pid, group, Marks { rttime, locks }, ours, &running);
        assert!(!stray(900, 900, FREE, FREE), "a child of somebody else in this process");
        assert!(!stray(900, 900, 200_000, FREE), "one that asked for realtime scheduling");
        assert!(!stray(900, 900, FREE, 10), "one that limits its locks");
        assert!(stray(900, 900, 200_000, 10));
        assert!(stray(900, 900, past, past) && stray(900, 900, 1, past) && stray(900, 900, past, 1));
        for (pid, group, rttime, locks) in
            [(900, 900, tag, tag), (900, 900, 1, tag), (900, 900, tag, 1), (900, 500, 1, 1), (500, 1, 1, 1)]
        {
            assert!(!stray(pid, group, rttime, locks), "its own invocation sees to it");
        }
        // In a weft within a skill of another weft, everything is below something.
        let ours = Marks { rttime: 70, locks: 70 };
        let stray = |rttime, locks| is_stray(900, 900, Marks { rttime, locks }, ours, &running);
        assert!(!stray(70, 70) && stray(60, 60));
    }

    #[test]
    fn tag_is_running_until_its_lease_ends() {
        let one = Lease::next().unwrap();
        let tag = one.tag();
        assert!(running().iter().any(|invocation| invocation.tag == tag));
        drop(one);
        assert!(!running().iter().any(|invocation| invocation.tag == tag));
    }

    #[test]
    fn mark_survives_being_written_down() {
        let mark = Mark::ours().unwrap();
        assert_eq!(mark.to_string().parse(), Ok(mark));
        for nonsense in ["", "x", "b/1", "/1-2", "b/0-2", "b/2-1", "b/1-ffffffffffffffff"] {
            assert_eq!(nonsense.parse::<Mark>(), Err(InvalidMark), "{nonsense}");
        }
    }

    #[test]
    fn mark_of_another_boot_touches_nothing() {
        let mut mark = Mark::ours().unwrap();
        mark.boot = "another".into();
        let swept = mark.sweep(Duration::ZERO).unwrap();
        assert_eq!(swept, Swept { killed: 0, left: Vec::new() });
    }
}
