//! The bound of a read on its bytes, and the last number that it returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_kernel::limits::{MESSAGE_BYTES_MAX, PAGE_ITEMS_MAX, READ_BYTES_MAX};
use larder_kernel::{
    AgentId, AppendOptions, ChatMessage, HistoryProvider, MessageFilter, MessagePage, Removal, Replacement,
    Seq, Thread,
};

use super::support::{
    append, at_once, conflict, either, expired, last, messages, numbered, run, say, seqs, thread,
};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;
use crate::suites::background::BackgroundTask;

/// The size of a large message. Five fit into a page.
const LARGE: usize = 3 * 1024 * 1024;
/// The number of large messages that fit into a page.
const FITTING: usize = READ_BYTES_MAX / LARGE;

/// The reads of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    GetMessages,
    Tail,
    TailMatching,
    /// A filter that names the only author, which may have an index.
    TailOfAuthor,
    PageAfter,
}

const READS: [Read; 5] =
    [Read::GetMessages, Read::Tail, Read::TailMatching, Read::TailOfAuthor, Read::PageAfter];

impl Read {
    fn is_forward(self) -> bool {
        matches!(self, Self::GetMessages | Self::PageAfter)
    }

    async fn call(
        self,
        store: &dyn HistoryProvider,
        thread: &Thread,
        limit: usize,
    ) -> CaseResult<MessagePage> {
        Ok(match self {
            Self::GetMessages => store.get_messages(thread, 0, limit).await?,
            Self::Tail => store.tail(thread, None, limit).await?,
            Self::TailMatching => store.tail_matching(thread, &MessageFilter::new(), None, limit).await?,
            Self::TailOfAuthor => store.tail_matching(thread, &of_author("writer")?, None, limit).await?,
            Self::PageAfter => store.page_after(thread, Seq::MIN, limit).await?,
        })
    }
}

fn of_author(name: &str) -> CaseResult<MessageFilter> {
    Ok(MessageFilter::new().include_agent(AgentId::new(name)?))
}

/// Returns a message of exactly this size, by the author that [`Read::TailOfAuthor`] names.
fn sized(bytes: usize) -> CaseResult<ChatMessage> {
    let message = ChatMessage::user("x".repeat(bytes)).with_author(AgentId::new("writer")?, None);
    expect::equal("the size of the message", &message.size_bytes(), &bytes)?;
    Ok(message)
}

/// Appends messages of these sizes, each as one batch.
async fn write(store: &dyn HistoryProvider, thread: &Thread, sizes: &[usize]) -> CaseResult {
    for bytes in sizes {
        append(store, thread, vec![sized(*bytes)?]).await?;
    }
    Ok(())
}

fn is_page(
    what: &str,
    page: &MessagePage,
    expected: impl IntoIterator<Item = i64>,
    more: bool,
) -> CaseResult {
    let expected: Vec<i64> = expected.into_iter().collect();
    expect::equal(
        &format!("{what}: the numbers and `more`"),
        &(seqs(&page.messages), page.more),
        &(expected, more),
    )
}

/// HIST-160: to the byte.
pub(super) async fn a_page_ends_before_the_message_that_exceeds_16_mib(context: Context) -> CaseResult {
    const LARGEST: usize = MESSAGE_BYTES_MAX;
    let stores = context.history().await?;
    // The middle four fill a page exactly.
    let thread = thread("full")?;
    write(&*stores.a, &thread, &[1, LARGEST, LARGEST, LARGEST, LARGEST, 1]).await?;
    for read in READS {
        let page = read.call(&*stores.b, &thread, 10).await?;
        let expected = if read.is_forward() { 1..=4 } else { 3..=6 };
        is_page(&format!("{read:?}"), &page, expected, true)?;
    }
    is_page("a window", &stores.b.get_messages(&thread, 1, 10).await?, 2..=5, true)?;
    is_page("a page", &stores.b.page_after(&thread, Seq::new(1), 10).await?, 2..=5, true)?;
    let before = Some(Seq::new(6));
    is_page("the tail", &stores.b.tail(&thread, before, 10).await?, 2..=5, true)?;
    for filter in [MessageFilter::new(), of_author("writer")?] {
        let found = stores.b.tail_matching(&thread, &filter, before, 10).await?;
        is_page("the matches", &found, 2..=5, true)?;
    }
    Ok(())
}

