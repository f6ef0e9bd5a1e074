//! The settings of a session: those on which the statements rely, and the way in which they are set.
//!
//! A role or a database may have settings that change the meaning or the output of SQL. The startup options
//! of a connection override them. A pooler in transaction mode refuses or ignores these options, because its
//! server connections serve many clients. Behind a pooler, each transaction makes the settings. A `SET` would
//! leak to the other clients, as would `LISTEN`, a session lock or a prepared statement.

use std::fmt::Write as _;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::config::PostgresConfig;

/// The settings that change the meaning or the output of the statements, or end a session.
const RELIED_ON: &[(&str, &str)] = &[
    ("IntervalStyle", "postgres"),
    ("array_nulls", "on"),
    ("backslash_quote", "safe_encoding"),
    ("bytea_output", "hex"),
    ("default_transaction_deferrable", "off"),
    // Single statements are transactions too. With a stricter default, the server would abort concurrent
    // writers.
    ("default_transaction_isolation", "read committed"),
    ("exit_on_error", "off"),
    ("extra_float_digits", "2"),
    ("gin_fuzzy_search_limit", "0"),
    ("idle_session_timeout", "0"),
    ("plpgsql.extra_errors", "none"),
    ("quote_all_identifiers", "off"),
    ("row_security", "on"),
    ("standard_conforming_strings", "on"),
    ("transform_null_equals", "off"),
];
/// A setting that servers have from version 17 on.
const TRANSACTION_TIMEOUT: (&str, &str) = ("transaction_timeout", "0");
/// A setting of no meaning: a session that lacks it ignored its startup options.
const MARK: (&str, &str) = ("larder.session", "direct");
/// The query that returns true in a session that took its startup options.
pub(crate) const TOOK_OPTIONS: &str =
    "SELECT coalesce(current_setting('larder.session', true), '') = 'direct'";

/// The way in which the sessions of a database get their settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// At the start of each connection.
    Direct,
    /// In each transaction: the connections may change between transactions.
    Pooled,
}

/// The settings of every session of an open database.
#[derive(Debug, Clone)]
pub(crate) struct SessionSettings {
    list: Vec<(&'static str, String)>,
}

impl SessionSettings {
    pub(crate) fn of(config: &PostgresConfig) -> Self {
        let ms = |duration: Duration| format!("{}ms", duration.as_millis());
        let mut list = vec![
            ("statement_timeout", ms(config.statement_timeout)),
            ("lock_timeout", ms(config.lock_timeout)),
            ("idle_in_transaction_session_timeout", ms(config.idle_in_transaction_timeout)),
        ];
        list.extend(RELIED_ON.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Self { list }
    }

    /// Adds the settings that only newer servers have.
    pub(crate) fn for_new_server(mut self) -> Self {
        self.list.push((TRANSACTION_TIMEOUT.0, TRANSACTION_TIMEOUT.1.to_owned()));
        self
    }

    /// Adds the path on which the server looks for pgvector: its schema, as a quoted identifier. Everything
    /// else is named with its schema, or is in `pg_catalog`.
    pub(crate) fn with_vectors_in(mut self, schema: &str) -> Self {
        self.list.push(("search_path", format!("pg_catalog, {schema}, pg_temp")));
        self
    }

    /// Returns the options of a connection.
    pub(crate) fn connect(&self, options: &PgConnectOptions, mode: Mode) -> PgConnectOptions {
        let options = options.clone().disable_statement_logging();
        match mode {
            Mode::Direct => {
                options.options(self.list.iter().map(|(name, value)| (*name, value.as_str())).chain([MARK]))
            }
            Mode::Pooled => options.extra_float_digits(None),
        }
    }

    /// Returns the statements that begin a transaction.
    pub(crate) fn begin(&self, isolation: &str, mode: Mode) -> String {
        let mut begin = format!("BEGIN ISOLATION LEVEL {isolation}");
        if mode == Mode::Pooled {
            let set = |(name, value): &(&str, String)| {
                format!("set_config('{name}', '{}', true)", value.replace('\'', "''"))
            };
            let set: Vec<String> = self.list.iter().map(set).collect();
            // Writing to a String does not fail.
            let _ = write!(begin, "; SELECT {}", set.join(", "));
        }
        begin
    }
}

/// Removes the prepared statements of a transaction from the server connection, which the next transaction of
/// another client may get. Runs before the transaction ends.
pub(crate) async fn leave_nothing(connection: &mut PgConnection, mode: Mode) -> sqlx::Result<()> {
    match mode {
        Mode::Direct => Ok(()),
        Mode::Pooled => connection.clear_cached_statements().await,
    }
}
