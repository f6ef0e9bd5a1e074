//! The checks of sentinels.

use super::super::config::Address;
use super::super::engine::{Connector, Info, ask_all};
use super::OPERATION;
use super::checks::number;
use crate::diagnose::{Check, Findings, failed_to_connect};

const SENTINELS: &str = "the sentinels name the primary, and a majority of them starts a failover";
const REPLICAS: &str = "a replica takes over when the primary fails";

/// Returns the primary that the sentinels name, and the number of replicas that they have seen. Without a
/// primary, the findings say why.
pub(super) async fn primary(
    connector: &Connector,
    sentinels: &[Address],
    name: &str,
    findings: &Findings,
) -> Option<(Address, u32)> {
    let (mut named, mut failed, mut error, mut seen) = (Vec::new(), Vec::new(), None, 0);
    for answer in ask_all(connector, sentinels, name).await {
        seen = answer.replicas.unwrap_or(0).max(seen);
        match answer.primary {
            Ok(primary) => named.push(primary),
            Err(failure) => {
                let failure = failure.into_error(OPERATION);
                let (host, port) = answer.sentinel;
                failed.push(format!("{host}:{port} ({})", failure.kind()));
                error = Some(failure);
            }
        }
    }
    let Some(primary) = named.first().cloned() else {
        if let Some(error) = error {
            failed_to_connect(findings, &error);
        }
        return None;
    };
    findings.add(sentinels_check(&named, &failed));
    Some((primary, seen))
}

fn sentinels_check(named: &[Address], failed: &[String]) -> Check {
    let mut servers: Vec<String> = named.iter().map(|(host, port)| format!("{host}:{port}")).collect();
    servers.sort();
    servers.dedup();
    let servers = servers.join(" and ");
    let seen = format!("{} of {} respond and name {servers}", named.len(), named.len() + failed.len());
    if named.iter().any(|primary| Some(primary) != named.first()) {
        let advice = "wait for the end of the failover, and run `SENTINEL CKQUORUM` if they still differ";
        return Check::fail("sentinels", seen, SENTINELS, advice);
    }
    if failed.is_empty() {
        return Check::ok("sentinels", seen, SENTINELS);
    }
    let seen = format!("{seen}; no answer from {}", failed.join(", "));
    Check::warn("sentinels", seen, SENTINELS, "start these sentinels, or remove them from the URL")
}

/// Replicas are checked here only for their number; the check `durability` says what they lose.
pub(super) fn replicas(info: &Info<'_>) -> Check {
    match number(info, "connected_slaves") {
        0 => {
            let advice = "start a replica: without one, no failover is possible";
            Check::warn("replicas", "none", REPLICAS, advice)
        }
        count => Check::ok("replicas", format!("{count} connected"), REPLICAS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::CheckStatus;

    #[test]
    fn sentinels_that_fail_or_differ_are_named() {
        let address = |port| ("h".to_owned(), port);
        let check = sentinels_check(&[address(1), address(1)], &[]);
        assert_eq!((check.status, &*check.seen), (CheckStatus::Ok, "2 of 2 respond and name h:1"));
        let check = sentinels_check(&[address(1)], &["s:9 (Unavailable)".to_owned()]);
        assert_eq!(check.status, CheckStatus::Warn);
        assert!(check.seen.contains("no answer from s:9"), "{}", check.seen);
        let check = sentinels_check(&[address(1), address(2)], &[]);
        assert_eq!(check.status, CheckStatus::Fail);
        assert!(check.seen.contains("h:1 and h:2"), "{}", check.seen);
    }
}
