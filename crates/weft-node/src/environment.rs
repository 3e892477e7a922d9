//! The environment of a child: exactly what its manifest lists and the node has, and what the operator's entry for
//! the skill gives it. Nothing else; and the node's own environment is never changed.

use std::ffi::OsString;

use jiff::Timestamp;
use weft_core::{ids::InvocationId, trace::TraceContext};
use weft_skills::{Host, is_loader_variable};

/// What weft itself can tell a child, if its manifest asks for it.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) invocation: InvocationId,
    pub(crate) deadline: Timestamp,
    pub(crate) node: &'a str,
    pub(crate) trace: Option<&'a TraceContext>,
}

/// The environment for a child whose manifest lists `allow`, and to which its entry gives `injected`.
pub(crate) fn build(
    allow: &[String],
    host: &Host,
    told: &Told<'_>,
    allow_loader_variables: bool,
    injected: Vec<(OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<(OsString, OsString)> = allow
        .iter()
        .filter_map(|name| {
            let value = match name.as_str() {
                "TRACEPARENT" => told.trace?.traceparent().into(),
                "TRACESTATE" => match told.trace?.tracestate() {
                    "" => return None,
                    state => state.into(),
                },
                "WEFT_INVOCATION_ID" => told.invocation.to_string().into(),
                "WEFT_DEADLINE" => told.deadline.to_string().into(),
                "WEFT_NODE" => told.node.into(),
                loader if is_loader_variable(loader) && !allow_loader_variables => {
                    tracing::debug!(name = loader, "loader variable not forwarded");
                    return None;
                }
                // Set but empty is forwarded: only the author knows what it means.
                other => host.environment.get(other)?.to_owned(),
            };
            Some((OsString::from(name), value))
        })
        .collect();
    // What is forwarded under the same name is blank, else it would not have been injected.
    for (name, value) in injected {
        match environment.iter_mut().find(|(known, _)| *known == name) {
            Some((_, forwarded)) => *forwarded = value,
            None => environment.push((name, value)),
        }
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            environment: [("A", "1"), ("EMPTY", ""), ("LD_PRELOAD", "/evil.so"), ("TRACEPARENT", "garbage")]
                .into_iter()
                .collect(),
            ..Host::current()
        }
    }

    fn names(allow: &[&str], trace: Option<&TraceContext>, loader: bool) -> Vec<String> {
        let told = Told {
            invocation: InvocationId::generate(),
            deadline: Timestamp::UNIX_EPOCH,
            node: "web-1",
            trace,
        };
        let allow: Vec<_> = allow.iter().map(|name| (*name).to_owned()).collect();
        build(&allow, &host(), &told, loader, vec![])
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect()
    }

    #[test]
    fn an_empty_list_is_no_environment_at_all() {
        assert!(names(&[], None, true).is_empty());
    }

    #[test]
    fn listed_and_set_is_forwarded_also_when_empty() {
        assert_eq!(names(&["A", "EMPTY", "UNSET"], None, false), ["A=1", "EMPTY="]);
    }

    #[test]
    fn loader_variables_need_consent() {
        assert!(names(&["LD_PRELOAD"], None, false).is_empty());
        assert_eq!(names(&["LD_PRELOAD"], None, true), ["LD_PRELOAD=/evil.so"]);
    }

    #[test]
    fn the_trace_is_the_callers_never_the_nodes_own() {
        assert!(names(&["TRACEPARENT"], None, false).is_empty());
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = TraceContext::parse(text, "").unwrap();
        assert_eq!(
            names(&["TRACEPARENT", "WEFT_NODE"], Some(&trace), false),
            [format!("TRACEPARENT={text}"), "WEFT_NODE=web-1".into()]
        );
    }

    #[test]
    fn what_an_entry_gives_comes_on_top_and_takes_the_place_of_what_is_blank() {
        let told = Told {
            invocation: InvocationId::generate(),
            deadline: Timestamp::UNIX_EPOCH,
            node: "web-1",
            trace: None,
        };
        let injected = [("EMPTY", "mine"), ("KEY", "2")].map(|(name, value)| (name.into(), value.into()));
        let allow = ["A", "EMPTY"].map(str::to_owned);
        let environment = build(&allow, &host(), &told, false, injected.into());
        let expected: [(OsString, OsString); 3] =
            [("A", "1"), ("EMPTY", "mine"), ("KEY", "2")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(environment, expected);
    }
}
