//! Tools over task boards: boards, tasks, claims and results.

mod board;
mod list;
mod step;
mod view;

use larder_kernel::Contract;

use super::registry::{Effect, Entry, entry};

pub(crate) use list::tasks;

/// Returns the task tools.
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
            "Lists the task boards of one conversation or of all, with the number of tasks in each status.",
            board::list,
        ),
        entry(
            Contract::Tasks,
            Effect::Adds,
            "board_create",
            "Create a board",
            "Creates the board of an agent in a conversation, with its first tasks.",
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
            "Lists the tasks of a board in order, all of them or only some statuses.",
            list::list,
        ),
        entry(
            Contract::Tasks,
            Effect::Reads,
            "task_get",
            "Read a task",
            "Reads one task with its whole texts, in pieces if they are long.",
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
            "Gives a worker the first available task of a board under a lease: a planned task, or one whose \
             lease has expired. Give the token with every step of that task, and renew the lease before it \
             expires.",
            step::claim,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_renew",
            "Renew a lease",
            "Extends the lease of a claimed task, counted from now.",
            step::renew,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_complete",
            "Complete a task",
            "Moves a task from in_progress to succeeded, with its result. A claimed task needs its token.",
            step::complete,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_fail",
            "Fail a task",
            "Moves a task from in_progress or blocked to failed, with a reason. A claimed task needs its \
             token.",
            step::fail,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_update",
            "Move a task",
            "Moves a task to another status. From planned: in_progress, blocked, abandoned. From \
             in_progress: planned, blocked, succeeded, failed, abandoned. From blocked: planned, \
             in_progress, failed, abandoned. From failed: abandoned. Any other step is refused.",
            step::update,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_retry",
            "Retry a task",
            "Moves a task from in_progress, blocked or failed back to planned, if a retry remains.",
            step::retry,
        ),
    ]
}
