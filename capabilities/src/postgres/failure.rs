//! Failures inside a job, and their translation to the caller's error.

use std::sync::Arc;

use larder_kernel::storage::history::fenced_off;
use larder_kernel::{Error, ErrorKind, FencingToken, Outcome};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::format::{WRONG_FORMAT, wrong_format};

/// The error code that `larder.fenced` raises for a write whose fencing token is missing or too low. Its
/// detail is the thread's token.
const FENCED_OFF: &str = "LF002";

/// A failure inside a job: an error of the contract or of the database. `?` converts both.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the contract, ready to return.
    Contract(Error),
    /// An error of the database, not translated yet.
    Database(sqlx::Error),
    /// An error of the database on a statement whose types may have been dropped, so that the connection is
    /// unusable.
    Stale(sqlx::Error),
    /// A standby refused to write.
    Standby,
}

/// The result of a step inside a job.
pub(crate) type Fallible<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Contract(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<serde_json::Error> for Failure {
    /// Converts a failure to parse stored JSON, the only case of this error. The parser's message may quote
    /// the text, so it is dropped.
    fn from(_: serde_json::Error) -> Self {
        Self::Contract(corrupt("postgres.read"))
    }
}

impl Failure {
    /// Returns true if the server aborted the transaction because of another one, so that it may run again.
    pub(crate) fn is_serialization(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error))
            if matches!(error.code().as_deref(), Some("40001" | "40P01")))
    }

    /// Returns true if a new connection may succeed. The connection ended, perhaps with a final error of the
    /// server: it was stopped, or it ended the session. Or the connection is unusable.
    pub(crate) fn is_lost_connection(&self) -> bool {
        match self {
            Self::Stale(_) | Self::Database(sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed) => true,
            Self::Database(sqlx::Error::Database(error)) => error
                .code()
                .is_some_and(|code| code.starts_with("57P0") || code.starts_with("08") || code == "25P03"),
            _ => false,
        }
    }

    /// Returns true if the transaction may not write: the server is a standby, or a setting says so.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error))
            if error.code().as_deref() == Some("25006"))
    }

    /// Returns true if the statement names a table, a column or a function that does not exist.
    pub(crate) fn lacks_object(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error))
            if matches!(error.code().as_deref(), Some("42P01" | "42703" | "42883")))
    }

    /// Returns true if the database has another format than the program.
    pub(crate) fn is_wrong_format(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error))
            if error.code().as_deref() == Some(WRONG_FORMAT))
    }

    /// Returns the error for the caller of `operation`.
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        match self {
            Self::Contract(error) => error.in_operation(operation),
            Self::Database(error) | Self::Stale(error) => from_sqlx(&error, operation),
            Self::Standby => {
                let message = "the server is a standby, which cannot write; try again after a failover, or \
                               name the primary server";
                Error::new(ErrorKind::Unavailable, operation, message).with_outcome(Outcome::NotApplied)
            }
        }
    }
}

/// Returns a function that creates a copy of the error for each affected caller.
pub(crate) fn same_for_all(error: Error) -> impl Fn() -> Error {
    let error = Arc::new(error);
    move || {
        let same = Error::new(error.kind(), error.operation(), error.message().to_owned())
            .with_outcome(error.outcome())
            .with_source(Arc::clone(&error));
        error.context().iter().fold(same, |same, (name, value)| same.with_context(name, *value))
    }
}

/// Returns the error for stored data that cannot be read back.
pub(crate) fn corrupt(operation: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, operation, "a stored record is corrupt; restore it from a backup")
}

/// Returns true if the server refused a connection and may grant one later: its limit is reached, or it is
/// starting.
pub(crate) fn is_refused_for_now(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        sqlx::Error::Database(error) => {
            matches!(error.code().as_deref(), Some("53300" | "57P03"))
                || of_pooler(error.as_ref()).is_some_and(|(kind, _)| kind == ErrorKind::ResourceExhausted)
        }
        _ => false,
    }
}

