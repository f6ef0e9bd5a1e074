//! Measurements that all backends share: round-trip times, clocks and failed connections.

#[cfg(any(
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "sqlite",
    all(feature = "fs", unix)
))]
use std::time::Duration;
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
use larder_kernel::{Error, ErrorKind};

#[cfg(any(
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "sqlite",
    all(feature = "fs", unix)
))]
use super::Check;
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
use super::Findings;

/// The reason why the server must be reachable.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
pub(crate) const REACH: &str = "the stores need the server";
/// The reason why the login must succeed.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
pub(crate) const LOGIN: &str = "the stores use the permissions of this user";
/// The difference between clocks above which the check warns.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
const SKEW_MAX: Duration = Duration::from_secs(2);

/// Returns the duration in whole milliseconds.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3", feature = "sqlite"))]
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(any(
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "sqlite",
    all(feature = "fs", unix)
))]
/// Returns the check of these round-trip times; a median above `slow` is a warning.
pub(crate) fn round_trip(mut took: Vec<Duration>, slow: Duration) -> Option<Check> {
    const WHY: &str = "every call of a store waits for at least one response";
    took.sort_unstable();
    let (p50, worst) = (took.get(took.len() / 2)?, took.last()?);
    let seen = format!(
        "p50 {:.2} ms, maximum {:.2} ms of {}",
        p50.as_secs_f64() * 1e3,
        worst.as_secs_f64() * 1e3,
        took.len()
    );
    Some(if *p50 > slow {
        let advice = "run the program closer to the backend, or check the backend's load";
        Check::warn("latency", seen, WHY, advice)
    } else {
        Check::ok("latency", seen, WHY)
    })
}

/// Returns the check of a server clock that read `there` while this machine's clock advanced from `before` to
/// now. `grain` is the resolution of the server clock.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
pub(crate) fn clock(there: Duration, before: SystemTime, grain: Duration) -> Check {
    const WHY: &str = "times to live, leases and signatures use the clocks of both sides";
    let now = SystemTime::now();
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    // The server read its clock at some instant between the two.
    let (from, to) = (since(before), since(now));
    let apart =
        if there.saturating_add(grain) < from { from - there - grain } else { there.saturating_sub(to) };
    let seen =
        format!("at most {} ms from this machine's clock", millis(apart + (to.saturating_sub(from)) + grain));
    if apart > SKEW_MAX {
        let seen = format!("{:.1} s from this machine's clock", apart.as_secs_f64());
        Check::warn("clock", seen, WHY, "synchronize both clocks with NTP")
    } else {
        Check::ok("clock", seen, WHY)
    }
}

/// Adds the checks of a failed connection: the reachability of the server, and the login.
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
pub(crate) fn failed_to_connect(findings: &Findings, error: &Error) {
    let advice = error.message().to_owned();
    let seen = format!("refused with {}", error.kind());
    match error.kind() {
        ErrorKind::PermissionDenied => {
            findings.add(Check::ok("reach", "the server responds", REACH));
            findings.add(Check::fail("login", seen, LOGIN, advice));
        }
        ErrorKind::NotFound | ErrorKind::Unsupported | ErrorKind::ResourceExhausted => {
            findings.add(Check::ok("reach", "the server responds", REACH));
            findings.add(Check::fail(
                "open",
                seen,
                "the URL must name something that exists and is usable",
                advice,
            ));
        }
        kind => findings.add(Check::fail("reach", format!("no connection: {kind}"), REACH, advice)),
    }
}
