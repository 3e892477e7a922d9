//! What a child writes: stdout collected up to a limit, stderr passed on by line.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use crate::command::Observer;

/// Most bytes in one chunk of stderr.
const CHUNK_BYTES: usize = 64 * 1024;
/// A line longer than this is passed on in pieces.
const LINE_BYTES: usize = 8 * 1024;
/// A line without an end is passed on after this long.
const PARTIAL_LINE: Duration = Duration::from_millis(100);
/// Dropped bytes are told at most this often.
const DROP_NOTICE: Duration = Duration::from_millis(500);
/// How much of a stream's end is kept for the report.
const TAIL_BYTES: usize = 64 * 1024;

// === impl Audience ===

/// The observer, kept from taking the slot's thread down with it.
pub(crate) struct Audience(Option<Box<dyn Observer>>);

impl Audience {
    pub(crate) fn new(observer: Box<dyn Observer>) -> Audience {
        Audience(Some(observer))
    }

    pub(crate) fn started(&mut self, pid: u32, at: SystemTime) {
        self.tell(|observer| observer.started(pid, at));
    }

    fn tell(&mut self, what: impl FnOnce(&mut dyn Observer)) {
        let Some(observer) = self.0.as_deref_mut() else { return };
        if catch_unwind(AssertUnwindSafe(|| what(observer))).is_err() {
            tracing::error!("observer of an invocation panicked");
            self.0 = None;
        }
    }
}

// === impl Stdout ===

/// Stdout, whole or not at all.
#[derive(Debug)]
pub(crate) struct Stdout {
    bytes: Vec<u8>,
    limit: u64,
    total: u64,
}

impl Stdout {
    pub(crate) fn new(limit: u64) -> Stdout {
        Stdout { bytes: Vec::new(), limit, total: 0 }
    }

    /// False when the limit has been exceeded.
    pub(crate) fn push(&mut self, data: &[u8]) -> bool {
        let room = usize::try_from(self.limit.saturating_sub(self.total)).unwrap_or(usize::MAX);
        self.total += data.len() as u64;
        self.bytes.extend_from_slice(&data[..data.len().min(room)]);
        self.total <= self.limit
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn into_bytes(mut self) -> Bytes {
        if self.total > self.limit {
            let from = self.bytes.len().saturating_sub(TAIL_BYTES);
            return Bytes::copy_from_slice(&self.bytes[from..]);
        }
        self.bytes.shrink_to_fit();
        Bytes::from(self.bytes)
    }
}

// === impl Stderr ===

/// Stderr on its way to the observer.
#[derive(Debug)]
pub(crate) struct Stderr {
    limit: u64,
    total: u64,
    dropped: u64,
    untold: u64,
    last_notice: Option<Instant>,
    /// Not passed on yet: at most one piece of a line.
    partial: Vec<u8>,
    partial_since: Option<Instant>,
    tail: Vec<u8>,
}

impl Stderr {
    pub(crate) fn new(limit: u64) -> Stderr {
        Stderr {
            limit,
            total: 0,
            dropped: 0,
            untold: 0,
            last_notice: None,
            partial: Vec::new(),
            partial_since: None,
            tail: Vec::new(),
        }
    }

    /// Takes what was read at `now`.
    pub(crate) fn push(&mut self, data: &[u8], now: Instant, audience: &mut Audience) {
        let room = usize::try_from(self.limit.saturating_sub(self.total)).unwrap_or(usize::MAX);
        let (wanted, surplus) = data.split_at(data.len().min(room));
        self.total += data.len() as u64;
        keep_tail(&mut self.tail, data);
        if !wanted.is_empty() {
            self.forward(wanted, now, audience);
        }
        if !surplus.is_empty() {
            self.flush_partial(audience);
            self.dropped += surplus.len() as u64;
            self.untold += surplus.len() as u64;
            self.last_notice.get_or_insert(now);
        }
        self.tick(now, audience);
    }

    fn forward(&mut self, data: &[u8], now: Instant, audience: &mut Audience) {
        let had_partial = !self.partial.is_empty();
        self.partial.extend_from_slice(data);
        let mut sent = 0;
        while let Some(length) = next_chunk(&self.partial[sent..]) {
            let chunk = Bytes::copy_from_slice(&self.partial[sent..sent + length]);
            audience.tell(|observer| observer.stderr(chunk));
            sent += length;
        }
        self.partial.drain(..sent);
        if self.partial.is_empty() {
            self.partial_since = None;
        } else if sent > 0 || !had_partial {
            self.partial_since = Some(now);
        }
    }

