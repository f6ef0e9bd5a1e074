//! Groups of tests that are known only when they run. The test binaries with such groups share this file.

use std::process::ExitCode;
use std::thread::available_parallelism;

use libtest_mimic::{Arguments, Trial};

/// Runs the selected tests of a group and returns `true` if none failed.
pub(crate) type Group = fn(&Arguments) -> bool;

/// Runs the groups one after the other. The name of a group as the filter selects that group alone; any other
/// word filters the tests of all groups by name.
pub(crate) fn run_all(groups: &[(&str, Group)]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let known = |filter: &String| groups.iter().any(|(name, _)| name == filter);
    let chosen = arguments.filter.take_if(|filter| known(filter));
    let mut passed = true;
    for (name, run) in groups {
        if chosen.as_ref().is_none_or(|chosen| chosen == name) {
            passed &= run(&arguments);
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// Runs the tests of the group that the arguments do not exclude, two at a time for each core unless the
/// arguments say otherwise: most tests wait for a server.
#[allow(dead_code, reason = "a build without a server has no group")]
pub(crate) fn run(group: &str, arguments: &Arguments, trials: Vec<Trial>) -> bool {
    let mut arguments = arguments.clone();
    arguments.test_threads.get_or_insert(2 * available_parallelism().map_or(1, usize::from));
    let trials: Vec<Trial> = trials.into_iter().map(|trial| trial.with_kind(group)).collect();
    trials.iter().all(|trial| arguments.is_filtered_out(trial))
        || !libtest_mimic::run(&arguments, trials).has_failed()
}
