//! Diagnoses a backend before a program trusts it: can it be reached, does it accept this user, does it keep what it
//! acknowledges, and what is unsafe about it.
//!
//! [`diagnose`] changes nothing: no schema is made or upgraded, no file is made. Where only trying shows (whether a disk
//! flushes, whether a bucket honours conditional writes) a small probe is written and removed again, and the check says so.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder::Result<()> {
//! use std::time::Duration;
//! use larder::diagnose::{CheckStatus, diagnose};
//!
//! let diagnosis = diagnose("memory:", Duration::from_secs(10)).await?;
//! assert_eq!(diagnosis.status(), CheckStatus::Warn);
//! for check in diagnosis.checks.iter().filter(|check| check.status != CheckStatus::Ok) {
//!     println!("{}: {} ({})", check.name, check.seen, check.advice.as_deref().unwrap_or_default());
//! }
//! # Ok(())
//! # }
//! ```

use std::time::{Duration, Instant};

pub use larder_capabilities::diagnose::{Check, CheckStatus, Findings};
use larder_kernel::Result;
use serde::Serialize;

use crate::registry::Registry;

/// What was found of one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The driver's name, as [`Backend::name`](crate::Backend::name) returns it.
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
/// As those of [`open`](crate::open) that come before any I/O: `InvalidInput` or `Unsupported` naming `url`.
///
/// # Cancellation
/// A probe that was written is removed all the same, as far as the server lets it.
pub async fn diagnose(url: &str, timeout: Duration) -> Result<Diagnosis> {
    Registry::default().diagnose(url, timeout).await
}

/// Returns what opening a URL would change, with the drivers of this build; see [`Registry::opening_changes`].
///
/// # Errors
/// As [`diagnose`].
pub fn opening_changes(url: &str) -> Result<Option<&'static str>> {
    Registry::default().opening_changes(url)
}

impl Registry {
    /// Diagnoses what a URL names with the drivers of this registry; see [`diagnose`].
    ///
    /// # Errors
    /// As [`diagnose`].
    pub async fn diagnose(&self, url: &str, timeout: Duration) -> Result<Diagnosis> {
        let (target, begun, findings) = (self.read(url)?, Instant::now(), Findings::default());
        let backend = target.name;
        let looking = Box::pin(target.location.diagnose(&findings));
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

    /// Returns what opening a URL would change, as a sentence: a file or a folder that it would make, or a schema that
    /// it would upgrade. `None` where it would change nothing, and where a server decides (`migrate=check` says that of
    /// Postgres).
    ///
    /// # Errors
    /// As [`diagnose`].
    pub fn opening_changes(&self, url: &str) -> Result<Option<&'static str>> {
        Ok(self.read(url)?.location.changes_on_open())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
