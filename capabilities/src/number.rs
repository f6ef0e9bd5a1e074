//! Counts, lengths and times as databases store them: signed 64-bit integers.

use std::time::Duration;

use larder_kernel::check::size;
use larder_kernel::limits;

/// Returns the whole milliseconds of a validated time to live.
pub(crate) fn millis(duration: Duration) -> i64 {
    integer(u64::try_from(duration.as_millis()).unwrap_or(limits::TTL_MS_MAX))
}

/// Converts a count. No count of this program exceeds 63 bits.
pub(crate) fn integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts a length.
pub(crate) fn length(count: usize) -> i64 {
    integer(size(count))
}
