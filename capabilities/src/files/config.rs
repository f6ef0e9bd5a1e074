//! The settings that SQLite and folders of blobs share.

use std::time::Duration;

/// Default for the time that a call waits for a lock of another process.
#[cfg_attr(not(feature = "sqlite"), expect(unreachable_pub, reason = "public in the module of SQLite"))]
pub const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// SQLite counts milliseconds in 31 bits.
pub(crate) const BUSY_TIMEOUT_MS_MAX: u64 = 2_147_483_647;

pub(crate) fn busy_timeout_default() -> Duration {
    BUSY_TIMEOUT_DEFAULT
}

/// Serializes a duration as whole milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
