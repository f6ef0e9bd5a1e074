//! History providers that are wrong in the removal of messages.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, future};
use larder_agents::InMemoryHistoryProvider;
use larder_kernel::{
    AppendOptions, ChatMessage, ErrorKind, HistoryEventKind, HistoryEvents, HistoryProvider, Removal,
    RemovalTarget, Removed, Result, Seq, Store, StoredMessage, Thread, ThreadInfo,
};

macro_rules! wrong {
    ($self:ident $contract:ident remove($thread:ident, $removal:ident)) => {
        $self.remove_wrongly($thread, $removal).await
    };
    ($self:ident $contract:ident thread_info($thread:ident)) => {
        $self.info_wrongly($thread).await
    };
    ($self:ident $contract:ident subscribe($thread:ident, $after:ident)) => {
        $self.subscribe_wrongly($thread, $after).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { History HistoryProvider over InMemoryHistoryProvider with with_history, wrong;
    a_removal_by_number_takes_the_next_message_too: NumbersTakeMore => ["HIST-113"],
    a_rewind_includes_its_position: RewindIncludes => ["HIST-114"],
    a_pop_takes_the_oldest_messages: PopOldest => ["HIST-115"],
    a_pop_reads_first_and_removes_later: PopInSteps => ["HIST-116"],
    removed_messages_are_counted: RemovedCounted => ["HIST-117"],
    a_subscription_hides_removals: RemovalsHidden => ["HIST-118"],
    a_removal_of_nothing_is_an_event: NothingIsEvent => ["HIST-119"],
    a_removal_ignores_the_last_number: LastIgnored => ["HIST-120"],
    a_repeated_removal_removes_again: RemovalRepeated => ["HIST-121", "HIST-122", "HIST-123"],
    a_key_of_a_removal_fits_any_removal: AnyRemovalFits => ["HIST-122"],
    a_repeated_pop_returns_no_messages: PopKeepsNothing => ["HIST-123"],
    a_clear_leaves_what_a_pop_keeps: ClearLeavesPopped => ["HIST-124"],
    a_repeated_removal_by_number_returns_messages: NumbersKept => ["HIST-125"],
    a_removal_returns_any_number_of_bytes: BytesUnlimited => ["HIST-126"],
}

/// The time between the read and the removal of a pop in two steps.
const BETWEEN: Duration = Duration::from_millis(3);

#[derive(Debug)]
struct Wrong {
    inner: InMemoryHistoryProvider,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryHistoryProvider, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn remove_wrongly(&self, thread: &Thread, mut removal: Removal) -> Result<Removed> {
        let target = removal.target.clone();
        match (self.defect, &target) {
            (Defect::NumbersTakeMore, RemovalTarget::Numbers(numbers)) => {
                let next = numbers.first().map(|first| Seq::new(first.get().saturating_add(1)));
                let next = next.filter(|next| !numbers.contains(next));
                removal.target = RemovalTarget::Numbers(numbers.iter().copied().chain(next).collect());
            }
            (Defect::RewindIncludes, RemovalTarget::After(position)) => {
                let before = Seq::new(position.get().saturating_sub(1));
                removal.target = RemovalTarget::After(before.in_generation(position.generation()));
            }
            (Defect::PopOldest, RemovalTarget::Newest(count)) => {
                let oldest = self.inner.get_messages(thread, 0, *count).await?.messages;
                if !oldest.is_empty() && removal.idempotency_key.is_none() {
                    removal.target = RemovalTarget::Numbers(oldest.iter().map(|stored| stored.seq).collect());
                }
            }
            (Defect::PopInSteps, RemovalTarget::Newest(count)) => return self.pop(thread, *count).await,
            (Defect::LastIgnored, _) => removal.if_last = None,
            (Defect::RemovalRepeated, _) => {
                removal.idempotency_key = None;
                removal.if_last = None;
            }
            _ => {}
        }
        let before = self.inner.thread_info(thread).await?;
        let answer = self.inner.remove(thread, removal.clone()).await;
        let after = self.inner.thread_info(thread).await?;
        self.changed(thread, &removal, answer, before == after).await
    }

    /// Changes the result of a removal. It is a repetition if the thread is unchanged.
    async fn changed(
        &self,
        thread: &Thread,
        removal: &Removal,
        answer: Result<Removed>,
        unchanged: bool,
    ) -> Result<Removed> {
        let pops = matches!(removal.target, RemovalTarget::Newest(_));
        match (self.defect, answer) {
            (Defect::NothingIsEvent, Ok(removed)) if removed.removed == 0 => {
                self.inner
                    .append_many(thread, vec![ChatMessage::user("gone")], AppendOptions::default())
                    .await?;
                self.inner.remove(thread, Removal::newest(1)).await?;
                Ok(removed)
            }
            (Defect::AnyRemovalFits, Err(error))
                if error.kind() == ErrorKind::Conflict && removal.idempotency_key.is_some() =>
            {
                Ok(Removed::new(0, self.inner.thread_info(thread).await?.last))
            }
            (Defect::PopKeepsNothing, Ok(removed)) if unchanged => Ok(removed.with_messages(Vec::new())),
            (Defect::ClearLeavesPopped, Ok(removed)) if unchanged && pops => Ok(filled(removed)),
            (Defect::NumbersKept, Ok(removed)) if unchanged && !pops => Ok(filled(removed)),
            (Defect::BytesUnlimited, Err(error)) if error.kind() == ErrorKind::InvalidInput => {
                if error.limit() < Some(10_000) {
                    return Err(error);
                }
                self.inner.remove(thread, Removal::after(Seq::MIN)).await
            }
            (_, answer) => answer,
        }
    }

    /// Reads the newest messages, waits, and removes them.
    async fn pop(&self, thread: &Thread, count: usize) -> Result<Removed> {
        let newest = self.inner.tail(thread, None, count).await?.messages;
        tokio::time::sleep(BETWEEN).await;
        if newest.is_empty() {
            return Ok(Removed::new(0, self.inner.thread_info(thread).await?.last));
        }
        let seqs: Vec<Seq> = newest.iter().map(|stored| stored.seq).collect();
        let removed = self.inner.remove(thread, Removal::numbers(seqs.clone())).await?;
        Ok(removed.with_seqs(seqs).with_messages(newest))
    }

    /// Counts the numbers that the thread has used up since its last message as messages.
    async fn info_wrongly(&self, thread: &Thread) -> Result<ThreadInfo> {
        let mut info = self.inner.thread_info(thread).await?;
        let newest = self.inner.tail(thread, None, 1).await?.messages.pop();
        if let (Defect::RemovedCounted, Some(newest)) = (self.defect, newest) {
            info.messages += u64::from(newest.seq < info.last);
        }
        Ok(info)
    }

    async fn subscribe_wrongly(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        let events = self.inner.subscribe(thread, after).await?;
        if self.defect != Defect::RemovalsHidden {
            return Ok(events);
        }
        let is_shown = |kind: &HistoryEventKind| {
            !matches!(kind, HistoryEventKind::Removed { .. } | HistoryEventKind::Rewound { .. })
        };
        Ok(events.try_filter(move |event| future::ready(is_shown(&event.kind))).boxed())
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}

/// Returns the result with a message for each number.
fn filled(removed: Removed) -> Removed {
    let message = |seq: &Seq| StoredMessage::new(*seq, ChatMessage::user("kept"));
    let messages = removed.seqs.iter().map(message).collect();
    if removed.messages.is_empty() { removed.with_messages(messages) } else { removed }
}
