//! Points in time, with microsecond precision.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// Microseconds since 1970-01-01T00:00:00Z, printed and serialized as RFC 3339.
///
/// Timestamps are informational and do not determine an order. [`Seq`](crate::Seq) and
/// [`Revision`](crate::Revision) determine the order.
///
/// ```
/// use larder_kernel::Timestamp;
///
/// let at: Timestamp = "2026-01-02T03:04:05.000006Z".parse()?;
/// assert_eq!(at.to_string(), "2026-01-02T03:04:05.000006Z");
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

/// The range of `jiff::Timestamp`, in microseconds: -9999-01-02 to 9999-12-30.
const MICROS_MIN: i64 = -377_705_023_201_000_000;
const MICROS_MAX: i64 = 253_402_207_200_000_000;

impl Timestamp {
    /// Returns the time of the machine's clock, truncated to the microsecond. Returns the epoch if the
    /// clock is before it.
    #[must_use]
    pub fn now() -> Self {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Self(i64::try_from(since.as_micros()).unwrap_or(MICROS_MAX)),
            Err(_) => Self(0),
        }
    }

    /// Creates a timestamp from microseconds since the epoch.
    ///
    /// # Errors
    /// `InvalidInput` if the time is outside the years -9999 to 9999.
    pub fn from_micros(micros: i64) -> Result<Self> {
        if (MICROS_MIN..=MICROS_MAX).contains(&micros) {
            Ok(Self(micros))
        } else {
            Err(Error::invalid(
                "timestamp.from_micros",
                "timestamp",
                "is outside the years -9999 to 9999; pass a time in this range",
            ))
        }
    }

    /// Returns the microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns this time plus `by`, or the latest possible time if the sum exceeds the range.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        let micros = i64::try_from(by.as_micros()).unwrap_or(MICROS_MAX);
        Self(self.0.saturating_add(micros).min(MICROS_MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let at: jiff::Timestamp = text.parse().map_err(|_| {
            Error::invalid(
                "timestamp.parse",
                "timestamp",
                "is not an RFC 3339 date and time with an offset; write for example `2026-01-31T12:00:00Z`",
            )
        })?;
        Self::from_micros(at.as_microsecond())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_range_print_and_parse() {
        for micros in [MICROS_MIN, -1, 0, 1, MICROS_MAX] {
            let at = Timestamp::from_micros(micros).unwrap();
            assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        }
        assert!(Timestamp::from_micros(MICROS_MAX + 1).is_err());
        assert!(Timestamp::from_micros(MICROS_MIN - 1).is_err());
    }
}
