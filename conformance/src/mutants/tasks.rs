//! Task stores that are wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::InMemoryTaskStore;
use larder_kernel::{
    Board, BoardId, BoardStatusCounts, Claim, ConversationId, Error, ErrorKind, FencingToken, Lease,
    Namespace, NewBoard, NewTask, Page, PageRequest, Result, RetryOutcome, Revision, Store, Task, TaskId,
    TaskPosition, TaskQuery, TaskStatus, TaskStore, Transition, WorkerId,
};

use super::serve::{SharedState, lock, serve};
use crate::harness::{Harness, StoreSet};

defects! { Tasks;
    a_claim_has_two_winners: TwoWinners => ["TASK-041"],
    the_last_write_wins: LastWriteWins => ["TASK-022"],
    repeating_a_step_succeeds: RepeatedStepSucceeds => ["TASK-021", "TASK-024"],
    a_stale_token_is_accepted: StaleTokenAccepted => ["TASK-025", "TASK-043", "TASK-048"],
    a_missing_token_is_accepted: MissingTokenAccepted => ["TASK-025"],
    a_lease_never_passes: LeaseNeverPasses => ["TASK-043"],
    creating_a_board_twice_succeeds: BoardCreatedTwice => ["TASK-002", "TASK-005"],
    a_refused_batch_is_added_in_part: BatchInPart => ["TASK-007"],
    tasks_are_listed_by_id: ListedById => ["TASK-006", "TASK-013"],
    a_listing_ignores_the_statuses: StatusesIgnored => ["TASK-013"],
    a_claim_takes_what_is_in_progress: ClaimsInProgress => ["TASK-044"],
    settling_settles_every_conversation: SettlesAll => ["TASK-038"],
    settling_leaves_other_boards: SettlesOneBoard => ["TASK-037"],
    a_step_forgets_its_result: ResultForgotten => ["TASK-027"],
    exhaustion_is_not_said: ExhaustionHidden => ["TASK-031"],
    retries_have_no_end: EndlessRetries => ["TASK-031", "TASK-033"],
    forcing_a_retry_keeps_the_retries: ForceKeepsRetries => ["TASK-035"],
    counts_stand_still: CountsStandStill => ["TASK-011"],
    every_task_has_three_retries: RetriesAlwaysThree => ["TASK-006"],
    deleting_a_board_takes_the_conversations_other_boards: DeletesConversation => ["TASK-050"],
    tokens_begin_again_with_each_task: TokensRestart => ["TASK-042"],
    a_step_leaves_the_lease: LeaseLeft => ["TASK-026"],
    a_renewal_needs_no_token: RenewalNeedsNoToken => ["TASK-048"],
    boards_of_one_agent_are_one: AgentsIgnored => ["TASK-003"],
    numbers_name_no_generation: GenerationUnnamed => ["TASK-052"],
    the_generation_of_a_number_is_ignored: GenerationIgnored => ["TASK-053", "TASK-054"],
}

#[derive(Default)]
struct Memory {
    /// A claim of each board that a second worker gets, too.
    claimed: Mutex<BTreeMap<(Namespace, BoardId), Claim>>,
    /// The last lease of each task.
    leases: Mutex<BTreeMap<(Namespace, BoardId, TaskId), Lease>>,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    let memory = Arc::new(Memory::default());
    serve(defect.opening(), move |shared, namespace, _| {
        let inner = InMemoryTaskStore::open(&shared.place, namespace);
        let wrong = Wrong { inner, defect, shared, memory: Arc::clone(&memory) };
        StoreSet::default().with_tasks(Arc::new(wrong))
    })
}

struct Wrong {
    inner: InMemoryTaskStore,
    defect: Defect,
    shared: SharedState,
    memory: Arc<Memory>,
}

forward_store!(Wrong, InMemoryTaskStore);

impl Wrong {
    async fn holds_nothing(&self) -> Result<bool> {
        Ok(self.inner.list_boards(None, PageRequest::first(1)).await?.items.is_empty())
    }

    fn conversation(&self, id: &ConversationId) -> Result<ConversationId> {
        ConversationId::new(self.kept(id.as_str()))
    }

    fn board(&self, board: &BoardId) -> Result<BoardId> {
        let conversation = self.conversation(&board.conversation)?;
        let agent = if self.defect == Defect::AgentsIgnored { "one".into() } else { board.agent.to_string() };
        BoardId::new(conversation.as_str(), agent)
    }

    /// Returns the task with its last lease, if that is the defect.
    fn with_lease_left(&self, board: &BoardId, mut task: Task) -> Task {
        if self.defect == Defect::LeaseLeft && task.status != TaskStatus::InProgress {
            let place = (self.inner.namespace().clone(), board.clone(), task.id.clone());
            task.lease = lock(&self.memory.leases).get(&place).cloned();
        }
        task
    }

