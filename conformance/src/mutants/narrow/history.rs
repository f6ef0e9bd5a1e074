//! History providers with a narrow defect.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use larder_agents::InMemoryHistoryProvider;
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, ErrorKind, FencingToken, Forked, HistoryEventKind, HistoryEvents,
    HistoryProvider, MessageFilter, MessagePage, Replaced, Replacement, Result, Seq, Store, Thread,
};

use super::{panicking, reformatted, unavailable, with_floats};

macro_rules! wrong {
    ($self:ident $contract:ident append_many($thread:ident, $messages:ident, $options:ident)) => {
        $self.append_wrongly($thread, $messages, $options).await
    };
    ($self:ident $contract:ident get_messages($thread:ident, $offset:ident, $limit:ident)) => {
        $self.get_wrongly($thread, $offset, $limit).await
    };
    ($self:ident $contract:ident tail_matching($thread:ident, $filter:ident, $end:ident, $limit:ident)) => {
        $self.tail_matching_wrongly($thread, $filter, $end, $limit).await
    };
    ($self:ident $contract:ident fork($source:ident, $target:ident, $up_to:ident, $fence:ident)) => {
        $self.fork_wrongly($source, $target, $up_to, $fence).await
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
    json_arguments_are_written_again: ArgumentsReformatted => ["HIST-001"],
    numbers_of_metadata_become_floats: Floats => ["HIST-001"],
    content_types_of_files_are_lowered: ContentTypesLowered => ["HIST-001"],
    one_read_trims_results: ReadTrims => ["HIST-001"],
    events_carry_trimmed_text: EventsTrimmed => ["HIST-081"],
    a_replacement_writes_json_again: ReplacementReformatted => ["HIST-050"],
    the_filtered_tail_includes_before: MatchingIncludesBefore => ["HIST-095"],
    a_subscription_includes_after: SubscriptionIncludesAfter => ["HIST-088"],
    a_fork_ends_before_a_gap: ForkEndsBeforeGap => ["HIST-040"],
    a_taken_key_is_unavailable: TakenKeyUnavailable => ["HIST-008"],
    a_lost_replacement_is_unavailable: ReplacementUnavailable => ["HIST-051"],
    a_lost_fork_panics: ForkPanics => ["HIST-045"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryHistoryProvider,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryHistoryProvider, defect: Defect) -> Self {
        Self { inner, defect }
    }

    fn written(&self, message: &mut ChatMessage) {
        match self.defect {
            Defect::ArgumentsReformatted => {
                message.tool_calls.iter_mut().for_each(|call| call.arguments = reformatted(&call.arguments));
            }
            Defect::Floats => message.metadata = with_floats(&message.metadata),
            Defect::ContentTypesLowered => {
                let types = message.blobs.iter_mut().filter_map(|blob| blob.content_type.as_mut());
                types.for_each(|text| *text = text.to_lowercase());
            }
            _ => {}
        }
    }

    async fn append_wrongly(
        &self,
        thread: &Thread,
        mut messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        messages.iter_mut().for_each(|message| self.written(message));
        let appended = self.inner.append_many(thread, messages, options).await;
        match self.defect {
            Defect::TakenKeyUnavailable => unavailable(appended, ErrorKind::Conflict),
            _ => appended,
        }
    }

    async fn get_wrongly(&self, thread: &Thread, offset: u64, limit: usize) -> Result<MessagePage> {
        let mut found = self.inner.get_messages(thread, offset, limit).await?;
        if self.defect == Defect::ReadTrims {
            for stored in &mut found.messages {
                let message = Arc::make_mut(&mut stored.message);
                let results = message.tool_results.iter_mut();
                results.for_each(|result| result.content = result.content.trim().to_owned());
            }
        }
        Ok(found)
    }

    async fn tail_matching_wrongly(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<MessagePage> {
        let mut found = self.inner.tail_matching(thread, filter, before, limit).await?;
        if let (Defect::MatchingIncludesBefore, Some(before)) = (self.defect, before)
            && found.messages.len() < limit
        {
            let all = self.inner.tail_matching(thread, filter, None, 10_000).await?.messages;
            found.messages.extend(all.into_iter().filter(|stored| stored.seq == before));
        }
        Ok(found)
    }

    async fn fork_wrongly(
        &self,
        source: &Thread,
        target: &Thread,
        mut up_to: Option<Seq>,
        fence: Option<FencingToken>,
    ) -> Result<Forked> {
        if let (Defect::ForkEndsBeforeGap, Some(end)) = (self.defect, up_to) {
            let all = self.inner.get_messages(source, 0, 10_000).await?.messages;
            let kept: Vec<_> = all.iter().filter(|stored| stored.seq <= end).collect();
            // An end that is no message's number is taken for the end before.
            if let [.., before, last] = kept.as_slice()
                && last.seq != end
            {
                up_to = Some(before.seq);
            }
        }
        let forked = self.inner.fork(source, target, up_to, fence).await;
        match self.defect {
            Defect::ForkPanics if source != target => panicking(forked, ErrorKind::AlreadyExists),
            _ => forked,
        }
    }

    async fn replace_wrongly(&self, thread: &Thread, mut replacement: Replacement) -> Result<Replaced> {
        if self.defect == Defect::ReplacementReformatted {
            replacement.messages.iter_mut().for_each(|message| message.text = reformatted(&message.text));
        }
        let replaced = self.inner.replace(thread, replacement).await;
        match self.defect {
            Defect::ReplacementUnavailable => unavailable(replaced, ErrorKind::Conflict),
            _ => replaced,
        }
    }

    async fn subscribe_wrongly(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        let all = self.inner.get_messages(thread, 0, 10_000).await?.messages;
        let before =
            all.iter().rev().find(|stored| stored.seq < after).map_or(Seq::ZERO, |stored| stored.seq);
        let includes =
            self.defect == Defect::SubscriptionIncludesAfter && all.iter().any(|stored| stored.seq == after);
        let events = self.inner.subscribe(thread, if includes { before } else { after }).await?;
        let trims = self.defect == Defect::EventsTrimmed;
        let changed = events.map_ok(move |mut event| {
            if let (true, HistoryEventKind::Appended { message, .. }) = (trims, &mut event.kind) {
                let message = Arc::make_mut(message);
                message.text = message.text.trim().to_owned();
            }
            event
        });
        Ok(changed.boxed())
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
