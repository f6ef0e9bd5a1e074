//! Runs cases against a backend: several concurrently, each in a separate namespace and with a time limit.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use larder_kernel::{Contract, Durability, Error, ErrorKind, Namespace, Result};

use crate::case::{Case, CaseResult, Failure};
use crate::context::Context;
use crate::harness::{Harness, OpenOptions, StoreSet};
use crate::large::LargeNamespaces;
use crate::report::{BackendReport, CaseOutcome, CaseReport};

/// The number of a case's namespaces that are erased concurrently.
const ERASURES_AT_ONCE: usize = 8;

/// The options of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOptions {
    /// The number of cases that run concurrently.
    pub jobs: usize,
    /// The time limit of a case.
    pub timeout: Duration,
    /// The random seed of the cases.
    pub seed: u64,
}

impl Default for RunOptions {
    /// Eight cases for each processor, because most cases wait for a disk or a time to live; 60 s each, seed
    /// 1.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self { jobs: 8 * processors, timeout: Duration::from_secs(60), seed: 1 }
    }
}

/// The capabilities of a backend, read before its cases run.
#[derive(Debug, Clone)]
pub struct Probed {
    /// The backend.
    pub backend: BackendReport,
    large: LargeNamespaces,
}

impl Probed {
    /// Returns `true` if the backend serves the case's contract.
    #[must_use]
    pub fn serves(&self, case: &Case) -> bool {
        self.backend.capabilities.contains_key(&case.contract)
    }

    /// Returns the reason why the case cannot run: the backend does not declare a capability that the case
    /// needs.
    #[must_use]
    pub fn lacks(&self, case: &Case) -> Option<Failure> {
        let declared = self.backend.capabilities.get(&case.contract)?;
        if case.needs_durability && declared.durability == Durability::None {
            return Some(Failure::NotDurable);
        }
        case.needs.iter().copied().find(|needed| !declared.has(*needed)).map(Failure::Unsupported)
    }
}

/// Opens the backend once and reads its contracts and capabilities.
///
/// # Errors
/// Errors of the backend if it cannot be opened; nothing is known about it then. `Timeout` if it does not
/// reply in time.
pub async fn probe(harness: &dyn Harness, timeout: Duration) -> Result<Probed> {
    let namespace = fresh_namespace()?;
    let options = OpenOptions::default();
    let stores = within(timeout, "runner.probe", harness.open(&namespace, &options)).await?;
    let declared = |contract| Some((contract, stores.capabilities(contract)?));
    let capabilities: BTreeMap<_, _> = Contract::ALL.iter().copied().filter_map(declared).collect();
    Ok(Probed {
        backend: BackendReport { name: harness.name().to_owned(), url: harness.url(), capabilities },
        large: LargeNamespaces::default(),
    })
}

/// Returns the result of the call, or `Timeout` if the call exceeds the time limit.
///
/// # Errors
/// Errors of the call, and `Timeout`.
pub async fn within<T>(
    timeout: Duration,
    operation: &'static str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| {
        let message = format!("the backend did not answer within {} s", timeout.as_secs_f64());
        Err(Error::new(ErrorKind::Timeout, operation, message))
    })
}

/// Runs the cases whose contract the backend serves and returns their reports in order. Calls `done` after
/// each case.
pub async fn run(
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    cases: &[Case],
    options: &RunOptions,
    done: &(dyn Fn(&CaseReport) + Sync),
) -> Vec<CaseReport> {
    let served = cases.iter().filter(|case| probed.serves(case)).enumerate();
    let mut reports: Vec<(usize, CaseReport)> = futures_util::stream::iter(served)
        .map(|(index, case)| async move {
            let report = run_case(harness, probed, case, options).await;
            done(&report);
            (index, report)
        })
        // Unordered, so that a case that hangs does not keep the others from starting.
        .buffer_unordered(options.jobs.max(1))
        .collect()
        .await;
    reports.sort_unstable_by_key(|(index, _)| *index);
    let mut reports: Vec<_> = reports.into_iter().map(|(_, report)| report).collect();
    for (contract, reason) in erase_large(harness, probed, options).await {
        let of_contract = |report: &&mut CaseReport| report.contract == contract;
        if let Some(last) = reports.iter_mut().rev().find(of_contract) {
            (last.outcome, last.reason, last.got) = (CaseOutcome::Error, reason.clone(), reason);
        }
    }
    reports
}

/// Erases the large namespaces that the cases shared. Returns the contracts whose namespaces remain, with the
/// reasons.
pub(crate) async fn erase_large(
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    options: &RunOptions,
) -> Vec<(Contract, String)> {
    let mut remaining = Vec::new();
    for (contract, namespace) in probed.large.take() {
        let erased = tokio::time::timeout(options.timeout, erase(harness, contract, &namespace)).await;
        match erased {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => remaining.push((contract, format!("{failure:?}"))),
            Err(_) => remaining.push((contract, "erasing the large namespace did not end".to_owned())),
        }
    }
    remaining
}

