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
//! always there. [`adapters`] put any store behind the traits of other crates.

pub mod adapters;
#[cfg(feature = "age")]
pub mod age;
mod builder;
mod config;
pub mod connect;
pub mod diagnose;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod follow;
#[cfg(all(feature = "fs", unix))]
pub mod fs;
pub mod health;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod message;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod number;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod runtime_backend;
#[cfg(feature = "s3")]
pub mod s3;
mod secret;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod stores;

pub use builder::StoresBuilder;
pub use config::{StoresConfig, Urls};
pub use connect::{Place, open_place};
pub use diagnose::diagnose;
pub use health::Health;
pub use runtime_backend::RuntimeBackend;
pub use secret::redact_url;
pub use stores::Stores;

/// The page on the registry; what it shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
