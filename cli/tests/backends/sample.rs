//! A part of the suite on each column, for runs that must be short.
//!
//! With `LARDER_SAMPLE=5`, one case in five runs on each column, and each case in the table of promises, on
//! layers only if the table names the layer. The other cases are ignored. The first case differs from column
//! to column, so five columns run every case.
#![allow(clippy::expect_used)]

use std::num::NonZeroUsize;
use std::path::Path;

use libtest_mimic::Trial;

/// Returns the number in `LARDER_SAMPLE`: one case in so many runs. Without it, every case runs.
pub(crate) fn every() -> NonZeroUsize {
    let every = std::env::var("LARDER_SAMPLE").unwrap_or_else(|_| "1".to_owned());
    every.parse().expect("LARDER_SAMPLE is a number from 1")
}

/// Ignores the cases of a column that are not in its sample.
pub(crate) fn sampled(column: usize, trials: Vec<Trial>) -> Vec<Trial> {
    let every = every();
    let promises = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide/promises.md");
    let promises = std::fs::read_to_string(promises).expect("the table of promises");
    let of_sample = |(index, trial): (usize, Trial)| {
        let (place, case) = trial.name().split_once("::").unwrap_or(("", trial.name()));
        let proof = if place.contains('+') { trial.name() } else { case };
        let promised = [proof, trial.name()].iter().any(|name| promises.contains(&format!("`{name}`")));
        let chosen = (index + column) % every == 0 || promised;
        let ignored = trial.has_ignored_flag() || !chosen;
        trial.with_ignored_flag(ignored)
    };
    trials.into_iter().enumerate().map(of_sample).collect()
}
