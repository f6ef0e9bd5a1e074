//! Creation, reading and removal of boards and their tasks.

use larder_kernel::storage::task::check_add_tasks;
use larder_kernel::{
    Board, BoardId, BoardStatusCounts, ConversationId, ErrorKind, NewBoard, NewTask, Page, PageRequest, Task,
    TaskId, TaskPosition, TaskQuery, TaskStore,
};

use super::operation::{board as shown, new_board, new_tasks, task_text};
use super::{Held, Tasks};
use crate::model::compare::{Checked, Refusal, answered, holds, same};
use crate::model::recorder::{Recorder, id, json_text, optional, page};
use crate::model::shared::page_of;

impl Held {
    fn board(&self, id: &BoardId) -> Board {
        let mut tasks = BoardStatusCounts::default();
        for task in &self.tasks {
            *tasks.of_mut(task.status) += 1;
        }
        Board::new(id.clone(), tasks).with_label(self.label.clone()).with_parent(self.parent.clone())
    }
}

impl Tasks {
    pub(super) async fn create(
        &mut self,
        store: &dyn TaskStore,
        (board, new): (&BoardId, &NewBoard),
        recorder: &mut Recorder,
    ) -> Checked {
        let there = self.boards.contains_key(board);
        let clause = if there { "TASK-002" } else { "TASK-001" };
        recorder.call(clause, |_| format!("create_task_list({}, {})", shown(board), new_board(new)));
        let made = Held { label: new.label.clone(), parent: new.parent.clone(), tasks: Vec::new() };
        let mut expected = made.board(board);
        expected.tasks.planned = larder_kernel::check::size(new.tasks.len());
        let expected = match (new.check(), there) {
            (Err(refusal), _) => Err(refusal.into()),
            (Ok(()), true) => Err(ErrorKind::AlreadyExists.into()),
            (Ok(()), false) => Ok(expected),
        };
        same(recorder, clause, &store.create_task_list(board, new.clone()).await, &expected)?;
        if expected.is_ok() {
            self.boards.insert(board.clone(), made);
            let all = PageRequest::first(10_000);
            recorder.call(clause, |_| {
                format!("list_tasks({}, &TaskQuery::default(), {})", shown(board), all_text())
            });
            let got = store.list_tasks(board, &TaskQuery::default(), all).await;
            let Some(got) = answered(recorder, clause, got, &Ok(()))? else { return Ok(()) };
            self.join(board, &new.tasks, &got.items, recorder)?;
        }
        Ok(())
    }

    pub(super) async fn add(
        &mut self,
        store: &dyn TaskStore,
        (board, tasks): (&BoardId, &[NewTask]),
        recorder: &mut Recorder,
    ) -> Checked {
        let held = self.boards.get(board);
        let there = |task: &NewTask| held.is_some_and(|held| held.task(&task.id).is_some());
        let (clause, expected) = match (check_add_tasks(tasks), held) {
            (Err(refusal), _) => ("STORE-010", Err(Refusal::from(refusal))),
            (Ok(()), None) => ("TASK-008", Err(ErrorKind::NotFound.into())),
            (Ok(()), Some(_)) if tasks.iter().any(there) => {
                ("TASK-007", Err(ErrorKind::AlreadyExists.into()))
            }
            (Ok(()), Some(_)) => ("TASK-006", Ok(())),
        };
        recorder.call(clause, |_| format!("add_tasks({}, {})", shown(board), new_tasks(tasks)));
        let got = store.add_tasks(board, tasks.to_vec()).await;
        match answered(recorder, clause, got, &expected)? {
            Some(got) => self.join(board, tasks, &got, recorder),
            None => Ok(()),
        }
    }

    /// Appends new tasks to a board, with the positions and revisions that the store chose.
    fn join(&mut self, board: &BoardId, tasks: &[NewTask], got: &[Task], recorder: &Recorder) -> Checked {
        const CLAUSE: &str = "TASK-006";
        let mut expected = Vec::new();
        let held = self.boards.get(board).map(|held| held.tasks.as_slice()).unwrap_or_default();
        let mut last = held.last().map(|task| task.position);
        for (new, got) in tasks.iter().zip(got) {
            let follows = || {
                format!(
                    "let all = serde_json::to_value({}.unwrap()).unwrap();\n\
                     let all = all.get(\"items\").cloned().unwrap_or(all).as_array().cloned().unwrap();\n\
                     let all: Vec<u64> = all.iter().map(|task| \
                     of(&task[\"position\"].to_string())).collect();\n\
                     assert!(all.windows(2).all(|pair| pair[0] < pair[1]), \"{{all:?}}\");",
                    recorder.answer()
                )
            };
            let wanted = || format!("a position after {last:?}");
            holds(CLAUSE, last.is_none_or(|last| got.position > last), wanted, &got.position, follows)?;
            self.check_revision(board, &got.id, got.revision, recorder)?;
            last = Some(got.position);
            expected.push(new.clone().into_task(got.position, got.revision));
        }
        // If fewer tasks were returned, fewer were compared.
        expected.extend(
            tasks
                .iter()
                .skip(got.len())
                .map(|new| new.clone().into_task(TaskPosition::new(0), <_>::default())),
        );
        let joined = expected.clone();
        let assertion = || format!("has({}.unwrap(), {});", recorder.answer(), json_text(&expected));
        holds(CLAUSE, got == expected, || format!("{expected:?}"), &got, assertion)?;
        for task in joined {
            if let Some(held) = self.boards.get_mut(board) {
                held.tasks.push(task.clone());
            }
            self.put(board, task);
        }
        Ok(())
    }

