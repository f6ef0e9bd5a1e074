//! Takes what has expired off the disk, a part at a time.
//!
//! No call ever shows what has expired, and those that use a thread or write to a bucket clear it away there. This is for
//! the threads and buckets that nobody comes back to.

use rusqlite::Connection;

use super::failure::Fallible;
use super::value::now_ms;
use super::{history, key_value};

/// What one part of the work took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Threads and keys.
    pub(crate) gone: u64,
    /// Whether there may be more to take away now.
    pub(crate) more: bool,
}

/// Whether there may be something to take away. Costs two looks into indexes, and no transaction.
pub(crate) fn is_due(sql: &Connection) -> Fallible<bool> {
    let now_ms = now_ms();
    Ok(history::is_due(sql, now_ms)? || key_value::is_due(sql, now_ms)?)
}

/// Takes away a part of what has expired, inside the writer's transaction.
pub(crate) fn sweep(sql: &Connection) -> Fallible<Swept> {
    let now_ms = now_ms();
    let (threads, keys) = (history::sweep(sql, now_ms)?, key_value::sweep(sql, now_ms)?);
    Ok(Swept { gone: threads.gone + keys.gone, more: threads.more || keys.more })
}

#[cfg(test)]
mod tests;
