//! History providers that are wrong in the update of messages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, future};
use larder_agents::InMemoryHistoryProvider;
use larder_kernel::check::size;
use larder_kernel::storage::history::check_revision;
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, Error, ErrorKind, HistoryEventKind, HistoryEvents, HistoryProvider,
    HistoryProviderExt, MessageFilter, MessagePage, MessageUpdate, Replaced, Replacement, Result, Revision,
    Seq, Store, StoredMessage, Thread, ThreadInfo, Ttl, Updated,
};

use crate::mutants::serve::lock;

macro_rules! wrong {
    ($self:ident $contract:ident update($thread:ident, $update:ident)) => {
        $self.update_wrongly($thread, $update).await
    };
    ($self:ident $contract:ident append_many($thread:ident, $messages:ident, $options:ident)) => {
        $self.append_wrongly($thread, $messages, $options).await
    };
    ($self:ident $contract:ident tail($thread:ident, $before:ident, $limit:ident)) => {
        $self.tail_wrongly($thread, $before, $limit).await
    };
    ($self:ident $contract:ident tail_matching($thread:ident, $filter:ident, $end:ident, $limit:ident)) => {
        $self.match_wrongly($thread, $filter, $end, $limit).await
    };
    ($self:ident $contract:ident thread_info($thread:ident)) => {
        $self.info_wrongly($thread).await
    };
    ($self:ident $contract:ident replace($thread:ident, $replacement:ident)) => {
        $self.replace_wrongly($thread, $replacement).await
    };
    ($self:ident $contract:ident subscribe($thread:ident, $after:ident)) => {
        $self.subscribe_wrongly($thread, $after).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { History HistoryProvider over InMemoryHistoryProvider with with_history, wrong;
    an_update_keeps_the_author: AuthorKept => ["HIST-140"],
    an_update_moves_the_message_to_the_end: MovedToTheEnd => ["HIST-140"],
    an_update_ignores_the_revision: RevisionIgnored => ["HIST-141", "HIST-144", "HIST-153"],
    an_update_checks_its_revision_before_the_write: CheckedEarly => ["HIST-144"],
    a_filtered_read_returns_the_first_revision: RevisionUnread => ["HIST-142"],
    an_update_returns_the_number_before_it: NumberBefore => ["HIST-143"],
    the_size_ignores_updates: SizeStays => ["HIST-145"],
    a_subscription_hides_updates: UpdatesHidden => ["HIST-146"],
    an_event_of_an_update_has_the_earlier_content: EarlierTold => ["HIST-146", "HIST-147"],
    the_tail_returns_the_earlier_content: EarlierRead => ["HIST-147"],
    an_update_of_a_missing_message_appends_it: MissingAppended => ["HIST-148"],
    an_update_ignores_the_last_number: LastIgnored => ["HIST-149"],
    a_repeated_update_updates_again: UpdateRepeated => ["HIST-150", "HIST-151"],
    a_key_of_an_update_fits_any_update: AnyUpdateFits => ["HIST-151"],
    an_update_ignores_the_generation: GenerationIgnored => ["HIST-152"],
    a_lost_update_hides_the_revision: RevisionHidden => ["HIST-153"],
    an_update_restarts_the_time_to_live: TtlRestarted => ["HIST-154"],
    a_replacement_ignores_updates: ReplaceIgnoresUpdates => ["HIST-051"],
}

/// The time between the check and the write of a store that checks early.
const BETWEEN: Duration = Duration::from_millis(3);

/// The memory of a store about a thread.
#[derive(Debug, Default)]
struct Kept {
    /// The messages before their last update.
    earlier: BTreeMap<i64, Arc<ChatMessage>>,
    /// The bytes that updates added.
    added: i64,
    ttl: Option<Ttl>,
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryHistoryProvider,
    defect: Defect,
    kept: Mutex<BTreeMap<Thread, Kept>>,
}

impl Wrong {
    fn new(inner: InMemoryHistoryProvider, defect: Defect) -> Self {
        Self { inner, defect, kept: Mutex::default() }
    }

    async fn find(&self, thread: &Thread, seq: Seq) -> Result<Option<StoredMessage>> {
        Ok(self.inner.all_messages(thread).await?.into_iter().find(|stored| stored.seq == seq))
    }

    fn keep<R>(&self, thread: &Thread, work: impl FnOnce(&mut Kept) -> R) -> R {
        work(lock(&self.kept).entry(thread.clone()).or_default())
    }

    async fn append_wrongly(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        self.keep(thread, |kept| kept.ttl = options.ttl);
        self.inner.append_many(thread, messages, options).await
    }

    async fn update_wrongly(&self, thread: &Thread, mut update: MessageUpdate) -> Result<Updated> {
        let found = self.find(thread, update.seq).await?;
        match (self.defect, &found) {
            (Defect::AuthorKept, Some(found)) => update.message.author = found.message.author.clone(),
            (Defect::RevisionIgnored, Some(found)) => {
                update.revision = found.revision;
            }
            (Defect::CheckedEarly, Some(found)) => {
                check_revision(&update, found.revision.get())?;
                tokio::time::sleep(BETWEEN).await;
                let now = self.find(thread, update.seq).await?;
                update.revision = now.map_or(update.revision, |now| now.revision);
            }
            (Defect::LastIgnored, _) => update.if_last = None,
            (Defect::UpdateRepeated, Some(found)) => {
                (update.idempotency_key, update.if_last) = (None, None);
                update.revision = found.revision;
            }
            (Defect::GenerationIgnored, _) => {
                update.seq = Seq::new(update.seq.get());
                update.revision = Revision::new(update.revision.get());
            }
            _ => {}
        }
        let answer = self.inner.update(thread, update.clone()).await;
        let answer = self.changed(thread, &update, answer).await?;
        if let Some(found) = found.filter(|found| found.revision.get() < answer.revision.get()) {
            self.updated(thread, &update, &found).await?;
        }
        Ok(match self.defect {
            Defect::NumberBefore => {
                let before = Seq::new(answer.last.get() - 1);
                Updated::new(before.in_generation(answer.last.generation()))
            }
            _ => answer,
        })
    }

    /// Changes the result of an update.
    async fn changed(
        &self,
        thread: &Thread,
        update: &MessageUpdate,
        answer: Result<Updated>,
    ) -> Result<Updated> {
        let Err(error) = answer else { return answer };
        match self.defect {
            Defect::MissingAppended if error.kind() == ErrorKind::NotFound => {
                let messages = vec![update.message.clone()];
                let appended = self.inner.append_many(thread, messages, AppendOptions::default()).await?;
                Ok(Updated::new(appended.last))
            }
            Defect::AnyUpdateFits if error.kind() == ErrorKind::Conflict && error.field().is_none() => {
                Ok(Updated::new(self.inner.thread_info(thread).await?.last))
            }
            Defect::RevisionHidden if error.field() == Some("revision") => {
                let message = "the message has another revision";
                Err(Error::new(ErrorKind::Conflict, error.operation(), message).with_field("revision"))
            }
            _ => Err(error),
        }
    }

    /// Runs what the store does after an update of a message.
    async fn updated(&self, thread: &Thread, update: &MessageUpdate, found: &StoredMessage) -> Result<()> {
        let signed = |bytes| i64::try_from(bytes).unwrap_or(0);
        let ttl = self.keep(thread, |kept| {
            kept.earlier.insert(update.seq.get(), Arc::clone(&found.message));
            kept.added += signed(update.message.size_bytes()) - signed(found.message.size_bytes());
            kept.ttl
        });
        match (self.defect, ttl) {
            (Defect::TtlRestarted, Some(ttl)) => self.inner.set_ttl(thread, Some(ttl), update.fence).await,
            (Defect::MovedToTheEnd, _) if update.fence.is_none() => {
                let goes = larder_kernel::Removal::numbers([update.seq]);
                self.inner.remove(thread, goes).await?;
                self.inner.append(thread, update.message.clone()).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    async fn tail_wrongly(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<MessagePage> {
        let mut tail = self.inner.tail(thread, before, limit).await?;
        if self.defect == Defect::EarlierRead {
            self.keep(thread, |kept| {
                for stored in &mut tail.messages {
                    if let Some(earlier) = kept.earlier.get(&stored.seq.get()) {
                        stored.message = Arc::clone(earlier);
                    }
                }
            });
        }
        Ok(tail)
    }

    async fn match_wrongly(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<MessagePage> {
        let mut found = self.inner.tail_matching(thread, filter, before, limit).await?;
        if self.defect == Defect::RevisionUnread {
            found.messages.iter_mut().for_each(|stored| stored.revision = Revision::at(stored.seq));
        }
        Ok(found)
    }

    async fn info_wrongly(&self, thread: &Thread) -> Result<ThreadInfo> {
        let mut info = self.inner.thread_info(thread).await?;
        if self.defect == Defect::SizeStays && info.messages > 0 {
            let added = self.keep(thread, |kept| kept.added);
            info.bytes = info.bytes.saturating_add_signed(-added);
        }
        Ok(info)
    }

    async fn replace_wrongly(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        let answer = self.inner.replace(thread, replacement.clone()).await;
        if self.defect != Defect::ReplaceIgnoresUpdates || answer.is_ok() {
            return answer;
        }
        let stored = self.inner.all_messages(thread).await?;
        if stored.iter().all(|stored| stored.revision == Revision::at(stored.seq)) {
            return answer;
        }
        let last = self.inner.thread_info(thread).await?.last;
        self.inner.replace(thread, replacement.with_seen(last)).await
    }

    async fn subscribe_wrongly(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        let events = self.inner.subscribe(thread, after).await?;
        match self.defect {
            Defect::UpdatesHidden => Ok(events
                .try_filter(|event| future::ready(!matches!(event.kind, HistoryEventKind::Updated { .. })))
                .boxed()),
            Defect::EarlierTold => {
                let earlier = self.keep(thread, |kept| kept.earlier.clone());
                let told = move |mut event: larder_kernel::HistoryEvent| {
                    if let HistoryEventKind::Updated { of, message, .. } = &mut event.kind {
                        let text = format!("earlier {}", size(message.size_bytes()));
                        let earlier = earlier.get(&of.get()).cloned();
                        *message = earlier.unwrap_or_else(|| Arc::new(ChatMessage::user(text)));
                    }
                    event
                };
                Ok(events.map_ok(told).boxed())
            }
            _ => Ok(events),
        }
    }

    async fn erase_wrongly(&self) -> Result<()> {
        lock(&self.kept).clear();
        self.inner.erase().await
    }
}
