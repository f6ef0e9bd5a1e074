//! Makes a failed script as short as possible, and prints it.

use proptest::test_runner::{Config, TestCaseError, TestError};

use super::compare::Wrong;
use super::rng::{self, DrawnScript};
use super::subject::Subject;
use super::trial::{Ended, Purpose, Script, Trial};

/// The maximum number of scripts that a search for a shorter one tries.
const TRIES_MAX: u32 = 4_096;
/// The time limit of the search.
const SHRINK_MS_MAX: u32 = 60_000;

/// A script that cannot be made shorter.
pub(super) struct Minimal {
    pub(super) wrong: Wrong,
    pub(super) text: String,
    /// A further remark.
    pub(super) note: Option<String>,
}

/// Shrinks the script of a seed that broke this clause. Shorter scripts must break the same clause: another
/// clause is another finding.
pub(super) async fn shrink<S: Subject>(trial: &Trial<S>, seed: u64, clause: &'static str) -> Minimal {
    let shorter = {
        let trial = trial.clone();
        let handle = tokio::runtime::Handle::current();
        // proptest blocks while it waits for a result, so it runs on a blocking thread.
        tokio::task::spawn_blocking(move || by_proptest(&trial, (seed, clause), &handle)).await.ok().flatten()
    };
    let again = shorter.is_some();
    let draw = shorter.unwrap_or_else(|| rng::draw(seed));
    let script = without_idle(trial, trial.script(&draw), clause).await;
    let count = script.steps.len();
    let ran = trial.run(&script, Purpose::Printing).await;
    let name = format!("model_{}_{seed}", S::CONTRACT);
    let (found, note) = match ran.ended {
        Ended::Wrong(found) => {
            (*found, (!again).then(|| "the script did not fail when it was run again".to_owned()))
        }
        _ => (vanished(ran.recorder.clause), Some("the script fails now and then only".to_owned())),
    };
    let head = format!("// {count} operations; replay with the seed {seed}\n");
    let text = head + &ran.recorder.test(&name, S::FIELD, &found.assertion);
    Minimal { wrong: found, text, note }
}

fn by_proptest<S: Subject>(
    trial: &Trial<S>,
    (seed, clause): (u64, &'static str),
    handle: &tokio::runtime::Handle,
) -> Option<DrawnScript> {
    let config = Config {
        cases: 1,
        max_shrink_iters: TRIES_MAX,
        max_shrink_time: SHRINK_MS_MAX,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = rng::runner(seed, config).run(&rng::draws(), |draw| {
        let ran = handle.block_on(trial.run(&trial.script(&draw), Purpose::Shrinking));
        match ran.ended {
            Ended::Wrong(found) if found.clause == clause => Err(TestCaseError::fail(clause)),
            Ended::Wrong(_) | Ended::Well | Ended::Trouble(_) => Ok(()),
        }
    });
    match outcome {
        Err(TestError::Fail(_, draw)) => Some(draw),
        Ok(()) | Err(TestError::Abort(_)) => None,
    }
}

/// Returns the script without the operations that it does not need to fail, because smaller numbers made them
/// idle.
async fn without_idle<S: Subject>(
    trial: &Trial<S>,
    mut script: Script<S::Operation>,
    clause: &str,
) -> Script<S::Operation> {
    let mut index = script.steps.len();
    while index > 0 {
        index -= 1;
        let mut shorter = script.clone();
        shorter.steps.remove(index);
        let ended = trial.run(&shorter, Purpose::Shrinking).await.ended;
        if matches!(ended, Ended::Wrong(found) if found.clause == clause) {
            // Other operations may have depended on the removed one, so the search starts again.
            index = shorter.steps.len();
            script = shorter;
        }
    }
    script
}

fn vanished(clause: &'static str) -> Wrong {
    Wrong {
        clause,
        expected: "the model's answer".to_owned(),
        got: "another, once".to_owned(),
        assertion: "panic!(\"the failure did not repeat\");".to_owned(),
    }
}
