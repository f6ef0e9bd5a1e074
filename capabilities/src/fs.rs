//! Blobs as files in a folder.
//!
//! A blob is one file: its bytes, followed by its metadata, so that one open file is one version. A write
//! goes to a temporary file, flushes it, and renames it to its final path in one step. Then it flushes the
//! folders. Conditions are compared under lock files, so they also hold across processes. The store touches
//! nothing outside its root and follows no symbolic links. It runs only on Unix, because it needs `openat`,
//! `O_NOFOLLOW` and `flock`.

mod blob;
mod blocking;
mod buffer_pool;
mod config;
mod create;
pub(crate) mod diagnose;
mod driver;
mod engine;
mod failure;
mod folder;
mod format;
mod layout;
mod locks;
pub(crate) mod verify;

pub use blob::FsBlobStore;
pub use config::FsConfig;
pub use driver::FsDriver;

/// The most bytes that a read returns in one piece and that a streamed write buffers.
const CHUNK_BYTES: usize = 1024 * 1024;