/// Returns true if the server does not have a setting among the startup options.
pub(crate) fn is_unknown_option(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.code().as_deref() == Some("42704"))
}

/// Returns true if a pooler refused the startup options. PgBouncer names the parameter; the proxy of RDS
/// names the feature.
pub(crate) fn refuses_options(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error)
        if error.message().starts_with("unsupported startup parameter")
            || error.message().contains("command-line options"))
}

/// Returns the meaning of an error of PgBouncer, which has one code for all of its errors.
fn of_pooler(error: &dyn sqlx::error::DatabaseError) -> Option<(ErrorKind, &'static str)> {
    use ErrorKind::{InvalidInput, NotFound, PermissionDenied, ResourceExhausted, Timeout, Unavailable};
    if error.code().as_deref() != Some("08P01") {
        return None;
    }
    let known = [
        (
            "no more connections allowed",
            ResourceExhausted,
            "the pooler has no connection left for a client; lower `pool_size` or raise its \
             `max_client_conn`",
        ),
        (
            "query_wait_timeout",
            Timeout,
            "the pooler had no free connection to the server in time; try again, or raise its \
             `default_pool_size` or `query_wait_timeout`",
        ),
        (
            "unsupported startup parameter",
            InvalidInput,
            "the pooler takes no startup options; remove `options` from the URL and unset `PGOPTIONS`",
        ),
        ("no such database", NotFound, "the pooler does not know the database of the URL; check its name"),
        ("no such user", PermissionDenied, REJECTED_LOGIN),
        ("password authentication failed", PermissionDenied, REJECTED_LOGIN),
        ("SASL authentication failed", PermissionDenied, REJECTED_LOGIN),
        ("authentication failed", PermissionDenied, REJECTED_LOGIN),
    ];
    let message = error.message();
    let known = known.into_iter().find(|(begin, ..)| message.starts_with(begin));
    let lost = ["pgbouncer", "server ", "client_", "idle transaction timeout", "the database system"];
    match known {
        Some((_, kind, message)) => Some((kind, message)),
        None if lost.iter().any(|begin| message.starts_with(begin)) => Some((
            Unavailable,
            "the pooler lost or refused the connection to the server; try again in a moment",
        )),
        None => None,
    }
}

/// Keeps only the error code. The server's messages and details may quote stored text.
fn from_sqlx(error: &sqlx::Error, operation: &'static str) -> Error {
    use Outcome::{NotApplied, Unknown};
    let (kind, message, outcome) = match error {
        sqlx::Error::Database(error) => return from_server(error.as_ref(), operation),
        sqlx::Error::PoolTimedOut => (
            ErrorKind::ResourceExhausted,
            "no connection became available in time; raise `pool_size` or the server's limit",
            NotApplied,
        ),
        sqlx::Error::PoolClosed => {
            (ErrorKind::Unavailable, "the database was closed; open it again", NotApplied)
        }
        error if is_distrust(error) => (
            ErrorKind::Unavailable,
            "no trusted TLS connection to the database; check that it uses TLS and that its certificate is \
             valid for the URL's host, name a private authority in `sslrootcert`, or set `sslmode`",
            NotApplied,
        ),
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => (
            ErrorKind::Unavailable,
            "the database cannot be reached or the connection was lost; check host and port, and that the \
             server runs",
            Unknown,
        ),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::RowNotFound => {
            return corrupt(operation);
        }
        sqlx::Error::Configuration(_) => (
            ErrorKind::InvalidInput,
            "the TLS settings of the connection are invalid; check `sslmode`, `sslrootcert`, `sslcert` and \
             `sslkey`",
            NotApplied,
        ),
        sqlx::Error::Protocol(_) => (
            ErrorKind::Unavailable,
            "the response is not from a Postgres server; check host and port",
            Unknown,
        ),
        _ => (ErrorKind::Unexpected, "the database driver rejected a statement; report the defect", Unknown),
    };
    Error::new(kind, operation, message).with_outcome(outcome)
}

