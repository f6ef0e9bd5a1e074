//! What an operator wants to know of a place before trusting it: is it reached, does it let this user in, does it keep
//! what it acknowledges, and what is unsafe about it.
//!
//! [`diagnose`] asks and changes nothing: no schema is made or upgraded, no file is made. Where only trying tells (whether
//! a disk flushes, whether a bucket honours conditional writes) a small probe is written and removed again, and the check
//! says so.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder_kernel::Result<()> {
//! use std::time::Duration;
//! use larder_capabilities::diagnose::{CheckStatus, diagnose};
//!
//! let diagnosis = diagnose("memory:", Duration::from_secs(10)).await?;
//! assert_eq!(diagnosis.status(), CheckStatus::Warn);
//! for check in diagnosis.checks.iter().filter(|check| check.status != CheckStatus::Ok) {
//!     println!("{}: {} ({})", check.name, check.seen, check.advice.as_deref().unwrap_or_default());
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
pub(crate) mod disk;
mod findings;
mod measure;

use std::time::{Duration, Instant};

#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
use larder_kernel::Error;
use larder_kernel::Result;
use serde::Serialize;

use crate::connect::Target;
pub(crate) use findings::Findings;
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
    pub(crate) fn ok(name: &'static str, seen: impl Into<String>, why: &'static str) -> Self {
        Self { name, status: CheckStatus::Ok, seen: seen.into(), why, advice: None }
    }

    pub(crate) fn warn(
        name: &'static str,
        seen: impl Into<String>,
        why: &'static str,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, status: CheckStatus::Warn, seen: seen.into(), why, advice: Some(advice.into()) }
    }

    pub(crate) fn fail(
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

/// What was found of one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The scheme of the URL, as [`Place::scheme`](crate::Place::scheme) has it.
    pub backend: &'static str,
    /// What was looked at, in the order in which it was.
    pub checks: Vec<Check>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

impl Diagnosis {
    /// The worst of the checks.
    #[must_use]
    pub fn status(&self) -> CheckStatus {
        self.checks.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Fail)
    }
}

/// Looks at the place that the URL names, for `timeout` at most. What was not looked at by then is told by a check named
/// `time` that failed; a place that cannot be reached is a check named `reach` or `login` and no error.
///
/// # Errors
/// As those of [`open_place`](crate::open_place) that come before any I/O: `InvalidInput` or `Unsupported` naming `url`.
///
/// # Cancellation
/// A probe that was written is removed all the same, as far as the server lets it.
pub async fn diagnose(url: &str, timeout: Duration) -> Result<Diagnosis> {
    let (target, begun, findings) = (Target::parse(url)?, Instant::now(), Findings::default());
    let backend = target.scheme();
    let looking = Box::pin(target.diagnose(&findings));
    if tokio::time::timeout(timeout, looking).await.is_err() {
        findings.add(Check::fail(
            "time",
            format!("not all was looked at within {} ms", millis(timeout)),
            "a place that answers this slowly keeps programs waiting as well",
            "look at its load and the network to it, or allow more time",
        ));
    }
    Ok(Diagnosis { backend, checks: findings.take(), elapsed_ms: millis(begun.elapsed()) })
}

/// What opening the URL would change at the place, as a sentence: a file or a folder that it would make, or a schema that
/// it would upgrade. `None` where it would change nothing, and where a server decides (`migrate=check` says that of
/// Postgres).
///
/// # Errors
/// As [`diagnose`].
pub fn opening_changes(url: &str) -> Result<Option<&'static str>> {
    Ok(Target::parse(url)?.opening_changes())
}

/// What there is to say of a place in memory.
pub(crate) fn memory(findings: &Findings) {
    const WHY: &str = "what an acknowledged write survives";
    let advice = "use it for tests; for anything that must last name a file, such as `sqlite:./larder.db`";
    findings.add(Check::warn("durability", "none: everything ends with the process", WHY, advice));
    let why = "whether programs can share it";
    findings.add(Check::ok("sharing", "each opening is a place of its own, within one process", why));
}
