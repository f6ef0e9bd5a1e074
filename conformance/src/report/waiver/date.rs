//! The expiry date of a waiver.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A calendar date in UTC, written as `2027-06-30`.
///
/// ```
/// use larder_conformance::report::waiver::Date;
///
/// let day: Date = "2027-06-30".parse()?;
/// assert!(day < "2027-07-01".parse()?);
/// assert!("2027-02-30".parse::<Date>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Date(jiff::civil::Date);

impl Date {
    /// Returns today's date by the system clock.
    #[must_use]
    pub fn today() -> Self {
        Self(jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date())
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let shaped =
            text.len() == 10 && text.split('-').map(str::len).eq([4, 2, 2]) && text.split('-').all(digits);
        let date = if shaped { text.parse().ok() } else { None };
        date.map(Self).ok_or_else(|| "expected a date as YYYY-MM-DD".to_owned())
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
