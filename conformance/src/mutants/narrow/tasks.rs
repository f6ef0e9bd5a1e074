//! Task stores with a narrow defect.

use std::time::Duration;

use larder_agents::storage::InMemoryTaskStore;
use larder_kernel::{
    Board, BoardId, Claim, Error, ErrorKind, FencingToken, Lease, NewBoard, NewTask, Result, RetryOutcome,
    Store, Task, TaskId, TaskStore, Transition, WorkerId,
};

use super::{panicking, reformatted, unavailable, with_floats};

macro_rules! wrong {
    ($self:ident $contract:ident create_task_list($board:ident, $new:ident)) => {
        $self.create_wrongly($board, $new).await
    };
    ($self:ident $contract:ident add_tasks($board:ident, $tasks:ident)) => {
        $self.add_wrongly($board, $tasks).await
    };
    ($self:ident $contract:ident update_status($board:ident, $task:ident, $step:ident)) => {
        $self.step_wrongly($board, $task, $step).await
    };
    ($self:ident $contract:ident increment_retry($board:ident, $task:ident, $token:ident)) => {
        $self.retry_wrongly($board, $task, $token).await
    };
    ($self:ident $contract:ident force_retry($board:ident, $task:ident)) => {
        $self.force_wrongly($board, $task).await
    };
    ($self:ident $contract:ident claim($board:ident, $worker:ident, $lease:ident)) => {
        $self.claim_wrongly($board, $worker, $lease).await
    };
    ($self:ident $contract:ident renew_lease($board:ident, $task:ident, $token:ident, $lease:ident)) => {
        $self.renew_wrongly($board, $task, $token, $lease).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Tasks TaskStore over InMemoryTaskStore with with_tasks, wrong;
    titles_are_trimmed: TitlesTrimmed => ["TASK-012"],
    numbers_of_metadata_become_floats: Floats => ["TASK-012"],
    added_descriptions_are_written_again: AddedReformatted => ["TASK-012"],
    a_claim_returns_a_trimmed_description: ClaimTrims => ["TASK-012"],
    json_results_are_written_again: ResultsReformatted => ["TASK-027"],
    labels_are_lowered: LabelsLowered => ["TASK-001"],
    a_retry_accepts_any_token: RetryAcceptsAny => ["TASK-034"],
    a_renewal_accepts_a_newer_token: RenewalAcceptsNewer => ["TASK-048"],
    a_transition_accepts_an_older_revision: OlderRevisionAccepted => ["TASK-022"],
    forcing_a_missing_task_is_a_conflict: ForcingConflicts => ["TASK-028", "TASK-036"],
    a_long_lease_ends_after_a_day: LongLeaseCut => ["TASK-040"],
    a_long_renewal_ends_after_a_day: LongRenewalCut => ["TASK-047"],
    a_stale_token_is_unavailable: StaleTokenUnavailable => ["TASK-025"],
    a_lost_creation_panics: CreationPanics => ["TASK-005"],
}

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug)]
struct Wrong {
    inner: InMemoryTaskStore,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryTaskStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    fn written(&self, task: &mut NewTask) {
        match self.defect {
            Defect::TitlesTrimmed => task.title = task.title.trim().to_owned(),
            Defect::Floats => task.metadata = with_floats(&task.metadata),
            _ => {}
        }
    }

    async fn create_wrongly(&self, board: &BoardId, mut new: NewBoard) -> Result<Board> {
        new.tasks.iter_mut().for_each(|task| self.written(task));
        if self.defect == Defect::LabelsLowered {
            new.label = new.label.map(|label| label.to_lowercase());
        }
        let created = self.inner.create_task_list(board, new).await;
        match self.defect {
            Defect::CreationPanics => panicking(created, ErrorKind::AlreadyExists),
            _ => created,
        }
    }

    async fn add_wrongly(&self, board: &BoardId, mut tasks: Vec<NewTask>) -> Result<Vec<Task>> {
        for task in &mut tasks {
            self.written(task);
            if self.defect == Defect::AddedReformatted {
                task.description = task.description.as_deref().map(reformatted);
            }
        }
        self.inner.add_tasks(board, tasks).await
    }

    async fn step_wrongly(&self, board: &BoardId, task: &TaskId, mut step: Transition) -> Result<Task> {
        let current = self.inner.get_task(board, task).await?;
        if let (Defect::OlderRevisionAccepted, Some(current)) = (self.defect, &current)
            && step.expected.is_some_and(|expected| expected < current.revision)
        {
            step.expected = Some(current.revision);
        }
        if self.defect == Defect::ResultsReformatted {
            step.result = step.result.as_deref().map(reformatted);
        }
        let leased = current.is_some_and(|task| task.lease.is_some());
        let stepped = self.inner.update_status(board, task, step).await;
        match self.defect {
            Defect::StaleTokenUnavailable if leased => unavailable(stepped, ErrorKind::Conflict),
            _ => stepped,
        }
    }

    async fn lease(&self, board: &BoardId, task: &TaskId) -> Result<Option<Lease>> {
        Ok(self.inner.get_task(board, task).await?.and_then(|task| task.lease))
    }

    async fn retry_wrongly(
        &self,
        board: &BoardId,
        task: &TaskId,
        mut token: Option<FencingToken>,
    ) -> Result<RetryOutcome> {
        if let (Defect::RetryAcceptsAny, Some(lease)) = (self.defect, self.lease(board, task).await?)
            && token.is_some()
        {
            token = Some(lease.token);
        }
        self.inner.increment_retry(board, task, token).await
    }

    async fn force_wrongly(&self, board: &BoardId, task: &TaskId) -> Result<Task> {
        let forced = self.inner.force_retry(board, task).await;
        forced.map_err(|error| match self.defect {
            Defect::ForcingConflicts => Error::new(ErrorKind::Conflict, error.operation(), "no such task"),
            _ => error,
        })
    }

    async fn claim_wrongly(
        &self,
        board: &BoardId,
        worker: &WorkerId,
        lease: Duration,
    ) -> Result<Option<Claim>> {
        let lease = if self.defect == Defect::LongLeaseCut { lease.min(DAY) } else { lease };
        let mut claimed = self.inner.claim(board, worker, lease).await?;
        if let (Defect::ClaimTrims, Some(claim)) = (self.defect, &mut claimed) {
            let description = claim.task.description.as_deref();
            claim.task.description = description.map(|text| text.trim().to_owned());
        }
        Ok(claimed)
    }

    async fn renew_wrongly(
        &self,
        board: &BoardId,
        task: &TaskId,
        mut token: FencingToken,
        lease: Duration,
    ) -> Result<Lease> {
        if let (Defect::RenewalAcceptsNewer, Some(held)) = (self.defect, self.lease(board, task).await?)
            && token > held.token
        {
            token = held.token;
        }
        let lease = if self.defect == Defect::LongRenewalCut { lease.min(DAY) } else { lease };
        self.inner.renew_lease(board, task, token, lease).await
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
