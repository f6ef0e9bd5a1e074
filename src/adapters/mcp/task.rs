//! Tools over boards of tasks: what is to be done, who works on it, and what came of it.

mod board;
mod list;
mod step;
mod view;

use larder_kernel::Contract;

use super::registry::{Effect, Entry, entry};

pub(crate) use list::tasks;

/// The tools of this room.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries = boards();
    entries.extend(work());
    entries
}

fn boards() -> Vec<Entry> {
    vec![
        entry(
            Contract::Tasks,
            Effect::Reads,
            "board_list",
            "List boards",
            "Lists the boards of tasks, of one conversation or of all, with how their tasks stand.",
            board::list,
        ),
        entry(
            Contract::Tasks,
            Effect::Adds,
            "board_create",
            "Make a board",
            "Makes the board of an agent in a conversation, with its first tasks.",
            board::create,
        ),
        entry(
            Contract::Tasks,
            Effect::Replaces,
            "board_delete",
            "Delete a board",
            "Deletes a board with its tasks.",
            board::delete,
        ),
        entry(
            Contract::Tasks,
            Effect::Adds,
            "task_add",
            "Add tasks",
            "Adds planned tasks at the end of a board, all or none.",
            board::add,
        ),
        entry(
            Contract::Tasks,
            Effect::Reads,
            "task_list",
            "List tasks",
            "Lists the tasks of a board in order, all or those in some statuses.",
            list::list,
        ),
        entry(
            Contract::Tasks,
            Effect::Reads,
            "task_get",
            "Read a task",
            "Reads one task with its whole texts, in pieces where they are long.",
            list::get,
        ),
    ]
}

fn work() -> Vec<Entry> {
    vec![
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_claim",
            "Claim a task",
            "Gives a worker the first free task of a board under a lease: a planned one, or one whose lease has passed. \
             Show the token with every step of that task, and renew the lease before it passes.",
            step::claim,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_renew",
            "Renew a lease",
            "Prolongs the lease of a claimed task from now.",
            step::renew,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_complete",
            "Complete a task",
            "Takes a task in progress to succeeded, with what came of it. A claimed task needs its token.",
            step::complete,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_fail",
            "Fail a task",
            "Takes a task in progress or blocked to failed, with why. A claimed task needs its token.",
            step::fail,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_update",
            "Move a task",
            "Takes a task to another status. From planned: in_progress, blocked, abandoned. From in_progress: planned, \
             blocked, succeeded, failed, abandoned. From blocked: planned, in_progress, failed, abandoned. From failed: \
             abandoned. Any other step is refused.",
            step::update,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_retry",
            "Retry a task",
            "Takes a task that is in progress, blocked or failed back to planned, if it has a retry left.",
            step::retry,
        ),
    ]
}
