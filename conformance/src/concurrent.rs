//! The level `concurrent`: several concurrent clients, whose histories are checked for linearizability.
//!
//! Five clients of one object each make twelve calls through two handles, started together. Every call is
//! recorded with its result between two readings of one logical clock. The history passes if it is
//! *linearizable*: if the calls, each at some moment between its start and its end, form a sequential history
//! of the contract (Herlihy and Wing 1990; the search is that of Wing and Gong 1993 in the just-in-time form
//! of Lowe 2017). A lost update, a stale read, a claim with two winners or a torn batch fails this check. The
//! failure is reduced to the relevant calls and printed as a timeline. A call of unknown outcome may take
//! effect at any later time or never.
//!
//! A call that panics also fails the check.
//!
//! The level proves that the recorded histories are correct, not that all are: it may miss a fault that needs
//! a rarer moment. A history in which no two calls overlapped is not counted. A history that lost more than a
//! tenth of its calls is not counted either. If several processes can open the backend, five of them make
//! every fifth history. The cases cover time (times to live, expired leases) and subscriptions.
//!
//! The objects are a thread, a bucket of three keys with shared revisions, a board, three blobs, three
//! documents, and a graph of three entities and three relationships.

mod blobs;
mod check;
mod graph;
mod history;
mod key_value;
mod play;
mod rng;
mod subject;
mod tasks;
mod timeline;
mod vectors;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::StreamExt;
use larder_kernel::{Capabilities, Capability, Contract, Result};

pub use self::play::{Processes, Script};

use self::check::{BUDGET, Judgement, RecordOf, check, shrink};
use self::play::{CLIENTS, PlayedOf, history};
use self::rng::Rng;
use self::subject::Subject;
use crate::case::Level;
use crate::harness::Harness;
use crate::level::{Counterexample, Effort, LevelReport};
use crate::runner::Probed;

/// The number of histories that prove the level on a backend.
const HISTORIES: u64 = 500;
/// The same for a long run.
const HISTORIES_LONG: u64 = 10_000;
/// The number of histories that are recorded concurrently.
const JOBS: usize = 4;
/// The number of counterexamples after which the run of a contract ends.
const COUNTEREXAMPLES_MAX: usize = 3;
/// The number of calls of a history that may fail to reach the store.
const LOST_MAX: u32 = 6;
/// One history in this many is made by several processes, if the backend supports them.
const APART_EACH: u64 = 5;

/// Runs the level on a backend. The histories are divided among the contracts that it serves, with one report
/// for each.
pub async fn run(harness: &Arc<dyn Harness>, probed: &Probed, effort: &Effort) -> Vec<LevelReport> {
    run_with(harness, probed, effort, None).await
}

/// Runs the level like [`run`]. If the backend declares `multi-process`, several processes make a part of the
/// histories.
pub async fn run_with(
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    effort: &Effort,
    processes: Option<&dyn Processes>,
) -> Vec<LevelReport> {
    let served = &probed.backend.capabilities;
    let all = if effort.long { HISTORIES_LONG } else { HISTORIES };
    let mut reports = Vec::new();
    for (contract, required) in shares(served, all) {
        let capabilities = served.get(&contract).cloned().unwrap_or_default();
        let processes = processes.filter(|_| capabilities.has(Capability::MultiProcess));
        let press = Press { harness, effort, processes, capabilities };
        let report =
            LevelReport::new(harness.name(), Level::Concurrent, Some(contract), "histories", required);
        reports.push(match contract {
            Contract::History => press.run::<history::OneThread>(report).await,
            Contract::Vectors => press.run::<vectors::Collection>(report).await,
            Contract::Graph => press.run::<graph::Graph>(report).await,
            Contract::Blobs => press.run::<blobs::Blobs>(report).await,
            Contract::Tasks => press.run::<tasks::OneBoard>(report).await,
            Contract::KeyValue => press.run::<key_value::Bucket>(report).await,
        });
    }
    reports
}

/// Returns the number of histories of each contract; the sum is `all`.
fn shares(served: &BTreeMap<Contract, Capabilities>, all: u64) -> Vec<(Contract, u64)> {
    let count = u64::try_from(served.len()).unwrap_or(u64::MAX);
    let share = |index: u64| all / count + u64::from(index < all % count);
    (0..).zip(served.keys()).map(|(index, contract)| (*contract, share(index))).collect()
}

/// The run of one contract on one backend.
struct Press<'a> {
    harness: &'a Arc<dyn Harness>,
    effort: &'a Effort,
    processes: Option<&'a dyn Processes>,
    capabilities: Capabilities,
}

