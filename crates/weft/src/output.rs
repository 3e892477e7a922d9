//! What goes to the terminal: tables, JSON, notes. Untrusted text is escaped where a terminal would obey it.

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use weft_core::text;

/// The form of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs: the canonical JSON of the API's messages.
    Json,
}

/// Prints a line of our own on stderr. Nobody may be there to read it, which is no error.
pub(crate) fn note(message: &str) {
    let _ = writeln!(io::stderr().lock(), "weft: {}", text::escape_lines(message.as_bytes()));
}

/// Prints text on stdout; a closed pipe is no error.
pub(crate) fn print(line: &str) -> anyhow::Result<()> {
    ignore_closed_pipe(writeln!(io::stdout().lock(), "{line}"))
}

/// Prints JSON on stdout, in one line.
pub(crate) fn print_json_line(value: &serde_json::Value) -> anyhow::Result<()> {
    print(&value.to_string())
}

/// Prints JSON on stdout.
pub(crate) fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Prints a table on stdout. Every cell is escaped: its text may come from a node.
pub(crate) fn print_table(
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().map(|title| title.to_uppercase()));
    for row in rows {
        table.add_row(row.iter().map(|cell| text::escape(cell.as_bytes())));
    }
    print(table.trim_fmt().as_str())
}

/// How to call this very program from a shell.
pub(crate) fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "weft".into() };
    let on_path = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .map(|dir| dir.join("weft"))
            .find(|candidate| candidate.is_file())
            .is_some_and(|found| found.canonicalize().ok() == own.canonicalize().ok())
    });
    match on_path {
        true => "weft".into(),
        false => crate::args::example::quoted(&own.display().to_string()),
    }
}

/// Passes on the bytes of a skill: exact into a file or a pipe, escaped on a terminal.
#[derive(Debug)]
pub(crate) struct Passage<W> {
    to: W,
    terminal: bool,
    /// The beginning of a character whose rest is still to come; on a terminal only.
    begun: Vec<u8>,
    /// The last byte was no line end.
    open_line: bool,
}

impl Passage<io::Stderr> {
    /// To stderr.
    pub(crate) fn to_stderr() -> Self {
        Self::new(io::stderr(), io::stderr().is_terminal())
    }
}

impl Passage<io::Stdout> {
    /// To stdout.
    pub(crate) fn to_stdout() -> Self {
        Self::new(io::stdout(), io::stdout().is_terminal())
    }
}

impl<W: io::Write> Passage<W> {
    fn new(to: W, terminal: bool) -> Self {
        Self { to, terminal, begun: Vec::new(), open_line: false }
    }

    /// Passes on some bytes. A closed pipe is no error.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        if let Some(last) = bytes.last() {
            self.open_line = *last != b'\n';
        }
        if !self.terminal {
            return ignore_closed_pipe(self.to.write_all(bytes).and_then(|()| self.to.flush()));
        }
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished_character(&all);
        self.begun = all.split_off(whole);
        let shown = text::escape_lines(&all);
        ignore_closed_pipe(self.to.write_all(shown.as_bytes()).and_then(|()| self.to.flush()))
    }

    /// Shows what was held back, and on a terminal ends the line, so that what follows begins on one of its own.
    pub(crate) fn end_line(&mut self) -> anyhow::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        let mut shown = text::escape_lines(&begun);
        if self.terminal && std::mem::take(&mut self.open_line) {
            shown.push('\n');
        }
        ignore_closed_pipe(self.to.write_all(shown.as_bytes()).and_then(|()| self.to.flush()))
    }
}

/// How many bytes at the end may be the beginning of a character.
fn unfinished_character(bytes: &[u8]) -> usize {
    match std::str::from_utf8(&bytes[bytes.len().saturating_sub(4)..]) {
        Ok(_) => 0,
        Err(_) => (1..=3.min(bytes.len()))
            .find(|n| {
                let tail = &bytes[bytes.len() - n..];
                std::str::from_utf8(tail)
                    .is_err_and(|error| error.error_len().is_none() && error.valid_up_to() == 0)
            })
            .unwrap_or(0),
    }
}

fn ignore_closed_pipe(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(terminal: bool, pieces: &[&[u8]]) -> String {
        let mut passage = Passage::new(Vec::new(), terminal);
        for piece in pieces {
            passage.pass(piece).unwrap();
        }
        passage.end_line().unwrap();
        String::from_utf8_lossy(&passage.to).into_owned()
    }

    #[test]
    fn a_character_written_in_pieces_is_whole_on_a_terminal() {
        assert_eq!(shown(true, &[b"a\xe2", b"\x89", b"\xa4\n"]), "a≤\n");
        assert_eq!(shown(true, &[b"\xe2\x89", b"x"]), "\\xe2\\x89x\n");
        assert_eq!(shown(true, &[b"\xf0\x9f"]), "\\xf0\\x9f\n");
        assert_eq!(shown(true, &[b"\x1b[2J"]), "\\x1b[2J\n");
    }

    #[test]
    fn a_pipe_gets_exactly_the_bytes() {
        assert_eq!(shown(false, &[b"a\x1b[2J", b"b"]), "a\x1b[2Jb");
    }
}
