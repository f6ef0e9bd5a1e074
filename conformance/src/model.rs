//! The level `model`: random operations on a store and on a plain model of its contract, compared at every step.
//!
//! # What it proves
//!
//! Each contract has a *model*: the simplest sequential program, of vectors and ordered maps, that does what the
//! clauses say. A *script* is up to 100 random operations on few ids that nearly collide (case, Unicode form, separators,
//! quotes, patterns, prefixes of each other, 512 bytes), bad input among them, each through one of two handles on a
//! namespace of the script's own. After each operation the store's answer, or the kind, field and outcome of its error,
//! is compared with the model's; at the end of the script, everything that can be read, through both handles. A script that fails is
//! shrunk by proptest (after QuickCheck: Claessen and Hughes 2000) and printed as a test in Rust that uses the public
//! calls alone.
//!
//! # What it leaves free
//!
//! Where a contract leaves a store free, the model learns what the store decided and holds it to that:
//! - revisions, fencing tokens and task positions: they must grow as the clauses say and then read back as they were;
//! - instants (`expires_at`, `modified_at`): they must lie near where they should and then not move;
//! - `ETag`s: they must differ where the bytes differ and then read back as they were;
//! - scores: to within 1e-5, and the order of documents whose scores lie closer together than that and whose
//!   embeddings differ;
//! - which of two errors comes where two apply (a fork whose source is empty and whose target is not).
//!
//! `Seq` numbers are not free: the clauses fix each.
//!
//! # What it does not prove
//!
//! Nothing happens at once here (that is the level `concurrent`) and no time passes: times to live and leases are long,
//! so that none ends; the cases prove expiry. Live events, streams that fail, presigned URLs and openCypher are left to
//! the cases, too.
//!
//! # Chance
//!
//! All of it comes from [`Effort::seed`]: the first script's seed is that number itself, so that the seed which a report
//! names, given as the seed of a run, replays its script first; the others' are derived from it, the contract and
//! the script's number. Before them the seeds in `regressions/model.txt` are replayed.

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

/// Operations that prove a backend which lives in the memory of one process.
const IN_MEMORY: u64 = 1_000_000;
/// Operations that prove any other.
const ELSEWHERE: u64 = 100_000;
/// Into how many parts that is cut for a server of one contract.
const PARTS_OF_A_SERVER: u64 = 10;

/// How many operations prove a backend, over all its contracts together: 1,000,000 where it keeps its data in the
/// memory of one process, which shows in that it declares no durability and not `multi-process`; 100,000 elsewhere, where each
/// waits for a disk or a network; ten times as many for a long run. A server that serves one contract alone is proven
/// by a tenth: its calls cost several times as much, and it works on one at a time.
#[must_use]
pub fn required(declared: &Capabilities, long: bool) -> u64 {
    let operations = if is_in_memory(declared) { IN_MEMORY } else { ELSEWHERE };
    if long { operations * 10 } else { operations }
}

fn is_in_memory(declared: &Capabilities) -> bool {
    declared.durability == Durability::None && !declared.has(Capability::MultiProcess)
}

/// Runs the level on each contract that the backend serves; the contracts share what is required in equal parts.
pub async fn run(harness: &Arc<dyn Harness>, probed: &Probed, effort: &Effort) -> Vec<LevelReport> {
    let mut reports = Vec::new();
    for contract in probed.backend.capabilities.keys() {
        reports.extend(run_contract(harness, probed, *contract, effort).await);
    }
    reports
}

/// Runs the level on one contract, with its share of what is required; `None` where the backend does not serve it.
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

/// Runs scripts, several at once, until enough operations are compared or one of them fails, which is then shrunk.
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
        // The saved ones and the run's own are replayed however little is wanted.
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
            // All before it were begun, so the first that fails is the same in every run of the seed.
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

/// Scripts at once: more than processors, because most wait for a disk or a network.
fn at_once() -> usize {
    8 * std::thread::available_parallelism().map_or(2, usize::from)
}

/// The saved seeds, the run's own, and those derived from it.
fn seeds(contract: Contract, seed: u64) -> impl Iterator<Item = u64> {
    let derived = (1_u64..).map(move |number| rng::mixed(&[seed, rng::of_text(contract.as_str()), number]));
    saved::seeds(contract).into_iter().chain(std::iter::once(seed)).chain(derived)
}
