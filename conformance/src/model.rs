//! The level `model`: random operations on a store and on a simple model of its contract, compared at every
//! step.
//!
//! # Scope
//!
//! Each contract has a *model*: the simplest sequential program, of vectors and ordered maps, that implements
//! the clauses. A *script* is up to 100 random operations on a few ids that nearly collide (case, Unicode
//! form, separators, quotes, patterns, prefixes of each other, 512 bytes). Some operations have invalid
//! input. Each goes through one of two handles on a namespace that only the script uses. After each operation
//! the store's result, or the kind, field and outcome of its error, is compared with the model's. At the end
//! of the script, all readable data is compared through both handles. A script that fails is shrunk by
//! proptest (after QuickCheck: Claessen and Hughes 2000) and printed as a Rust test that uses only public
//! calls.
//!
//! # Free choices
//!
//! If a contract leaves a choice to the store, the model records the store's choice and requires the store to
//! keep it:
//! - revisions, fencing tokens and task positions: they must increase as the clauses require and then read
//!   back unchanged;
//! - instants (`expires_at`, `modified_at`): they must be near the expected time and then not change;
//! - `ETag`s: they must differ if the bytes differ and then read back unchanged;
//! - scores: to within 1e-5, and the order of documents whose scores differ by less than that and whose
//!   embeddings differ;
//! - the choice between two errors that both apply (a fork whose source is empty and whose target is not).
//!
//! `Seq` numbers are not free: the clauses fix each.
//!
//! # Limits
//!
//! The level has no concurrency (see the level `concurrent`) and no passage of time: times to live and leases
//! are long, so that none ends, and the cases prove expiry. The cases also cover live events, streams that
//! fail, presigned URLs and openCypher.
//!
//! # Randomness
//!
//! All random choices derive from [`Effort::seed`]. The first script uses that number as its seed. So a seed
//! from a report, given as the seed of a run, replays its script first. The seeds of the other scripts derive
//! from it, the contract and the script's number. Before them, the run replays the seeds in
//! `regressions/model.txt`.

mod blobs;
mod compare;
mod graph;
mod history;
mod key_value;
mod recorder;
mod rng;
mod saved;
mod shared;
mod shrink;
mod subject;
mod tasks;
mod trial;
mod vectors;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use larder_kernel::{Capabilities, Capability, Contract, Durability};
use tokio::task::JoinSet;

use crate::case::Level;
use crate::harness::Harness;
use crate::level::{Counterexample, Effort, LevelReport};
use crate::runner::Probed;
use subject::Subject;
use trial::{Ended, Purpose, Trial};

/// The number of operations that prove a backend in the memory of one process.
const IN_MEMORY: u64 = 1_000_000;
/// The number of operations that prove any other backend.
const ELSEWHERE: u64 = 100_000;
/// The divisor of that number for a server of one contract.
const PARTS_OF_A_SERVER: u64 = 10;

/// Returns the number of operations that prove a backend, over all its contracts together.
///
/// It is 1,000,000 for a backend in the memory of one process, which declares neither durability nor
/// `multi-process`. It is 100,000 for any other backend, where each operation waits for a disk or a network.
/// A long run needs ten times as many. A server of a single contract needs a tenth, because its calls cost
/// several times as much and it handles one at a time.
#[must_use]
pub fn required(declared: &Capabilities, long: bool) -> u64 {
    let operations = if is_in_memory(declared) { IN_MEMORY } else { ELSEWHERE };
    if long { operations * 10 } else { operations }
}

fn is_in_memory(declared: &Capabilities) -> bool {
    declared.durability == Durability::None && !declared.has(Capability::MultiProcess)
}

/// Runs the level on each contract that the backend serves. The contracts get equal shares of the required
/// number.
pub async fn run(harness: &Arc<dyn Harness>, probed: &Probed, effort: &Effort) -> Vec<LevelReport> {
    let mut reports = Vec::new();
    for contract in probed.backend.capabilities.keys() {
        reports.extend(run_contract(harness, probed, *contract, effort).await);
    }
    reports
}

