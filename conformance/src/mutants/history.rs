//! History providers that are wrong.

mod late;
mod matching;
mod text;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, future};
use larder_agents::InMemoryHistoryProvider;
use larder_kernel::storage::history::check_tail_matching;
use larder_kernel::{
    AgentId, AppendOptions, Appended, ChatMessage, ErrorKind, FencingToken, Forked, HistoryEventKind,
    HistoryEvents, HistoryProvider, MessageFilter, MessageUpdate, Namespace, Page, PageRequest, Removal,
    RemovalTarget, Removed, Replaced, Replacement, Result, Revision, RunId, Seq, SessionId, Store,
    StoredMessage, Thread, ThreadInfo, Ttl, Updated,
};

use super::serve::{SharedState, asleep, lock, serve};
use crate::harness::{Harness, StoreSet};

defects! { History;
    limit_0_returns_everything: LimitZeroReturnsAll => ["HIST-023", "HIST-027", "HIST-030", "HIST-096"],
    messages_are_ordered_by_created_at: OrderedByTime => ["HIST-012"],
    idempotency_is_forgotten: KeysForgotten => ["HIST-007", "HIST-008", "HIST-011"],
    idempotency_keys_are_shared_by_all_threads: KeysShared => ["HIST-009"],
    a_batch_loses_its_last_message: LastOfBatchLost => ["HIST-001"],
    a_batch_is_written_one_by_one: BatchInPieces => ["HIST-003", "HIST-004", "STORE-010", "STORE-011"],
    clearing_restarts_seq: ClearRestartsSeq => ["HIST-037"],
    text_loses_what_follows_nul: TextEndsAtNul => ["HIST-014"],
    the_tail_comes_newest_first: TailNewestFirst => ["HIST-025"],
    before_includes_itself: BeforeIncludesItself => ["HIST-026"],
    after_includes_itself: AfterIncludesItself => ["HIST-028"],
    clearing_a_run_clears_the_thread: RunClearsThread => ["HIST-038"],
    a_fork_takes_everything: ForkTakesAll => ["HIST-040"],
    a_fork_replaces_its_target: ForkReplaces => ["HIST-041", "HIST-045"],
    a_replacement_never_conflicts: ReplaceNeverConflicts => ["HIST-051", "HIST-053"],
    the_limit_comes_before_the_filter: LimitBeforeFilter => ["HIST-090"],
    the_search_for_matches_ends_after_1000_messages: SearchEndsEarly => ["HIST-090"],
    matches_come_newest_first: MatchesNewestFirst => ["HIST-090"],
    an_include_wants_every_name: IncludeWantsAll => ["HIST-091"],
    exclusions_are_ignored: ExcludeIgnored => ["HIST-091", "HIST-092", "HIST-093"],
    an_included_message_is_never_excluded: IncludeWins => ["HIST-091"],
    the_role_of_an_author_is_ignored: RoleIgnored => ["HIST-091", "HIST-092"],
    a_role_is_taken_for_an_agent: RoleIsAgent => ["HIST-092"],
    messages_without_author_are_nobodys: UnnamedIsNobodys => ["HIST-093"],
    authors_are_case_folded: AuthorsFolded => ["HIST-094"],
    authors_are_cut_at_40_characters: AuthorsCut => ["HIST-094"],
    matches_are_found_behind_before: MatchesIgnoreBefore => ["HIST-095"],
    an_empty_filter_keeps_nothing: EmptyKeepsNothing => ["HIST-096"],
    a_fork_forgets_its_authors: ForkForgetsAuthors => ["HIST-097"],
    an_agent_is_a_prefix: AgentIsPrefix => ["HIST-062"],
    use_does_not_prolong_life: LifeNotRefreshed => ["HIST-066"],
    any_use_prolongs_life: LifeAlwaysRefreshed => ["HIST-067"],
    an_append_ignores_its_time_to_live: AppendIgnoresTtl => ["HIST-013"],
    a_subscription_skips_every_seventh_event: SkipsSeventhEvent => ["HIST-080", "HIST-086"],
    every_subscription_ends_with_an_erasure: EverySubscriptionErased => ["HIST-087"],
    a_subscription_sleeps_over_an_erasure: SleepsOverErasure => ["HIST-098"],
    clearing_a_run_reaches_other_namespaces: RunClearedEverywhere => ["STORE-001"],
    a_subscription_has_no_backlog: NoBacklog => ["HIST-080", "HIST-088"],
    threads_are_listed_backwards: ListedBackwards => ["HIST-060"],
    the_size_counts_messages_twice: BytesDoubled => ["HIST-032"],
    a_subscription_hides_clears: ClearsHidden => ["HIST-082"],
    idempotency_keys_outlive_an_erasure: KeysOutlive => ["STORE-009"],
    popped_messages_outlive_an_erasure: PopsOutlive => ["STORE-009"],
    numbers_are_shared_by_all_threads: NumbersShared => ["HIST-006"],
    numbers_are_taken_before_the_commit: CommitsLate => ["HIST-029"],
    text_loses_what_is_not_ascii: TextAscii => ["HIST-001", "HIST-014"],
    text_over_64_kib_is_dropped: LargeTextDropped => ["HIST-014"],
    expired_messages_are_read: ExpiredRead => ["HIST-065"],
    clearing_a_thread_takes_the_agents_others: ClearsAgent => ["HIST-036"],
    a_fork_drops_the_last_message: ForkDropsLast => ["HIST-040"],
    a_replacement_drops_later_messages: ReplaceDropsLater => ["HIST-050"],
    positions_name_no_generation: GenerationUnnamed => ["HIST-099"],
    the_generation_of_a_position_is_ignored: GenerationIgnored =>
        ["HIST-100", "HIST-101", "HIST-102", "HIST-103", "HIST-104", "HIST-105", "HIST-111", "HIST-127",
        "HIST-152"],
}

