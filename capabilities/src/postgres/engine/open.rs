//! Opening a database: the checks of its server, and the upgrade of its schema.

use std::time::Duration;

use larder_kernel::{Durability, Error, ErrorKind};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, Row};

use super::connect::connect;
use super::{GRACE, OPEN, explain, silent, within};
use crate::postgres::config::{PostgresConfig, Target};
use crate::postgres::failure::Fallible;
use crate::postgres::schema::Schema;

/// The oldest supported server version: it has every feature that the schema uses.
pub(crate) const SERVER_VERSION_MIN: i32 = 140_000;

/// Connects with the options of every call, rejects an unsuitable database, upgrades its schema, and returns
/// the durability of a commit with the value of `synchronous_commit` that gives it.
pub(super) async fn examine(
    options: &PgConnectOptions,
    config: &PostgresConfig,
    schema: Schema,
    call_timeout: Duration,
) -> Fallible<(Durability, &'static str)> {
    let options = options.clone();
    let open = move || {
        let options = options.clone();
        async move { PgConnection::connect_with(&options).await }
    };
    let connected = connect(config.acquire_timeout, open).await;
    let mut connection = connected.ok_or_else(|| silent(OPEN))??;
    let found = within(call_timeout, OPEN, probe(&mut connection, config.target)).await??;
    if !within(call_timeout, OPEN, schema.is_newest(&mut connection)).await?? {
        let migrating = schema.migrate(&mut connection, config.migrate);
        if let Err(failure) = within(config.migrate_timeout, OPEN, migrating).await? {
            return Err(explain(&mut connection, failure).await);
        }
    }
    let _ = tokio::time::timeout(GRACE, connection.close()).await;
    Ok(found)
}

/// Rejects an unsuitable server, and reads the durability of a commit.
async fn probe(connection: &mut PgConnection, target: Target) -> Fallible<(Durability, &'static str)> {
    let row = sqlx::query(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
            current_setting('fsync')::bool, current_setting('synchronous_commit'),
            pg_is_in_recovery(), current_setting('transaction_read_only')::bool",
    )
    .fetch_one(connection)
    .await?;
    let version: i32 = row.try_get(0)?;
    if version < SERVER_VERSION_MIN {
        return Err(Error::new(
            ErrorKind::Unsupported,
            OPEN,
            "the server is older than PostgreSQL 14; upgrade it",
        )
        .with_context("server_version", i64::from(version))
        .into());
    }
    if row.try_get::<String, _>(1)? != "UTF8" {
        return Err(Error::new(
            ErrorKind::Unsupported,
            OPEN,
            "the database's encoding is not UTF8; create it with `ENCODING 'UTF8'`",
        )
        .into());
    }
    let fits = match target {
        Target::Any => true,
        Target::Primary => !row.try_get::<bool, _>(4)?,
        Target::ReadWrite => !row.try_get::<bool, _>(5)?,
    };
    if !fits {
        let message = "the server is not of the kind that `target_session_attrs` names; name the primary \
                       server, or try again after a failover";
        return Err(Error::new(ErrorKind::Unavailable, OPEN, message).into());
    }
    let found: &str = row.try_get(3)?;
    let commit = ["off", "local", "remote_write", "remote_apply"].into_iter().find(|value| *value == found);
    let commit = commit.unwrap_or("on");
    let durability = match (row.try_get(2)?, commit != "off") {
        (true, true) => Durability::Power,
        // The operating system holds the commit and outlives the server's processes.
        (false, true) => Durability::Process,
        (_, false) => Durability::None,
    };
    Ok((durability, commit))
}