/// Returns true if the TLS handshake failed. The driver reports a rejected certificate as a broken
/// connection.
fn is_distrust(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => {
            let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
        }
        _ => false,
    }
}

fn from_server(error: &dyn sqlx::error::DatabaseError, operation: &'static str) -> Error {
    let code = error.code().unwrap_or_default();
    let database_error = error.try_downcast_ref::<PgDatabaseError>();
    if code == WRONG_FORMAT
        && let Some(refused) = database_error.and_then(|error| wrong_format(operation, error.detail()?))
    {
        return refused;
    }
    if code == FENCED_OFF
        && let Some(token) = database_error.and_then(|error| error.detail()?.parse().ok())
    {
        return fenced_off(operation, FencingToken::new(token));
    }
    let (kind, message) = of_pooler(error).unwrap_or_else(|| describe(&code));
    // A server that shuts down may have the commit on its disk already.
    let severity = database_error.map(PgDatabaseError::severity);
    let went_away =
        matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic)) && code.starts_with("57P");
    let outcome = if went_away { Outcome::Unknown } else { Outcome::NotApplied };
    let failed = Error::new(kind, operation, message).with_outcome(outcome);
    match code.parse::<i64>() {
        Ok(number) => failed.with_context("sqlstate", number),
        // The message covers codes with letters.
        Err(_) => failed,
    }
}

const REJECTED_LOGIN: &str =
    "the server rejected the user or the password; check the URL, and the server's `pg_hba.conf`";
const NOT_ALLOWED: &str = "the user does not have the permission; grant `CREATE` on the database to create \
                           the schema or, if the schema exists, `USAGE` on the schema `larder` and all \
                           rights on its \
                           tables and sequences";

fn describe(code: &str) -> (ErrorKind, &'static str) {
    use ErrorKind::{
        Corrupt, NotFound, PermissionDenied, ResourceExhausted, Timeout, Unavailable, Unexpected, Unsupported,
    };
    match code {
        "57014" => (Timeout, "the statement exceeded `statement_timeout_ms`; raise it, or request less"),
        "55P03" => (
            Timeout,
            "another transaction held a lock for longer than `lock_timeout_ms`; try again, or raise it",
        ),
        "25P03" | "25P04" => (
            Timeout,
            "the server ended a transaction that was idle for too long; raise \
             `idle_in_transaction_timeout_ms`",
        ),
        "40001" | "40P01" => (Timeout, "conflicts with other transactions in every attempt; try again"),
        "53100" => (ResourceExhausted, "the server's disk is full; free space on it"),
        "53200" => (ResourceExhausted, "the server is out of memory; add memory or request less"),
        "53300" => (
            ResourceExhausted,
            "the server refused a new connection because its limit, or the limit of the role or the \
             database, is reached; lower `pool_size` or raise the limit",
        ),
        "54000" => (ResourceExhausted, "a record is larger than the database accepts; split it"),
        "28P01" | "28000" => (PermissionDenied, REJECTED_LOGIN),
        "42501" => (PermissionDenied, NOT_ALLOWED),
        "25006" => (
            PermissionDenied,
            "the database or the session is read-only; name the primary server, or unset \
             `default_transaction_read_only`",
        ),
        "3D000" => {
            (NotFound, "the database of the URL does not exist; run `CREATE DATABASE`, or check the name")
        }
        "3F000" | "42P01" | "42703" | "42883" => (
            Unexpected,
            "a table, a column or a function of the schema is missing; open the database with \
                          `migrate=auto`",
        ),
        "0A000" => (Unsupported, "the server does not support this operation; use PostgreSQL 15 or newer"),
        "XX001" | "XX002" => (Corrupt, "the database's files are damaged; restore a backup"),
        _ if code.starts_with("53") => {
            (ResourceExhausted, "a resource of the server is exhausted; check its log")
        }
        _ if code.starts_with("08") || code.starts_with("57P") => {
            (Unavailable, "the server is starting or stopping; try again in a moment")
        }
        _ => (Unexpected, "the database rejected a statement; report the defect"),
    }
}
