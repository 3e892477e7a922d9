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

/// Prints a line of our own on stderr.
#[expect(clippy::print_stderr, reason = "the one place where weft speaks to the person at the terminal")]
pub(crate) fn note(message: &str) {
    eprintln!("weft: {}", text::escape_lines(message.as_bytes()));
}

/// Prints text on stdout; a closed pipe is no error.
pub(crate) fn print(line: &str) -> anyhow::Result<()> {
    ignore_closed_pipe(writeln!(io::stdout().lock(), "{line}"))
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

/// Passes on bytes of a skill's stderr: exact into a file or a pipe, escaped on a terminal.
pub(crate) fn skill_stderr(bytes: &[u8]) -> anyhow::Result<()> {
    let stderr = io::stderr();
    let mut out = stderr.lock();
    let written = if stderr.is_terminal() {
        out.write_all(text::escape_lines(bytes).as_bytes())
    } else {
        out.write_all(bytes)
    };
    ignore_closed_pipe(written.and_then(|()| out.flush()))
}

/// Passes on a result: exactly the bytes that the skill printed. A terminal gets a line end if there is none.
pub(crate) fn result(chunks: &[bytes::Bytes]) -> anyhow::Result<()> {
    let stdout = io::stdout();
    let terminal = stdout.is_terminal();
    let mut out = stdout.lock();
    let written = (|| {
        for chunk in chunks {
            if terminal {
                out.write_all(text::escape_lines(chunk).as_bytes())?;
            } else {
                out.write_all(chunk)?;
            }
        }
        if terminal && chunks.last().is_some_and(|chunk| !chunk.ends_with(b"\n")) {
            out.write_all(b"\n")?;
        }
        out.flush()
    })();
    ignore_closed_pipe(written)
}

fn ignore_closed_pipe(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
