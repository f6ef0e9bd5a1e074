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
//! The server must be Redis 7.0 or newer (or one that speaks like it), and must not drop keys when its memory is full:
//! `maxmemory-policy noeviction`. Every step is one script, so it happens as a whole. All keys and channels begin with
//! `larder:`; in a cluster, each thread, bucket and board has a slot of its own.
//!
//! Each open place has up to six connections to a server: one that any number of calls share, up to four that one call at
//! a time has for itself, which saves it the way through another task, and one that listens for changes once somebody
//! watches or subscribes. Where the server allows fewer, calls share what there is. Over TLS all calls share one. A call
//! that is dropped before its answer came closes the connection that it had for itself.
//!
//! What an acknowledged write survives is read from the server when it is opened: with `appendonly yes`, the loss of
//! power where `appendfsync` is `always`, the death of the server where it is `no`, and nothing where it is
//! `everysec`, since the server then holds acknowledged writes back while it flushes. In a cluster the weakest server
//! counts, and replicas, which may take over without the last writes, mean nothing at all. A server that comes back
//! weaker than it was is refused.
//!
//! Erasing removes all content at once. For ten minutes, keys without content stay that keep writers who were already
//! under way from bringing the erased back; their names hold the ids of the threads, buckets and conversations, so an id
//! is gone from the server ten minutes after its data.
//!
//! The store's clock is the server's. The futures need a tokio runtime.

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
mod script;
mod task;

use larder_kernel::{Capabilities, Namespace, Result};

pub use config::{CONNECT_TIMEOUT_DEFAULT, RESPONSE_TIMEOUT_DEFAULT, RedisConfig};
pub use driver::RedisDriver;
use engine::Engine;
pub use history::RedisHistoryProvider;
pub use key_value::RedisKeyValueStore;
pub use task::RedisTaskStore;

/// An open server or cluster, from which the stores are taken. Clones share its connections, which close when the last
/// clone and the last store are dropped.
#[derive(Debug, Clone)]
pub struct Redis {
    engine: Engine,
}

impl Redis {
    /// Connects, and reads the settings of the server or of every server of the cluster.
    ///
    /// # Errors
    /// `Unavailable` or `Timeout` where a server does not answer; `PermissionDenied` for a wrong password or a user who
    /// may not do what the stores need; `Unsupported` for a server that is too old, may drop keys, or is part of a
    /// cluster where the URL names one server, or the other way round.
    pub async fn open(config: RedisConfig) -> Result<Self> {
        Ok(Self { engine: Engine::open(config).await? })
    }

    /// The buckets of `namespace`.
    #[must_use]
    pub fn key_value(&self, namespace: Namespace) -> RedisKeyValueStore {
        RedisKeyValueStore::new(self.engine.clone(), namespace)
    }

    /// The conversations of a namespace.
    #[must_use]
    pub fn history(&self, namespace: Namespace) -> RedisHistoryProvider {
        RedisHistoryProvider::new(self.engine.clone(), namespace)
    }

    /// What the stores declare, as the servers' settings read back.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    /// How many connections there are.
    pub(crate) fn pool(&self) -> crate::driver::Pool {
        self.engine.pool()
    }

    /// Closes the connections, for every clone and store. One that is used again makes a new one.
    pub async fn close(self) {
        self.engine.close().await;
    }
}
