//! Task stores that are wrong for many tasks.

use std::time::Duration;

use larder_agents::storage::InMemoryTaskStore;
use larder_kernel::{
    Board, BoardId, Claim, ConversationId, NewBoard, Page, PageRequest, Result, Store, Task, TaskPosition,
    TaskQuery, TaskStore, WorkerId,
};

use super::{COUNT_MAX, ITEMS_MAX, cut};

macro_rules! wrong {
    ($self:ident $contract:ident get_board($board:ident)) => {
        $self.get_board_wrongly($board).await
    };
    ($self:ident $contract:ident list_tasks($board:ident, $query:ident, $page:ident)) => {
        $self.list_tasks_wrongly($board, $query, $page).await
    };
    ($self:ident $contract:ident list_boards($conversation:ident, $page:ident)) => {
        $self.list_boards_wrongly($conversation, $page).await
    };
    ($self:ident $contract:ident settle_conversation($conversation:ident)) => {
        $self.settle_wrongly($conversation).await
    };
    ($self:ident $contract:ident claim($board:ident, $worker:ident, $lease:ident)) => {
        $self.claim_wrongly($board, $worker, $lease).await
    };
    ($self:ident $contract:ident delete_board($board:ident)) => {
        $self.delete_board_wrongly($board).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Tasks TaskStore over InMemoryTaskStore with with_tasks, wrong;
    a_board_counts_10000_tasks: CountCut => ["TASK-011"],
    a_page_ends_after_5000_tasks: TasksCut => ["TASK-006", "TASK-014"],
    the_statuses_of_10000_tasks_are_looked_at: StatusLooksAtFirst => ["TASK-013"],
    a_page_ends_after_5000_boards: BoardsCut => ["TASK-016"],
    a_claim_looks_at_10000_tasks: ClaimCut => ["TASK-041"],
    settling_counts_10000_tasks: SettleCut => ["TASK-037"],
    deleting_a_board_leaves_the_10001st_task: DeleteCut => ["TASK-050"],
    an_erasure_takes_10000_tasks: EraseCut => ["STORE-006"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryTaskStore,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryTaskStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn get_board_wrongly(&self, board: &BoardId) -> Result<Option<Board>> {
        let mut found = self.inner.get_board(board).await?;
        if let (Defect::CountCut, Some(board)) = (self.defect, &mut found) {
            board.tasks.planned = board.tasks.planned.min(COUNT_MAX);
        }
        Ok(found)
    }

    /// Returns the last of the tasks that a method reaches, if there are more.
    async fn end(&self, board: &BoardId) -> Result<Option<TaskPosition>> {
        let all = TaskQuery::default();
        Ok(self.inner.list_tasks(board, &all, PageRequest::first(ITEMS_MAX)).await?.next)
    }

    async fn list_tasks_wrongly(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        let mut listed = self.inner.list_tasks(board, query, page).await?;
        if self.defect == Defect::StatusLooksAtFirst
            && !query.statuses.is_empty()
            && let Some(end) = self.end(board).await?
        {
            listed.items.retain(|task| task.position <= end);
        }
        Ok(if self.defect == Defect::TasksCut { cut(listed) } else { listed })
    }

    async fn list_boards_wrongly(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        let listed = self.inner.list_boards(conversation, page).await?;
        Ok(if self.defect == Defect::BoardsCut { cut(listed) } else { listed })
    }

    async fn settle_wrongly(&self, conversation: &ConversationId) -> Result<u64> {
        let settled = self.inner.settle_conversation(conversation).await?;
        Ok(if self.defect == Defect::SettleCut { settled.min(COUNT_MAX) } else { settled })
    }

    async fn claim_wrongly(
        &self,
        board: &BoardId,
        worker: &WorkerId,
        lease: Duration,
    ) -> Result<Option<Claim>> {
        let started = self.inner.get_board(board).await?.map_or(0, |board| board.tasks.in_progress);
        if self.defect == Defect::ClaimCut && started >= COUNT_MAX {
            return Ok(None);
        }
        self.inner.claim(board, worker, lease).await
    }

    async fn delete_board_wrongly(&self, board: &BoardId) -> Result<bool> {
        let cut = self.defect == Defect::DeleteCut && self.end(board).await?.is_some();
        let existed = self.inner.delete_board(board).await?;
        if cut {
            self.inner.create_task_list(board, NewBoard::default()).await?;
        }
        Ok(existed)
    }

    async fn erase_wrongly(&self) -> Result<()> {
        let mut left = Vec::new();
        if self.defect == Defect::EraseCut {
            for board in self.inner.list_boards(None, PageRequest::first(10)).await?.items {
                let cut = self.end(&board.id).await?.is_some();
                left.extend(cut.then_some(board.id));
            }
        }
        self.inner.erase().await?;
        for board in left {
            self.inner.create_task_list(&board, NewBoard::default()).await?;
        }
        Ok(())
    }
}
