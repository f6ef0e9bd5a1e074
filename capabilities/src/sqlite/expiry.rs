//! Removes expired threads and keys from the file, a part at a time.
//!
//! No call ever returns expired data, and calls that use a thread or write to a bucket remove its expired data there. This
//! is for the threads and buckets that nobody uses again.

use larder_kernel::Result;
use rusqlite::Connection;

use super::engine::{ExpiryJob, ExpiryStep};
use super::failure::Fallible;
use super::value::now_ms;
use super::{Sqlite, history, key_value};

/// What the writer runs between commits.
pub(crate) const JOB: ExpiryJob = ExpiryJob { is_due, step: remove_expired };

impl Sqlite {
    /// Removes expired threads and keys from the file, and returns how many it removed.
    ///
    /// Writes do so by themselves, a part at a time and, once everything expired is removed, at most once a minute. Call
    /// this in a program that does not write or cannot wait. Threads are removed as soon as their time to live has passed,
    /// keys a minute later. The file keeps its size and reuses the space. Other writes run between the parts. If the future
    /// is dropped, the parts that were done stay done.
    ///
    /// # Errors
    /// Those of every write: `Timeout` where another process keeps the file locked, `ResourceExhausted` where the disk is
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