/// HIST-161.
pub(super) async fn more_is_true_only_if_messages_were_left_out(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (exact, long, never) = (thread("exact")?, thread("long")?, thread("never")?);
    write(&*stores.a, &exact, &[MESSAGE_BYTES_MAX; 4]).await?;
    write(&*stores.a, &long, &[LARGE; FITTING + 2]).await?;
    let end = i64::try_from(FITTING + 2).unwrap_or(i64::MAX);
    for read in READS {
        is_page(&format!("{read:?} of 16 MiB"), &read.call(&*stores.b, &exact, 10).await?, 1..=4, false)?;
        is_page(&format!("{read:?} of nothing"), &read.call(&*stores.b, &never, 10).await?, [], false)?;
        is_page(&format!("{read:?} of 0"), &read.call(&*stores.b, &long, 0).await?, [], false)?;
        for (limit, more) in [(1, false), (FITTING, false), (FITTING + 1, true)] {
            let page = read.call(&*stores.b, &long, limit).await?;
            let count = i64::try_from(limit.min(FITTING)).unwrap_or(i64::MAX);
            let expected = if read.is_forward() { 1..=count } else { end - count + 1..=end };
            is_page(&format!("{read:?} of {limit}"), &page, expected, more)?;
        }
    }
    is_page("the last window", &stores.b.get_messages(&long, 2, 10).await?, 3..=end, false)?;
    is_page("the last page", &stores.b.page_after(&long, Seq::new(2), 10).await?, 3..=end, false)?;
    let before = Some(Seq::new(end - 1));
    is_page("the first messages", &stores.b.tail(&long, before, 10).await?, 1..=end - 2, false)
}

/// HIST-162 and HIST-163.
async fn leaves_out(context: Context, forward: bool) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("cut")?;
    // Small messages at both ends, so that the ends differ in their number of messages.
    write(&*stores.a, &thread, &[1, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE, 2, 3]).await?;
    for read in READS.into_iter().filter(|read| read.is_forward() == forward) {
        let page = read.call(&*stores.b, &thread, PAGE_ITEMS_MAX).await?;
        let expected = if forward { 1..=6 } else { 4..=10 };
        is_page(&format!("{read:?}"), &page, expected, true)?;
    }
    Ok(())
}

/// HIST-162.
pub(super) async fn forward_reads_leave_out_the_newest(context: Context) -> CaseResult {
    leaves_out(context, true).await
}

/// HIST-163.
pub(super) async fn the_tail_leaves_out_the_oldest(context: Context) -> CaseResult {
    leaves_out(context, false).await
}

/// HIST-164.
pub(super) async fn dropped_messages_do_not_count(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("dropped")?;
    let other = ChatMessage::user("small").with_author(AgentId::new("other")?, None);
    append(&*stores.a, &thread, vec![other.clone()]).await?;
    write(&*stores.a, &thread, &[LARGE; FITTING + 2]).await?;
    append(&*stores.a, &thread, vec![other]).await?;
    let end = i64::try_from(FITTING + 4).unwrap_or(i64::MAX);
    let without = MessageFilter::new().exclude_agent(AgentId::new("writer")?);
    for (what, filter) in [("by author", of_author("other")?), ("without an author", without)] {
        let found = stores.b.tail_matching(&thread, &filter, None, 10).await?;
        is_page(what, &found, [1, end], false)?;
    }
    let others = MessageFilter::new().exclude_agent(AgentId::new("other")?);
    for (what, filter) in [("by the large author", of_author("writer")?), ("without the small", others)] {
        let found = stores.b.tail_matching(&thread, &filter, None, 10).await?;
        is_page(what, &found, end - 5..end, true)?;
    }
    Ok(())
}

/// HIST-165.
pub(super) async fn a_reader_that_continues_gets_every_message_once(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("whole")?;
    let sizes: Vec<usize> = (0..12).map(|index| if index % 3 == 0 { 9 } else { LARGE }).collect();
    write(&*stores.a, &thread, &sizes).await?;
    let expected: Vec<i64> = (1..=12).collect();
    for limit in [PAGE_ITEMS_MAX, 4] {
        let (mut found, mut after) = (Vec::new(), Some(Seq::MIN));
        while let Some(from) = after {
            let page = stores.b.page_after(&thread, from, limit).await?;
            after = page.next(limit);
            found.extend(seqs(&page.messages));
        }
        expect::equal(&format!("forwards by {limit}"), &found, &expected)?;
        for filter in [None, Some(of_author("writer")?)] {
            let (mut found, mut before) = (Vec::new(), None);
            loop {
                let page = match &filter {
                    None => stores.b.tail(&thread, before, limit).await?,
                    Some(filter) => stores.b.tail_matching(&thread, filter, before, limit).await?,
                };
                before = page.previous(limit);
                found.splice(0..0, seqs(&page.messages));
                if before.is_none() {
                    break;
                }
            }
            expect::equal(&format!("backwards by {limit}"), &found, &expected)?;
        }
    }
    Ok(())
}

/// Checks the last number of every read against `thread_info`.
async fn has_last(what: &str, store: &dyn HistoryProvider, thread: &Thread) -> CaseResult {
    let info = last(store, thread).await?;
    for read in READS {
        for limit in [0, 1, 10] {
            let got = read.call(store, thread, limit).await?.last;
            expect::equal(&format!("{what}: the last number of {read:?} of {limit}"), &got, &info)?;
            let generations = (got.generation(), info.generation());
            expect::equal(&format!("{what}: the generation"), &generations.0, &generations.1)?;
        }
    }
    Ok(())
}

