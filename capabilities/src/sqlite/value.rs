//! Numbers and times on their way into the database and back.

use std::time::Duration;

use larder_kernel::check::size;
use larder_kernel::{Timestamp, limits};

use super::failure::{Fallible, corrupt};

/// Milliseconds since the epoch: the clock of these stores.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_micros().div_euclid(1_000)
}

/// Whole milliseconds of a time to live that has passed its check.
pub(crate) fn millis(duration: Duration) -> i64 {
    integer(u64::try_from(duration.as_millis()).unwrap_or(limits::TTL_MS_MAX))
}

/// A stored instant.
pub(crate) fn timestamp(at_ms: i64) -> Fallible<Timestamp> {
    Ok(Timestamp::from_micros(at_ms.saturating_mul(1_000)).map_err(|_| corrupt("sqlite.read"))?)
}

/// A count as SQLite keeps it. No count of this program reaches the end of 63 bits.
pub(crate) fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A length as SQLite keeps it.
pub(crate) fn length(count: usize) -> i64 {
    integer(size(count))
}

/// A stored count.
pub(crate) fn count(stored: i64) -> Fallible<u64> {
    Ok(u64::try_from(stored).map_err(|_| corrupt("sqlite.read"))?)
}
