//! Counts, lengths and times as databases keep them: signed integers of 64 bits.

use std::time::Duration;

use larder_kernel::check::size;
use larder_kernel::limits;

/// Whole milliseconds of a time to live that has passed its check.
pub(crate) fn millis(duration: Duration) -> i64 {
    integer(u64::try_from(duration.as_millis()).unwrap_or(limits::TTL_MS_MAX))
}

/// A count. No count of this program reaches the end of 63 bits.
pub(crate) fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A length.
pub(crate) fn length(count: usize) -> i64 {
    integer(size(count))
}
