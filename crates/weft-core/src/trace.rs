//! W3C trace context as it travels from a caller through both hops into the child.

/// A trace context that has the form the standard demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    traceparent: String,
    tracestate: String,
}

/// Longest `tracestate` that is passed on, in bytes; a longer one is left out.
const MAX_TRACESTATE: usize = 512;

impl TraceContext {
    /// The context in these headers; `None` when `traceparent` is malformed or speaks of no trace.
    pub fn parse(traceparent: &str, tracestate: &str) -> Option<Self> {
        let parts: Vec<&str> = traceparent.split('-').collect();
        let [version, trace, span, flags] = parts[..] else { return None };
        let hex = |part: &str, len: usize| {
            part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
        };
        let zero = |part: &str| part.bytes().all(|b| b == b'0');
        let sound = version == "00" && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
        if !sound || zero(trace) || zero(span) {
            return None;
        }
        let printable = tracestate.bytes().all(|b| (0x20..0x7f).contains(&b));
        let tracestate = if tracestate.len() <= MAX_TRACESTATE && printable { tracestate } else { "" };
        Some(Self { traceparent: traceparent.to_owned(), tracestate: tracestate.to_owned() })
    }

    /// The `traceparent` header.
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// The `tracestate` header; empty when there is none.
    pub fn tracestate(&self) -> &str {
        &self.tracestate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sound_context_is_passed_on() {
        let sound = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceContext::parse(sound, "a=b").unwrap().tracestate(), "a=b");
        assert_eq!(TraceContext::parse(sound, &"x".repeat(513)).unwrap().tracestate(), "");
        for broken in [
            "garbage",
            "",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert_eq!(TraceContext::parse(broken, ""), None, "{broken}");
        }
    }
}
