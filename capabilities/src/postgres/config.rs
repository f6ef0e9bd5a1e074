//! The configuration of a database.

mod connection;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use larder_kernel::{Error, Result};
use sqlx::postgres::PgConnectOptions;

use crate::driver::unknown_parameter;
use connection::ConnectionParameters;
pub(crate) use connection::Target;

const OPERATION: &str = "postgres.config";
/// Default for the maximum number of connections of one open database.
pub const POOL_SIZE_DEFAULT: u32 = 10;
/// Default for the time limit of a statement.
pub const STATEMENT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Default for the time limit of a statement's wait for a lock.
pub const LOCK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Default for the time that the server lets a transaction stay idle.
pub const IDLE_IN_TRANSACTION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Default for the time limit of a call's wait for a connection.
pub const ACQUIRE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Default for the time limit of creating or upgrading the schema.
pub const MIGRATE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// Default for the number of documents from which a collection gets an index.
pub const VECTOR_INDEX_ROWS_MIN_DEFAULT: u64 = 10_000;

/// The action for a schema that is older than the program's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Migrate {
    /// Upgrades the schema to the newest version.
    #[default]
    Auto,
    /// Refuses to open the database.
    Check,
}

/// The index for searches of large collections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum VectorIndex {
    /// No index: every search is exact.
    #[default]
    None,
    /// An HNSW index for each large collection, if its dimension allows one: up to 2,000 as `vector`, up to
    /// 4,000 as `halfvec`. Searches are fast, and may miss one in a hundred of the nearest documents.
    Hnsw,
}

/// The location and settings of a database. `Debug` hides the password.
///
/// ```
/// use larder_capabilities::postgres::PostgresConfig;
///
/// let config = PostgresConfig::from_url("postgres://app:secret@localhost/larder?migrate=check")?;
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) connect: PgConnectOptions,
    /// The kind of server that opening accepts.
    pub(crate) target: Target,
    /// The action for an older schema.
    pub migrate: Migrate,
    /// The time limit of creating or upgrading the schema, including the wait for another process that does
    /// it.
    pub migrate_timeout: Duration,
    /// The maximum number of connections. One more listens for changes while subscriptions exist.
    pub pool_size: u32,
    /// The time limit of a statement.
    pub statement_timeout: Duration,
    /// The time limit of a statement's wait for a lock.
    pub lock_timeout: Duration,
    /// The time that the server lets a transaction stay idle.
    pub idle_in_transaction_timeout: Duration,
    /// The time limit of a call's wait for a connection.
    pub acquire_timeout: Duration,
    /// True if a pooler in transaction mode, such as PgBouncer, is known to be in front of the server.
    /// Otherwise opening finds out.
    pub pgbouncer: bool,
    /// The index for searches of large collections.
    pub vector_index: VectorIndex,
    /// The number of documents from which a collection is large.
    pub vector_index_rows_min: u64,
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("host", &self.connect.get_host())
            .field("port", &self.connect.get_port())
            .field("sslmode", &self.connect.get_ssl_mode())
            .field("migrate", &self.migrate)
            .field("pool_size", &self.pool_size)
            .field("vector_index", &self.vector_index)
            .finish_non_exhaustive()
    }
}

impl PostgresConfig {
    /// The query parameters that a URL accepts.
    pub const PARAMETERS: &'static [&'static str] = &[
        "migrate",
        "migrate_timeout_ms",
        "pool_size",
        "statement_timeout_ms",
        "lock_timeout_ms",
        "idle_in_transaction_timeout_ms",
        "acquire_timeout_ms",
        "pgbouncer",
        "vector_index",
        "vector_index_rows_min",
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "channel_binding",
        "target_session_attrs",
        "connect_timeout",
        "options",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "application_name",
    ];

    /// Reads a URL: `postgres://user:password@host:port/database?parameter=value`.
    ///
    /// Parameters of this program: `migrate=auto|check`, `migrate_timeout_ms`, `pool_size`,
    /// `statement_timeout_ms`, `lock_timeout_ms`, `idle_in_transaction_timeout_ms`, `acquire_timeout_ms`,
    /// `pgbouncer=true|false`, `vector_index=none|hnsw`, `vector_index_rows_min`.
    ///
    /// Parameters of the connection, as libpq reads them: `sslmode`, `sslrootcert` (also `system`),
    /// `sslcert`, `sslkey`, `channel_binding=prefer|disable`,
    /// `target_session_attrs=any|primary|read-write`, `connect_timeout` (seconds; `acquire_timeout_ms` has
    /// precedence), `options`, `host` (also the folder of a socket), `hostaddr`, `port`, `dbname`, `user`,
    /// `password`, `application_name`. The driver cannot bind the channel, so `channel_binding=require` is
    /// refused. Only one host may be named.
    ///
    /// Write special characters of the user, the password and all values as `%` escapes. A URL with an
    /// unescaped `@` or `/` in the password is refused.
    ///
    /// Without `sslmode`, a remote host must present a certificate that is valid for its name
    /// (`verify-full`). A host on this machine may use TLS or not (`prefer`).
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for a malformed URL, an unknown parameter or a value out of range.
    pub fn from_url(url: &str) -> Result<Self> {
        let (location, query) = url.split_once('?').unwrap_or((url, ""));
        let rest = match location.split_once("://") {
            Some((scheme, rest)) if matches!(&*scheme.to_ascii_lowercase(), "postgres" | "postgresql") => {
                rest
            }
            _ => return Err(invalid("is not a `postgres://` URL")),
        };
        connection::check_login(location, query)?;
        let mut settings = Settings::default();
        let mut connection = ConnectionParameters::read(rest)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !connection.take(name, value)? {
                settings.take(name, value)?;
            }
        }
        settings.connect_timeout = connection.connect_timeout;
        settings.target = connection.target;
        Ok(settings.over(connection.into_options()?))
    }

    /// Creates the configuration with default settings and these connection options.
    #[cfg(feature = "sqlx-interop")]
    pub(crate) fn over(connect: PgConnectOptions) -> Self {
        Settings::default().over(connect)
    }
}

