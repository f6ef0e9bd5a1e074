//! Numbers, times and ids on their way into the database and back.

use larder_kernel::Timestamp;

use super::failure::{Fallible, corrupt};
pub(crate) use crate::number::{integer, length, millis};

/// A stored instant.
pub(crate) fn timestamp(at_ms: i64) -> Fallible<Timestamp> {
    Ok(Timestamp::from_micros(at_ms.saturating_mul(1_000)).map_err(|_| corrupt("postgres.read"))?)
}

/// A stored count.
pub(crate) fn count(stored: i64) -> Fallible<u64> {
    Ok(u64::try_from(stored).map_err(|_| corrupt("postgres.read"))?)
}

/// A stored id. One that the rules refuse was not written by this program.
pub(crate) fn id<T: TryFrom<String>>(stored: String) -> Fallible<T> {
    T::try_from(stored).map_err(|_| corrupt("postgres.read").into())
}
