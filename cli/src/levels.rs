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

/// A word after `--level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Word {
    /// What the contract says, used as meant.
    Contract,
    /// Bad input and hostile ids.
    Hostile,
    /// Random operations beside a plain model.
    Model,
    /// Several clients at once.
    Concurrent,
    /// Kills during writes.
    Durable,
    /// A network that fails.
    Faults,
    /// All of them.
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

/// Whether a level was asked for.
pub(crate) fn asked(words: &[Word], level: Level) -> bool {
    words.iter().any(|word| word.level().is_none_or(|asked| asked == level))
}

/// How many servers are pressed side by side. Much of that is waiting for their disks and for time to pass; three fill two
/// cores, and more would stretch what is measured in seconds, such as a call that must end in time.
const SERVERS_AT_ONCE: usize = 3;

/// Runs the levels that were asked for on all backends: on those of this process one after another, because they
/// compute, and then on those of servers side by side.
///
/// # Errors
/// A sentence where a level broke down.
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
        // Tasks, so that what computes for one server keeps no other waiting. They end with the set that holds them.
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
            let (index, found) = of_backend.map_err(|error| format!("a level broke down: {error}"))?;
            reports.insert(index, found);
        }
    }
    Ok(reports.into_values().flatten().collect())
}

/// Runs levels on one backend.
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
            output::note(format_args!("{name} {level_name}: there is nothing to press on this backend"));
        } else {
            let seconds = begun.elapsed().as_secs();
            output::note(format_args!("{name} {level_name}: {seconds} s"));
        }
        reports.extend(of_level);
    }
    reports
}

/// Boxed, because what the compiler must prove about futures this deep has no end otherwise.
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
            reports.extend(faults::cancellations(harness, probed, effort).boxed().await);
            reports
        }
        // Cases, which have run.
        _ => Vec::new(),
    }
}
