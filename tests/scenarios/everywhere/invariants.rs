//! Invariants of every session for any settings: properties over generated conversations, on every backend.
//!
//! - Reads, `EPHEMERAL` turns, cancelled or dropped turns and failing models leave the stored data unchanged.
//! - Each stored message is in the window, is covered by the summary in the window, or is reported as left
//!   out. A summary was made from the messages that it covers.
//! - A completed turn is stored once, however often it is retried. Messages are removed only if a strategy
//!   was set to erase them, or if a `FLUSH` left them out of its window.
//! - The window is valid for a model provider: each result directly follows its call, and no call is open.
//! - The window is within its budget. If that is impossible, `begin` fails with the field, before any model
//!   is asked.
//! - A document that sets strategies is accepted, and the same invariants hold.
//! - No question to a model is answered twice.
//!
//! `LARDER_PROPERTY_CASES` sets the number of combinations in memory, `LARDER_PROPERTY_CASES_PERSISTENT` the
//! number on each other backend, and `LARDER_PROPERTY_SEED` the first seed. A failure prints its seed, which
//! repeats it, and the smallest combination that was found to fail.

mod case;
mod check;
mod fixed;
mod panics;
mod shrink;
mod step;
#[path = "../../../agents/src/compaction/properties/valid.rs"]
mod valid;
mod world;

pub(super) use fixed::*;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use self::case::Case;
use self::check::Effects;
use self::world::World;
use crate::test_backend::TestBackend as Backend;

/// The number of combinations in memory.
const CASES: u64 = 5_000;
/// The number of combinations on each other backend.
const CASES_PERSISTENT: u64 = 100;
/// The number of combinations to try for a smaller one.
const SHRINKS: usize = 3_000;
const SHRINKS_PERSISTENT: usize = 300;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap())
}

/// Proves: ATH-5, ALQ-4, ALQ-5, ALQ-6, ALQ-7
#[allow(clippy::print_stderr, reason = "the seed and the shares are for the reader of the run")]
pub(super) async fn no_combination_of_settings_loses_or_repeats_anything(backend: &Backend) {
    let (variable, default, shrinks) = match backend.name() {
        "memory" => ("LARDER_PROPERTY_CASES", CASES, SHRINKS),
        _ => ("LARDER_PROPERTY_CASES_PERSISTENT", CASES_PERSISTENT, SHRINKS_PERSISTENT),
    };
    let (name, cases) = (backend.name(), number(variable).unwrap_or(default));
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let first = number("LARDER_PROPERTY_SEED").unwrap_or(u64::from(clock.subsec_nanos()));
    eprintln!("{name}: {cases} combinations from LARDER_PROPERTY_SEED={first}");
    let mut all = 0;
    let (mut summarized, mut erased, mut fired, mut refused, mut configured) = (0, 0, 0, 0, 0);
    // The share of a small sample varies, so more combinations follow if too few of them fired a strategy.
    while all < cases || (cases >= 100 && all < 2 * cases && 2 * fired < all) {
        let seed = first + all;
        all += 1;
        let case = Case::new(&mut larder_kernel::random::Random::new(seed));
        let effects = match tried(backend, &case).await {
            Ok(effects) => effects,
            Err(failure) => {
                let run = async |case: &Case| tried(backend, case).await.err();
                let (case, failure) = shrink::shrink(case, failure, shrinks, run).await;
                panic!(
                    "{failure}\nLARDER_PROPERTY_SEED={seed} {variable}=1 repeats it. The smallest \
                     combination that was found to fail: {case:#?}"
                );
            }
        };
        summarized += u64::from(effects.summarized);
        erased += u64::from(effects.erased);
        fired += u64::from(effects.summarized || effects.erased);
        refused += u64::from(effects.refused);
        configured += u64::from(effects.configured);
    }
    let share = |count: u64| count * 100 / all.max(1);
    eprintln!(
        "{name}: {all} combinations from LARDER_PROPERTY_SEED={first}: {} % summarized, {} % erased, \
         {} % did either, {} % were refused a turn, {} % came from a document",
        share(summarized),
        share(erased),
        share(fired),
        share(refused),
        share(configured)
    );
    assert!(cases < 100 || 2 * fired >= all, "too few combinations fire a strategy");
}

/// Runs a case in new stores and returns the text of its panic, if any.
async fn tried(backend: &Backend, case: &Case) -> Result<Effects, String> {
    let world = World::new(backend).await;
    let run = Box::pin(check::run(&world, case));
    let outcome = panics::quiet(AssertUnwindSafe(run).catch_unwind()).await;
    world.leave().await;
    outcome.map_err(|_| panics::last())
}
