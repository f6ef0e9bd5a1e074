//! The levels of `larder check` beyond the cases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use larder::Registry;
use larder_conformance::concurrent::{self, Processes};
use larder_conformance::runner::Probed;
use larder_conformance::{Effort, Harness, Level, LevelReport, faults, model};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::workers::Workers;
use crate::{durable, output};

/// A value of `--level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Word {
    /// Correct use of the contract.
    Contract,
    /// Invalid input and hostile ids.
    Hostile,
    /// Random operations compared with a reference model.
    Model,
    /// Concurrent clients.
    Concurrent,
    /// Kills during writes.
    Durable,
    /// Network faults.
    Faults,
    /// All levels.
    All,
}

impl Word {
    fn level(self) -> Option<Level> {
        match self {
            Self::Contract => Some(Level::Contract),
            Self::Hostile => Some(Level::Hostile),
            Self::Model => Some(Level::Model),
            Self::Concurrent => Some(Level::Concurrent),
            Self::Durable => Some(Level::Durable),
            Self::Faults => Some(Level::Faults),
            Self::All => None,
        }
    }
}

/// Returns whether the user requested a level.
pub(crate) fn asked(words: &[Word], level: Level) -> bool {
    words.iter().any(|word| word.level().is_none_or(|asked| asked == level))
}

/// The number of servers to check concurrently. The checks mostly wait for disks and timers, so three fill
/// two cores. More would delay the calls whose time limits are in seconds.
const SERVERS_AT_ONCE: usize = 3;

/// Runs the requested levels on all backends: first the embedded backends one after another, because they use
/// the CPU, then the servers concurrently.
///
/// # Errors
/// A message if a level fails to run.
pub(crate) async fn run_all(
    registry: &Registry,
    words: &[Word],
    opened: &[(Arc<dyn Harness>, Probed)],
    effort: &Effort,
) -> Result<Vec<LevelReport>, String> {
    let asked: Vec<Level> = [Level::Model, Level::Concurrent, Level::Durable, Level::Faults]
        .into_iter()
        .filter(|level| asked(words, *level))
        .collect();
    let asked: Arc<[Level]> = asked.into();
    let mut reports = BTreeMap::new();
    for (served, at_once) in [(false, 1), (true, SERVERS_AT_ONCE)] {
        let places = Arc::new(Semaphore::new(at_once));
        // Separate tasks, so that computation for one server does not delay the others. They end with the
        // set.
        let mut pressed = JoinSet::new();
        for (index, (harness, probed)) in opened.iter().enumerate() {
            if harness.servers().is_empty() == served {
                continue;
            }
            let (asked, effort, places) = (Arc::clone(&asked), *effort, Arc::clone(&places));
            let (registry, harness, probed) = (registry.clone(), Arc::clone(harness), probed.clone());
            pressed.spawn(async move {
                let _place = places.acquire().await;
                (index, run(&registry, &asked, &harness, &probed, &effort).await)
            });
        }
        while let Some(of_backend) = pressed.join_next().await {
            let (index, found) =
                of_backend.map_err(|error| format!("a level stopped with an error: {error}"))?;
            reports.insert(index, found);
        }
    }
    Ok(reports.into_values().flatten().collect())
}

/// Runs the levels on one backend.
async fn run(
    registry: &Registry,
    asked: &[Level],
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    effort: &Effort,
) -> Vec<LevelReport> {
    let mut reports = Vec::new();
    for level in asked {
        let (name, level_name, begun) = (harness.name(), level.as_str(), Instant::now());
        output::note(format_args!("{name} {level_name} …"));
        let of_level = run_one(registry, *level, harness, probed, effort).await;
        if of_level.is_empty() {
            output::note(format_args!("{name} {level_name}: the level does not apply to this backend"));
        } else {
            let seconds = begun.elapsed().as_secs();
            output::note(format_args!("{name} {level_name}: {seconds} s"));
        }
        reports.extend(of_level);
    }
    reports
}

/// Boxed, because the compiler cannot prove `Send` for futures this deep in finite time.
async fn run_one(
    registry: &Registry,
    level: Level,
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    effort: &Effort,
) -> Vec<LevelReport> {
    match level {
        Level::Model => model::run(harness, probed, effort).boxed().await,
        Level::Concurrent => {
            let workers = harness.shared_url().map(Workers::new);
            let processes = workers.as_ref().map(|workers| workers as &dyn Processes);
            concurrent::run_with(harness, probed, effort, processes).boxed().await
        }
        Level::Durable => durable::run(registry, harness, probed, effort).boxed().await,
        Level::Faults => {
            let mut reports = faults::run(harness, probed, effort).boxed().await;
            reports.extend(faults::edges(harness, effort).boxed().await);
            reports.extend(faults::cancellations(harness, probed, effort).boxed().await);
            reports
        }
        // The cases, which have already run.
        _ => Vec::new(),
    }
}
