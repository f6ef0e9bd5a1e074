//! The levels of `larder check` beyond the cases.

use std::sync::Arc;

use larder_conformance::concurrent::{self, Processes};
use larder_conformance::runner::Probed;
use larder_conformance::{Effort, Harness, Level, LevelReport, durable, faults, model};

use crate::output;
use crate::workers::Workers;

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

/// Runs the levels that were asked for on one backend.
pub(crate) async fn run(
    words: &[Word],
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    effort: &Effort,
) -> Vec<LevelReport> {
    let mut reports = Vec::new();
    for level in [Level::Model, Level::Concurrent, Level::Durable, Level::Faults] {
        if !asked(words, level) {
            continue;
        }
        output::note(format_args!("{} {} …", harness.name(), level.as_str()));
        let of_level = run_one(level, harness, probed, effort).await;
        if of_level.is_empty() {
            let name = harness.name();
            output::note(format_args!(
                "{name} {}: there is nothing to press on this backend",
                level.as_str()
            ));
        }
        reports.extend(of_level);
    }
    reports
}

async fn run_one(
    level: Level,
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    effort: &Effort,
) -> Vec<LevelReport> {
    match level {
        Level::Model => model::run(harness, probed, effort).await,
        Level::Concurrent => {
            let workers = harness.shared_url().map(Workers::new);
            let processes = workers.as_ref().map(|workers| workers as &dyn Processes);
            concurrent::run_with(harness, probed, effort, processes).await
        }
        Level::Durable => durable::run(harness, probed, effort).await,
        Level::Faults => {
            let mut reports = faults::run(harness, probed, effort).await;
            reports.extend(faults::cancellations(harness, probed, effort).await);
            reports
        }
        // Cases, which have run.
        _ => Vec::new(),
    }
}

/// The lines about levels under the table of cases.
pub(crate) fn lines(reports: &[LevelReport]) -> String {
    reports.iter().map(larder_conformance::describe_level).collect()
}
