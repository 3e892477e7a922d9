//! Whether spans are one tree.

use std::fmt::Write as _;

use weft_core::trace::TraceContext;

use super::Span;

/// Fails the test, with a drawing, unless the spans are one tree: one trace, one root, and every parent is there. The
/// root is the child of `parent`, a span that was not exported here, or of nothing.
#[track_caller]
pub fn assert_tree(spans: &[Span], parent: Option<&TraceContext>) {
    if let Err(reason) = check(spans, parent) {
        panic!("no proper tree: {reason}\n{}", draw(spans));
    }
}

fn check(spans: &[Span], parent: Option<&TraceContext>) -> Result<(), String> {
    let first = spans.first().ok_or("there are no spans")?;
    let trace_id = parent.map_or(first.trace_id.as_str(), TraceContext::trace_id);
    if let Some(stranger) = spans.iter().find(|span| span.trace_id != trace_id) {
        return Err(format!("{} is of another trace than {trace_id}", stranger.name));
    }
    let above = parent.map_or("", TraceContext::span_id);
    let (mut roots, mut orphans) = (0, Vec::new());
    for span in spans {
        let present = |id: &str| spans.iter().filter(|other| other.span_id == id).count();
        if present(&span.span_id) > 1 {
            return Err(format!("the id of {} is not its alone", span.name));
        }
        if span.parent_id == above {
            roots += 1;
        } else if present(&span.parent_id) == 0 || is_own_ancestor(span, spans) {
            orphans.push(span.name.as_str());
        }
    }
    match (roots, orphans.as_slice()) {
        (1, []) => Ok(()),
        (_, []) => Err(format!("there are {roots} roots")),
        _ => Err(format!("no way leads from the root to {}", orphans.join(", "))),
    }
}

fn is_own_ancestor(span: &Span, spans: &[Span]) -> bool {
    let mut above = span;
    for _ in 0..spans.len() {
        match spans.iter().find(|other| other.span_id == above.parent_id) {
            Some(parent) if parent.span_id == span.span_id => return true,
            Some(parent) => above = parent,
            None => return false,
        }
    }
    // It hangs below a circle.
    true
}

/// The spans as a tree, one a line, for a person.
pub fn draw(spans: &[Span]) -> String {
    let mut drawing = String::new();
    for root in spans {
        if !spans.iter().any(|other| other.span_id == root.parent_id) {
            let above = if root.parent_id.is_empty() { "nothing" } else { &root.parent_id };
            let _ = writeln!(drawing, "trace {}, below {above}", root.trace_id);
            branch(&mut drawing, root, spans, 1);
        }
    }
    drawing
}

fn branch(drawing: &mut String, span: &Span, spans: &[Span], depth: usize) {
    let Span { kind, name, span_id, duration, .. } = span;
    let error = span.error.as_ref().map(|error| format!(" FAILED: {error}")).unwrap_or_default();
    let _ = writeln!(
        drawing,
        "{:indent$}{kind} {name} [{}] {span_id} {duration:?}{error}",
        "",
        span.service(),
        indent = 2 * depth
    );
    if depth > spans.len() {
        // It is its own ancestor.
        return;
    }
    let mut children: Vec<_> = spans.iter().filter(|other| other.parent_id == span.span_id).collect();
    children.sort_by_key(|child| child.start);
    for child in children {
        branch(drawing, child, spans, depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn span(id: &str, parent: &str) -> Span {
        Span {
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".into(),
            span_id: id.into(),
            parent_id: parent.into(),
            trace_state: String::new(),
            name: format!("span {id}"),
            kind: "INTERNAL",
            start: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            attributes: Default::default(),
            error: None,
            links: vec![],
            resource: Default::default(),
        }
    }

    #[test]
    fn a_tree_is_told_from_what_is_none() {
        let outside =
            TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "").unwrap();
        let below = outside.span_id();
        assert!(check(&[span("b", "a"), span("a", ""), span("c", "b")], None).is_ok());
        assert!(check(&[span("b", "a"), span("a", below)], Some(&outside)).is_ok());
        for (wrong, spans) in [
            ("no spans", vec![]),
            ("2 roots", vec![span("a", ""), span("b", "")]),
            ("span b", vec![span("a", ""), span("b", "x")]),
            ("span b, span c", vec![span("a", ""), span("b", "c"), span("c", "b")]),
            ("its alone", vec![span("a", ""), span("a", "a")]),
            ("another trace", vec![span("a", ""), Span { trace_id: "0".into(), ..span("b", "a") }]),
        ] {
            let reason = check(&spans, None).unwrap_err();
            assert!(reason.contains(wrong), "{reason}");
        }
        assert!(check(&[span("a", "")], Some(&outside)).is_err());
    }

    #[test]
    fn the_drawing_shows_who_is_below_whom() {
        let drawing = draw(&[span("b", "a"), span("a", "")]);
        let expected = "trace 4bf92f3577b34da6a3ce929d0e0e4736, below nothing\n  INTERNAL span a [] a 0ns\n    \
                        INTERNAL span b [] b 0ns\n";
        assert_eq!(drawing, expected);
    }
}
