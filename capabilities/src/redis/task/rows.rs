//! Conversion of tasks and boards to and from the server's form.

use std::borrow::Cow;
use std::vec::IntoIter;

use bytes::Bytes;
use larder_kernel::{
    Board, BoardId, BoardStatusCounts, ConversationId, Error, ErrorKind, FencingToken, Lease, Metadata,
    NewTask, Result, Revision, Task, TaskPosition, TaskStatus,
};
use redis::Value;
use serde::{Deserialize, Serialize};

use crate::redis::decode;
use crate::redis::failure::corrupt;

const OPERATION: &str = "redis.read";

/// The initial fields of a task that the scripts do not use.
#[derive(Serialize, Deserialize)]
struct Fixed<'a> {
    title: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    metadata: Cow<'a, Metadata>,
}

/// Returns the text of a new task.
pub(super) fn fixed_text(task: &NewTask) -> Result<Bytes> {
    let fixed = Fixed {
        title: Cow::Borrowed(&task.title),
        description: task.description.as_deref().map(Cow::Borrowed),
        metadata: Cow::Borrowed(&task.metadata),
    };
    serde_json::to_vec(&fixed)
        .map(Bytes::from)
        .map_err(|_| Error::invalid(OPERATION, "task.metadata", "cannot be written as JSON"))
}

/// Returns the digit of a status in scripts and records: its position in the list of all statuses. `None` for
/// a status that was added after these scripts.
fn digit(status: TaskStatus) -> Option<char> {
    match status {
        TaskStatus::Planned => Some('0'),
        TaskStatus::InProgress => Some('1'),
        TaskStatus::Blocked => Some('2'),
        TaskStatus::Succeeded => Some('3'),
        TaskStatus::Failed => Some('4'),
        TaskStatus::Abandoned => Some('5'),
        _ => None,
    }
}

/// Returns the digit of a status that a caller names.
pub(super) fn digit_of(operation: &'static str, status: TaskStatus) -> Result<char> {
    digit(status).ok_or_else(|| Error::unknown_value(operation, "status"))
}

/// Returns the digits of the stored statuses for which the rule is true.
pub(super) fn digits(rule: impl Fn(TaskStatus) -> bool) -> String {
    TaskStatus::ALL.iter().copied().filter(|status| rule(*status)).filter_map(digit).collect()
}

fn status(text: &str) -> Option<TaskStatus> {
    TaskStatus::ALL.iter().copied().find(|status| text.chars().eq(digit(*status)))
}

/// The first word of a reply and the parts that follow it.
pub(super) struct Answer {
    pub(super) word: String,
    rest: IntoIter<Value>,
}

impl Answer {
    pub(super) fn new(answer: Value) -> Result<Self> {
        let mut rest = decode::array(answer)?.into_iter();
        let word = decode::text(rest.next().unwrap_or(Value::Nil))?;
        Ok(Self { word, rest })
    }

    /// Returns the next part.
    pub(super) fn next(&mut self) -> Value {
        self.rest.next().unwrap_or(Value::Nil)
    }

    /// Returns the task in the reply.
    pub(super) fn task(self) -> Result<Task> {
        let parts = <[Value; 5]>::try_from(self.rest.collect::<Vec<_>>());
        parts.map_err(|_| corrupt(OPERATION)).and_then(task_of)
    }

    /// Returns the error for a reply that rejects the call.
    pub(super) fn refusal(mut self, operation: &'static str) -> Error {
        let conflict = |message: &'static str| Error::new(ErrorKind::Conflict, operation, message);
        match self.word.as_str() {
            "no_board" => {
                Error::new(ErrorKind::NotFound, operation, "the board does not exist; create it first")
            }
            "no_task" => {
                Error::new(ErrorKind::NotFound, operation, "the board has no task with this id; check the id")
            }
            "exists" => Error::new(
                ErrorKind::AlreadyExists,
                operation,
                "the board already exists; add tasks to it or use another id",
            ),
            "taken" => Error::new(
                ErrorKind::AlreadyExists,
                operation,
                "the board already has a task with one of these ids; use new ids",
            )
            .with_field("tasks.id"),
            "revision" => conflict("the task is at another revision; read the task and try again"),
            "token" => conflict("the token does not match the task's lease; claim the task again"),
            "status" => {
                let error = conflict(
                    "this transition is not allowed; see the table of transitions of \
                                      `TaskStore`",
                );
                match decode::text(self.next()).ok().as_deref().and_then(status) {
                    Some(from) => error.with_context("from", from.as_str()),
                    None => error,
                }
            }
            "full" => Error::new(
                ErrorKind::ResourceExhausted,
                operation,
                "the board has used all of its numbers; create another board",
            ),
            _ => corrupt(operation),
        }
    }
}

