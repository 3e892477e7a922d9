//! The spans of one attempt on this node.
//!
//! The call that the coordinator began is answered here; within it the tool is executed, and within that the process
//! runs. A child that lists `TRACEPARENT` goes on from the process.

use std::{ffi::OsStr, path::Path};

use weft_core::{
    fields,
    outcome::{Exit, Final, Outcome},
    trace::TraceContext,
};
use weft_exec::{Ending, Report};
use weft_telemetry::{Kind, Span};

use crate::attempt::Order;

/// The call and the tool. Without telemetry they are nothing but the coordinator's context.
#[derive(Debug)]
pub(crate) struct Spans {
    call: Span,
    tool: Span,
}

impl Spans {
    pub(crate) fn start(order: &Order, node: &str) -> Self {
        let call = Span::builder(fields::DISPATCH_METHOD, Kind::Server, order.trace.as_ref())
            .attribute(fields::RPC_SYSTEM_NAME, "grpc")
            .attribute(fields::RPC_METHOD, fields::DISPATCH_METHOD)
            .attribute(fields::NODE_ID, node)
            .start();
        let name = format_args!("{} {}", fields::EXECUTE_TOOL, order.skill);
        let tool = Span::builder(name, Kind::Internal, call.context())
            .attribute(fields::GEN_AI_OPERATION_NAME, fields::EXECUTE_TOOL)
            .attribute(fields::GEN_AI_TOOL_NAME, order.skill.as_str())
            .attribute(fields::GEN_AI_TOOL_TYPE, "extension")
            .attribute(fields::GEN_AI_TOOL_CALL_ID, format_args!("{}", order.key.0))
            .attribute(fields::INVOCATION_ID, format_args!("{}", order.key.0))
            .attribute(fields::ATTEMPT, order.key.1)
            .attribute(fields::SKILL_DIGEST, format_args!("{}", order.digest))
            .attribute(fields::SKILL_CLASS, order.class.as_str())
            .start();
        Self { call, tool }
    }

    /// What the process goes on from.
    pub(crate) fn context(&self) -> Option<&TraceContext> {
        self.tool.context()
    }

    /// The attempt is over.
    pub(crate) fn end(mut self, last: &Final) {
        self.tool.set(fields::OUTCOME, last.outcome.as_str());
        self.tool.set(fields::STDERR_BYTES, last.stderr_bytes);
        if last.dropped_bytes > 0 {
            self.tool.set(fields::STDERR_DROPPED, last.dropped_bytes);
        }
        if last.outcome != Outcome::Succeeded {
            self.tool.fail(last.outcome.as_str(), &last.message);
        }
        // A skill that failed was run as it should be.
        if matches!(last.outcome, Outcome::Unknown | Outcome::NotStarted) {
            self.call.fail(last.outcome.as_str(), &last.message);
        }
    }
}

/// Starts the span of a process that is about to start.
pub(crate) fn process(program: &Path, parent: Option<&TraceContext>) -> Span {
    let name = program.file_name().unwrap_or(OsStr::new("process")).to_string_lossy();
    Span::builder(&name, Kind::Client, parent).attribute(fields::PROCESS_EXECUTABLE_NAME, &*name).start()
}

/// Ends it with what became of the process.
pub(crate) fn process_ended(mut span: Span, report: &Report) {
    if let Some(pid) = report.pid {
        span.set(fields::PROCESS_PID, pid);
    }
    match report.exit {
        Some(Exit::Code(code)) => {
            span.set(fields::PROCESS_EXIT_CODE, code);
            if code != 0 {
                span.fail("exit_code", format_args!("exit code {code}"));
            }
        }
        Some(Exit::Signal(signal)) => {
            // As a shell tells it: there is no exit code, and the conventions ask for one.
            span.set(fields::PROCESS_EXIT_CODE, 128 + signal);
            span.fail("signal", format_args!("killed by signal {signal}"));
        }
        None => match &report.ending {
            Ending::CannotStart(error) => span.fail("cannot_start", error),
            _ if report.pid.is_none() => span.fail("never_started", "ended before it started"),
            _ => span.fail("lost", "its exit status was lost"),
        },
    }
}
