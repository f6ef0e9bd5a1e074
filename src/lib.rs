#![doc = include_str!("../README.md")]

pub mod adapters;
mod backend;
mod blobs;
mod builder;
mod config;
pub mod diagnose;
mod graph;
mod handle;
pub mod health;
mod history;
mod key_value;
pub mod prelude;
mod registry;
mod runtime_backend;
mod stores;
mod tasks;
mod vectors;
pub mod verify;

pub use backend::Backend;
pub use blobs::Blobs;
pub use builder::{StoresBuilder, open};
pub use config::{StoresConfig, Urls};
pub use diagnose::diagnose;
pub use graph::Graph;
pub use health::Health;
pub use history::History;
pub use key_value::KeyValue;
pub use registry::Registry;
pub use runtime_backend::RuntimeBackend;
pub use stores::Stores;
pub use tasks::Tasks;
pub use vectors::Vectors;

#[cfg(feature = "toolkit")]
pub use larder_agents::{
    checkpoint, compaction, context, model, retrieval, scope, session, tokens, transcript, workflow,
};
pub use larder_agents::{layers, storage as memory, transfer};
#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
pub use larder_capabilities::FilePermissions;
#[cfg(feature = "age")]
pub use larder_capabilities::age;
#[cfg(all(feature = "fs", unix))]
pub use larder_capabilities::fs;
#[cfg(feature = "postgres")]
pub use larder_capabilities::postgres;
#[cfg(feature = "redis")]
pub use larder_capabilities::redis;
#[cfg(feature = "s3")]
pub use larder_capabilities::s3;
#[cfg(feature = "sqlite")]
pub use larder_capabilities::sqlite;
pub use larder_capabilities::{driver, redact_url};
pub use larder_kernel::*;
