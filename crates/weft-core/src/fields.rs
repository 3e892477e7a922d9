//! The names of attributes: the same word in logs, spans and metrics.
//!
//! Those outside `weft.` are OpenTelemetry's, as of its semantic conventions 1.45 and the GenAI conventions 0.1.

/// The id of an invocation. Never a label of a metric.
pub const INVOCATION_ID: &str = "weft.invocation.id";
/// The id of a node. Never a label of a metric.
pub const NODE_ID: &str = "weft.node.id";
/// Which attempt at an invocation this is, from 1.
pub const ATTEMPT: &str = "weft.attempt";
/// The one word for how an invocation ended.
pub const OUTCOME: &str = "weft.outcome";
/// How much harm a skill can do.
pub const SKILL_CLASS: &str = "weft.skill.class";
/// The digest of a skill's definition and files.
pub const SKILL_DIGEST: &str = "weft.skill.digest";
/// The key of a skill.
pub const SKILL_KEY: &str = "weft.skill.key";
/// Seconds that an invocation waited for a place to run.
pub const QUEUE_SECONDS: &str = "weft.queue.seconds";
/// Bytes that a skill wrote to stderr.
pub const STDERR_BYTES: &str = "weft.stderr.bytes";
/// Bytes of stderr that found no room and were left out.
pub const STDERR_DROPPED: &str = "weft.stderr.dropped";
/// The number of a line of stderr, from 1.
pub const STDERR_LINE: &str = "weft.stderr.line";
/// Bytes that were cut from the end of a line of stderr.
pub const STDERR_CUT: &str = "weft.stderr.cut";

/// What was done, in the words of the GenAI conventions: [`EXECUTE_TOOL`].
pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
/// The operation of running a skill; also the beginning of its span's name.
pub const EXECUTE_TOOL: &str = "execute_tool";
/// The name of the tool: the skill's key.
pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
/// What kind of tool it is: `extension`.
pub const GEN_AI_TOOL_TYPE: &str = "gen_ai.tool.type";
/// The id of the call of the tool: the invocation's.
pub const GEN_AI_TOOL_CALL_ID: &str = "gen_ai.tool.call.id";

/// The file name of the program of a process.
pub const PROCESS_EXECUTABLE_NAME: &str = "process.executable.name";
/// The id of a process.
pub const PROCESS_PID: &str = "process.pid";
/// The exit code of a process.
pub const PROCESS_EXIT_CODE: &str = "process.exit.code";

/// Which RPC system a call used: `grpc`.
pub const RPC_SYSTEM_NAME: &str = "rpc.system.name";
/// The full name of a method: `weft.v1.InvocationService/Invoke`.
pub const RPC_METHOD: &str = "rpc.method";
/// The method of a dispatch, which is a message on a stream and not a call of its own: the name of the spans on both
/// sides of it.
pub const DISPATCH_METHOD: &str = "weft.link.v1.LinkService/Dispatch";
/// The name of the status that a call ended with: `OK`, `NOT_FOUND` …
pub const RPC_STATUS_CODE: &str = "rpc.status_code";

/// What kind of error ended a span; one of few words.
pub const ERROR_TYPE: &str = "error.type";
/// The stream that a log record was read from: `stderr`.
pub const LOG_IOSTREAM: &str = "log.iostream";