/// A thread, and the idempotency key of a pop of its messages.
type Pop = ((Namespace, String, String), String);

#[derive(Default)]
struct Memory {
    /// The difference between the inner numbers of a thread and the wrong ones.
    shift: Mutex<BTreeMap<(Namespace, String, String), i64>>,
    /// The results of idempotency keys, shared by all threads.
    answers: Mutex<BTreeMap<(Namespace, String), Appended>>,
    /// The results of pops with a key, and their threads.
    pops: Mutex<BTreeMap<Pop, Removed>>,
    /// The threads that were made by a fork.
    forks: Mutex<Vec<(Namespace, String, String)>>,
    /// Written messages that are not yet visible.
    late: late::Late,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    let memory = Arc::new(Memory::default());
    serve(defect.opening(), move |shared, namespace, _| {
        let inner = InMemoryHistoryProvider::open(&shared.place, namespace);
        let wrong = Wrong { inner, defect, shared, memory: Arc::clone(&memory) };
        StoreSet::default().with_history(Arc::new(wrong))
    })
}

struct Wrong {
    inner: InMemoryHistoryProvider,
    defect: Defect,
    shared: SharedState,
    memory: Arc<Memory>,
}

forward_store!(Wrong, InMemoryHistoryProvider);

impl Wrong {
    async fn holds_nothing(&self) -> Result<bool> {
        Ok(self.inner.list_threads(None, PageRequest::first(1)).await?.items.is_empty())
    }

    fn thread(&self, thread: &Thread) -> Result<Thread> {
        Ok(Thread {
            agent: AgentId::new(self.kept(thread.agent.as_str()))?,
            session: SessionId::new(self.kept(thread.session.as_str()))?,
        })
    }

    fn place_of(&self, thread: &Thread) -> (Namespace, String, String) {
        let (agent, session) = (thread.agent.to_string(), thread.session.to_string());
        (self.inner.namespace().clone(), agent, session)
    }

    /// Returns a number as the wrong store assigns it.
    fn shown(&self, thread: &Thread, seq: Seq) -> Seq {
        let named = seq.generation().filter(|_| self.defect != Defect::GenerationUnnamed);
        Seq::new(seq.get() - self.shift(thread)).in_generation(named)
    }

    /// Returns the inner number for a number of the wrong store.
    fn asked(&self, thread: &Thread, seq: Seq) -> Seq {
        let shift = if self.defect == Defect::NumbersShared { self.shift(thread) } else { 0 };
        let named = seq.generation().filter(|_| self.defect != Defect::GenerationIgnored);
        Seq::new(seq.get().saturating_add(shift)).in_generation(named)
    }

    fn shift(&self, thread: &Thread) -> i64 {
        lock(&self.memory.shift).get(&self.place_of(thread)).copied().unwrap_or(0)
    }

    /// Starts a thread's numbers after the numbers of the other threads.
    async fn share_numbers(&self, thread: &Thread) -> Result<()> {
        if self.inner.thread_info(thread).await?.last == Seq::new(0) {
            let all = self.inner.list_threads(None, PageRequest::default()).await?.items;
            let given: i64 = all.iter().map(|info| info.last.get()).sum();
            lock(&self.memory.shift).insert(self.place_of(thread), -given);
        }
        Ok(())
    }

