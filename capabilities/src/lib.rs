//! The backends of Larder: SQLite, files, Postgres, Redis, S3 and Apache AGE, each behind a cargo feature.
//!
//! Programs depend on the crate `larder`, which opens these backends by URL. Depend on this crate only if you
//! need the types of one backend, such as its configuration. To write your own backend, implement [`driver`].

#[cfg(any(
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "sqlite",
    all(feature = "fs", unix)
))]
#[macro_use]
mod store;

#[cfg(feature = "age")]
pub mod age;
#[cfg(feature = "postgres")]
mod before_repair;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod change_log;
pub mod diagnose;
pub mod driver;
mod drivers;
#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
mod files;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod follow;
#[cfg(any(
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "sqlite",
    all(feature = "fs", unix)
))]
mod format;
#[cfg(all(feature = "fs", unix))]
pub mod fs;
mod memory;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod message;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod number;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "s3")]
pub mod s3;
mod secret;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod steps;
pub mod verify;

pub use drivers::{drivers, feature_of};
#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
pub use files::FilePermissions;
pub use memory::MemoryDriver;
pub use secret::redact_url;

/// Compiles the examples of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
