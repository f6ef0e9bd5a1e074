//! History providers that are wrong in fencing tokens.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use larder_agents::InMemoryHistoryProvider;
use larder_kernel::storage::history::{check_fence, check_token, fence_of};
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, Error, ErrorKind, FencingToken, Forked, HistoryProvider,
    MessageUpdate, PageRequest, Removal, Removed, Replaced, Replacement, Result, RunId, Seq, Store, Thread,
    Ttl, Updated,
};

use crate::mutants::serve::lock;

macro_rules! wrong {
    ($self:ident $contract:ident append_many($thread:ident, $messages:ident, $options:ident)) => {
        $self.append_wrongly($thread, $messages, $options).await
    };
    ($self:ident $contract:ident replace($thread:ident, $replacement:ident)) => {
        $self.replace_wrongly($thread, $replacement).await
    };
    ($self:ident $contract:ident remove($thread:ident, $removal:ident)) => {
        $self.remove_wrongly($thread, $removal).await
    };
    ($self:ident $contract:ident update($thread:ident, $update:ident)) => {
        $self.update_wrongly($thread, $update).await
    };
    ($self:ident $contract:ident clear($thread:ident, $fence:ident)) => {
        $self.clear_wrongly($thread, $fence).await
    };
    ($self:ident $contract:ident clear_run($thread:ident, $run:ident, $fence:ident)) => {
        $self.clear_run_wrongly($thread, $run, $fence).await
    };
    ($self:ident $contract:ident fork($source:ident, $target:ident, $up_to:ident, $fence:ident)) => {
        $self.fork_wrongly($source, $target, $up_to, $fence).await
    };
    ($self:ident $contract:ident set_ttl($thread:ident, $ttl:ident, $fence:ident)) => {
        $self.set_ttl_wrongly($thread, $ttl, $fence).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { History HistoryProvider over InMemoryHistoryProvider with with_history, wrong;
    a_lower_token_is_accepted: LowerAccepted => ["HIST-128", "HIST-137"],
    tokens_are_compared_as_text: ComparedAsText => ["HIST-128"],
    tokens_are_compared_in_53_bits: ComparedInexactly => ["HIST-128"],
    a_token_of_another_board_is_refused: BoardsDiffer => ["HIST-128"],
    a_write_without_a_token_passes_the_fence: MissingAccepted => ["HIST-129"],
    a_replacement_ignores_the_fence: ReplaceUnbound => ["HIST-130"],
    a_removal_ignores_the_fence: RemoveUnbound => ["HIST-130"],
    an_update_ignores_the_fence: UpdateUnbound => ["HIST-130"],
    a_clear_ignores_the_fence: ClearUnbound => ["HIST-130"],
    a_clear_of_a_run_ignores_the_fence: ClearRunUnbound => ["HIST-130"],
    a_fork_ignores_the_fence_of_its_target: ForkUnbound => ["HIST-130"],
    a_time_to_live_ignores_the_fence: TtlUnbound => ["HIST-130"],
    a_lost_token_hides_the_greatest: GreatestHidden => ["HIST-131"],
    a_write_that_fails_raises_the_fence: FailureRaises => ["HIST-132"],
    a_time_to_live_does_not_raise_the_fence: TtlDoesNotRaise => ["HIST-133"],
    a_repetition_does_not_raise_the_fence: RepetitionDoesNotRaise => ["HIST-133"],
    a_thread_without_messages_has_no_fence: EmptiedUnfenced => ["HIST-134"],
    an_erasure_keeps_the_fence: ErasureKeeps => ["HIST-134"],
    a_fork_carries_the_fence_of_its_source: ForkCarries => ["HIST-135"],
    the_fence_of_the_source_binds_the_fork: SourceBinds => ["HIST-135"],
    a_repetition_checks_its_token: RepetitionChecked => ["HIST-136"],
    the_fence_is_checked_before_the_write: CheckedEarly => ["HIST-137"],
}

/// The time between the check and the write of a store that checks early.
const BETWEEN: Duration = Duration::from_millis(3);

#[derive(Debug)]
struct Wrong {
    inner: InMemoryHistoryProvider,
    defect: Defect,
    /// The fences at the last erasure.
    kept: Mutex<BTreeMap<Thread, FencingToken>>,
}

impl Wrong {
    fn new(inner: InMemoryHistoryProvider, defect: Defect) -> Self {
        Self { inner, defect, kept: Mutex::default() }
    }

    /// Returns the greatest token of a thread.
    async fn greatest(&self, thread: &Thread) -> Result<Option<FencingToken>> {
        let cleared = self.inner.clear_run(thread, &RunId::new("no such run")?, None).await;
        Ok(cleared.err().and_then(|error| fence_of(&error)))
    }

    /// Raises the fence of a thread, and changes nothing else.
    async fn raise(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<()> {
        self.inner.clear_run(thread, &RunId::new("no such run")?, fence).await.map(drop)
    }

    /// Returns a token that the inner store accepts in place of this one.
    async fn passing(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<Option<FencingToken>> {
        Ok(fence.max(self.greatest(thread).await?))
    }

    /// Returns a token that the inner store accepts if a method ignores the fence, else this one.
    async fn unless(
        &self,
        unbound: Defect,
        thread: &Thread,
        fence: Option<FencingToken>,
    ) -> Result<Option<FencingToken>> {
        if self.defect == unbound { self.passing(thread, fence).await } else { Ok(fence) }
    }

    /// Changes the error of a refused write.
    async fn refused<T>(&self, thread: &Thread, fence: Option<FencingToken>, answer: Result<T>) -> Result<T> {
        let Err(error) = answer else { return answer };
        match self.defect {
            Defect::GreatestHidden if fence_of(&error).is_some() => {
                let message = "another writer has the thread";
                Err(Error::new(ErrorKind::Conflict, error.operation(), message).with_field("fence"))
            }
            Defect::FailureRaises if fence_of(&error).is_none() && check_token("test", fence).is_ok() => {
                self.raise(thread, fence).await?;
                Err(error)
            }
            _ => Err(error),
        }
    }

    /// Returns the token with which the inner store gets an append.
    async fn appending(&self, thread: &Thread, options: &AppendOptions) -> Result<Option<FencingToken>> {
        const OPERATION: &str = "history.append_many";
        let (fence, greatest) = (options.fence, self.greatest(thread).await?);
        let passing = fence.max(greatest);
        let accepted = match (self.defect, fence, greatest) {
            (Defect::LowerAccepted, Some(_), _) | (Defect::MissingAccepted, None, _) => true,
            (Defect::ComparedAsText, Some(token), Some(greatest)) => {
                if token.to_string() < greatest.to_string() {
                    return check_fence(OPERATION, None, Some(greatest)).map(|()| None);
                }
                true
            }
            (Defect::ComparedInexactly, Some(token), Some(greatest)) => {
                greatest.get() > 1 << 53 && token.get() >> 1 >= greatest.get() >> 1
            }
            (Defect::BoardsDiffer, Some(token), _) => {
                let board = lock(&self.kept).insert(thread.clone(), token);
                if board.is_some_and(|board| board.generation() != token.generation()) {
                    return check_fence(OPERATION, None, Some(token)).map(|()| None);
                }
                false
            }
            (Defect::EmptiedUnfenced, ..) => self.inner.thread_info(thread).await?.messages == 0,
            (Defect::ErasureKeeps, ..) => {
                check_fence(OPERATION, fence, lock(&self.kept).get(thread).copied())?;
                false
            }
            (Defect::RepetitionChecked, ..) => {
                check_fence(OPERATION, fence, greatest)?;
                false
            }
            (Defect::CheckedEarly, ..) if options.idempotency_key.is_none() => {
                check_fence(OPERATION, fence, greatest)?;
                tokio::time::sleep(BETWEEN).await;
                return self.passing(thread, fence).await;
            }
            (Defect::RepetitionDoesNotRaise, ..) if options.idempotency_key.is_some() => {
                return Ok(greatest.or(fence));
            }
            _ => false,
        };
        Ok(if accepted { passing } else { fence })
    }

    async fn append_wrongly(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        if check_token("history.append_many", options.fence).is_err() {
            return self.inner.append_many(thread, messages, options).await;
        }
        let (given, fence) = (options.fence, self.appending(thread, &options).await?);
        let answer = self.inner.append_many(thread, messages, options.with_fence(fence)).await;
        self.refused(thread, given, answer).await
    }

    async fn replace_wrongly(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        let given = replacement.fence;
        let fence = self.unless(Defect::ReplaceUnbound, thread, given).await?;
        let answer = self.inner.replace(thread, replacement.with_fence(fence)).await;
        self.refused(thread, given, answer).await
    }

    async fn remove_wrongly(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
        let given = removal.fence;
        let fence = self.unless(Defect::RemoveUnbound, thread, given).await?;
        let answer = self.inner.remove(thread, removal.with_fence(fence)).await;
        self.refused(thread, given, answer).await
    }

    async fn update_wrongly(&self, thread: &Thread, update: MessageUpdate) -> Result<Updated> {
        let given = update.fence;
        let fence = self.unless(Defect::UpdateUnbound, thread, given).await?;
        let answer = self.inner.update(thread, update.with_fence(fence)).await;
        self.refused(thread, given, answer).await
    }

    async fn clear_wrongly(&self, thread: &Thread, given: Option<FencingToken>) -> Result<u64> {
        let fence = self.unless(Defect::ClearUnbound, thread, given).await?;
        self.refused(thread, given, self.inner.clear(thread, fence).await).await
    }

    async fn clear_run_wrongly(
        &self,
        thread: &Thread,
        run: &RunId,
        given: Option<FencingToken>,
    ) -> Result<u64> {
        let fence = self.unless(Defect::ClearRunUnbound, thread, given).await?;
        self.refused(thread, given, self.inner.clear_run(thread, run, fence).await).await
    }

    async fn fork_wrongly(
        &self,
        source: &Thread,
        target: &Thread,
        up_to: Option<Seq>,
        given: Option<FencingToken>,
    ) -> Result<Forked> {
        let fence = self.unless(Defect::ForkUnbound, target, given).await?;
        let greatest = self.greatest(source).await?;
        if self.defect == Defect::SourceBinds {
            check_fence("history.fork", fence, greatest)?;
        }
        let answer = self.inner.fork(source, target, up_to, fence).await;
        if self.defect == Defect::ForkCarries && answer.is_ok() {
            self.raise(target, fence.max(greatest)).await?;
        }
        self.refused(target, given, answer).await
    }

    async fn set_ttl_wrongly(
        &self,
        thread: &Thread,
        ttl: Option<Ttl>,
        given: Option<FencingToken>,
    ) -> Result<()> {
        let mut fence = self.unless(Defect::TtlUnbound, thread, given).await?;
        if self.defect == Defect::TtlDoesNotRaise && check_token("test", fence).is_ok() {
            let greatest = self.greatest(thread).await?;
            check_fence("history.set_ttl", fence, greatest)?;
            fence = greatest;
        }
        self.refused(thread, given, self.inner.set_ttl(thread, ttl, fence).await).await
    }

    async fn erase_wrongly(&self) -> Result<()> {
        if self.defect == Defect::ErasureKeeps {
            let threads = self.inner.list_threads(None, PageRequest::default()).await?;
            for info in threads.items {
                if let Some(fence) = self.greatest(&info.thread).await? {
                    lock(&self.kept).insert(info.thread, fence);
                }
            }
        }
        self.inner.erase().await
    }
}
