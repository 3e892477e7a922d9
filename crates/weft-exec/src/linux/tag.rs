//! The tag: an RLIMIT_RTTIME no other process carries.
//!
//! The limit only concerns realtime scheduling and its values here are thousands of years, so it has no
//! effect. It is inherited by every descendant, survives `setsid`, double forks and exec, and can be read
//! from outside, which makes it a mark of origin that works without any privilege. It is not a fence: a skill
//! that lowers its own limit takes the mark off, which is why the tree also follows process groups and
//! parentage.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{clone, tree};

/// A tag, unique among the starts of this boot for all practical purposes: 29 random bits for the process, 32
/// counted.
pub(crate) type Tag = u64;

/// How many tags a process has.
const SEQUENCE: u64 = 1 << 32;
/// How many it has when it carries a tag itself.
const NESTED_SEQUENCE: u64 = 1 << 24;

static SEQUENCES: OnceLock<Sequence> = OnceLock::new();

struct Sequence {
    low: Tag,
    high: Tag,
    used: AtomicU64,
}

/// The next unused tag of this process. Every executor in the process draws from the same sequence.
pub(crate) fn next() -> io::Result<Tag> {
    let sequence = sequence()?;
    let used = sequence.used.fetch_add(1, Ordering::Relaxed);
    Ok(sequence.high - used % (sequence.high - sequence.low))
}

fn sequence() -> io::Result<&'static Sequence> {
    if let Some(sequence) = SEQUENCES.get() {
        return Ok(sequence);
    }
    let (low, high) = range(clone::rttime_limit(None)?);
    Ok(SEQUENCES.get_or_init(|| Sequence { low, high, used: AtomicU64::new(0) }))
}

/// The tags of this process: `low < tag <= high`. Below our own limit, as only root may raise one: a weft
/// that runs inside a skill of another weft carries that skill's tag.
fn range(ours: u64) -> (Tag, Tag) {
    let random = RandomState::new().hash_one(std::process::id());
    if ours == u64::MAX {
        let low = (1 << 61) | ((random & 0x1fff_ffff) << 32);
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
        loop {
            swept.left = tree::kill_marked(|tag| self.low < tag && tag <= self.high);
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
        let mut seen: Vec<Tag> = (0..100).map(|_| next().unwrap()).collect();
        let mark = Mark::ours().unwrap();
        assert!(seen.iter().all(|&tag| mark.low < tag && tag <= mark.high));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 100);
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
