//! Blobs as files in a folder.
//!
//! A blob is one file: its bytes, then what is known of it, so that one open file is one version. A write goes to a
//! temporary file, is flushed, and is moved to its place in one step; then the folders are flushed. Conditions are
//! compared under lock files, so they hold across processes too. Nothing outside the root is ever touched and symbolic
//! links are not followed. Unix only: it rests on `openat`, `O_NOFOLLOW` and `flock`.

mod blob;
mod blocking;
mod buffer_pool;
mod config;
pub(crate) mod diagnose;
mod driver;
mod engine;
mod layout;

pub use blob::FsBlobStore;
pub use config::FsConfig;
pub use driver::FsDriver;

/// The most that a read returns in one piece and that a streamed write buffers.
const CHUNK_BYTES: usize = 1024 * 1024;