    fn limit(&self, limit: usize) -> usize {
        if self.defect == Defect::LimitZeroReturnsAll && limit == 0 { 1_000 } else { limit }
    }

    fn read(&self, thread: &Thread, mut messages: Vec<StoredMessage>) -> Vec<StoredMessage> {
        if self.defect == Defect::CommitsLate {
            let hidden = self.memory.late.hidden(&self.place_of(thread));
            messages.retain(|stored| !hidden.contains(&stored.seq));
        }
        for stored in &mut messages {
            stored.seq = self.shown(thread, stored.seq);
            stored.revision = Revision::at(self.shown(thread, revision_seq(stored.revision)));
        }
        messages
    }

    async fn append_in_pieces(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: &AppendOptions,
    ) -> Result<Appended> {
        let mut answers = Vec::new();
        for message in messages {
            let options = options.clone().with_idempotency_key(None);
            answers.push(self.inner.append_many(thread, vec![message], options).await?);
            tokio::task::yield_now().await;
        }
        match (answers.first(), answers.last()) {
            (Some(first), Some(last)) => Ok(Appended::new(first.first, last.last)),
            _ => self.inner.append_many(thread, Vec::new(), AppendOptions::default()).await,
        }
    }
}

#[async_trait]
impl HistoryProvider for Wrong {
    async fn append_many(
        &self,
        thread: &Thread,
        mut messages: Vec<ChatMessage>,
        mut options: AppendOptions,
    ) -> Result<Appended> {
        let thread = self.thread(thread)?;
        let key = options.idempotency_key.as_ref().map(|key| (self.namespace().clone(), key.to_string()));
        match self.defect {
            Defect::KeysForgotten => options.idempotency_key = None,
            Defect::KeysShared => {
                let answers = lock(&self.memory.answers);
                if let Some(answer) = key.as_ref().and_then(|key| answers.get(key)) {
                    return Ok(*answer);
                }
            }
            Defect::LastOfBatchLost if messages.len() > 1 => {
                messages.pop();
            }
            Defect::BatchInPieces | Defect::WrittenInPart | Defect::RefusalLeavesTrace
                if messages.len() > 1 && options.idempotency_key.is_none() =>
            {
                return self.append_in_pieces(&thread, messages, &options).await;
            }
            Defect::KeysOutlive if self.holds_nothing().await? => {
                let answers = lock(&self.memory.answers);
                if let Some(answer) = key.as_ref().and_then(|key| answers.get(key)) {
                    return Ok(*answer);
                }
            }
            Defect::TextEndsAtNul => messages.iter_mut().for_each(text::cut_at_nul),
            Defect::TextAscii => messages.iter_mut().for_each(text::strip),
            Defect::LargeTextDropped => messages.iter_mut().for_each(text::drop_large),
            Defect::NumbersShared => self.share_numbers(&thread).await?,
            Defect::CommitsLate => return self.append_late(&thread, messages, options).await,
            Defect::ExpiredRead => options.ttl = None,
            Defect::AppendIgnoresTtl => options.ttl = None,
            _ => {}
        }
        options.ttl = options.ttl.map(|ttl| self.ttl(ttl));
        options.if_last = options.if_last.map(|last| self.asked(&thread, last));
        let mut answer = self.inner.append_many(&thread, messages, options).await?;
        if let (Defect::KeysShared | Defect::KeysOutlive, Some(key)) = (self.defect, key) {
            lock(&self.memory.answers).insert(key, answer);
        }
        answer.first = self.shown(&thread, answer.first);
        answer.last = self.shown(&thread, answer.last);
        Ok(answer)
    }

    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        let thread = self.thread(thread)?;
        if self.defect == Defect::OrderedByTime {
            let mut all = self.inner.get_messages(&thread, 0, 1_000).await?;
            all.sort_by_key(|stored| stored.message.created_at);
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            return Ok(all.into_iter().skip(offset).take(limit).collect());
        }
        Ok(self.read(&thread, self.inner.get_messages(&thread, offset, self.limit(limit)).await?))
    }

    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        let thread = self.thread(thread)?;
        let before = before.map(|seq| self.asked(&thread, seq));
        let before = match self.defect {
            Defect::BeforeIncludesItself => before.map(|seq| Seq::new(seq.get().saturating_add(1))),
            _ => before,
        };
        let mut tail = self.inner.tail(&thread, before, self.limit(limit)).await?;
        if self.defect == Defect::TailNewestFirst {
            tail.reverse();
        }
        Ok(self.read(&thread, tail))
    }

    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        let thread = self.thread(thread)?;
        check_tail_matching(filter, limit)?;
        let before = if self.defect == Defect::MatchesIgnoreBefore { None } else { before };
        let limit = self.limit(limit);
        let before = before.map(|seq| self.asked(&thread, seq));
        if self.defect == Defect::None {
            return self.inner.tail_matching(&thread, filter, before, limit).await;
        }
        let looked_at = match self.defect {
            Defect::LimitBeforeFilter => limit,
            Defect::SearchEndsEarly => 1_000,
            _ => 10_000,
        };
        let mut kept = self.inner.tail(&thread, before, looked_at).await?;
        kept.retain(|stored| self.keeps(&thread, filter, &stored.message));
        kept.drain(..kept.len().saturating_sub(limit));
        if self.defect == Defect::MatchesNewestFirst {
            kept.reverse();
        }
        Ok(self.read(&thread, kept))
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        let thread = self.thread(thread)?;
        let after = self.asked(&thread, after);
        let after = match self.defect {
            Defect::AfterIncludesItself => Seq::new(after.get().saturating_sub(1)),
            _ => after,
        };
        Ok(self.read(&thread, self.inner.page_after(&thread, after, self.limit(limit)).await?))
    }

    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        let thread = self.thread(thread)?;
        let mut info = self.inner.thread_info(&thread).await?;
        info.last = self.shown(&thread, info.last);
        if self.defect == Defect::BytesDoubled {
            info.bytes *= 2;
        }
        Ok(info)
    }

    async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        let thread = self.thread(thread)?;
        if self.defect == Defect::ClearsAgent {
            let others = self.inner.list_threads(Some(&thread.agent), PageRequest::default()).await?;
            for other in others.items.into_iter().filter(|other| other.thread != thread) {
                self.inner.clear(&other.thread, fence).await?;
            }
        }
        let cleared = self.inner.clear(&thread, fence).await?;
        if self.defect == Defect::ClearRestartsSeq {
            let last = self.inner.thread_info(&thread).await?.last.get();
            lock(&self.memory.shift).insert(self.place_of(&thread), last);
        }
        Ok(cleared)
    }

    async fn clear_run(&self, thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> Result<u64> {
        let thread = self.thread(thread)?;
        match self.defect {
            Defect::RunClearsThread => self.inner.clear(&thread, fence).await,
            Defect::RunClearedEverywhere => {
                for name in self.shared.alike(self.inner.namespace()) {
                    InMemoryHistoryProvider::open(&self.shared.place, name)
                        .clear_run(&thread, run, None)
                        .await?;
                }
                self.inner.clear_run(&thread, run, fence).await
            }
            _ => self.inner.clear_run(&thread, run, fence).await,
        }
    }

    async fn remove(&self, thread: &Thread, mut removal: Removal) -> Result<Removed> {
        let thread = self.thread(thread)?;
        removal.if_last = removal.if_last.map(|last| self.asked(&thread, last));
        match &mut removal.target {
            RemovalTarget::Numbers(numbers) => {
                numbers.iter_mut().for_each(|seq| *seq = self.asked(&thread, *seq));
            }
            RemovalTarget::After(position) => *position = self.asked(&thread, *position),
            _ => {}
        }
        let pop = removal.idempotency_key.as_ref().map(|key| (self.place_of(&thread), key.to_string()));
        let pop = pop.filter(|_| self.defect == Defect::PopsOutlive);
        if let Some(pop) = &pop {
            let last = self.inner.thread_info(&thread).await?.last;
            let earlier = lock(&self.memory.pops).get(pop).cloned();
            if let Some(earlier) = earlier.filter(|earlier| earlier.last.generation() != last.generation()) {
                return Ok(earlier);
            }
        }
        let mut removed = self.inner.remove(&thread, removal).await?;
        if let Some(pop) = pop {
            lock(&self.memory.pops).insert(pop, removed.clone());
        }
        removed.last = self.shown(&thread, removed.last);
        removed.seqs.iter_mut().for_each(|seq| *seq = self.shown(&thread, *seq));
        removed.messages = self.read(&thread, removed.messages);
        Ok(removed)
    }

    async fn update(&self, thread: &Thread, mut update: MessageUpdate) -> Result<Updated> {
        let thread = self.thread(thread)?;
        update.seq = self.asked(&thread, update.seq);
        update.if_last = update.if_last.map(|last| self.asked(&thread, last));
        if self.defect == Defect::GenerationIgnored {
            update.revision = update.revision.in_generation(None);
        }
        if self.defect == Defect::NumbersShared {
            update.revision = Revision::at(self.asked(&thread, revision_seq(update.revision)));
        }
        let updated = self.inner.update(&thread, update).await?;
        Ok(Updated::new(self.shown(&thread, updated.last)))
    }

    async fn fork(
        &self,
        source: &Thread,
        target: &Thread,
        up_to: Option<Seq>,
        fence: Option<FencingToken>,
    ) -> Result<Forked> {
        let (source, target) = (self.thread(source)?, self.thread(target)?);
        if self.defect == Defect::ForkReplaces {
            self.inner.clear(&target, fence).await?;
        }
        if self.defect == Defect::ForkForgetsAuthors {
            lock(&self.memory.forks).push(self.place_of(&target));
        }
        let up_to = match self.defect {
            Defect::ForkTakesAll => None,
            Defect::ForkDropsLast => {
                let last = up_to.unwrap_or(self.inner.thread_info(&source).await?.last).get();
                Some(Seq::new(last.saturating_sub(1).max(1)))
            }
            _ => up_to.map(|seq| self.asked(&source, seq)),
        };
        self.quoting(self.inner.fork(&source, &target, up_to, fence).await, source.session.as_str())
    }

    async fn replace(&self, thread: &Thread, mut replacement: Replacement) -> Result<Replaced> {
        let thread = self.thread(thread)?;
        (replacement.seen, replacement.up_to) =
            (self.asked(&thread, replacement.seen), self.asked(&thread, replacement.up_to));
        if self.defect == Defect::ReplaceDropsLater {
            let last = self.inner.thread_info(&thread).await?.last;
            if replacement.seen <= last && replacement.up_to <= replacement.seen {
                replacement.up_to = replacement.up_to.max(last);
                replacement.seen = replacement.seen.max(last);
            }
        }
        match self.inner.replace(&thread, replacement.clone()).await {
            Err(error)
                if self.defect == Defect::ReplaceNeverConflicts && error.kind() == ErrorKind::Conflict =>
            {
                replacement.seen = self.inner.thread_info(&thread).await?.last;
                self.inner.replace(&thread, replacement).await
            }
            answer => answer,
        }
    }

    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        let (Defect::AgentIsPrefix, Some(agent)) = (self.defect, agent) else {
            let mut listed = self.inner.list_threads(agent, page).await?;
            if self.defect == Defect::ListedBackwards {
                listed.items.reverse();
            }
            return Ok(listed);
        };
        let mut listed = self.inner.list_threads(None, page.clone().with_limit(10_000)).await?;
        listed.items.retain(|info| info.thread.agent.as_str().starts_with(agent.as_str()));
        Ok(Page::from_surplus(listed.items, page.limit, |info| info.thread.clone()))
    }

    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> Result<()> {
        let ttl = if self.defect == Defect::ExpiredRead { None } else { ttl };
        self.inner.set_ttl(&self.thread(thread)?, ttl.map(|ttl| self.ttl(ttl)), fence).await
    }

    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        let thread = self.thread(thread)?;
        let after = match self.defect {
            Defect::NoBacklog => self.inner.thread_info(&thread).await?.last,
            _ => self.asked(&thread, after),
        };
        let events = self.inner.subscribe(&thread, after).await?;
        let shift = self.shift(&thread);
        Ok(match self.defect {
            Defect::NumbersShared => events
                .map_ok(move |mut event| {
                    event.seq = Seq::new(event.seq.get() - shift).in_generation(event.seq.generation());
                    event
                })
                .boxed(),
            Defect::EverySubscriptionErased => self.shared.until_erased("history.subscribe", events),
            Defect::SleepsOverErasure => asleep(events),
            Defect::SkipsSeventhEvent => {
                events.try_filter(|event| future::ready(event.seq.get() % 7 != 0)).boxed()
            }
            Defect::ClearsHidden => events
                .try_filter(|event| future::ready(!matches!(event.kind, HistoryEventKind::Cleared { .. })))
                .boxed(),
            _ => events,
        })
    }
}

/// Returns the number of a revision as a number of the thread.
fn revision_seq(revision: Revision) -> Seq {
    Seq::new(i64::try_from(revision.get()).unwrap_or(i64::MAX)).in_generation(revision.generation())
}

impl Wrong {
    fn ttl(&self, mut ttl: Ttl) -> Ttl {
        match self.defect {
            Defect::LifeNotRefreshed => ttl.refresh_on_use = false,
            Defect::LifeAlwaysRefreshed => ttl.refresh_on_use = true,
            _ => {}
        }
        ttl
    }
}
