//! History providers whose reads are wrong in the bound of a page or in its last number.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use larder_agents::InMemoryHistoryProvider;
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, HistoryProvider, MessageFilter, MessagePage, Namespace, Result,
    Seq, Store, Thread,
};

use crate::mutants::serve::lock;

macro_rules! wrong {
    ($self:ident $contract:ident append_many($thread:ident, $messages:ident, $options:ident)) => {
        $self.append($thread, $messages, $options).await
    };
    ($self:ident $contract:ident get_messages($thread:ident, $offset:ident, $limit:ident)) => {
        $self.read($thread, &Read::Window($offset), $limit).await
    };
    ($self:ident $contract:ident tail($thread:ident, $before:ident, $limit:ident)) => {
        $self.read($thread, &Read::Tail($before), $limit).await
    };
    ($self:ident $contract:ident tail_matching($thread:ident, $filter:ident, $end:ident, $limit:ident)) => {
        $self.read($thread, &Read::Matching($filter, $end), $limit).await
    };
    ($self:ident $contract:ident page_after($thread:ident, $after:ident, $limit:ident)) => {
        $self.read($thread, &Read::After($after), $limit).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { History HistoryProvider over InMemoryHistoryProvider with with_history, wrong;
    a_read_has_no_limit_on_bytes: Unlimited => ["HIST-160", "HIST-161"],
    a_page_has_the_message_that_exceeds_it: OneMore => ["HIST-160"],
    a_page_ends_at_half_the_limit: HalfFull => ["HIST-160"],
    a_read_hides_what_it_left_out: MoreHidden => ["HIST-161", "HIST-165"],
    a_page_at_its_limit_has_more: MoreIfFull => ["HIST-161"],
    a_window_leaves_out_the_oldest: WindowCutAtStart => ["HIST-162"],
    a_page_after_a_number_leaves_out_the_oldest: PageCutAtStart => ["HIST-162", "HIST-165"],
    the_tail_leaves_out_the_newest: TailCutAtEnd => ["HIST-163", "HIST-165"],
    the_matches_leave_out_the_newest: MatchesCutAtEnd => ["HIST-163"],
    dropped_messages_count_toward_a_page: DroppedCounted => ["HIST-164"],
    the_last_number_is_that_of_the_newest_message: LastOfMessage => ["HIST-166", "HIST-168"],
    a_read_of_nothing_has_no_last_number: NothingLast => ["HIST-166", "HIST-167"],
    the_last_number_is_read_before_the_messages: LastEarly => ["HIST-166"],
    the_last_number_is_read_after_the_messages: LastLate => ["HIST-166"],
    a_read_does_not_count_an_expiry: ExpiryUncounted => ["HIST-167"],
    a_read_returns_the_next_number_as_its_last: NextLast => ["HIST-166", "HIST-168"],
}

/// The time between the two steps of a read that is not one.
const BETWEEN: Duration = Duration::from_millis(2);

/// The arguments of a read, apart from its limit.
#[derive(Clone, Copy)]
enum Read<'a> {
    Window(u64),
    Tail(Option<Seq>),
    Matching(&'a MessageFilter, Option<Seq>),
    After(Seq),
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryHistoryProvider,
    defect: Defect,
}

/// The threads that may expire, which every handle must know.
static MORTAL: Mutex<BTreeSet<(Namespace, Thread)>> = Mutex::new(BTreeSet::new());

impl Wrong {
    fn new(inner: InMemoryHistoryProvider, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn append(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        if options.ttl.is_some() {
            lock(&MORTAL).insert(self.place(thread));
        }
        self.inner.append_many(thread, messages, options).await
    }

    fn place(&self, thread: &Thread) -> (Namespace, Thread) {
        (self.inner.namespace().clone(), thread.clone())
    }

    async fn right(&self, thread: &Thread, read: &Read<'_>, limit: usize) -> Result<MessagePage> {
        match *read {
            Read::Window(offset) => self.inner.get_messages(thread, offset, limit).await,
            Read::Tail(before) => self.inner.tail(thread, before, limit).await,
            Read::Matching(filter, before) => self.inner.tail_matching(thread, filter, before, limit).await,
            Read::After(after) => self.inner.page_after(thread, after, limit).await,
        }
    }

    async fn read(&self, thread: &Thread, read: &Read<'_>, limit: usize) -> Result<MessagePage> {
        let earlier = self.inner.thread_info(thread).await?.last;
        if self.defect == Defect::LastEarly {
            tokio::time::sleep(BETWEEN).await;
        }
        let mut page = self.right(thread, read, limit).await?;
        let backwards = matches!(read, Read::Tail(_) | Read::Matching(..));
        match self.defect {
            Defect::Unlimited => self.extend(thread, read, &mut page, limit).await?,
            Defect::OneMore if page.more => {
                let one = page.messages.len() + 1;
                self.extend(thread, read, &mut page, one).await?;
                page.more = true;
            }
            Defect::HalfFull if page.more => {
                let half = page.messages.len() / 2;
                let from = if backwards { page.messages.len() - half } else { 0 };
                page.messages = page.messages.split_off(from);
                page.messages.truncate(half);
            }
            Defect::MoreHidden => page.more = false,
            Defect::MoreIfFull => page.more |= page.messages.len() == limit,
            Defect::WindowCutAtStart if matches!(read, Read::Window(_)) && page.more => {
                page = self.other_end(thread, read, page, limit).await?;
            }
            Defect::PageCutAtStart if matches!(read, Read::After(_)) && page.more => {
                page = self.other_end(thread, read, page, limit).await?;
            }
            Defect::TailCutAtEnd if matches!(read, Read::Tail(_)) && page.more => {
                page = self.other_end(thread, read, page, limit).await?;
            }
            Defect::MatchesCutAtEnd if matches!(read, Read::Matching(..)) && page.more => {
                page = self.other_end(thread, read, page, limit).await?;
            }
            Defect::DroppedCounted => {
                if let Read::Matching(filter, before) = *read {
                    let mut looked_at = self.inner.tail(thread, before, 10_000).await?;
                    looked_at.messages.retain(|stored| filter.keeps(thread, &stored.message));
                    let kept = looked_at.messages.len().saturating_sub(limit);
                    looked_at.messages.drain(..kept);
                    page = looked_at;
                }
            }
            Defect::LastOfMessage => {
                page.last = page.messages.last().map_or(page.last, |newest| newest.seq);
            }
            Defect::NothingLast if page.messages.is_empty() => page.last = Seq::ZERO,
            Defect::LastEarly => page.last = earlier,
            Defect::LastLate => {
                tokio::time::sleep(BETWEEN).await;
                page.last = self.inner.thread_info(thread).await?.last;
            }
            Defect::ExpiryUncounted
                if page.messages.is_empty() && lock(&MORTAL).contains(&self.place(thread)) =>
            {
                page.last = moved(page.last, -1);
            }
            Defect::NextLast => page.last = moved(page.last, 1),
            _ => {}
        }
        Ok(page)
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }

    /// Adds the messages that the page left out, up to this many messages.
    async fn extend(
        &self,
        thread: &Thread,
        read: &Read<'_>,
        page: &mut MessagePage,
        limit: usize,
    ) -> Result<()> {
        while page.more && page.messages.len() < limit {
            let (first, last) = (page.messages.first(), page.messages.last());
            let left = limit - page.messages.len();
            let next = match (*read, first, last) {
                (Read::Window(_) | Read::After(_), _, Some(last)) => Read::After(last.seq),
                (Read::Tail(_), Some(first), _) => Read::Tail(Some(first.seq)),
                (Read::Matching(filter, _), Some(first), _) => Read::Matching(filter, Some(first.seq)),
                _ => return Ok(()),
            };
            let mut more = self.right(thread, &next, left).await?;
            page.more = more.more;
            if let Read::Window(_) | Read::After(_) = read {
                page.messages.append(&mut more.messages);
            } else {
                page.messages.splice(0..0, more.messages);
            }
        }
        Ok(())
    }

    /// Returns a page of as many messages from the other end of what was asked for.
    async fn other_end(
        &self,
        thread: &Thread,
        read: &Read<'_>,
        mut page: MessagePage,
        limit: usize,
    ) -> Result<MessagePage> {
        let kept = page.messages.len();
        self.extend(thread, read, &mut page, limit).await?;
        if matches!(read, Read::Window(_) | Read::After(_)) {
            page.messages.drain(..page.messages.len() - kept);
        } else {
            page.messages.truncate(kept);
        }
        Ok(page.with_more(true))
    }
}

fn moved(last: Seq, by: i64) -> Seq {
    Seq::new(last.get() + by).in_generation(last.generation())
}