    fn note_claim(&self, board: &BoardId, claim: &mut Claim) {
        if self.defect == Defect::TokensRestart {
            claim.token = FencingToken::new(1);
        }
        let Some(lease) = &mut claim.task.lease else { return };
        if self.defect == Defect::TokensRestart {
            lease.token = claim.token;
        }
        let place = (self.inner.namespace().clone(), board.clone(), claim.task.id.clone());
        lock(&self.memory.leases).insert(place, lease.clone());
    }

    async fn there(&self, board: &BoardId) -> Result<Board> {
        let found = self.inner.get_board(board).await?;
        found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "tasks.create_task_list", "the board does not exist")
        })
    }

    async fn add_one_by_one(&self, board: &BoardId, tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        let mut added = Vec::new();
        for task in tasks {
            added.extend(self.inner.add_tasks(board, vec![task]).await?);
            tokio::task::yield_now().await;
        }
        Ok(added)
    }

    /// Returns the valid token and ignores the caller's token.
    async fn token(
        &self,
        board: &BoardId,
        task: &TaskId,
        given: Option<FencingToken>,
    ) -> Result<Option<FencingToken>> {
        let accepted = match self.defect {
            Defect::StaleTokenAccepted | Defect::TokensRestart => given.is_some(),
            Defect::MissingTokenAccepted => given.is_none(),
            _ => false,
        };
        if self.defect == Defect::GenerationIgnored {
            return Ok(given.map(|token| FencingToken::new(token.get())));
        }
        if !accepted {
            return Ok(given);
        }
        let lease = self.inner.get_task(board, task).await?.and_then(|task| task.lease);
        Ok(lease.map(|lease| lease.token).or(given))
    }
}

#[async_trait]
impl TaskStore for Wrong {
    async fn create_task_list(&self, board: &BoardId, mut new: NewBoard) -> Result<Board> {
        let named = board.conversation.to_string();
        let board = self.board(board)?;
        if self.defect == Defect::WrittenInPart && !new.tasks.is_empty() {
            let tasks = std::mem::take(&mut new.tasks);
            self.inner.create_task_list(&board, new).await?;
            self.add_one_by_one(&board, tasks).await?;
            return self.there(&board).await;
        }
        let trace = self.defect == Defect::RefusalLeavesTrace;
        match self.inner.create_task_list(&board, new).await {
            Err(error)
                if self.defect == Defect::BoardCreatedTwice && error.kind() == ErrorKind::AlreadyExists =>
            {
                self.inner.get_board(&board).await?.ok_or(error)
            }
            Err(error) if trace && error.kind() == ErrorKind::InvalidInput => {
                self.inner.create_task_list(&board, NewBoard::default()).await?;
                Err(error)
            }
            answer => self.quoting(answer, &named),
        }
    }

    async fn add_tasks(&self, board: &BoardId, mut tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        if self.defect == Defect::RetriesAlwaysThree {
            tasks.iter_mut().for_each(|task| task.retries_max = 3);
        }
        let board = self.board(board)?;
        match self.defect {
            Defect::BatchInPart | Defect::WrittenInPart => self.add_one_by_one(&board, tasks).await,
            _ => self.inner.add_tasks(&board, tasks).await,
        }
    }

    async fn get_board(&self, board: &BoardId) -> Result<Option<Board>> {
        let mut found = self.inner.get_board(&self.board(board)?).await?;
        if let (Defect::CountsStandStill, Some(found)) = (self.defect, &mut found) {
            found.tasks = BoardStatusCounts::default().with_planned(found.tasks.total());
        }
        Ok(found)
    }

    async fn get_task(&self, board: &BoardId, task: &TaskId) -> Result<Option<Task>> {
        let board = self.board(board)?;
        let found = self.inner.get_task(&board, task).await?;
        let unnamed = |task: Task| {
            if self.defect == Defect::GenerationUnnamed { task.in_generation(None) } else { task }
        };
        Ok(found.map(|task| self.with_lease_left(&board, unnamed(task))))
    }

    async fn list_tasks(
        &self,
        board: &BoardId,
        query: &TaskQuery,
        page: PageRequest<TaskPosition>,
    ) -> Result<Page<Task, TaskPosition>> {
        let all = TaskQuery::default();
        let query = if self.defect == Defect::StatusesIgnored { &all } else { query };
        let mut page = page;
        if self.defect == Defect::GenerationIgnored {
            page.after = page.after.map(|after| TaskPosition::new(after.get()));
        }
        let mut listed = self.inner.list_tasks(&self.board(board)?, query, page).await?;
        if self.defect == Defect::ListedById {
            listed.items.sort_by(|left, right| left.id.cmp(&right.id));
        }
        Ok(listed)
    }

    async fn list_boards(
        &self,
        conversation: Option<&ConversationId>,
        page: PageRequest<BoardId>,
    ) -> Result<Page<Board, BoardId>> {
        self.inner.list_boards(conversation, page).await
    }

