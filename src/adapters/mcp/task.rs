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
            "Lists the task boards of one conversation or of all, with the number of tasks in each status. \
             Example: {\"conversation\": \"42\"}",
            board::list,
        ),
        entry(
            Contract::Tasks,
            Effect::Adds,
            "board_create",
            "Create a board",
            "Creates the board of an agent in a conversation, with its first tasks. Example: \
             {\"conversation\": \"42\", \"agent\": \"planner\", \"tasks\": [{\"id\": \"t1\", \"title\": \
             \"Book the train\"}]}",
            board::create,
        ),
        entry(
            Contract::Tasks,
            Effect::Replaces,
            "board_delete",
            "Delete a board",
            "Deletes a board with its tasks. Example: {\"conversation\": \"42\", \"agent\": \"planner\"}",
            board::delete,
        ),
        entry(
            Contract::Tasks,
            Effect::Adds,
            "task_add",
            "Add tasks",
            "Adds planned tasks at the end of a board, all or none. Example: {\"conversation\": \"42\", \
             \"agent\": \"planner\", \"tasks\": [{\"id\": \"t2\", \"title\": \"Book a hotel\"}]}",
            board::add,
        ),
        entry(
            Contract::Tasks,
            Effect::Reads,
            "task_list",
            "List tasks",
            "Lists the tasks of a board in order, optionally only those in some statuses. Example: \
             {\"conversation\": \"42\", \"agent\": \"planner\", \"statuses\": [\"planned\"]}",
            list::list,
        ),
        entry(
            Contract::Tasks,
            Effect::Reads,
            "task_get",
            "Read a task",
            "Reads one task with its complete texts, in pieces if they are long. Example: \
             {\"conversation\": \"42\", \"agent\": \"planner\", \"task\": \"t1\"}",
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
            "Assigns the first available task of a board to a worker under a lease: a planned task, or one \
             whose lease has expired. Pass the returned token with every later call for the task, and renew \
             the lease before it expires. Example: {\"conversation\": \"42\", \"agent\": \"planner\", \
             \"worker\": \"w1\", \"lease_ms\": 60000}",
            step::claim,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_renew",
            "Renew a lease",
            "Extends the lease of a claimed task, counted from now. Example: \
             {\"conversation\": \"42\", \"agent\": \"planner\", \"task\": \"t1\", \"token\": \
             1, \"lease_ms\": 60000}",
            step::renew,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_complete",
            "Complete a task",
            "Moves a task from in_progress to succeeded, with its result. A claimed task needs its token. \
             Example: {\"conversation\": \"42\", \"agent\": \"planner\", \"task\": \"t1\", \"token\": \
             1, \"result\": \"Booked.\"}",
            step::complete,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_fail",
            "Fail a task",
            "Moves a task from in_progress or blocked to failed, with a reason. A claimed task needs its \
             token. Example: {\"conversation\": \"42\", \"agent\": \"planner\", \"task\": \"t1\", \"token\": \
             1, \"result\": \"Sold out.\"}",
            step::fail,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_update",
            "Move a task",
            "Moves a task to another status. From planned: in_progress, blocked, abandoned. From \
             in_progress: planned, blocked, succeeded, failed, abandoned. From blocked: planned, \
             in_progress, failed, abandoned. From failed: abandoned. Any other transition is rejected. \
             Example: {\"conversation\": \"42\", \"agent\": \"planner\", \"task\": \"t1\", \
             \"status\": \"blocked\"}",
            step::update,
        ),
        entry(
            Contract::Tasks,
            Effect::Changes,
            "task_retry",
            "Retry a task",
            "Moves a task from in_progress, blocked or failed back to planned if a retry remains. Example: \
             {\"conversation\": \"42\", \"agent\": \"planner\", \"task\": \"t1\"}",
            step::retry,
        ),
    ]
}
