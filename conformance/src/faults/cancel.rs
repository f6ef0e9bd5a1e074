//! Calls that are dropped while they wait.
//!
//! The calls of a client are polled a number of times and then dropped: the first call after one poll, the
//! next after two, until one completes; then the count starts again. The state after a drop is judged as
//! after a fault: the write is complete or absent, and the store and its connections work.
//!
//! The clients' calls cover many random situations. In addition, every method of every contract, streams
//! included, is called on a small data set and dropped at every poll.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::time::Instant;

use futures_util::StreamExt;
use larder_kernel::{Contract, Namespace, Result};

use super::erase;
use crate::calls::{self, Call};
use crate::case::{CaseResult, Failure, Level};
use crate::harness::{Harness, OpenOptions, StoreSet};
use crate::level::{Counterexample, Effort, LevelReport};
use crate::oracle::{Answer, CONTRACTS, Calls, Defect, Ended, Op, OracleClient, client, recover, trial_seed};
use crate::runner::{Probed, fresh_namespace, within};
use crate::suites::shared::methods::{Dropped, dropped_wherever_it_waits};

/// The number of dropped calls that prove a contract. A long run needs the larger number.
const REQUIRED: u64 = 100;
const REQUIRED_LONG: u64 = 5_000;
/// The number of calls that are dropped before the store is judged.
const DROPS_OF_A_TRIAL: u64 = 25;
/// The number of consecutive calls of a kind that may complete before a trial ends. Some calls never wait.
const STEPS_MAX: u64 = 400;
/// The number of methods that are tested concurrently.
const CALLS_AT_ONCE: usize = 8;
/// The time limit of all drops of a method, as a multiple of the limit of one call.
const CALLS_OF_A_METHOD: u32 = 10;
/// The number of calls of a client that may fail before a write must succeed.
const ATTEMPTS_MAX: u32 = 4;

/// Drops the calls of each contract at every point where they wait. Returns no report if a store's calls
/// never wait.
pub async fn cancellations(harness: &Arc<dyn Harness>, probed: &Probed, effort: &Effort) -> Vec<LevelReport> {
    let mut reports = Vec::new();
    for contract in CONTRACTS.into_iter().filter(|it| probed.backend.capabilities.contains_key(it)) {
        let begun = Instant::now();
        let required = if effort.long { REQUIRED_LONG } else { REQUIRED };
        let mut report =
            LevelReport::new(harness.name(), Level::Faults, Some(contract), "cancellations", required);
        match drop_all(harness, contract, effort, required, &mut report).await {
            Ok(true) => {}
            // No call of this store ever waits, so no future can be dropped.
            Ok(false) => continue,
            Err(error) => report.trouble = Some(format!("cannot use the backend: {error}")),
        }
        report.elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        reports.push(report);
    }
    for contract in Contract::ALL.iter().copied().filter(|it| probed.backend.capabilities.contains_key(it)) {
        reports.push(methods(harness, contract, effort).await);
    }
    reports
}

/// Drops the futures of every method of a contract at every point where they wait, streams included. A method
/// whose future never waits is dropped before its first poll.
async fn methods(harness: &Arc<dyn Harness>, contract: Contract, effort: &Effort) -> LevelReport {
    let begun = Instant::now();
    let calls = calls::of(contract);
    let required = u64::try_from(calls.len()).unwrap_or(u64::MAX);
    let mut report =
        LevelReport::new(harness.name(), Level::Faults, Some(contract), "calls of every method", required);
    let (mut futures, mut deepest) = (0, 0);
    // Concurrent, because the calls mostly wait.
    let mut dropping = futures_util::stream::iter(calls)
        .map(|call| async move {
            let seed = trial_seed(effort.seed, call.name, 0);
            let ended = match fresh_namespace() {
                Ok(namespace) => drop_call(harness, namespace, call, seed, effort).await,
                Err(error) => Err(Failure::Engine(error.to_string())),
            };
            (call, seed, ended)
        })
        .buffer_unordered(CALLS_AT_ONCE);
    while let Some((call, seed, ended)) = dropping.next().await {
        match ended {
            Ok(dropped) => {
                report.executed += u64::from(dropped.futures > 0);
                futures += dropped.futures;
                deepest = deepest.max(dropped.polls_max);
            }
            Err(Failure::Broken { expected, got }) => report.counterexamples.push(Counterexample {
                clause: "STORE-011",
                finding: format!("{}: expected {expected}; got {got}", call.name),
                script: format!("{contract}.{}_is_dropped_wherever_it_waits", call.title()),
                seed,
            }),
            Err(other) => report.trouble = Some(format!("{}: {other:?}", call.name)),
        }
    }
    report.notes.push(format!("{futures} futures were dropped, the last of them after {deepest} polls"));
    report.elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    report
}

