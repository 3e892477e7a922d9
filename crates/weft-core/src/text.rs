//! Making untrusted bytes safe to show.

use std::fmt::Write as _;

/// Bytes as text that is safe on a terminal and in a log: valid UTF-8 stays, control and bidirectional
/// characters and invalid bytes are escaped. Line feeds and tabs are escaped as well.
pub fn escape(bytes: &[u8]) -> String {
    escape_with(bytes, |_| false)
}

/// Like [`escape`], but line feeds and tabs stay: for whole lines of a skill's stderr.
pub fn escape_lines(bytes: &[u8]) -> String {
    escape_with(bytes, |c| matches!(c, '\n' | '\t'))
}

fn escape_with(bytes: &[u8], keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if keep(c) => out.push(c),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if (c as u32) < 0x80 && c.is_control() => {
                    let _ = write!(out, "\\x{:02x}", c as u32);
                }
                c if c.is_control() || is_invisible(c) => {
                    let _ = write!(out, "\\u{{{:x}}}", c as u32);
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Characters that change how the text around them is read without being seen.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The longest suffix of `bytes` that is at most `most` long.
pub fn tail(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(most)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_and_bidi_controls_are_shown_not_obeyed() {
        assert_eq!(escape(b"a\x1b[2Jb\xff\n"), "a\\x1b[2Jb\\xff\\n");
        assert_eq!(escape("x\u{202e}y".as_bytes()), "x\\u{202e}y");
        assert_eq!(escape_lines("≤\tok\n".as_bytes()), "≤\tok\n");
    }
}