/// Runs one case in a fresh namespace. Afterwards it erases this namespace and all others that the case took.
pub async fn run_case(
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    case: &Case,
    options: &RunOptions,
) -> CaseReport {
    let begun = Instant::now();
    let result = match probed.lacks(case) {
        Some(reason) => Err(reason),
        None => execute(harness, probed, case, options).await,
    };
    let elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    let missing = match &result {
        Err(Failure::Missing { method }) => Some(*method),
        _ => None,
    };
    let (outcome, expected, got) = match result {
        Ok(()) => (CaseOutcome::Passed, String::new(), String::new()),
        Err(Failure::Broken { expected, got }) => (CaseOutcome::Failed, expected, got),
        Err(Failure::Unsupported(capability)) => {
            (CaseOutcome::Unsupported, String::new(), format!("capability {capability} is not declared"))
        }
        Err(Failure::Undeclared(option)) => {
            (CaseOutcome::Unsupported, String::new(), format!("option {option} is not declared"))
        }
        Err(Failure::Missing { method }) => {
            (CaseOutcome::Waiting, String::new(), format!("{method} is not implemented"))
        }
        Err(Failure::NotDurable) => {
            (CaseOutcome::Unsupported, String::new(), "durability none is declared".to_owned())
        }
        Err(Failure::Unreachable(reason) | Failure::Engine(reason)) => {
            (CaseOutcome::Error, String::new(), reason)
        }
    };
    let reason = match outcome {
        CaseOutcome::Failed => format!("expected {expected}; got {got}"),
        _ => got.clone(),
    };
    CaseReport {
        clause: case.clause,
        case: case.name.clone(),
        contract: case.contract,
        backend: harness.name().to_owned(),
        level: case.level,
        outcome,
        reason,
        expected,
        got,
        waived: None,
        missing,
        elapsed_us,
    }
}

/// Runs the case. A call that reports an unreachable backend is an error only if the backend cannot be
/// reached. Otherwise the case runs once more, and the same result is a failure of its clause.
async fn execute(
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    case: &Case,
    options: &RunOptions,
) -> CaseResult {
    let first = attempt(harness, probed, case, options).await;
    let Err(Failure::Unreachable(reason)) = first else { return first };
    if !is_reachable(harness, case.contract, options).await {
        return Err(Failure::Unreachable(reason));
    }
    match attempt(harness, probed, case, options).await {
        Err(Failure::Unreachable(again)) if is_reachable(harness, case.contract, options).await => {
            let expected = "an answer, because the backend can be reached".to_owned();
            Err(Failure::Broken { expected, got: again })
        }
        // A case that passes the second time does not take back the first answer.
        Ok(()) => Err(Failure::Unreachable(reason)),
        second => second,
    }
}

/// Returns `true` if the backend opens a new namespace and erases it.
async fn is_reachable(harness: &Arc<dyn Harness>, contract: Contract, options: &RunOptions) -> bool {
    let Ok(namespace) = fresh_namespace() else { return false };
    let erased = tokio::time::timeout(options.timeout, erase(harness, contract, &namespace)).await;
    matches!(erased, Ok(Ok(())))
}

async fn attempt(
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    case: &Case,
    options: &RunOptions,
) -> CaseResult {
    let namespace = fresh_namespace().map_err(|error| Failure::Engine(error.to_string()))?;
    let seed = case_seed(options.seed, &case.name);
    let context = Context::new(Arc::clone(harness), namespace, seed).with_large(&probed.large);
    let limit = options.timeout * case.time_factor;
    let mut task = tokio::spawn(case.run(context.clone()));
    let result = match tokio::time::timeout(limit, &mut task).await {
        Ok(Ok(result)) => result,
        Ok(Err(join)) => Err(Failure::Broken {
            expected: "an answer or a typed error".to_owned(),
            got: format!("a panic: {join}"),
        }),
        Err(_) => {
            task.abort();
            // The case must stop before its namespaces are erased. A case that blocks its thread is left
            // behind.
            let _ = tokio::time::timeout(options.timeout, task).await;
            Err(Failure::Broken {
                expected: format!("an answer within {} s", limit.as_secs_f64()),
                got: "none".to_owned(),
            })
        }
    };
    let own = std::iter::once(context.namespace.clone()).chain(context.siblings());
    let erased = futures_util::stream::iter(own).map(|namespace| async move {
        let erased = erase(harness, case.contract, &namespace);
        tokio::time::timeout(options.timeout, erased)
            .await
            .unwrap_or_else(|_| Err(Failure::Engine("erasing the case's namespace did not end".to_owned())))
    });
    let cleaned: Vec<CaseResult> = erased.buffer_unordered(ERASURES_AT_ONCE).collect().await;
    let cleaned = cleaned.into_iter().collect::<CaseResult>();
    result.and(cleaned)
}

async fn erase(harness: &Arc<dyn Harness>, contract: Contract, namespace: &Namespace) -> CaseResult {
    let stores: StoreSet = harness.open(namespace, &OpenOptions::default()).await?;
    match stores.store(contract) {
        Some(store) => Ok(store.erase().await?),
        None => Ok(()),
    }
}

/// Returns a name that no earlier run on the same database can have used.
pub(crate) fn fresh_namespace() -> Result<Namespace> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let chance = RandomState::new().build_hasher().finish();
    Namespace::new(format!("suite-{chance:016x}-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// FNV-1a over the case's name, started from the run's seed, so that a case draws the same numbers in every
/// run.
fn case_seed(seed: u64, name: &str) -> u64 {
    larder_kernel::random::seed_of(seed, name.as_bytes())
}