/// Returns a task from a row of a listing.
pub(super) fn task(row: Value) -> Result<Task> {
    task_of(decode::tuple(row)?)
}

fn task_of([id, fixed, state, result, generation]: [Value; 5]) -> Result<Task> {
    let fixed = decode::bytes(fixed)?;
    let fixed: Fixed<'_> = serde_json::from_slice(&fixed).map_err(|_| corrupt(OPERATION))?;
    let state = decode::text(state)?;
    let mut fields = state.splitn(8, ' ');
    let mut next = || fields.next().ok_or_else(|| corrupt(OPERATION));
    let (status_digit, position, revision) = (next()?, next()?, next()?);
    let (retries, retries_max) = (next()?, next()?);
    let lease = match next() {
        Err(_) => None,
        Ok(token) => {
            let (ends, worker) = (next()?, next()?);
            Some(Lease::new(
                worker.try_into().map_err(|_| corrupt(OPERATION))?,
                FencingToken::new(number(token)?),
                decode::timestamp(number(ends)?)?,
            ))
        }
    };
    Ok(Task::new(
        decode::id(id)?,
        fixed.title.into_owned(),
        TaskPosition::new(number(position)?),
        Revision::new(number(revision)?),
    )
    .with_description(fixed.description.map(Cow::into_owned))
    .with_status(status(status_digit).ok_or_else(|| corrupt(OPERATION))?)
    .with_retries(number(retries)?)
    .with_retries_max(number(retries_max)?)
    .with_result(decode::optional(result).map(decode::text).transpose()?)
    .with_lease(lease)
    .with_metadata(fixed.metadata.into_owned())
    .in_generation(decode::generation(generation)?))
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N> {
    text.parse().map_err(|_| corrupt(OPERATION))
}

/// Returns a board from a row: agent, label, parent and the count of each status.
pub(super) fn board(conversation: &ConversationId, row: Value) -> Result<Board> {
    let mut row = decode::array(row)?.into_iter();
    let mut next = || row.next().ok_or_else(|| corrupt(OPERATION));
    let id = BoardId { conversation: conversation.clone(), agent: decode::id(next()?)? };
    let label = decode::optional(next()?).map(decode::text).transpose()?;
    let parent = decode::optional(next()?).map(decode::id).transpose()?;
    let mut tasks = BoardStatusCounts::default();
    for &status in TaskStatus::ALL {
        *tasks.of_mut(status) = decode::count(next()?)?;
    }
    Ok(Board::new(id, tasks).with_label(label).with_parent(parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_and_its_digit_name_each_other() {
        assert_eq!(digits(|_| true), "012345");
        for (place, each) in TaskStatus::ALL.iter().copied().enumerate() {
            assert_eq!(digit_of("test", each).unwrap().to_string(), place.to_string());
            assert_eq!(status(&place.to_string()), Some(each));
        }
        assert_eq!((status("6"), status(""), status("00")), (None, None, None));
    }

    fn row(state: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(vec![text("id"), text(r#"{"title":"t"}"#), text(state), Value::Nil, Value::Nil])
    }

    #[test]
    fn a_state_reads_back_with_any_worker() {
        let lease = task(row("1 2 3 0 3 9 1700000000001 a b  c")).unwrap().lease.unwrap();
        assert_eq!((lease.worker.as_str(), lease.token), ("a b  c", FencingToken::new(9)));
        assert_eq!(lease.expires_at.as_micros(), 1_700_000_000_001_000);
        assert_eq!(task(row("0 2 3 0 3")).unwrap().lease, None);
        for damaged in ["", "0", "9 2 3 0 3", "0 2 3 0", "1 2 3 0 3 9", "1 2 3 0 3 9 17", "0 2 3 0 -3"] {
            assert_eq!(task(row(damaged)).unwrap_err().kind(), ErrorKind::Corrupt, "{damaged}");
        }
    }
}
