//! An MCP server over the stores, with the crate `rmcp`.
//!
//! [`McpServer`] offers the stored data to a model as tools and resources: conversations to read and search,
//! a memory graph, notes, and task boards. It serves over standard input and output ([`serve_stdio`]) or
//! streamable HTTP ([`serve_http`]). As an `rmcp::ServerHandler`, it also serves over any transport of your
//! own.
//!
//! | tools | contract |
//! |---|---|
//! | `conversation_list`, `conversation_read`, `conversation_message`, `conversation_search` | history |
//! | `graph_…`: entities, observations, relationships, neighbors, search | graph |
//! | `note_put`, `note_get`, `note_list`, `note_delete` | key-value |
//! | `board_…`, `task_…`: boards, claims with leases and tokens, steps | tasks |
//!
//! A tool is listed only if the stores provide its contract; calling an unlisted tool returns the typed
//! `Unsupported`. A tool reports an error as a result with `isError`, whose structured content is `{"error":
//! {"kind", "operation", "message", "field", "actual", "limit", "may_have_happened", "retryable"}}`, in the
//! terms of [`larder_kernel::Error`].
//!
//! A result has at most [`RESULT_BYTES_MAX`] bytes of JSON. A listing that would be larger ends early with a
//! cursor. A long text is cut and marked as truncated; `conversation_message` and `note_get` read long
//! content in pieces.
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
//! [`KeyValueSessionStore`] and [`KeyValueEventStore`] implement rmcp's stores for sessions and stream events
//! over a [`KeyValueStore`](larder_kernel::KeyValueStore). With them, clients continue after a restart or on
//! another instance.

mod answer;
mod argument;
mod coerce;
mod conversation;
mod cursor;
mod digest;
mod event;
mod failure;
mod graph;
mod http;
mod lines;
mod message;
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

/// The prefix of the adapter's own buckets; notes cannot be written there.
pub(crate) const OWN_BUCKETS: &str = "larder.mcp.";

/// Returns every tool.
pub(crate) fn entries() -> Vec<registry::Entry> {
    let mut entries = conversation::entries();
    entries.extend(graph::entries());
    entries.extend(note::entries());
    entries.extend(task::entries());
    entries
}
