//! Bytes into lines, however they come.

/// Longest line that is kept, in bytes; the rest of it is cut.
const LONGEST: usize = 8 * 1024;

/// What is left of the last line. Never more than [`LONGEST`].
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
    cut: usize,
}

impl Lines {
    /// Gives each line that these bytes end, without its end, and how many bytes were cut from it.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&[u8], usize)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (last, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.begun.is_empty() && last.len() <= LONGEST {
                line(without_return(last), 0);
                continue;
            }
            self.keep(last);
            line(without_return(&self.begun), self.cut);
            self.begun.clear();
            self.cut = 0;
        }
        self.keep(bytes);
    }

    /// Gives the last line when it has no end.
    pub(super) fn finish(&mut self, mut line: impl FnMut(&[u8], usize)) {
        if !self.begun.is_empty() {
            line(without_return(&self.begun), self.cut);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let (kept, cut) = bytes.split_at(bytes.len().min(LONGEST - self.begun.len()));
        self.begun.extend_from_slice(kept);
        self.cut += cut.len();
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> Vec<(Vec<u8>, usize)> {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, |line, cut| seen.push((line.to_vec(), cut)));
        }
        lines.finish(|line, cut| seen.push((line.to_vec(), cut)));
        seen
    }

    #[test]
    fn chunks_do_not_matter() {
        let text = b"one\r\n\ntwo\xff\nthree";
        let expected: Vec<(Vec<u8>, usize)> =
            [&b"one"[..], b"", b"two\xff", b"three"].map(|line| (line.to_vec(), 0)).to_vec();
        for size in 1..=text.len() {
            assert_eq!(lines(&text.chunks(size).collect::<Vec<_>>()), expected, "chunks of {size}");
        }
    }

    #[test]
    fn a_long_line_is_cut_and_costs_no_memory() {
        let long = vec![b'x'; 3 * LONGEST];
        let mut text = long.clone();
        text.extend_from_slice(b"y\nnext\n");
        let expected = [(vec![b'x'; LONGEST], 2 * LONGEST + 1), (b"next".to_vec(), 0)];
        assert_eq!(lines(&[&text]), expected);
        assert_eq!(lines(&text.chunks(1000).collect::<Vec<_>>()), expected);
        let mut lines = Lines::default();
        for _ in 0..100 {
            lines.push(&long, |_, _| panic!("no line has ended"));
        }
        assert!(lines.begun.capacity() <= 2 * LONGEST);
    }
}