/// The program's settings in a URL.
struct Settings {
    connect_timeout: Option<Duration>,
    target: Target,
    migrate: Migrate,
    migrate_timeout: Duration,
    pool_size: u32,
    statement_timeout: Duration,
    lock_timeout: Duration,
    idle_in_transaction_timeout: Duration,
    acquire_timeout: Option<Duration>,
    pgbouncer: bool,
    vector_index: VectorIndex,
    vector_index_rows_min: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: None,
            target: Target::Any,
            migrate: Migrate::Auto,
            migrate_timeout: MIGRATE_TIMEOUT_DEFAULT,
            pool_size: POOL_SIZE_DEFAULT,
            statement_timeout: STATEMENT_TIMEOUT_DEFAULT,
            lock_timeout: LOCK_TIMEOUT_DEFAULT,
            idle_in_transaction_timeout: IDLE_IN_TRANSACTION_TIMEOUT_DEFAULT,
            acquire_timeout: None,
            pgbouncer: false,
            vector_index: VectorIndex::None,
            vector_index_rows_min: VECTOR_INDEX_ROWS_MIN_DEFAULT,
        }
    }
}

impl Settings {
    fn take(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "migrate" => {
                self.migrate = match value {
                    "auto" => Migrate::Auto,
                    "check" => Migrate::Check,
                    _ => return Err(invalid("has a `migrate` other than `auto` and `check`")),
                };
            }
            "migrate_timeout_ms" => self.migrate_timeout = millis(value)?,
            "pool_size" => {
                let size = value.parse().ok().filter(|size| (1..=1_000).contains(size));
                self.pool_size =
                    size.ok_or_else(|| invalid("has a `pool_size` that is not a number from 1 to 1000"))?;
            }
            "statement_timeout_ms" => self.statement_timeout = millis(value)?,
            "lock_timeout_ms" => self.lock_timeout = millis(value)?,
            "idle_in_transaction_timeout_ms" => self.idle_in_transaction_timeout = millis(value)?,
            "acquire_timeout_ms" => self.acquire_timeout = Some(millis(value)?),
            "pgbouncer" => {
                self.pgbouncer = match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err(invalid("has a `pgbouncer` other than `true` and `false`")),
                };
            }
            "vector_index" => {
                self.vector_index = match value {
                    "none" => VectorIndex::None,
                    "hnsw" => VectorIndex::Hnsw,
                    _ => return Err(invalid("has a `vector_index` other than `none` and `hnsw`")),
                };
            }
            "vector_index_rows_min" => {
                let rows = value.parse().ok().filter(|rows| (1..=1_000_000_000).contains(rows));
                self.vector_index_rows_min = rows.ok_or_else(|| {
                    invalid("has a `vector_index_rows_min` that is not a number from 1 to 1000000000")
                })?;
            }
            _ => {
                let unknown = unknown_parameter("postgres", name, PostgresConfig::PARAMETERS);
                return Err(unknown.in_operation(OPERATION));
            }
        }
        Ok(())
    }

    fn over(self, connect: PgConnectOptions) -> PostgresConfig {
        let acquire_timeout = self.acquire_timeout.or(self.connect_timeout);
        PostgresConfig {
            connect,
            migrate: self.migrate,
            migrate_timeout: self.migrate_timeout,
            pool_size: self.pool_size,
            statement_timeout: self.statement_timeout,
            lock_timeout: self.lock_timeout,
            idle_in_transaction_timeout: self.idle_in_transaction_timeout,
            acquire_timeout: acquire_timeout.unwrap_or(ACQUIRE_TIMEOUT_DEFAULT),
            target: self.target,
            pgbouncer: self.pgbouncer,
            vector_index: self.vector_index,
            vector_index_rows_min: self.vector_index_rows_min,
        }
    }
}

pub(crate) fn is_this_machine(connect: &PgConnectOptions) -> bool {
    if connect.get_socket().is_some() {
        return true;
    }
    let host = connect.get_host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Parses a time in milliseconds. The server counts in 31 bits, and 0 means no limit.
fn millis(value: &str) -> Result<Duration> {
    let ms =
        value.parse().ok().filter(|ms| (1..=i32::MAX).contains(ms)).and_then(|ms| u64::try_from(ms).ok());
    ms.map(Duration::from_millis)
        .ok_or_else(|| invalid("has a time that is not a number of milliseconds from 1 to 2147483647"))
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(OPERATION, "url", message)
}

#[cfg(test)]
mod tests;
