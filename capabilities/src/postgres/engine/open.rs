//! Opening a database: the checks of its server, and the upgrade of its schema.

use std::time::Duration;

use larder_kernel::{Durability, Error, ErrorKind};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::connect::connect;
use super::explain::standby;
use super::{GRACE, OPEN, silent, within};
use crate::postgres::config::{PostgresConfig, Target};
use crate::postgres::failure::{Failure, Fallible, is_refused_for_now, is_unknown_option, refuses_options};
use crate::postgres::schema::Schema;
use crate::postgres::session::{Mode, SessionSettings, TOOK_OPTIONS, leave_nothing};

/// The oldest supported server version: it has every feature that the schema uses.
pub(crate) const SERVER_VERSION_MIN: i32 = 140_000;
/// The pause before a connection that the server refused for a lack of room is tried again.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

/// A database that is fit to use.
pub(super) struct Examined {
    pub(super) durability: Durability,
    /// The value of `synchronous_commit` that gives this durability.
    pub(super) commit: &'static str,
    pub(super) settings: SessionSettings,
    pub(super) mode: Mode,
}

/// A connection, with the settings that its server takes.
pub(crate) struct Session {
    pub(crate) connection: PgConnection,
    pub(crate) settings: SessionSettings,
    pub(crate) mode: Mode,
}

impl Session {
    /// Begins a transaction.
    pub(crate) async fn begin(
        &mut self,
        isolation: &str,
    ) -> sqlx::Result<sqlx::Transaction<'_, sqlx::Postgres>> {
        self.connection.begin_with(AssertSqlSafe(self.settings.begin(isolation, self.mode))).await
    }

    /// Returns the connection for a question. Behind a pooler, each question is in a transaction, so that all
    /// of its parts reach the same server connection.
    pub(crate) async fn question(&mut self) -> &mut PgConnection {
        if self.mode == Mode::Pooled {
            // The question reports a lost connection.
            let _ = self.connection.clear_cached_statements().await;
            let _ = sqlx::raw_sql("ROLLBACK; BEGIN").execute(&mut self.connection).await;
        }
        &mut self.connection
    }
}

/// Connects, rejects an unsuitable database and upgrades its schema.
pub(super) async fn examine(
    config: &PostgresConfig,
    schema: Schema,
    call_timeout: Duration,
) -> Fallible<Examined> {
    let mut session = establish(config).await?;
    let mode = session.mode;
    let looked = within(call_timeout, OPEN, look(&mut session, schema, config.target)).await??;
    if !looked.newest {
        let begin = session.settings.begin("READ COMMITTED", mode);
        let migrating = schema.migrate(&mut session.connection, config.migrate, begin, mode);
        if let Err(failure) = within(config.migrate_timeout, OPEN, migrating).await? {
            return Err(standby(&mut session.connection, failure).await);
        }
    }
    let _ = tokio::time::timeout(GRACE, session.connection.close()).await;
    let settings = session.settings.with_vectors_in(&looked.vectors_in);
    Ok(Examined { durability: looked.durability, commit: looked.commit, settings, mode })
}

/// Connects with the settings of every session, and finds out how the server takes them.
pub(crate) async fn establish(config: &PostgresConfig) -> Fallible<Session> {
    let settings = SessionSettings::of(config);
    if config.pgbouncer {
        let options = settings.connect(&config.connect, Mode::Pooled);
        return pooled(dial(config, options).await?, settings).await;
    }
    let newest = settings.clone().for_new_server();
    let (dialed, settings) = match dial(config, newest.connect(&config.connect, Mode::Direct)).await {
        Err(Failure::Database(error)) if is_unknown_option(&error) => {
            (dial(config, settings.connect(&config.connect, Mode::Direct)).await, settings)
        }
        dialed => (dialed, newest),
    };
    match dialed {
        Ok(mut connection) => {
            let took = sqlx::query_scalar(TOOK_OPTIONS).persistent(false).fetch_one(&mut connection);
            // Behind a pooler, another server connection may get the second half of the query.
            if within(GRACE, OPEN, took).await?.unwrap_or(false) {
                return Ok(Session { connection, settings, mode: Mode::Direct });
            }
            let _ = tokio::time::timeout(GRACE, connection.close()).await;
        }
        Err(Failure::Database(error)) if refuses_options(&error) => {}
        Err(failure) => return Err(failure),
    }
    let settings = SessionSettings::of(config);
    pooled(dial(config, settings.connect(&config.connect, Mode::Pooled)).await?, settings).await
}

