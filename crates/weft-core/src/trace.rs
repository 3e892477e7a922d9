//! W3C trace context as it travels from a caller through both hops into the child.

use std::{fmt, sync::Arc};

/// A trace context that has the form the standard demands. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// ASCII: `00-<trace id>-<span id>-<flags>`.
    traceparent: [u8; LENGTH],
    /// `None` when empty.
    tracestate: Option<Arc<str>>,
}

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// The flag that says that the trace is recorded.
const SAMPLED: u8 = 1;

/// Longest `tracestate` that is passed on, in bytes; a longer one is left out.
const MAX_TRACESTATE: usize = 512;

impl TraceContext {
    /// The context of a span; `None` when an id is zero, which speaks of no trace.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Option<Self> {
        if trace_id == [0; 16] || span_id == [0; 8] {
            return None;
        }
        let mut traceparent = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let mut put = |at: usize, bytes: &[u8]| {
            hex::encode_to_slice(bytes, &mut traceparent[at..at + 2 * bytes.len()])
                .expect("two digits of room for each byte");
        };
        put(3, &trace_id);
        put(36, &span_id);
        put(53, &[flags]);
        Some(Self { traceparent, tracestate: None })
    }

    /// The context in these headers; `None` when `traceparent` is malformed or speaks of no trace. What a later version
    /// of the standard adds is left out, and what is passed on is version 00.
    pub fn parse(traceparent: &str, tracestate: &str) -> Option<Self> {
        let (known, rest) = traceparent.as_bytes().split_at_checked(LENGTH)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let mut next = |digits: usize| parts.next().filter(|part| part.len() == digits);
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let hex = |part: &[u8]| part.iter().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
        let zero = |part: &[u8]| part.iter().all(|b| *b == b'0');
        if ![version, trace, span, flags].into_iter().all(hex) || zero(trace) || zero(span) {
            return None;
        }
        let mut kept: [u8; LENGTH] = known.try_into().ok()?;
        match version {
            b"00" if rest.is_empty() => {}
            b"00" | b"ff" => return None,
            _ if rest.is_empty() || rest[0] == b'-' => {
                kept[..2].copy_from_slice(b"00");
                // Of the flags of a later version only this one is known to mean the same.
                let sampled = hex_digit(flags[1]) & SAMPLED;
                kept[LENGTH - 2..].copy_from_slice(if sampled == 0 { b"00" } else { b"01" });
            }
            _ => return None,
        }
        Some(Self { traceparent: kept, tracestate: None }.with_tracestate(tracestate))
    }

    /// The same context with another `tracestate`; one that is too long or not printable is left out.
    #[must_use]
    pub fn with_tracestate(self, tracestate: &str) -> Self {
        let printable = tracestate.bytes().all(|b| (0x20..0x7f).contains(&b));
        let kept = !tracestate.is_empty() && tracestate.len() <= MAX_TRACESTATE && printable;
        Self { tracestate: kept.then(|| tracestate.into()), ..self }
    }

    /// The `traceparent` header.
    pub fn traceparent(&self) -> &str {
        self.text(0, LENGTH)
    }

    /// The `tracestate` header; empty when there is none.
    pub fn tracestate(&self) -> &str {
        self.tracestate.as_deref().unwrap_or_default()
    }

    /// The id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        self.text(3, 35)
    }

    /// The id of the span that is the parent of whatever follows: 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        self.text(36, 52)
    }

    /// All flags.
    pub fn flags(&self) -> u8 {
        hex_digit(self.traceparent[LENGTH - 2]) << 4 | hex_digit(self.traceparent[LENGTH - 1])
    }

    /// Whether the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags() & SAMPLED != 0
    }

    fn text(&self, from: usize, to: usize) -> &str {
        std::str::from_utf8(&self.traceparent[from..to]).expect("only ASCII is ever put in")
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext")
            .field("traceparent", &self.traceparent())
            .field("tracestate", &self.tracestate())
            .finish()
    }
}

/// The value of a lower-case hexadecimal digit.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOUND: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_a_sound_context_is_passed_on() {
        assert_eq!(TraceContext::parse(SOUND, "a=b").unwrap().tracestate(), "a=b");
        assert_eq!(TraceContext::parse(SOUND, &"x".repeat(513)).unwrap().tracestate(), "");
        for broken in [
            "garbage",
            "",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(broken, ""), None, "{broken}");
        }
    }

    #[test]
    fn its_parts_can_be_read() {
        let context = TraceContext::parse(SOUND, "").unwrap();
        assert_eq!(context.traceparent(), SOUND);
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        let unsampled = TraceContext::parse(&SOUND.replace("-01", "-fe"), "").unwrap();
        assert_eq!(unsampled.flags(), 0xfe);
        assert!(!unsampled.is_sampled());
    }

    #[test]
    fn a_later_version_is_read_by_its_first_four_fields() {
        let later = |version: &str, flags: &str, more: &str| {
            let text = format!("{version}-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}{more}");
            TraceContext::parse(&text, "").unwrap().traceparent().to_owned()
        };
        assert_eq!(later("01", "01", ""), SOUND);
        assert_eq!(later("cc", "ff", "-what-the-future-will-be-like"), SOUND);
        assert_eq!(later("fe", "fe", "-"), SOUND.replace("-01", "-00"));
    }

    proptest! {
        #[test]
        fn what_is_built_is_what_is_parsed(trace: [u8; 16], span: [u8; 8], flags: u8) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let built = TraceContext::new(trace, span, flags).unwrap().with_tracestate("vendor=1");
            prop_assert_eq!(built.flags(), flags);
            prop_assert_eq!(built.trace_id(), hex::encode(trace));
            prop_assert_eq!(built.span_id(), hex::encode(span));
            prop_assert_eq!(TraceContext::parse(built.traceparent(), "vendor=1"), Some(built));
        }

        #[test]
        fn no_text_makes_it_panic(traceparent in "\\PC{0,80}", tracestate: String) {
            TraceContext::parse(&traceparent, &tracestate);
        }
    }
}
