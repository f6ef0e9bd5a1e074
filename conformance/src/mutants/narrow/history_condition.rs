//! History providers that are wrong in the condition of an append.

use std::time::Duration;

use larder_agents::InMemoryHistoryProvider;
use larder_kernel::storage::history::check_if_last;
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, Error, ErrorKind, HistoryProvider, Result, Seq, Store, Thread,
};

macro_rules! wrong {
    ($self:ident $contract:ident append_many($thread:ident, $messages:ident, $options:ident)) => {
        $self.append_wrongly($thread, $messages, $options).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { History HistoryProvider over InMemoryHistoryProvider with with_history, wrong;
    the_condition_on_the_last_number_is_ignored: ConditionIgnored =>
        ["HIST-106", "HIST-107", "HIST-108", "HIST-109", "HIST-111", "HIST-112"],
    a_lost_append_hides_the_last_number: LastHidden => ["HIST-107"],
    the_condition_is_checked_with_the_newest_message: ConditionOnMessages =>
        ["HIST-107", "HIST-108", "HIST-112"],
    the_condition_is_checked_before_the_write: CheckedEarly => ["HIST-109"],
    a_repetition_checks_its_condition: RepetitionChecked => ["HIST-110"],
    a_lost_append_uses_up_its_key: LostKeyUsed => ["HIST-110"],
    a_condition_ignores_the_generation: ConditionUngenerated => ["HIST-111"],
    an_expiry_counts_when_it_is_read: ExpiryCountsLate => ["HIST-112"],
}

/// The time between the check and the write of a store that checks early.
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

    async fn append_wrongly(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        mut options: AppendOptions,
    ) -> Result<Appended> {
        const OPERATION: &str = "history.append_many";
        let Some(wanted) = options.if_last else {
            return self.inner.append_many(thread, messages, options).await;
        };
        match self.defect {
            Defect::ConditionIgnored => options.if_last = None,
            Defect::ConditionOnMessages => {
                let newest = self.inner.tail(thread, None, 1).await?.messages;
                check_if_last(OPERATION, Some(wanted), newest.last().map_or(Seq::ZERO, |stored| stored.seq))?;
                options.if_last = None;
            }
            Defect::CheckedEarly if options.idempotency_key.is_none() => {
                check_if_last(OPERATION, Some(wanted), self.inner.thread_info(thread).await?.last)?;
                tokio::time::sleep(BETWEEN).await;
                options.if_last = None;
            }
            Defect::RepetitionChecked => {
                check_if_last(OPERATION, Some(wanted), self.inner.thread_info(thread).await?.last)?;
            }
            Defect::ConditionUngenerated => options.if_last = Some(Seq::new(wanted.get())),
            Defect::LostKeyUsed if options.idempotency_key.is_some() => {
                let last = self.inner.thread_info(thread).await?.last;
                if !wanted.names(last) {
                    options.if_last = None;
                    let other = vec![ChatMessage::user("lost")];
                    self.inner.append_many(thread, other, options).await?;
                    return check_if_last(OPERATION, Some(wanted), last).map(|()| Appended::new(last, last));
                }
            }
            // A store that records an expiry only in reads: the append still sees the last message's number.
            Defect::ExpiryCountsLate => {
                let last = self.inner.thread_info(thread).await?;
                if last.messages == 0 && last.last.get().checked_sub(1) == Some(wanted.get()) {
                    options.if_last = None;
                }
            }
            _ => {}
        }
        let answer = self.inner.append_many(thread, messages, options).await;
        match self.defect {
            Defect::LastHidden => answer.map_err(|error| match error.kind() {
                ErrorKind::Conflict => Error::new(ErrorKind::Conflict, OPERATION, "the thread has changed"),
                _ => error,
            }),
            _ => answer,
        }
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