    pub(super) async fn board(
        &mut self,
        store: &dyn TaskStore,
        board: &BoardId,
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "TASK-011";
        recorder.call(CLAUSE, |_| format!("get_board({})", shown(board)));
        let expected = self.boards.get(board).map(|held| held.board(board));
        same(recorder, CLAUSE, &store.get_board(board).await, &Ok(expected))
    }

    pub(super) async fn read(
        &mut self,
        store: &dyn TaskStore,
        (board, task): (&BoardId, &TaskId),
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "TASK-012";
        recorder.call(CLAUSE, |_| format!("get_task({}, {})", shown(board), task_text(task)));
        let expected = self.task(board, task).cloned();
        same(recorder, CLAUSE, &store.get_task(board, task).await, &Ok(expected))
    }

    pub(super) async fn list(
        &mut self,
        store: &dyn TaskStore,
        (board, query, after, limit): (&BoardId, &TaskQuery, Option<usize>, usize),
        recorder: &mut Recorder,
    ) -> Checked {
        let tasks = self.boards.get(board).map(|held| held.tasks.as_slice()).unwrap_or_default();
        // A script cannot name the generation, which the store draws.
        let number = |index: usize| tasks.get(index).map_or(u64::MAX, |task| task.position.get());
        let place = |index: usize| TaskPosition::new(number(index));
        let request = PageRequest::first(limit).with_after(after.map(place));
        let clause = if after.is_some() { "TASK-014" } else { "TASK-013" };
        recorder.call(clause, |_| {
            let statuses: Vec<String> =
                query.statuses.iter().map(|status| format!("TaskStatus::{status:?}")).collect();
            let query = format!("&TaskQuery::in_statuses([{}])", statuses.join(", "));
            let page = page(&request, |at: &TaskPosition| format!("TaskPosition::new({})", at.get()));
            format!("list_tasks({}, {query}, {page})", shown(board))
        });
        let wanted = tasks.iter().filter(|task| query.wants(task.status)).cloned();
        let expected = request
            .check("tasks.list_tasks")
            .map(|()| page_of(wanted, &request, |task| task.position))
            .map_err(Into::into);
        let got: larder_kernel::Result<Page<Task, TaskPosition>> =
            store.list_tasks(board, query, request.clone()).await;
        same(recorder, clause, &got, &expected)
    }

    pub(super) async fn list_boards(
        &mut self,
        store: &dyn TaskStore,
        (conversation, request): (Option<&ConversationId>, &PageRequest<BoardId>),
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "TASK-016";
        recorder.call(CLAUSE, |_| {
            let key = |board: &BoardId| shown(board).trim_start_matches('&').to_owned();
            format!("list_boards({}, {})", optional(conversation, id), page(request, key))
        });
        let of = |id: &BoardId| conversation.is_none_or(|conversation| id.conversation == *conversation);
        let boards = self.boards.iter().filter(|(id, _)| of(id)).map(|(id, held)| held.board(id));
        let expected = request
            .check("tasks.list_boards")
            .map(|()| page_of(boards, request, |board| board.id.clone()))
            .map_err(Into::into);
        same(recorder, CLAUSE, &store.list_boards(conversation, request.clone()).await, &expected)
    }

    pub(super) async fn delete(
        &mut self,
        store: &dyn TaskStore,
        board: &BoardId,
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "TASK-050";
        recorder.call(CLAUSE, |_| format!("delete_board({})", shown(board)));
        let there = self.boards.remove(board).is_some();
        same(recorder, CLAUSE, &store.delete_board(board).await, &Ok(there))
    }

    pub(super) async fn erase(&mut self, store: &dyn TaskStore, recorder: &mut Recorder) -> Checked {
        recorder.call("STORE-006", |_| "erase()".to_owned());
        same(recorder, "STORE-006", &store.erase().await, &Ok(()))?;
        *self = Self::default();
        Ok(())
    }
}

pub(super) fn all_text() -> &'static str {
    "PageRequest::first(10_000)"
}
