//! Failed calls, and calls whose connection ends.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use larder_kernel::{Contract, Outcome};

use super::probe::{dump, lay_out, populate, refusals};
use crate::case::{CaseResult, Failure};
use crate::context::Context;
use crate::expect;
use crate::faults::{Kind, Plan, Relay};
use crate::harness::OpenOptions;
use crate::retry_open::retry_open;

/// The number of attempts in which a write must succeed on a new connection.
const ATTEMPTS_MAX: u32 = 16;

pub(super) async fn refusals_change_nothing(context: Context, contract: Contract) -> CaseResult {
    let stores = context.open().await?;
    lay_out(&stores, contract, "laid-out").await?;
    let before = dump(&stores, contract).await?;
    let errors = refusals(&stores, contract, "laid-out").await?;
    expect::that(!errors.is_empty(), "errors to look at", "none came")?;
    for error in errors {
        expect::equal(&format!("the outcome of {}", error.kind()), &error.outcome(), &Outcome::NotApplied)?;
    }
    expect::equal("the data after the refusals", &dump(&stores, contract).await?, &before)
}

/// Over a network, the connection ends during a call. Without a network, the store is only used.
pub(super) async fn works_again(context: Context, contract: Contract) -> CaseResult {
    let direct = context.open().await?;
    let servers = context.harness.servers();
    if servers.is_empty() {
        return populate(&direct, contract, "without a network").await;
    };
    let engine = |error: std::io::Error| Failure::Engine(format!("no relay: {error}"));
    let relay = Relay::start(servers, Arc::new(AtomicUsize::new(0))).await.map_err(engine)?;
    let Some(relayed) = retry_open(|| context.harness.relayed(relay.addresses())).await? else {
        return populate(&direct, contract, "without a relay").await;
    };
    let options = OpenOptions::default();
    let stores = retry_open(|| relayed.harness.open(&context.namespace, &options)).await?;
    populate(&stores, contract, "before").await?;
    relay.arm(Plan::draw(Kind::CutBeforeRequest, context.seed, Duration::from_secs(1)));
    for attempt in 0..ATTEMPTS_MAX {
        match populate(&stores, contract, &format!("written {attempt}")).await {
            Ok(()) if relay.strike().is_some() => break,
            // An error that only the lost connection causes is not a finding.
            Ok(()) | Err(Failure::Unreachable(_) | Failure::Engine(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    expect::that(relay.heal().is_some(), "a connection that was cut", "none was")?;
    populate(&stores, contract, "after").await?;
    let read = dump(&direct, contract).await?.to_string();
    expect::that(
        read.contains("before") && read.contains("after"),
        "the data written before and after",
        "not all of it",
    )
}
