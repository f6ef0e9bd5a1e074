//! Stores on a pool that the program already has, with the feature `sqlx-interop`.
//!
//! This module names types of sqlx and follows its versions: it is **exempt from semantic versioning**. The
//! rest of this crate exposes no type of sqlx.
//!
//! A foreign pool does not have the crate's settings. So each call first ends any transaction that an earlier
//! user of the connection may have left open, which costs a round trip. The server applies the timeouts of
//! the configuration only if the pool's connections set them. The client still stops waiting shortly after
//! [`PostgresConfig::statement_timeout`] has passed since the call began. Subscriptions and index builds use
//! separate connections, with the options of the pool's connections.

use larder_kernel::Result;
use sqlx::PgPool;

use super::engine::Engine;
use super::schema::Schema;
use super::{Postgres, PostgresConfig};

/// Returns the configuration that fits a pool: its server, user and database, and the defaults for all other
/// settings.
#[must_use]
pub fn config_of(pool: &PgPool) -> PostgresConfig {
    PostgresConfig::over((*pool.connect_options()).clone())
}

/// Opens the stores on `pool`, and creates or upgrades the schema. Closing the stores leaves the pool open.
///
/// Create `config` with [`config_of`]. The pool's options replace its `pool_size` and `acquire_timeout`.
///
/// # Errors
/// As [`Postgres::open`].
pub async fn open_with_pool(pool: PgPool, config: PostgresConfig) -> Result<Postgres> {
    let engine = Engine::open_at(config.clone(), Some(pool), Schema::CURRENT).await?;
    Ok(Postgres::new(engine, &config))
}