    async fn update_status(&self, board: &BoardId, task: &TaskId, mut step: Transition) -> Result<Task> {
        let board = self.board(board)?;
        step.token = self.token(&board, task, step.token).await?;
        let to = step.to;
        match self.defect {
            Defect::LastWriteWins => step.expected = None,
            Defect::GenerationIgnored => {
                step.expected = step.expected.map(|expected| Revision::new(expected.get()));
            }
            Defect::ResultForgotten => step.result = None,
            _ => {}
        }
        match self.inner.update_status(&board, task, step).await {
            Err(error)
                if self.defect == Defect::RepeatedStepSucceeds && error.kind() == ErrorKind::Conflict =>
            {
                let there = self.inner.get_task(&board, task).await?;
                there.filter(|task| task.status == to).ok_or(error)
            }
            answer => Ok(self.with_lease_left(&board, answer?)),
        }
    }

    async fn increment_retry(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        let board = self.board(board)?;
        let token = self.token(&board, task, token).await?;
        Ok(match (self.defect, self.inner.increment_retry(&board, task, token).await?) {
            (Defect::ExhaustionHidden, RetryOutcome::Exhausted(task)) => RetryOutcome::Retried(task),
            (Defect::EndlessRetries, RetryOutcome::Exhausted(task)) => {
                RetryOutcome::Retried(self.inner.force_retry(&board, &task.id).await?)
            }
            (_, outcome) => outcome,
        })
    }

    async fn force_retry(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        let board = self.board(board)?;
        let before = self.inner.get_task(&board, task).await?;
        let mut forced = self.inner.force_retry(&board, task).await?;
        if let (Defect::ForceKeepsRetries, Some(before)) = (self.defect, before) {
            forced.retries = before.retries;
        }
        Ok(forced)
    }

    async fn settle_conversation(&self, conversation: &ConversationId) -> Result<u64> {
        let conversation = self.conversation(conversation)?;
        match self.defect {
            Defect::SettlesAll => {
                let settled = self.inner.settle_conversation(&conversation).await?;
                for board in self.inner.list_boards(None, PageRequest::default()).await?.items {
                    self.inner.settle_conversation(&board.id.conversation).await?;
                }
                Ok(settled)
            }
            Defect::SettlesOneBoard => {
                let first = self.inner.list_boards(Some(&conversation), PageRequest::first(1)).await?.items;
                let running = TaskQuery::in_statuses([TaskStatus::InProgress]);
                let mut settled = 0;
                for board in first {
                    let tasks = self.inner.list_tasks(&board.id, &running, PageRequest::default()).await?;
                    for task in tasks.items {
                        let mut step = Transition::to(TaskStatus::Succeeded);
                        step.token = task.lease.map(|lease| lease.token);
                        self.inner.update_status(&board.id, &task.id, step).await?;
                        settled += 1;
                    }
                }
                Ok(settled)
            }
            _ => self.inner.settle_conversation(&conversation).await,
        }
    }

    async fn claim(&self, board: &BoardId, worker: &WorkerId, lease: Duration) -> Result<Option<Claim>> {
        let board = self.board(board)?;
        let lease =
            if self.defect == Defect::LeaseNeverPasses { lease.max(Duration::from_secs(600)) } else { lease };
        if self.defect == Defect::ClaimsInProgress {
            let running = TaskQuery::in_statuses([TaskStatus::InProgress]);
            let first = self.inner.list_tasks(&board, &running, PageRequest::first(1)).await?.items;
            for task in first.iter().filter(|task| task.lease.is_none()) {
                self.inner.force_retry(&board, &task.id).await?;
            }
        }
        if self.defect != Defect::TwoWinners {
            let mut claim = self.inner.claim(&board, worker, lease).await?;
            if let Some(claim) = &mut claim {
                self.note_claim(&board, claim);
            }
            return Ok(claim);
        }
        let place = (self.namespace().clone(), board.clone());
        if let Some(mut claim) = lock(&self.memory.claimed).remove(&place) {
            if let Some(lease) = &mut claim.task.lease {
                lease.worker = worker.clone();
            }
            return Ok(Some(claim));
        }
        let claim = self.inner.claim(&board, worker, lease).await?;
        if let Some(claim) = &claim {
            lock(&self.memory.claimed).insert(place, claim.clone());
        }
        Ok(claim)
    }

    async fn renew_lease(
        &self,
        board: &BoardId,
        task: &TaskId,
        token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        let board = self.board(board)?;
        let token = self.token(&board, task, Some(token)).await?.unwrap_or(token);
        let there = self.inner.get_task(&board, task).await?.and_then(|task| task.lease);
        let token = match (self.defect, there) {
            (Defect::RenewalNeedsNoToken, Some(lease)) => lease.token,
            _ => token,
        };
        self.inner.renew_lease(&board, task, token, lease).await
    }

    async fn delete_board(&self, board: &BoardId) -> Result<bool> {
        let board = self.board(board)?;
        let there = self.inner.delete_board(&board).await?;
        if self.defect == Defect::DeletesConversation {
            let conversation = Some(&board.conversation);
            for other in self.inner.list_boards(conversation, PageRequest::default()).await?.items {
                self.inner.delete_board(&other.id).await?;
            }
        }
        Ok(there)
    }
}
