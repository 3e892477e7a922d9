//! The limits of the contract, in one place. Each is from the design; operators see them in `docs/reference.md`.

use std::time::Duration;

/// Largest `skill.json` or `SKILL.md`, in bytes.
pub const MANIFEST_BYTES: u64 = 256 * 1024;
/// Longest `description`, in bytes.
pub const DESCRIPTION_BYTES: usize = 4 * 1024;
/// Largest JSON Schema of a skill, in bytes.
pub const SCHEMA_BYTES: usize = 64 * 1024;
/// Deepest nesting of a skill's JSON Schema.
pub const SCHEMA_DEPTH: usize = 32;
/// Most sub-schemas that one validation may visit when every `$ref` and combinator is expanded.
pub const SCHEMA_EXPANSION: u64 = 10_000;
/// Largest args of one invocation, in bytes.
pub const ARGS_BYTES: usize = 1024 * 1024;
/// Largest result (the child's stdout), in bytes.
pub const RESULT_BYTES: u64 = 16 * 1024 * 1024;
/// Largest result that travels inside `finished`, in bytes; a larger one comes before it in chunks.
pub const INLINE_RESULT_BYTES: usize = 256 * 1024;
/// Size of one chunk of a large result, in bytes.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// Largest payload of one frame that a node sends on its link, in bytes.
pub const FRAME_BYTES: usize = 64 * 1024;
/// How much of a failing child's stdout, and of any child's stderr, the final record keeps, in bytes.
pub const TAIL_BYTES: usize = 64 * 1024;
/// How much of an invalid stdout an error message shows, in bytes.
pub const SHOWN_OUTPUT_BYTES: usize = 200;
/// Most skills one node offers.
pub const SKILLS_PER_NODE: usize = 1000;
/// Deepest directory below a source that is read.
pub const WALK_DEPTH: usize = 8;
/// Most directory entries read in one scan of a source.
pub const WALK_ENTRIES: usize = 100_000;
/// Largest skill directory whose every file goes into the digest, in bytes.
pub const DIGEST_BYTES: u64 = 64 * 1024 * 1024;
/// Most files of a skill directory that go into the digest.
pub const DIGEST_FILES: usize = 10_000;

/// Time-out of a skill that names none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time-out that a manifest may ask for unless the operator raises it.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);
/// Longest time-out that an operator can allow.
pub const MAX_OPERATOR_TIMEOUT: Duration = Duration::from_secs(86_400);
/// Time between SIGTERM and SIGKILL.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
/// Time an invocation may wait for a free slot.
pub const QUEUE_WAIT: Duration = Duration::from_secs(60);
/// Invocations that may wait for a slot on one node.
pub const QUEUE_LENGTH: usize = 256;

/// Time between two heartbeats on a node's link.
pub const LINK_HEARTBEAT: Duration = Duration::from_secs(5);
/// Time without a message after which a node counts as lost.
pub const LEASE: Duration = Duration::from_secs(30);
/// Time after a node is lost until its invocations are `UNKNOWN`.
pub const UNKNOWN_AFTER: Duration = Duration::from_secs(90);
/// Time between two heartbeats on an idle event stream.
pub const WATCH_HEARTBEAT: Duration = Duration::from_secs(15);
/// Time without any watcher after which a safe invocation that is not detached is cancelled.
pub const UNWATCHED: Duration = Duration::from_secs(15);
/// First and longest wait between two tries of a node to reach its coordinator.
pub const RECONNECT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// Automatic retries of a safe invocation whose node was lost.
pub const SAFE_RETRIES: u32 = 2;

/// Unacknowledged bytes that one invocation may have on a link.
pub const INVOCATION_CREDIT: u64 = 256 * 1024;
/// Unacknowledged bytes that a whole link may have.
pub const LINK_CREDIT: u64 = 32 * 1024 * 1024;
/// Bytes of stderr that a node keeps on disk while no coordinator takes them. Of one invocation no more than 64 MiB
/// are passed on.
pub const SPOOL_BYTES: u64 = 1024 * 1024 * 1024;

/// Sessions that one caller may have open.
pub const SESSIONS_PER_CALLER: usize = 1024;
/// After so long without use a session ends.
pub const SESSION_IDLE: Duration = Duration::from_secs(24 * 3600);
/// Largest file of a skill that can be read through a coordinator, in bytes.
pub const FILE_BYTES: u64 = 1024 * 1024;
/// Bytes of a file that travel in one message.
pub const FILE_PIECE: usize = 48 * 1024;
/// Pieces of files that a node reads for its coordinator at the same time.
pub const FILES_AT_ONCE: usize = 8;
