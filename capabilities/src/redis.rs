//! Redis: conversations, tasks and small state in a server's memory, or spread over a cluster.
//!
//! ```no_run
//! use bytes::Bytes;
//! use larder_capabilities::redis::{Redis, RedisConfig};
//! use larder_kernel::{BucketName, Key, KeyValueStoreExt, Namespace};
//!
//! # async fn example() -> larder_kernel::Result<()> {
//! let redis = Redis::open(RedisConfig::from_url("redis://:password@localhost/0")?).await?;
//! let settings = redis.key_value(Namespace::new("app")?);
//! settings.set(&BucketName::new("settings")?, &Key::new("theme")?, Bytes::from_static(b"dark")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The server must be Redis 7.0 or newer, or a compatible server such as Valkey. It must not evict keys when
//! its memory is full: `maxmemory-policy noeviction`. Every step is one script, so it is atomic. All keys and
//! channels begin with `larder:`, or with the `key_prefix` of the configuration. In a cluster, the keys of
//! one thread, of one bucket or of one conversation's boards share a slot.
//!
//! Each open backend has up to six connections to a server. One is shared by any number of calls. Up to four
//! are dedicated to one call at a time, which saves a hop through another task. One listens for changes once
//! a watch or subscription exists. If the server allows fewer connections, calls share the available ones.
//! Over TLS all calls share one connection. A call that is dropped before its reply closes its dedicated
//! connection.
//!
//! Every thread, bucket and board carries a format number, which the scripts check. A program that finds
//! another number returns `Unsupported` and writes nothing, even if it opened the server before.
//!
//! Opening reads from the server which failures an acknowledged write survives. With `appendonly yes`,
//! `appendfsync always` and `no-appendfsync-on-rewrite no`, it survives a power failure. With
//! `appendfsync no` it survives a crash of the server process. With `everysec` no failure is certain to be
//! survived, because the server holds acknowledged writes back while it flushes. In a cluster the weakest
//! server counts. Replicas add nothing, because one may take over without the last writes. A server that
//! restarts with weaker settings is rejected.
//!
//! With `redis+sentinel://`, the stores ask the sentinels for the primary, and use only a server with that
//! role. After a failover they find its successor; a call waits for up to five seconds for it. Durability is
//! `none`, because a replica that takes over may lack the last writes, unless `min-replicas-to-write` is at
//! least the number of replicas. Each write then waits until that many replicas confirm it (`WAIT`), and an
//! acknowledged write survives the end of the primary's process. If they do not confirm it within half of
//! the `response_timeout`, the write fails with `Timeout` and an unknown outcome.
//!
//! Erasing removes all content immediately. For ten minutes, keys without content remain; they stop writers
//! that are already in progress from restoring the erased data. The names of these keys contain the ids of
//! the threads, buckets and conversations, so an id leaves the server ten minutes after its data.
//!
//! The stores use the server's clock. The futures need a tokio runtime.

mod config;
mod decode;
pub(crate) mod diagnose;
mod driver;
mod engine;
mod failure;
mod history;
mod index;
mod key;
mod key_value;
mod reader;
mod script;
mod task;
mod verify;

use larder_kernel::{Capabilities, Namespace, Result};

pub use config::{CONNECT_TIMEOUT_DEFAULT, RESPONSE_TIMEOUT_DEFAULT, RedisConfig};
pub use driver::RedisDriver;
use engine::Engine;
pub use history::RedisHistoryProvider;
pub use key_value::RedisKeyValueStore;
pub use task::RedisTaskStore;

/// An open server, cluster or set of sentinels that returns stores. Clones share its connections, which close
/// when the last clone and the last store are dropped.
#[derive(Debug, Clone)]
pub struct Redis {
    engine: Engine,
}

impl Redis {
    /// Connects, and reads the settings of the server or of every server of the cluster.
    ///
    /// # Errors
    /// `Unavailable` or `Timeout` if a server does not reply; `PermissionDenied` for a wrong password or a
    /// user who lacks the rights that the stores need; `Unsupported` for a server that is too old, that may
    /// evict keys, that is part of a cluster while the URL names a single server, or that is a single server
    /// while the URL names a cluster.
    pub async fn open(config: RedisConfig) -> Result<Self> {
        Ok(Self { engine: Engine::open(config, script::FORMAT).await? })
    }

    /// Opens the servers as a release does whose new data has this format number. For tests of upgrades.
    ///
    /// # Errors
    /// As [`Redis::open`].
    #[doc(hidden)]
    pub async fn open_as(config: RedisConfig, format: i64) -> Result<Self> {
        Ok(Self { engine: Engine::open(config, format).await? })
    }

    /// Returns the key-value store of `namespace`.
    #[must_use]
    pub fn key_value(&self, namespace: Namespace) -> RedisKeyValueStore {
        RedisKeyValueStore::new(self.engine.clone(), namespace)
    }

    /// Returns the history store of a namespace.
    #[must_use]
    pub fn history(&self, namespace: Namespace) -> RedisHistoryProvider {
        RedisHistoryProvider::new(self.engine.clone(), namespace)
    }

    /// Returns the capabilities of the stores, read back from the servers' settings.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    /// Returns the state of the connection pool.
    pub(crate) fn pool(&self) -> crate::driver::Pool {
        self.engine.pool()
    }

    /// Closes the connections of every clone and store. A store that is used again opens a new connection.
    pub async fn close(self) {
        self.engine.close().await;
    }
}