/// HIST-166.
pub(super) async fn every_read_returns_the_last_number(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("last")?;
    has_last("a thread that was never written", &*stores.b, &thread).await?;
    let mut batch = numbered("m", 6);
    batch[2].run = Some(run("r")?);
    append(&*stores.a, &thread, batch).await?;
    has_last("an append", &*stores.b, &thread).await?;
    stores.a.remove(&thread, Removal::newest(1)).await?;
    has_last("a pop", &*stores.b, &thread).await?;
    super::update::retell(&*stores.a, &thread, 1, "new").await?;
    has_last("an update", &*stores.b, &thread).await?;
    stores.a.clear_run(&thread, &run("r")?, None).await?;
    has_last("a clear of a run", &*stores.b, &thread).await?;
    let end = last(&*stores.a, &thread).await?;
    let replacement = Replacement::new(Seq::new(2), messages(&["summary"])).with_seen(end);
    stores.a.replace(&thread, replacement).await?;
    has_last("a replacement", &*stores.b, &thread).await?;
    stores.a.clear(&thread, None).await?;
    has_last("a clear", &*stores.b, &thread).await?;
    // In the middle of the thread, too.
    say(&*stores.a, &thread, &["1", "2", "3", "4"]).await?;
    let end = last(&*stores.b, &thread).await?;
    for place in [end, Seq::new(end.get() - 2)] {
        expect::equal("the last of a page", &stores.b.page_after(&thread, place, 9).await?.last, &end)?;
        expect::equal("the last of a tail", &stores.b.tail(&thread, Some(place), 9).await?.last, &end)?;
        let found = stores.b.tail_matching(&thread, &of_author("nobody")?, Some(place), 9).await?;
        expect::equal("the last of no match", &found.last, &end)?;
    }
    expect::equal("the last of a window", &stores.b.get_messages(&thread, 99, 9).await?.last, &end)
}

/// HIST-166: while writers append, the newest message of a read has its last number.
pub(super) async fn messages_and_last_number_are_of_one_instant(context: Context) -> CaseResult {
    const ROUNDS: usize = 30;
    let stores = context.history().await?;
    let thread = thread("instant")?;
    write(&*stores.a, &thread, &[1]).await?;
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (store, thread, done) = (Arc::clone(&stores.b), thread.clone(), Arc::clone(&done));
        BackgroundTask::start(async move {
            loop {
                // Read first, so that the last read follows the last write.
                let ends = done.load(Ordering::Acquire);
                for read in READS {
                    let page = read.call(&*store, &thread, PAGE_ITEMS_MAX).await?;
                    let newest = page.messages.last().map(|stored| stored.seq.get());
                    expect::equal(&format!("{read:?}: the newest"), &newest, &Some(page.last.get()))?;
                }
                if ends {
                    return CaseResult::Ok(());
                }
                tokio::task::yield_now().await;
            }
        })
    };
    let written = at_once(3, |writer| {
        let (store, thread) = (either(&stores, writer), thread.clone());
        async move {
            for _ in 0..ROUNDS {
                append(&*store, &thread, vec![sized(2)?, sized(2)?]).await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        }
    })
    .await;
    done.store(true, Ordering::Release);
    reader.end().await??;
    written.map(drop)
}

/// HIST-167: for each read, the read itself is the first call after the expiry.
pub(super) async fn a_read_counts_an_expiry(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for (number, read) in READS.into_iter().enumerate() {
        let limit = [0, 10, 1][number % 3];
        let (thread, end) = expired(&stores, &format!("expired {number}"), AppendOptions::default()).await?;
        let page = read.call(&*stores.b, &thread, limit).await?;
        is_page(&format!("{read:?} after the expiry"), &page, [], false)?;
        expect::equal(&format!("{read:?}: the last number"), &page.last.get(), &(end.get() + 1))?;
        expect::equal("the last of `thread_info`", &last(&*stores.a, &thread).await?, &page.last)?;
    }
    Ok(())
}

/// HIST-168.
pub(super) async fn an_append_on_what_was_read_succeeds_once(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for (number, read) in READS.into_iter().enumerate() {
        let written = thread(&format!("read {number}"))?;
        write(&*stores.a, &written, &[1, 2, 3]).await?;
        stores.a.remove(&written, Removal::newest(1)).await?;
        let never = thread(&format!("never {number}"))?;
        let gone = expired(&stores, &format!("gone {number}"), AppendOptions::default()).await?.0;
        for (what, thread) in [("written", &written), ("never written", &never), ("expired", &gone)] {
            let seen = read.call(&*stores.b, thread, 10).await?.last;
            let on = |last| AppendOptions::default().with_if_last(last);
            stores.a.append_many(thread, messages(&["1"]), on(seen)).await?;
            let lost = stores.b.append_many(thread, messages(&["2"]), on(seen)).await;
            conflict(&format!("{read:?} of a thread that was {what}, a second time"), lost)?;
            let seen = read.call(&*stores.a, thread, 0).await?.last;
            stores.b.append_many(thread, messages(&["3"]), on(seen)).await?;
        }
    }
    Ok(())
}
