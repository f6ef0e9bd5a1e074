//! What a diagnosis of a backend consists of: checks, and how each of them ended.
//!
//! A driver adds its [`Check`]s to [`Findings`] without opening the backend: no schema is made or upgraded, no file is made.
//! Where only trying tells (whether a disk flushes, whether a bucket honours conditional writes) a small probe is written
//! and removed again, and the check says so.

#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
pub(crate) mod disk;
mod findings;
mod measure;

#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
use larder_kernel::Error;
use serde::Serialize;

pub use findings::Findings;
#[cfg(feature = "sqlite")]
pub(crate) use measure::millis;
#[cfg(any(
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "sqlite",
    all(feature = "fs", unix)
))]
pub(crate) use measure::round_trip;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) use measure::{LOGIN, REACH};
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
pub(crate) use measure::{clock, failed_to_connect};

/// How a check ended. The worst of several is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// The stores work; it is a risk in production, or will be in the way.
    Warn,
    /// The stores do not work, or lose or show what they hold.
    Fail,
}

impl CheckStatus {
    /// The name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at: lower-case words joined by `_`, the same from version to version.
    pub name: &'static str,
    /// How it stands.
    pub status: CheckStatus,
    /// What was seen: versions, settings and numbers, never a secret or anything stored.
    pub seen: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do about it; `None` where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    /// A check that found nothing wrong.
    #[must_use]
    pub fn ok(name: &'static str, seen: impl Into<String>, why: &'static str) -> Self {
        Self { name, status: CheckStatus::Ok, seen: seen.into(), why, advice: None }
    }

    /// A check that found a risk; `advice` says what to do about it.
    #[must_use]
    pub fn warn(
        name: &'static str,
        seen: impl Into<String>,
        why: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, status: CheckStatus::Warn, seen: seen.into(), why, advice: Some(advice.into()) }
    }

    /// A check that found the stores not usable, or not safe; `advice` says what to do about it.
    #[must_use]
    pub fn fail(
        name: &'static str,
        seen: impl Into<String>,
        why: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, status: CheckStatus::Fail, seen: seen.into(), why, advice: Some(advice.into()) }
    }

    /// What the error says, as a check that could not be made.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
    pub(crate) fn unknown(name: &'static str, error: &Error, why: &'static str) -> Self {
        Self::warn(name, format!("cannot be told: {}", error.kind()), why, error.message().to_owned())
    }
}