/// Runs the level on one contract, with its share of the required number; `None` if the backend does not
/// serve it.
pub async fn run_contract(
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    contract: Contract,
    effort: &Effort,
) -> Option<LevelReport> {
    let declared = probed.backend.capabilities.get(&contract)?;
    let contracts = larder_kernel::check::size(probed.backend.capabilities.len());
    let parts = if harness.servers().is_empty() || contracts > 1 { contracts } else { PARTS_OF_A_SERVER };
    let share = required(declared, effort.long).div_ceil(parts.max(1));
    let report = LevelReport::new(harness.name(), Level::Model, Some(contract), "operations", share);
    Some(match contract {
        Contract::History => press::<history::History>(harness, declared, effort, report).await,
        Contract::Vectors => press::<vectors::Vectors>(harness, declared, effort, report).await,
        Contract::Graph => press::<graph::Graph>(harness, declared, effort, report).await,
        Contract::Blobs => press::<blobs::Blobs>(harness, declared, effort, report).await,
        Contract::Tasks => press::<tasks::Tasks>(harness, declared, effort, report).await,
        Contract::KeyValue => press::<key_value::KeyValue>(harness, declared, effort, report).await,
    })
}

/// Runs scripts concurrently until enough operations are compared or a script fails. A failed script is then
/// shrunk.
async fn press<S: Subject>(
    harness: &Arc<dyn Harness>,
    declared: &Capabilities,
    effort: &Effort,
    mut report: LevelReport,
) -> LevelReport {
    let begun = Instant::now();
    let wanted = effort.share_of(report.required);
    let executed = Arc::new(AtomicU64::new(0));
    let trial = Trial::<S>::new(Arc::clone(harness), declared.clone(), effort.timeout);
    let mut scripts = seeds(S::CONTRACT, effort.seed).enumerate();
    let saved = saved::seeds(S::CONTRACT).len();
    let (mut begun_scripts, mut running) = (0, JoinSet::new());
    let mut failed: Option<(usize, u64, &'static str)> = None;
    loop {
        // The saved seeds and the run's seed are always replayed, even if few operations are wanted.
        let enough = executed.load(Ordering::Relaxed) >= wanted && begun_scripts > saved;
        let stop = failed.is_some() || report.trouble.is_some() || enough;
        while !stop && running.len() < at_once() {
            let Some((number, seed)) = scripts.next() else { break };
            begun_scripts += 1;
            let (trial, executed) = (trial.clone(), Arc::clone(&executed));
            running.spawn(async move {
                let ran = trial.run(&trial.draw(seed), Purpose::Comparing).await;
                executed.fetch_add(ran.executed, Ordering::Relaxed);
                (number, seed, ran.ended)
            });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((_, _, Ended::Well))) => {}
            // All earlier scripts were started, so the first failure is the same in every run of the seed.
            Some(Ok((number, seed, Ended::Wrong(found)))) => {
                let first = failed.is_none_or(|(other, ..)| number < other);
                failed = if first { Some((number, seed, found.clause)) } else { failed };
            }
            Some(Ok((_, _, Ended::Trouble(reason)))) => report.trouble = Some(reason),
            Some(Err(join)) => report.trouble = Some(format!("a script did not end: {join}")),
        }
    }
    report.executed = executed.load(Ordering::Relaxed);
    if let Some((_, seed, clause)) = failed {
        let minimal = shrink::shrink(&trial, seed, clause).await;
        report.notes.extend(minimal.note);
        report.counterexamples.push(Counterexample {
            clause: minimal.wrong.clause,
            finding: minimal.wrong.sentence(),
            script: minimal.text,
            seed,
        });
    }
    report.notes.push(format!("{begun_scripts} scripts from seed {}", effort.seed));
    report.elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    report
}

/// Returns the number of concurrent scripts: more than processors, because most wait for a disk or a network.
fn at_once() -> usize {
    8 * std::thread::available_parallelism().map_or(2, usize::from)
}

/// Returns the saved seeds, the run's seed, and the seeds derived from it.
fn seeds(contract: Contract, seed: u64) -> impl Iterator<Item = u64> {
    let derived = (1_u64..).map(move |number| rng::mixed(&[seed, rng::of_text(contract.as_str()), number]));
    saved::seeds(contract).into_iter().chain(std::iter::once(seed)).chain(derived)
}
