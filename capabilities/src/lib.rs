//! Backends, and the way from a URL to a store.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder_kernel::Result<()> {
//! use larder_capabilities::Stores;
//!
//! let stores = Stores::connect("memory:").await?;
//! let tasks = stores.tasks()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`connect`] lists the URLs. Each backend has a cargo feature: `sqlite` and `fs` are on by default, and memory is
//! always there.

pub mod connect;
#[cfg(all(feature = "fs", unix))]
pub mod fs;
#[cfg(feature = "postgres")]
pub mod postgres;
mod secret;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod stores;

pub use connect::{Place, open_place};
pub use secret::redact_url;
pub use stores::{Stores, StoresBuilder};
