//! Diagnosis of a backend before a program relies on it: connectivity, permissions, durability and unsafe
//! settings.
//!
//! [`diagnose`] does not create or upgrade a schema and does not create a database file. Some properties can
//! only be tested by writing, such as whether a disk flushes or whether a bucket honors conditional writes.
//! For these, it writes a small probe, removes it again, and mentions the probe in the check.
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

/// The diagnosis of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The driver's name, as [`Backend::name`](crate::Backend::name) returns it.
    pub backend: &'static str,
    /// The checks, in the order in which they ran.
    pub checks: Vec<Check>,
    /// The duration of the diagnosis, in milliseconds.
    pub elapsed_ms: u64,
}

impl Diagnosis {
    /// Returns the worst status of the checks.
    #[must_use]
    pub fn status(&self) -> CheckStatus {
        self.checks.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Fail)
    }
}

/// Diagnoses the backend behind a URL, for at most `timeout`. A backend that cannot be reached is a failed
/// check named `reach` or `login`, not an error. If the time runs out, a failed check named `time` reports
/// that the diagnosis is incomplete.
///
/// # Errors
/// As [`open`](crate::open) before any I/O: `InvalidInput` or `Unsupported` naming `url`.
///
/// # Cancellation
/// A probe that was written is still removed, as far as the server permits.
pub async fn diagnose(url: &str, timeout: Duration) -> Result<Diagnosis> {
    Registry::default().diagnose(url, timeout).await
}

/// Returns the change that opening a URL would make, with the drivers of this build; see
/// [`Registry::opening_changes`].
///
/// # Errors
/// As [`diagnose`].
pub fn opening_changes(url: &str) -> Result<Option<&'static str>> {
    Registry::default().opening_changes(url)
}

impl Registry {
    /// Diagnoses the backend behind a URL with the drivers of this registry; see [`diagnose`].
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
                format!("the diagnosis did not finish within {} ms", millis(timeout)),
                "a backend that responds this slowly also delays programs",
                "check the backend's load and the network, or allow more time",
            ));
        }
        Ok(Diagnosis { backend, checks: findings.take(), elapsed_ms: millis(begun.elapsed()) })
    }

    /// Describes in one sentence the change that opening a URL would make: a file or folder that it would
    /// create, or a schema that it would upgrade. Returns `None` if opening changes nothing, and for
    /// databases on a server (`migrate=check` reports pending migrations of Postgres).
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
