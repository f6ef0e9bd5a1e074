//! Removes expired threads and keys from the file in small parts.
//!
//! No call ever returns expired data. Calls that use a thread or write to a bucket remove its expired data.
//! This module removes the data of threads and buckets that are never used again.

use larder_kernel::Result;
use rusqlite::Connection;

use super::engine::{ExpiryJob, ExpiryStep};
use super::failure::Fallible;
use super::value::now_ms;
use super::{Sqlite, history, key_value};

/// The job that the writer runs between commits.
pub(crate) const JOB: ExpiryJob = ExpiryJob { is_due, step: remove_expired };

impl Sqlite {
    /// Removes expired threads and keys from the file, and returns the number of removed items.
    ///
    /// Writes start the same cleanup in small parts, and at most once a minute when nothing is left to
    /// remove. Call this method if the program does not write or cannot wait. It removes a thread as soon as
    /// its time to live has passed, and a key one minute later. The file keeps its size and reuses the space.
    /// Other writes run between the parts. If the future is dropped, the finished parts remain removed.
    ///
    /// # Errors
    /// As for every write: `Timeout` if another process holds the lock, `ResourceExhausted` if the disk is
    /// full, `Unavailable`.
    pub async fn sweep(&self) -> Result<u64> {
        let mut removed = 0;
        loop {
            let step = self.engine.write("sqlite.sweep", remove_expired).await?;
            removed += step.removed;
            if !step.more {
                return Ok(removed);
            }
        }
    }
}

fn is_due(sql: &Connection) -> Fallible<bool> {
    let now_ms = now_ms();
    Ok(history::is_due(sql, now_ms)? || key_value::is_due(sql, now_ms)?)
}

fn remove_expired(sql: &Connection) -> Fallible<ExpiryStep> {
    let now_ms = now_ms();
    let (threads, keys) = (history::remove_expired(sql, now_ms)?, key_value::remove_expired(sql, now_ms)?);
    Ok(ExpiryStep { removed: threads.removed + keys.removed, more: threads.more || keys.more })
}

#[cfg(test)]
mod tests;
