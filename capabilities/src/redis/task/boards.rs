//! Creating, filling, reading, listing and deleting boards.

use std::cmp::Ordering;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_kernel::check::size;
use larder_kernel::{
    AgentId, Board, BoardId, BoardStatusCounts, ConversationId, Error, ErrorKind, NewBoard, NewTask, Page,
    PageRequest, Result, Revision, Task, TaskId, TaskPosition, TaskQuery,
};

use super::conversation::{Conversation, board_call};
use super::rows::{self, Answer, fixed_text};
use super::{ADD_TASKS, CREATE, RedisTaskStore, scripts};
use crate::redis::decode;
use crate::redis::script::Call;

/// The maximum bytes of new tasks in one call. A server disconnects a client whose pending input exceeds 1
/// GiB.
const NEW_TASKS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The number of tasks after which a script that lists them stops, so that other calls can run.
const TASKS_AT_ONCE: usize = 1_000;
/// The size of the tasks after which such a script stops.
const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;
/// The number of boards that one script lists.
const BOARDS_AT_ONCE: usize = 500;
/// The number of conversation names in one read.
const CONVERSATIONS_AT_ONCE: usize = 256;
/// The number of conversations whose boards are read concurrently.
const CONVERSATIONS_ABREAST: usize = 16;
/// The first invalid position.
const POSITION_END: u64 = 1 << 50;

/// Adds to a call the arguments of a script that appends tasks to a board.
fn with_tasks(call: Call, operation: &'static str, tasks: &[NewTask]) -> Result<Call> {
    let (mut call, mut bytes) = (call, 0);
    for task in tasks {
        let fixed = fixed_text(task).map_err(|error| error.in_operation(operation))?;
        bytes += task.id.as_str().len() + fixed.len();
        call = call.arg(task.id.as_str()).number(task.retries_max).bytes(fixed);
    }
    if bytes > NEW_TASKS_BYTES_MAX {
        let error = Error::new(
            ErrorKind::ResourceExhausted,
            operation,
            "is too large for one call; add the tasks in several calls",
        );
        return Err(error.with_field("tasks").with_limit(size(bytes), size(NEW_TASKS_BYTES_MAX)));
    }
    Ok(call)
}

/// Returns the position before the added tasks and their revision, which names the generation.
fn added(mut answer: Answer, operation: &'static str) -> Result<(u64, Revision)> {
    if answer.word != "added" {
        return Err(answer.refusal(operation));
    }
    let (before, revision) = (decode::count(answer.next())?, decode::count(answer.next())?);
    Ok((before, Revision::new(revision).in_generation(decode::generation(answer.next())?)))
}

impl RedisTaskStore {
    /// Creates a board with its tasks. Continues the revision numbers of an earlier board with the same id.
    pub(super) async fn create(&self, board: &BoardId, new: NewBoard) -> Result<Board> {
        let conversation = Conversation::new(&self.index, &board.conversation);
        let mut call = conversation.with_board(conversation.call(), &board.agent).arg(board.agent.as_str());
        for text in [new.label.as_deref(), new.parent.as_ref().map(AgentId::as_str)] {
            call = call.number(u8::from(text.is_some())).arg(text.unwrap_or_default());
        }
        let call = with_tasks(call, CREATE, &new.tasks)?;
        let name = board.conversation.as_str();
        let answer = self.engine.write(CREATE, &scripts::CREATE, &self.index, name, &call).await?;
        added(Answer::new(answer)?, CREATE)?;
        let tasks = BoardStatusCounts::default().with_planned(size(new.tasks.len()));
        Ok(Board::new(board.clone(), tasks).with_label(new.label).with_parent(new.parent))
    }

    pub(super) async fn add(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        let call = with_tasks(board_call(&self.index, board), ADD_TASKS, &tasks)?;
        let answer = self.engine.run(ADD_TASKS, &scripts::ADD, &call).await?;
        let (before, revision) = added(Answer::new(answer)?, ADD_TASKS)?;
        let positions = before.saturating_add(1)..;
        let added = positions.zip(tasks).map(|(at, task)| {
            task.into_task(TaskPosition::new(at), revision).in_generation(revision.generation())
        });
        Ok(added.collect())
    }

    pub(super) async fn read_board(&self, operation: &'static str, board: &BoardId) -> Result<Option<Board>> {
        let call = board_call(&self.index, board).arg(board.agent.as_str());
        let answer = self.engine.read(operation, &scripts::GET_BOARD, &call).await?;
        let mut answer = Answer::new(answer)?;
        match answer.word.as_str() {
            "none" => Ok(None),
            "board" => rows::board(&board.conversation, answer.next()).map(Some),
            _ => Err(answer.refusal(operation)),
        }
    }

    pub(super) async fn read_task(
        &self,
        operation: &'static str,
        board: &BoardId,
        task: &TaskId,
    ) -> Result<Option<Task>> {
        let call = board_call(&self.index, board).arg(task.as_str());
        let answer = Answer::new(self.engine.read(operation, &scripts::GET_TASK, &call).await?)?;
        match answer.word.as_str() {
            "none" => Ok(None),
            "task" => answer.task().map(Some),
            _ => Err(answer.refusal(operation)),
        }
    }