    fn flush_partial(&mut self, audience: &mut Audience) {
        self.partial_since = None;
        if !self.partial.is_empty() {
            let chunk = Bytes::copy_from_slice(&self.partial);
            self.partial.clear();
            audience.tell(|observer| observer.stderr(chunk));
        }
    }

    fn tell_dropped(&mut self, audience: &mut Audience) {
        let bytes = std::mem::take(&mut self.untold);
        if bytes > 0 {
            audience.tell(|observer| observer.stderr_dropped(bytes));
        }
    }

    /// When [`Stderr::tick`] has something to do next.
    pub(crate) fn due(&self) -> Option<Instant> {
        let partial = self.partial_since.map(|since| since + PARTIAL_LINE);
        let notice = self.last_notice.filter(|_| self.untold > 0).map(|last| last + DROP_NOTICE);
        [partial, notice].into_iter().flatten().min()
    }

    /// Passes on what has waited long enough.
    pub(crate) fn tick(&mut self, now: Instant, audience: &mut Audience) {
        if self.partial_since.is_some_and(|since| now >= since + PARTIAL_LINE) {
            self.flush_partial(audience);
        }
        if self.untold > 0 && self.last_notice.is_some_and(|last| now >= last + DROP_NOTICE) {
            self.last_notice = Some(now);
            self.tell_dropped(audience);
        }
    }

