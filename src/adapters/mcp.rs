//! An MCP server over the stores, with the crate `rmcp`.
//!
//! [`McpServer`] offers what the stores hold to a model as tools and resources: conversations to read and search, a
//! memory graph, notes, and boards of tasks. It speaks over standard input and output ([`serve_stdio`]), over
//! streamable HTTP ([`serve_http`]), or as an `rmcp::ServerHandler` over any transport of yours.
//!
//! | tools | contract |
//! |---|---|
//! | `conversation_list`, `conversation_read`, `conversation_message`, `conversation_search` | history |
//! | `graph_…`: entities, observations, relationships, neighbors, search | graph |
//! | `note_put`, `note_get`, `note_list`, `note_delete` | key-value |
//! | `board_…`, `task_…`: boards, claims with leases and tokens, steps | tasks |
//!
//! Tools whose contract no store provides are not listed, and calling one is the typed `Unsupported`. An error of a tool
//! is a result with `isError` whose structured content is `{"error": {"kind", "operation", "message", "field",
//! "actual", "limit", "may_have_happened", "retryable"}}`, with the words of [`larder_kernel::Error`]. An answer is at
//! most [`RESULT_BYTES_MAX`] bytes of JSON: listings end early with a cursor, long texts are cut and say so, and
//! `conversation_message` and `note_get` read anything in pieces.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder::Result<()> {
//! use larder::Stores;
//! use larder::adapters::mcp::McpServer;
//!
//! let server = McpServer::new(larder::open("memory:").await?);
//! assert!(server.tools().iter().any(|tool| tool.name == "note_put"));
//! // serve_stdio(server).await
//! # Ok(())
//! # }
//! ```
//!
//! For rmcp's own needs [`KeyValueSessionStore`] and [`KeyValueEventStore`] keep sessions and the events of their streams in a
//! [`KeyValueStore`](larder_kernel::KeyValueStore), so that clients go on after a restart or on another instance.

mod answer;
mod argument;
mod conversation;
mod cursor;
mod digest;
mod event;
mod failure;
mod graph;
mod http;
mod note;
mod registry;
mod resource;
mod server;
mod session;
mod stdio;
mod task;

pub use answer::RESULT_BYTES_MAX;
pub use event::KeyValueEventStore;
pub use http::{HttpOptions, serve_http};
pub use note::NOTES_BUCKET;
pub use server::McpServer;
pub use session::KeyValueSessionStore;
pub use stdio::serve_stdio;

/// What the adapter's own buckets begin with; notes cannot be put there.
pub(crate) const OWN_BUCKETS: &str = "larder.mcp.";

/// Every tool there is.
pub(crate) fn entries() -> Vec<registry::Entry> {
    let mut entries = conversation::entries();
    entries.extend(graph::entries());
    entries.extend(note::entries());
    entries.extend(task::entries());
    entries
}
