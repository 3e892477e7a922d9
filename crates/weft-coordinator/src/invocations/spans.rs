//! The spans of one attempt.
//!
//! `weft.dispatch` is the coordinator's part in it; within it stands the call of the node, whose other side the node
//! makes. A dispatch rides a stream that lives as long as the session, so both sides are made by hand.

use std::time::Duration;

use weft_core::{fields, invocation::Invocation, outcome::Final, trace::TraceContext};
use weft_telemetry::{Kind, Span};

/// See the module. Without telemetry it is nothing but the caller's context.
#[derive(Debug)]
pub(super) struct Spans {
    dispatch: Span,
    call: Span,
}

impl Spans {
    /// Starts the spans of the current attempt of an invocation. `after` is the attempt that it replaces: the caller
    /// waits on, so the trace goes on, and a link says what came before.
    pub(super) fn start(
        parent: Option<&TraceContext>,
        invocation: &Invocation,
        after: Option<&TraceContext>,
    ) -> Self {
        let mut dispatch = Span::builder("weft.dispatch", Kind::Internal, parent)
            .attribute(fields::INVOCATION_ID, format_args!("{}", invocation.id))
            .attribute(fields::SKILL_KEY, invocation.request.skill.as_str())
            .attribute(fields::SKILL_CLASS, invocation.class.as_str())
            .attribute(fields::ATTEMPT, invocation.attempts);
        if let Some(digest) = &invocation.digest {
            dispatch = dispatch.attribute(fields::SKILL_DIGEST, format_args!("{digest}"));
        }
        if let Some(after) = after {
            dispatch = dispatch.link(after);
        }
        let dispatch = dispatch.start();
        let mut call = Span::builder(fields::DISPATCH_METHOD, Kind::Client, dispatch.context())
            .attribute(fields::RPC_SYSTEM_NAME, "grpc")
            .attribute(fields::RPC_METHOD, fields::DISPATCH_METHOD);
        if let Some(node) = &invocation.node {
            call = call.attribute(fields::NODE_ID, node.as_str());
        }
        Self { call: call.start(), dispatch }
    }

    /// What the node goes on from.
    pub(super) fn context(&self) -> Option<&TraceContext> {
        self.call.context()
    }

    /// The process runs after this wait.
    pub(super) fn started(&mut self, waited: Duration) {
        self.dispatch.set(fields::QUEUE_SECONDS, waited.as_secs_f64());
    }

    /// The attempt is over. A skill that failed is no failed call; what says nothing of the skill is.
    pub(super) fn end(mut self, last: &Final) {
        use weft_core::outcome::Outcome;
        self.dispatch.set(fields::OUTCOME, last.outcome.as_str());
        match last.outcome {
            Outcome::Succeeded => {}
            Outcome::Unknown | Outcome::NotStarted => {
                self.call.fail(last.outcome.as_str(), &last.message);
                self.dispatch.fail(last.outcome.as_str(), &last.message);
            }
            Outcome::Failed
            | Outcome::InvalidOutput
            | Outcome::OutputTooLarge
            | Outcome::TimedOut
            | Outcome::Cancelled
            | Outcome::Denied => self.dispatch.fail(last.outcome.as_str(), &last.message),
        }
    }

    /// The attempt is given up, maybe for another one. Returns what that one links to.
    pub(super) fn give_up(mut self, why: &str) -> Option<TraceContext> {
        self.call.fail("given_up", why);
        self.dispatch.fail("given_up", why);
        self.call.context().cloned()
    }
}
