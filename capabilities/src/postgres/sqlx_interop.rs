//! Stores on a pool that the program has already, with the feature `sqlx-interop`.
//!
//! This module names types of sqlx and follows its versions: it is **exempt from semantic versioning**. Everything else in
//! this crate keeps sqlx to itself.
//!
//! A pool from elsewhere lacks the settings of ours. So each call first ends whatever transaction an earlier user of the
//! connection may have left open, at the cost of a round trip, and the timeouts of the configuration hold only where the
//! pool's own connections have them; this side still stops waiting [`PostgresConfig::statement_timeout`] after a call began,
//! and a moment. Subscriptions and the making of indexes have connections of their own, made as the pool makes its.

use larder_kernel::Result;
use sqlx::PgPool;

use super::engine::Engine;
use super::{Postgres, PostgresConfig};

/// The configuration that fits a pool: its server, user and database, and the defaults for all else.
#[must_use]
pub fn config_of(pool: &PgPool) -> PostgresConfig {
    PostgresConfig::over((*pool.connect_options()).clone())
}

/// Opens the stores on `pool`, and makes or upgrades the schema. Closing them leaves the pool open.
///
/// Of `config`, which is best made by [`config_of`], the pool's own options replace `pool_size` and `acquire_timeout`.
///
/// # Errors
/// As [`Postgres::open`].
pub async fn open_with_pool(pool: PgPool, config: PostgresConfig) -> Result<Postgres> {
    let engine = Engine::open_with_pool(config.clone(), Some(pool)).await?;
    Ok(Postgres::new(engine, &config))
}
