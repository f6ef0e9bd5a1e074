//! The steps from a task's current state to its goal, along the transitions of the contract.

use larder_kernel::TaskStatus::{self, Abandoned, Blocked, Failed, InProgress, Planned, Succeeded};

use crate::transfer::record::TaskRecord;

/// A single step, by `update_status` or `increment_retry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A step to this status, with the goal's result if `true`.
    To(TaskStatus, bool),
    /// A step back to planned that counts one more retry.
    Retry,
}

/// Returns the next step toward the goal, or `None` at the goal.
///
/// The final status and the result come last, so that a task of an interrupted copy is always open.
pub(super) fn next(
    (status, retries, result): (TaskStatus, u32, Option<&str>),
    goal: &TaskRecord,
) -> Result<Option<Step>, &'static str> {
    let told = result == goal.result.as_deref();
    if (status, retries) == (goal.status, goal.retries) && told {
        return Ok(None);
    }
    if retries > goal.retries || (!told && goal.result.is_none()) {
        return Err("another client changed a task during the copy; run it again");
    }
    let counted = retries == goal.retries;
    Ok(Some(match (status, goal.status) {
        (Failed | Succeeded | Abandoned, _) => {
            return Err("another client ended a task during the copy; run it again");
        }
        (InProgress | Blocked, _) if !counted => Step::Retry,
        (Planned, _) if !counted => Step::To(InProgress, false),
        (Planned, Planned) => Step::To(Blocked, !told),
        (_, Planned) => Step::To(Planned, !told),
        // A step to the current status is not allowed.
        (InProgress, InProgress) | (Blocked, Blocked) => Step::To(Planned, !told),
        (_, InProgress) => Step::To(InProgress, !told),
        (_, Blocked) => Step::To(Blocked, !told),
        (_, Abandoned) => Step::To(Abandoned, !told),
        (InProgress, Succeeded) => Step::To(Succeeded, !told),
        (InProgress | Blocked, Failed) => Step::To(Failed, !told),
        (_, Succeeded | Failed) => Step::To(InProgress, false),
        _ => return Err("a task has an unknown status; upgrade this program"),
    }))
}

#[cfg(test)]
mod tests {
    use larder_kernel::{BoardId, Metadata, TaskId};

    use super::*;

    fn goal(status: TaskStatus, retries: u32, result: Option<&str>) -> TaskRecord {
        TaskRecord {
            board: BoardId::new("c", "a").unwrap(),
            index: 0,
            id: TaskId::new("t").unwrap(),
            title: "t".to_owned(),
            description: None,
            status,
            retries,
            retries_max: 3,
            result: result.map(str::to_owned),
            metadata: Metadata::new(),
            held: false,
        }
    }

    #[test]
    fn allowed_steps_lead_from_every_open_state_to_every_other_state() {
        for &status in TaskStatus::ALL {
            for (retries, result) in [(0, None), (0, Some("r")), (3, None), (2, Some(""))] {
                let goal = goal(status, retries, result);
                for from in [Planned, InProgress, Blocked] {
                    for done in 0..=retries {
                        for told in [None, result] {
                            walk(&goal, (from, done, told));
                        }
                    }
                }
            }
        }
    }

    fn walk<'a>(goal: &'a TaskRecord, mut state: (TaskStatus, u32, Option<&'a str>)) {
        for _ in 0..20 {
            match next(state, goal).unwrap() {
                None => {
                    assert_eq!(state, (goal.status, goal.retries, goal.result.as_deref()));
                    return;
                }
                Some(Step::Retry) => {
                    assert!(state.0.allows_retry(), "{state:?}");
                    state = (Planned, state.1 + 1, state.2);
                }
                Some(Step::To(to, with_result)) => {
                    assert!(state.0.allows(to), "{state:?} {to:?}");
                    state = (to, state.1, if with_result { goal.result.as_deref() } else { state.2 });
                }
            }
        }
        panic!("no end of steps");
    }

    #[test]
    fn results_of_another_caller_are_refused() {
        assert!(next((Succeeded, 0, None), &goal(Failed, 0, None)).is_err());
        assert!(next((Planned, 1, None), &goal(Planned, 0, None)).is_err());
        assert!(next((Planned, 0, Some("x")), &goal(Planned, 0, None)).is_err());
    }
}