    /// Passes on everything: nothing more will come.
    pub(crate) fn finish(&mut self, audience: &mut Audience) {
        self.flush_partial(audience);
        self.tell_dropped(audience);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn into_tail(mut self) -> Bytes {
        let from = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..from);
        self.tail.shrink_to_fit();
        Bytes::from(self.tail)
    }
}

/// Length of the next chunk to pass on without waiting for more: whole lines, or one piece of a line that is
/// too long. No line or piece in it is longer than [`LINE_BYTES`].
fn next_chunk(buffered: &[u8]) -> Option<usize> {
    let mut whole = 0;
    loop {
        let rest = &buffered[whole..];
        let window = &rest[..rest.len().min(LINE_BYTES)];
        match window.iter().position(|&byte| byte == b'\n') {
            Some(end) if whole + end < CHUNK_BYTES => whole += end + 1,
            Some(_) => return Some(whole),
            None if whole > 0 => return Some(whole),
            None if window.len() == LINE_BYTES => return Some(LINE_BYTES),
            None => return None,
        }
    }
}

/// Appends, and cuts the front off now and then; amortised, so the tail may be twice as long for a while.
fn keep_tail(tail: &mut Vec<u8>, data: &[u8]) {
    let data = &data[data.len().saturating_sub(TAIL_BYTES)..];
    if tail.len() + data.len() > 2 * TAIL_BYTES {
        let from = (tail.len() + data.len()).saturating_sub(TAIL_BYTES).min(tail.len());
        tail.drain(..from);
    }
    tail.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Heard {
        chunks: Vec<Bytes>,
        dropped: Vec<u64>,
    }

    struct Ear(Arc<Mutex<Heard>>);

    impl Observer for Ear {
        fn started(&mut self, _: u32, _: SystemTime) {}
        fn stderr(&mut self, chunk: Bytes) {
            self.0.lock().unwrap().chunks.push(chunk);
        }
        fn stderr_dropped(&mut self, bytes: u64) {
            self.0.lock().unwrap().dropped.push(bytes);
        }
    }

    fn audience() -> (Audience, Arc<Mutex<Heard>>) {
        let heard = Arc::new(Mutex::new(Heard::default()));
        (Audience::new(Box::new(Ear(heard.clone()))), heard)
    }

    fn lengths(heard: &Arc<Mutex<Heard>>) -> Vec<usize> {
        heard.lock().unwrap().chunks.iter().map(Bytes::len).collect()
    }

    #[test]
    fn chunk_ends_at_a_line_end_and_the_rest_waits() {
        let (mut audience, heard) = audience();
        let mut stderr = Stderr::new(1 << 20);
        let now = Instant::now();
        stderr.push(b"one\ntwo\nthr", now, &mut audience);
        assert_eq!(heard.lock().unwrap().chunks, ["one\ntwo\n"]);
        assert_eq!(stderr.due(), Some(now + PARTIAL_LINE));
        stderr.tick(now + PARTIAL_LINE, &mut audience);
        assert_eq!(heard.lock().unwrap().chunks, ["one\ntwo\n", "thr"]);
        assert_eq!(stderr.due(), None);
    }

    #[test]
    fn partial_line_waits_from_its_first_byte() {
        let (mut audience, heard) = audience();
        let mut stderr = Stderr::new(1 << 20);
        let start = Instant::now();
        stderr.push(b"a", start, &mut audience);
        stderr.push(b"b", start + Duration::from_millis(99), &mut audience);
        assert_eq!(stderr.due(), Some(start + PARTIAL_LINE));
        stderr.push(b"c", start + PARTIAL_LINE, &mut audience);
        assert_eq!(heard.lock().unwrap().chunks, ["abc"]);
    }

    #[test]
    fn long_line_comes_in_pieces_and_nothing_is_lost() {
        let (mut audience, heard) = audience();
        let mut stderr = Stderr::new(1 << 20);
        let mut all = b"short\n".to_vec();
        all.extend(std::iter::repeat_n(b'e', 300_000));
        all.extend(b"\nafter\n");
        for part in all.chunks(10_007) {
            stderr.push(part, Instant::now(), &mut audience);
        }
        stderr.finish(&mut audience);
        let heard = heard.lock().unwrap();
        assert_eq!(heard.chunks.concat(), all);
        for chunk in &heard.chunks {
            assert!(chunk.split_inclusive(|&b| b == b'\n').all(|line| line.len() <= LINE_BYTES));
        }
        assert!(heard.chunks.iter().any(|chunk| chunk.ends_with(b"after\n")));
    }

    #[test]
    fn chunk_is_never_longer_than_its_bound() {
        let (mut audience, heard) = audience();
        let mut stderr = Stderr::new(1 << 20);
        let line = [vec![b'x'; 6000], vec![b'\n']].concat();
        stderr.push(&line.repeat(30), Instant::now(), &mut audience);
        stderr.finish(&mut audience);
        assert_eq!(lengths(&heard), [6001 * 10, 6001 * 10, 6001 * 10]);
    }

    #[test]
    fn limit_is_exact_and_drops_are_told_together() {
        let (mut audience, heard) = audience();
        let mut stderr = Stderr::new(10);
        let now = Instant::now();
        stderr.push(b"0123456", now, &mut audience);
        stderr.push(b"789abc", now, &mut audience);
        stderr.push(b"def", now, &mut audience);
        assert_eq!(heard.lock().unwrap().chunks.concat(), b"0123456789");
        assert!(heard.lock().unwrap().dropped.is_empty());
        stderr.finish(&mut audience);
        assert_eq!(heard.lock().unwrap().dropped, [6]);
        assert_eq!((stderr.total(), stderr.dropped()), (16, 6));
        assert_eq!(stderr.into_tail(), "0123456789abcdef");
    }

    #[test]
    fn tail_is_the_last_64_kib() {
        let mut tail = Vec::new();
        let all: Vec<u8> = (0..500_000_u32).map(|n| (n % 251) as u8).collect();
        for part in all.chunks(3001) {
            keep_tail(&mut tail, part);
            assert!(tail.len() <= 2 * TAIL_BYTES);
        }
        assert!(tail.len() >= TAIL_BYTES);
        assert!(all.ends_with(&tail));
    }

    #[test]
    fn stdout_at_its_limit_is_whole() {
        let mut stdout = Stdout::new(4);
        assert!(stdout.push(b"ab") && stdout.push(b"cd"));
        assert_eq!(stdout.into_bytes(), "abcd");
        let mut stdout = Stdout::new(4);
        assert!(!stdout.push(b"abcde"));
        assert_eq!((stdout.total(), stdout.into_bytes()), (5, Bytes::from("abcd")));
    }

    #[test]
    fn panicking_observer_is_dropped() {
        struct Bomb;
        impl Observer for Bomb {
            fn started(&mut self, _: u32, _: SystemTime) {
                panic!("expected by this test");
            }
            fn stderr(&mut self, _: Bytes) {
                unreachable!("was dropped");
            }
            fn stderr_dropped(&mut self, _: u64) {}
        }
        let mut audience = Audience::new(Box::new(Bomb));
        audience.started(1, SystemTime::now());
        audience.tell(|observer| observer.stderr(Bytes::new()));
        assert!(audience.0.is_none());
    }
}
