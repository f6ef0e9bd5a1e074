//! The items that most programs use: `use larder::prelude::*;`.
//!
//! The prelude shadows no name of std's prelude, and exports neither `Result` nor `Error`.
//!
//! ```
//! use larder::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder::Result<()> {
//! let stores = larder::open("memory:").await?;
//! let thread = Thread::new("assistant", "session-1")?;
//! stores.history()?.append(&thread, ChatMessage::user("Hello")).await?;
//! # Ok(())
//! # }
//! ```

pub use larder_kernel::{
    BlobKey, BoardId, ChatMessage, Claim, Contract, Document, Embedding, Entity, ErrorKind, Filter, Metadata,
    Namespace, NewBoard, NewTask, Relationship, Revision, Role, SearchHit, SearchRequest, Seq, Task,
    TaskStatus, Thread, ToolCall, ToolResult, Ttl,
};

pub use crate::{Backend, Blobs, Graph, History, KeyValue, Registry, Stores, StoresBuilder, Tasks, Vectors};
