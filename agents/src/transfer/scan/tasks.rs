//! Boards in order, each with its tasks.

use std::sync::Arc;

use larder_kernel::{Board, BoardId, Contract, Result, Task, TaskPosition, TaskQuery, TaskStore};

use super::pages::Pages;
use crate::transfer::missing::Skips;
use crate::transfer::record::{BoardRecord, Record, TaskRecord};

const BOARDS: usize = 200;
/// The number of tasks in memory; each may have over 2 MiB.
const TASKS: usize = 100;

pub(crate) struct TaskScan {
    store: Arc<dyn TaskStore>,
    boards: Pages<Board, BoardId>,
    current: Option<(BoardId, u64, Pages<Task, TaskPosition>)>,
    skips: Skips,
}

impl TaskScan {
    pub(super) fn new(store: &Arc<dyn TaskStore>, skips: &Skips) -> Self {
        let listed = Arc::clone(store);
        let boards = Pages::new(BOARDS, move |page| {
            let store = Arc::clone(&listed);
            Box::pin(async move { store.list_boards(None, page).await })
        });
        let boards = boards.skipping(skips, Contract::Tasks, |after: Option<&BoardId>| match after {
            Some(board) => format!("the boards after {}/{}", board.conversation, board.agent),
            None => "all boards".to_owned(),
        });
        Self { store: Arc::clone(store), boards, current: None, skips: skips.clone() }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Record>> {
        if let Some((board, index, tasks)) = &mut self.current {
            if let Some(task) = tasks.next().await? {
                let at = *index;
                *index += 1;
                return Ok(Some(Record::Task(TaskRecord::of(board.clone(), at, task))));
            }
            self.current = None;
        }
        let Some(Board { id, label, parent, .. }) = self.boards.next().await? else { return Ok(None) };
        let (store, board) = (Arc::clone(&self.store), id.clone());
        let tasks = Pages::new(TASKS, move |page| {
            let (store, board) = (Arc::clone(&store), board.clone());
            Box::pin(async move { store.list_tasks(&board, &TaskQuery::default(), page).await })
        });
        let name = format!("{}/{}", id.conversation, id.agent);
        let tasks =
            tasks.skipping(&self.skips, Contract::Tasks, move |after: Option<&TaskPosition>| match after {
                Some(position) => format!("the tasks of the board {name} after position {position}"),
                None => format!("the tasks of the board {name}"),
            });
        self.current = Some((id.clone(), 0, tasks));
        Ok(Some(Record::Board(BoardRecord { board: id, label, parent })))
    }
}
