//! The checks of a diagnosis and their results.
//!
//! A driver adds its [`Check`]s to [`Findings`] without opening the backend. It creates or upgrades no schema
//! and creates no data file. Some facts need a trial, such as flushing to a disk or conditional writes to a
//! bucket. For these, the driver writes a small probe and removes it again, and the check says so.

#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
pub(crate) mod disk;
mod measure;

use std::sync::{Arc, Mutex, PoisonError};

#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
use larder_kernel::Error;
use serde::Serialize;

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

/// The result of a check. The worst of several results is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckStatus {
    /// The check found nothing wrong.
    Ok,
    /// The stores work, but the finding is a risk in production or may become a problem.
    Warn,
    /// The stores do not work, or they lose or expose data.
    Fail,
}

impl CheckStatus {
    /// Returns the name used in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// The subject of the check: lower-case words joined by `_`, the same in every version.
    pub name: &'static str,
    /// The result.
    pub status: CheckStatus,
    /// The observation: versions, settings and numbers, never a secret or stored data.
    pub seen: String,
    /// The reason why the subject matters.
    pub why: &'static str,
    /// The advised action; `None` if no action is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    /// Creates a check that found nothing wrong.
    #[must_use]
    pub fn ok(name: &'static str, seen: impl Into<String>, why: &'static str) -> Self {
        Self { name, status: CheckStatus::Ok, seen: seen.into(), why, advice: None }
    }

    /// Creates a check that found a risk; `advice` is the recommended action.
    #[must_use]
    pub fn warn(
        name: &'static str,
        seen: impl Into<String>,
        why: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, status: CheckStatus::Warn, seen: seen.into(), why, advice: Some(advice.into()) }
    }

    /// Creates a check that found the stores unusable or unsafe; `advice` is the recommended action.
    #[must_use]
    pub fn fail(
        name: &'static str,
        seen: impl Into<String>,
        why: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, status: CheckStatus::Fail, seen: seen.into(), why, advice: Some(advice.into()) }
    }

    /// Creates the check that could not run, from the error that prevented it.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
    pub(crate) fn unknown(name: &'static str, error: &Error, why: &'static str) -> Self {
        Self::warn(name, format!("unknown: {}", error.kind()), why, error.message().to_owned())
    }
}

/// The checks so far. Clones share them, so that these checks are reported even if the rest takes too long.
#[derive(Debug, Clone, Default)]
pub struct Findings(Arc<Mutex<Vec<Check>>>);

impl Findings {
    /// Adds a check.
    pub fn add(&self, check: Check) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Takes all checks, in the order of their addition.
    #[must_use]
    pub fn take(&self) -> Vec<Check> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