/// Returns a session behind a pooler, with the settings that the version of its server has.
async fn pooled(mut connection: PgConnection, settings: SessionSettings) -> Fallible<Session> {
    let version = async {
        let mut transaction = connection.begin().await?;
        let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
            .fetch_one(&mut *transaction)
            .await?;
        leave_nothing(&mut transaction, Mode::Pooled).await?;
        transaction.commit().await?;
        Ok::<_, Failure>(version)
    };
    let version = within(GRACE, OPEN, version).await??;
    let settings = if version >= 170_000 { settings.for_new_server() } else { settings };
    Ok(Session { connection, settings, mode: Mode::Pooled })
}

/// Connects. Other handles of the program may hold all connections that the server grants, so an attempt that
/// is refused for that reason is repeated.
async fn dial(config: &PostgresConfig, options: PgConnectOptions) -> Fallible<PgConnection> {
    let open = move || {
        let options = options.clone();
        async move { PgConnection::connect_with(&options).await }
    };
    let deadline = tokio::time::Instant::now() + config.acquire_timeout;
    loop {
        match connect(config.acquire_timeout, open.clone()).await.ok_or_else(|| silent(OPEN))? {
            Ok(connection) => return Ok(connection),
            Err(error @ sqlx::Error::Database(_))
                if is_refused_for_now(&error) && tokio::time::Instant::now() + REFUSED_PAUSE < deadline =>
            {
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The results of the first transaction.
struct Looked {
    durability: Durability,
    commit: &'static str,
    newest: bool,
    /// The schema of pgvector as a quoted identifier, or the schema in which it would be installed.
    vectors_in: String,
}

/// Rejects an unsuitable server, and reads the durability of a commit.
async fn look(session: &mut Session, schema: Schema, target: Target) -> Fallible<Looked> {
    let mode = session.mode;
    let mut transaction = session.begin("READ COMMITTED").await?;
    let connection: &mut PgConnection = &mut transaction;
    let row = sqlx::query(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
            current_setting('fsync')::bool, current_setting('synchronous_commit'),
            pg_is_in_recovery(), current_setting('transaction_read_only')::bool,
            current_setting('session_replication_role'),
            coalesce((SELECT quote_ident(n.nspname) FROM pg_catalog.pg_extension e
                JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'),
                'public')",
    )
    .fetch_one(&mut *connection)
    .await?;
    let version: i32 = row.try_get(0)?;
    if version < SERVER_VERSION_MIN {
        let message = "the server is older than PostgreSQL 14; upgrade it";
        return Err(unsupported(message).with_context("server_version", i64::from(version)).into());
    }
    if row.try_get::<String, _>(1)? != "UTF8" {
        return Err(
            unsupported("the database's encoding is not UTF8; create it with `ENCODING 'UTF8'`").into()
        );
    }
    if row.try_get::<String, _>(6)? != "origin" {
        let message = "`session_replication_role` is not `origin`, so that rows would outlive the rows that \
                       they belong to; reset it for the role and the database";
        return Err(unsupported(message).into());
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
    let found: String = row.try_get(3)?;
    let commit = ["off", "local", "remote_write", "remote_apply"].into_iter().find(|value| *value == found);
    let commit = commit.unwrap_or("on");
    let durability = match (row.try_get(2)?, commit != "off") {
        (true, true) => Durability::Power,
        // The operating system holds the commit and outlives the server's processes.
        (false, true) => Durability::Process,
        (_, false) => Durability::None,
    };
    let newest = schema.is_newest(&mut *connection).await?;
    leave_nothing(connection, mode).await?;
    let vectors_in = row.try_get(7)?;
    transaction.commit().await?;
    Ok(Looked { durability, commit, newest, vectors_in })
}

fn unsupported(message: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, OPEN, message)
}
