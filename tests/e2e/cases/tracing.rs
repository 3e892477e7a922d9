//! S28: a child joins the trace of its caller.

use serde_json::json;
use weft_core::trace::TraceContext;
use weft_testkit::{Collector, Spec, collector::assert_tree};

use super::{SOON, dump_env};
use crate::traces::{call, observed, told};

#[test]
fn s28_a_child_joins_the_trace_of_its_caller() {
    let collector = Collector::start();
    let listed = dump_env("listed").with("env_allow", json!(["TRACEPARENT"]));
    let unlisted = dump_env("unlisted");
    let garbage = Spec::new().env("TRACEPARENT", "garbage");
    let (fabric, _node) = observed(&collector, &[listed, unlisted], garbage);
    let caller = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "").unwrap();
    let given = |trace| {
        let told = told(&call(&fabric, "listed", trace));
        let variable = told["env"][0].as_str().unwrap().strip_prefix("TRACEPARENT=").unwrap().to_owned();
        TraceContext::parse(&variable, "").unwrap()
    };

    let child = given(Some(caller.clone()));
    assert_eq!((child.trace_id(), child.is_sampled()), (caller.trace_id(), true));
    let spans = collector.trace(caller.trace_id(), 6, SOON);
    assert_tree(&spans, Some(&caller));
    let its = spans.iter().find(|span| span.span_id == child.span_id()).unwrap();
    assert_eq!((its.service(), its.name.as_str()), ("weft-node", "run"));

    assert_eq!(told(&call(&fabric, "unlisted", Some(caller.clone()))), json!({"env": []}));

    let child = given(None);
    assert_ne!(child.trace_id(), caller.trace_id());
    let spans = collector.trace(child.trace_id(), 6, SOON);
    assert_tree(&spans, None);
}