/// The result of one history.
enum Trial {
    /// The history is linearizable. This number of its calls overlapped another call.
    Explained { overlapping: u64 },
    /// The history proves nothing, for this reason.
    Idle(&'static str),
    /// The history is not linearizable.
    Found(Box<Counterexample>),
}

impl Press<'_> {
    async fn run<S: Subject>(&self, mut report: LevelReport) -> LevelReport {
        let begun = Instant::now();
        let wanted = self.effort.share_of(report.required);
        let enough = AtomicBool::new(false);
        let trials = futures_util::stream::iter(0..wanted.saturating_mul(2))
            .map(|number| self.trial::<S>(number, &enough))
            .buffer_unordered(JOBS);
        let mut trials = std::pin::pin!(trials);
        let (mut overlapping, mut apart): (u64, u64) = (0, 0);
        let mut idle: BTreeMap<&'static str, u64> = BTreeMap::new();
        while let Some((number, trial)) = trials.next().await {
            match trial {
                None => {}
                Some(Ok(Trial::Explained { overlapping: calls })) => {
                    report.executed += 1;
                    overlapping += calls;
                    apart += u64::from(self.processes_for(number).is_some());
                }
                Some(Ok(Trial::Idle(reason))) => *idle.entry(reason).or_default() += 1,
                Some(Ok(Trial::Found(found))) => {
                    report.executed += 1;
                    report.counterexamples.push(*found);
                }
                Some(Err(reason)) => {
                    let seed = self.seed::<S>(number);
                    report.trouble = Some(format!("seed {seed}: {reason}"));
                }
            }
            let found = report.counterexamples.len() >= COUNTEREXAMPLES_MAX;
            if report.executed >= wanted || found || report.trouble.is_some() {
                enough.store(true, Ordering::Relaxed);
            }
        }
        let each = overlapping.checked_div(report.executed).unwrap_or(0);
        report.notes.push(format!("{each} calls of a history overlapped another's, on average"));
        if self.processes.is_some() {
            report.notes.push(format!("{apart} histories were made by {CLIENTS} processes"));
        } else if self.capabilities.has(Capability::MultiProcess) {
            report.notes.push("no history was made by several processes".to_owned());
        }
        for (reason, count) in idle {
            report.notes.push(format!("{count} histories are not counted: {reason}"));
        }
        report.elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        report
    }

    /// Runs one history, unless enough have run.
    async fn trial<S: Subject>(
        &self,
        number: u64,
        enough: &AtomicBool,
    ) -> (u64, Option<Result<Trial, String>>) {
        if enough.load(Ordering::Relaxed) {
            return (number, None);
        }
        let seed = self.seed::<S>(number);
        let processes = self.processes_for(number);
        let recorded =
            history::<S>(self.harness, processes, &self.capabilities, seed, self.effort.timeout).await;
        let played = match recorded {
            Ok(played) => played,
            Err(error) => return (number, Some(Err(error.to_string()))),
        };
        // A search may take long and must not block the clients of other histories.
        let judged = tokio::task::spawn_blocking(move || evaluate::<S>(played, seed)).await;
        (number, Some(judged.unwrap_or_else(|error| Err(format!("the search ended early: {error}")))))
    }

    fn seed<S: Subject>(&self, number: u64) -> u64 {
        Rng::seed_of(self.effort.seed, S::CONTRACT.as_str(), number)
    }

    /// Returns the processes that make the history, if several processes are to make it.
    fn processes_for(&self, number: u64) -> Option<&dyn Processes> {
        self.processes.filter(|_| number % APART_EACH == APART_EACH - 1)
    }
}

fn evaluate<S: Subject>(played: PlayedOf<S>, seed: u64) -> Result<Trial, String> {
    if let Some(op) = played.hung.first() {
        return Ok(Trial::Found(Box::new(Counterexample {
            clause: S::clause(op, &check::Reply::Unknown),
            finding: "one of several concurrent calls did not end in time".to_owned(),
            script: format!("{} => no answer", S::show_op(op)),
            seed,
        })));
    }
    let missing = played.records.iter().find_map(|record| match &record.reply {
        check::Reply::Refused(check::Refusal::Missing(method)) => Some(method),
        _ => None,
    });
    if let Some(method) = missing {
        return Err(format!("{method} is not implemented"));
    }
    let overlapping = overlapping(&played.records);
    let records: Vec<RecordOf<S>> = played.records.into_iter().flat_map(S::expand).collect();
    match check::<S>(&S::initial(), &records, BUDGET) {
        Judgement::TooMuch => Err(format!("the search for an order of {} calls is too long", records.len())),
        Judgement::Stuck(_) => found::<S>(&records, seed),
        Judgement::Linearizable if played.lost > LOST_MAX => {
            Ok(Trial::Idle("too many calls did not get through"))
        }
        Judgement::Linearizable if overlapping == 0 => Ok(Trial::Idle("no calls overlapped")),
        Judgement::Linearizable => Ok(Trial::Explained { overlapping }),
    }
}

fn found<S: Subject>(records: &[RecordOf<S>], seed: u64) -> Result<Trial, String> {
    let Some(shrunk) = shrink::<S>(&S::initial(), records) else {
        return Err("the history has no order, but the search for a shorter one is too long".to_owned());
    };
    let record = &shrunk.history[shrunk.at];
    let (op, reply) = (&record.op, &record.reply);
    Ok(Trial::Found(Box::new(Counterexample {
        clause: S::broken(records, record),
        finding: format!(
            "no order of the calls explains the result of {:?}: {}",
            S::show_op(op),
            timeline::show_reply::<S>(op, reply)
        ),
        script: format!("{}{}", timeline::timeline(&shrunk), timeline::whole::<S>(records)),
        seed,
    })))
}

/// Returns the number of calls that overlapped a call of another client.
fn overlapping<O, A>(records: &[check::Record<O, A>]) -> u64 {
    let meets = |one: &check::Record<O, A>| {
        records.iter().any(|other| {
            other.client != one.client
                && other.answered.is_none_or(|answered| answered > one.called)
                && one.answered.is_none_or(|answered| answered > other.called)
        })
    };
    u64::try_from(records.iter().filter(|record| meets(record)).count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histories_are_spread_over_the_contracts_and_none_is_lost() {
        for count in 1..=Contract::ALL.len() {
            let served: BTreeMap<_, _> = Contract::ALL
                .iter()
                .copied()
                .take(count)
                .map(|contract| (contract, Capabilities::default()))
                .collect();
            let shares = shares(&served, 500);
            assert_eq!((shares.len(), shares.iter().map(|(_, share)| share).sum()), (count, 500));
        }
        assert!(shares(&BTreeMap::new(), 500).is_empty());
    }
}
