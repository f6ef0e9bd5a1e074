//! The results of removals and updates with an idempotency key.

use rusqlite::{Connection, OptionalExtension, params};

use super::super::failure::Fallible;

/// The result of a removal or an update.
pub(super) struct FirstResult {
    /// The digest of the call.
    pub(super) digest: [u8; 32],
    /// The number of messages.
    pub(super) messages: i64,
    /// The thread's last number.
    pub(super) last: i64,
    /// The numbers of the messages, separated by commas.
    pub(super) seqs: String,
}

impl FirstResult {
    /// Finds the result of the first call with this key.
    pub(super) fn find(sql: &Connection, thread: i64, key: &str) -> Fallible<Option<Self>> {
        let mut statement = sql.prepare_cached(
            "SELECT digest, removed, last_seq, seqs FROM removal_keys
             WHERE thread = ?1 AND idempotency_key = ?2",
        )?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Self { digest: row.get(0)?, messages: row.get(1)?, last: row.get(2)?, seqs: row.get(3)? })
        };
        Ok(statement.query_row(params![thread, key], read).optional()?)
    }

    /// Keeps the result for repetitions.
    pub(super) fn keep(&self, sql: &Connection, thread: i64, key: &str) -> Fallible<()> {
        let mut statement = sql.prepare_cached(
            "INSERT INTO removal_keys (thread, idempotency_key, digest, removed, last_seq, seqs)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        statement.execute(params![thread, key, self.digest, self.messages, self.last, self.seqs])?;
        Ok(())
    }
}
