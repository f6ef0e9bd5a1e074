//! Numbers and times on their way into the database and back.

use larder_kernel::Timestamp;

use super::failure::{Fallible, corrupt};
pub(crate) use crate::number::{integer, length, millis};

/// Milliseconds since the epoch: the clock of these stores.
pub(crate) fn now_ms() -> i64 {
    Timestamp::now().as_micros().div_euclid(1_000)
}

/// A stored instant.
pub(crate) fn timestamp(at_ms: i64) -> Fallible<Timestamp> {
    Ok(Timestamp::from_micros(at_ms.saturating_mul(1_000)).map_err(|_| corrupt("sqlite.read"))?)
}

/// A stored count.
pub(crate) fn count(stored: i64) -> Fallible<u64> {
    Ok(u64::try_from(stored).map_err(|_| corrupt("sqlite.read"))?)
}