/// Drops one call and erases the data that it left.
async fn drop_call(
    harness: &Arc<dyn Harness>,
    namespace: Namespace,
    call: Call,
    seed: u64,
    effort: &Effort,
) -> CaseResult<Dropped> {
    let context = crate::Context::new(Arc::clone(harness), namespace, seed);
    let limit = effort.timeout.saturating_mul(CALLS_OF_A_METHOD);
    let dropping = tokio::time::timeout(limit, dropped_wherever_it_waits(&context, call));
    let dropped = dropping.await.unwrap_or_else(|_| {
        Err(Failure::Broken { expected: "calls that end in time".to_owned(), got: "none".to_owned() })
    });
    for namespace in std::iter::once(context.namespace.clone()).chain(context.siblings()) {
        let stores = context.open_with(&namespace, &OpenOptions::default()).await?;
        if let Some(store) = stores.store(call.contract) {
            within(effort.timeout, "faults.erase", store.erase()).await?;
        }
    }
    dropped
}

/// Returns `true` if any call was dropped.
async fn drop_all(
    harness: &Arc<dyn Harness>,
    contract: Contract,
    effort: &Effort,
    required: u64,
    report: &mut LevelReport,
) -> Result<bool> {
    let namespace = fresh_namespace()?;
    let open = |handle| {
        let (namespace, harness) = (namespace.clone(), Arc::clone(harness));
        async move {
            let options = OpenOptions::default().with_handle(handle);
            within(effort.timeout, "faults.open", harness.open(&namespace, &options)).await
        }
    };
    let (stores, other) = (open(0).await?, open(1).await?);
    let wanted = effort.share_of(required);
    let (mut trial, mut deepest) = (0, 0);
    while report.executed < wanted && report.counterexamples.is_empty() {
        let seed = trial_seed(effort.seed, contract.as_str(), trial);
        let mut client = client(contract, &stores, &format!("drop-{trial}"), seed);
        let calls = Calls::new(effort.timeout, Arc::new(AtomicUsize::new(0)));
        let rest = DROPS_OF_A_TRIAL.min(wanted - report.executed);
        let (dropped, depth, mut defects) = drop_some(client.as_mut(), &stores, &calls, rest).await;
        deepest = deepest.max(depth);
        recover(client.as_mut(), &stores, &calls, &mut defects, ATTEMPTS_MAX).await;
        let judged = within(effort.timeout, "faults.verify", client.verify(&other, "STORE-002")).await?;
        for defect in defects.into_iter().chain(judged) {
            let (finding, script) = (defect.finding, calls.script());
            report.counterexamples.push(Counterexample { clause: defect.clause, finding, script, seed });
        }
        report.executed += dropped;
        trial += 1;
        if dropped == 0 {
            break;
        }
    }
    report.notes.push(format!("the longest call was dropped after {deepest} polls"));
    within(effort.timeout, "faults.erase", erase(&stores)).await?;
    Ok(report.executed > 0 || !report.counterexamples.is_empty())
}

/// Drops calls after 1, 2, 3 … polls. Returns the number of drops and the largest number of polls.
async fn drop_some(
    client: &mut dyn OracleClient,
    stores: &StoreSet,
    calls: &Calls,
    wanted: u64,
) -> (u64, u64, Vec<Defect>) {
    let (mut dropped, mut polls, mut deepest) = (0, 1, 0);
    let mut defects = Vec::new();
    for _ in 0..STEPS_MAX {
        if dropped == wanted || !defects.is_empty() {
            break;
        }
        let op = client.next();
        let mut cut = false;
        let call = async {
            match (Polls { call: client.perform(&op, stores), left: polls }).await {
                Some(result) => result.map(Some),
                None => Ok(None),
            }
        };
        let ended = match tokio::time::timeout(calls.limit(), call).await {
            Ok(Ok(Some(answer))) => Ended::Done(answer),
            Ok(Ok(None)) => {
                cut = true;
                Ended::Open(None)
            }
            Ok(Err(error)) => Ended::from(Err(error)),
            Err(_) => {
                defects.push(Defect::new("STORE-014", format!("{op:?} did not end in time")));
                Ended::Open(None)
            }
        };
        calls.remark(&describe(&op, &ended, cut, polls));
        if cut {
            dropped += 1;
            deepest = deepest.max(polls);
            polls += 1;
        } else {
            polls = 1;
        }
        defects.extend(client.settle(&op, ended));
    }
    (dropped, deepest, defects)
}

fn describe(op: &Op, ended: &Ended, cut: bool, polls: u64) -> String {
    match ended {
        _ if cut => format!("{op:?} -> dropped after {polls} polls"),
        Ended::Done(_) => format!("{op:?} -> answered"),
        Ended::Refused(error) => format!("{op:?} -> not applied: {error}"),
        Ended::Open(error) => format!("{op:?} -> unknown: {error:?}"),
    }
}

/// A call that is dropped after a number of polls and then yields `None`.
struct Polls<'a> {
    call: Pin<Box<dyn Future<Output = Result<Answer>> + Send + 'a>>,
    left: u64,
}

impl Future for Polls<'_> {
    type Output = Option<Result<Answer>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        let polled = self.call.as_mut().poll(context);
        match polled {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            // Dropped before it is woken, as after a caller's timeout.
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