    /// Returns one page of a board's tasks. Reads it in parts that do not block the server for long.
    pub(super) async fn page_of_tasks(
        &self,
        operation: &'static str,
        board: &BoardId,
        query: &TaskQuery,
        page: &PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        for status in &query.statuses {
            rows::digit_of(operation, *status)?;
        }
        let statuses = rows::digits(|status| query.wants(status));
        let wanted = page.limit.saturating_add(1);
        let mut tasks: Vec<Task> = Vec::new();
        let mut after = page.after.map_or(0, |after| after.get());
        loop {
            let call = Conversation::new(&self.index, &board.conversation)
                .call_to_list(&board.agent)
                .arg(&statuses)
                .number(after.min(POSITION_END - 1))
                .number(TASKS_AT_ONCE.min(wanted - tasks.len()))
                .number(BYTES_AT_ONCE)
                .arg(board.agent.as_str());
            let answer = self.engine.read(operation, &scripts::LIST_TASKS, &call).await?;
            let mut answer = Answer::new(answer)?;
            if answer.word != "tasks" {
                return Err(answer.refusal(operation));
            }
            let ended = decode::count(answer.next())? == 1;
            let rows = decode::array(answer.next())?;
            let place = TaskPosition::default().in_generation(decode::generation(answer.next())?);
            if let Some(after) = page.after {
                after.check_generation(operation, "page.after", place)?;
            }
            for row in rows {
                tasks.push(rows::task(row)?);
            }
            match tasks.last() {
                Some(last) if !ended && tasks.len() < wanted => after = last.position.get(),
                _ => return Ok(Page::from_surplus(tasks, page.limit, |task| task.position)),
            }
        }
    }

    /// Returns one page of boards.
    pub(super) async fn page_of_boards(
        &self,
        operation: &'static str,
        conversation: Option<&ConversationId>,
        page: &PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        let wanted = page.limit.saturating_add(1);
        let after = page.after.as_ref();
        let boards = match (conversation, after) {
            (None, None) => self.boards_from(operation, None, Vec::new(), wanted).await?,
            (None, Some(after)) => {
                let first =
                    self.boards_of(operation, &after.conversation, Some(&after.agent), wanted).await?;
                self.boards_from(operation, Some(&after.conversation), first, wanted).await?
            }
            (Some(wanted_one), after) => {
                let order = after.map_or(Ordering::Less, |after| after.conversation.cmp(wanted_one));
                let agent = match order {
                    Ordering::Less => None,
                    Ordering::Equal => after.map(|after| &after.agent),
                    Ordering::Greater => return Ok(Page::empty()),
                };
                self.boards_of(operation, wanted_one, agent, wanted).await?
            }
        };
        Ok(Page::from_surplus(boards, page.limit, |board| board.id.clone()))
    }

    /// Adds boards of the conversations after a given one until the wanted number is reached.
    async fn boards_from(
        &self,
        operation: &'static str,
        after: Option<&ConversationId>,
        mut boards: Vec<Board>,
        wanted: usize,
    ) -> Result<Vec<Board>> {
        let mut after = after.map(|after| after.as_str().to_owned());
        while boards.len() < wanted {
            let most = CONVERSATIONS_AT_ONCE.min(wanted);
            let names = self.engine.names(operation, &self.index, after.as_deref(), most).await?;
            let Some(last) = names.last() else { break };
            after = Some(last.clone());
            let left = wanted - boards.len();
            let mut parts = stream::iter(names)
                .map(|name| async move {
                    let conversation = decode::id(redis::Value::BulkString(name.into_bytes()))?;
                    self.boards_of(operation, &conversation, None, left).await
                })
                .buffered(CONVERSATIONS_ABREAST);
            while let Some(part) = parts.try_next().await? {
                boards.extend(part);
                if boards.len() >= wanted {
                    break;
                }
            }
        }
        boards.truncate(wanted);
        Ok(boards)
    }

    /// Returns up to this many boards of a conversation, after an agent.
    async fn boards_of(
        &self,
        operation: &'static str,
        conversation: &ConversationId,
        after: Option<&AgentId>,
        wanted: usize,
    ) -> Result<Vec<Board>> {
        let place = Conversation::new(&self.index, conversation);
        let mut boards: Vec<Board> = Vec::new();
        loop {
            let most = BOARDS_AT_ONCE.min(wanted - boards.len());
            let after = boards.last().map(|board| &board.id.agent).or(after);
            let call =
                place.call_to_all().bytes(place.prefix()).arg(after.map_or("", AgentId::as_str)).number(most);
            let answer = self.engine.read(operation, &scripts::LIST_BOARDS, &call).await?;
            let mut answer = Answer::new(answer)?;
            let rows = decode::array(answer.next())?;
            let ended = rows.len() < most;
            for row in rows {
                boards.push(rows::board(conversation, row)?);
            }
            if ended || boards.len() >= wanted {
                return Ok(boards);
            }
        }
    }

    pub(super) async fn delete(&self, operation: &'static str, board: &BoardId) -> Result<bool> {
        let conversation = Conversation::new(&self.index, &board.conversation);
        let call = conversation.call_to_delete(&board.agent).arg(board.agent.as_str());
        let answer = Answer::new(self.engine.run(operation, &scripts::DELETE, &call).await?)?;
        match answer.word.as_str() {
            "deleted" => Ok(true),
            "no_board" => Ok(false),
            _ => Err(answer.refusal(operation)),
        }
    }

    /// Empties every conversation of the namespace.
    pub(super) async fn empty(&self, operation: &'static str) -> Result<()> {
        let own = |entity: &crate::redis::key::Entity| {
            (vec![entity.part("boards")], vec![Conversation::prefix_of(entity)])
        };
        self.engine.erase_by(operation, &self.index, &scripts::ERASE, own).await
    }
}
