//! Reads: windows from the oldest, from the newest, and by number.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{ChatMessage, HistoryProvider, Replacement, Seq, StoredMessage, Thread};

use super::support::{
    Stores, all, append, at_once, counts, either, last, messages, numbered, reads_empty, run, say, seqs,
    texts, thread,
};
use crate::case::{CaseResult, implemented};
use crate::context::Context;
use crate::expect;
use crate::suites::background::BackgroundTask;

/// Returns a thread whose numbers have holes and extend below 1, and its messages. A method
/// that the store does not implement yet leaves no holes.
async fn with_holes(stores: &Stores) -> CaseResult<(Thread, Vec<StoredMessage>)> {
    let thread = thread("holes")?;
    let mut batch = numbered("m", 12);
    for message in batch.iter_mut().skip(4).step_by(3) {
        message.run = Some(run("hole")?);
    }
    append(&*stores.a, &thread, batch).await?;
    let cleared = implemented(stores.a.clear_run(&thread, &run("hole")?, None).await)?;
    let mut replaced = None;
    if let Some(info) = counts(&*stores.a, &thread).await? {
        let summary = messages(&["r1", "r2", "r3", "r4", "r5"]);
        let replacement = Replacement::new(Seq::new(2), summary).with_seen(info.last);
        replaced = implemented(stores.a.replace(&thread, replacement).await)?;
    }
    say(&*stores.a, &thread, &["n1", "n2"]).await?;
    let stored = all(&*stores.b, &thread).await?;
    if cleared.is_some() && replaced.is_some() {
        let expected = ["r1", "r2", "r3", "r4", "r5", "m3", "m4", "m6", "m7", "m9", "m10", "m12", "n1", "n2"];
        expect::equal("the thread", &texts(&stored), &expected.to_vec())?;
    }
    Ok((thread, stored))
}

/// HIST-020.
pub(super) async fn a_thread_without_messages_reads_as_empty(context: Context) -> CaseResult {
    let stores = context.history().await?;
    reads_empty(&*stores.a, &thread("never written")?).await?;
    let cleared = thread("cleared")?;
    say(&*stores.a, &cleared, &["x"]).await?;
    stores.a.clear(&cleared, None).await?;
    reads_empty(&*stores.b, &cleared).await?;
    expect::equal("an offset into it", &stores.b.get_messages(&cleared, 3, 5).await?.messages, &Vec::new())
}

/// HIST-021.
pub(super) async fn messages_are_returned_oldest_first(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("order")?;
    // Beyond 9 and 99, so that an order of numbers as text would differ.
    for batch in numbered("m", 120).chunks(7) {
        append(&*stores.a, &thread, batch.to_vec()).await?;
    }
    let stored = stores.b.get_messages(&thread, 0, 1_000).await?.messages;
    let expected: Vec<i64> = (1..=120).collect();
    expect::equal("the numbers", &seqs(&stored), &expected)?;
    let in_order = stored.iter().all(|stored| stored.message.text == format!("m{}", stored.seq));
    expect::that(in_order, "the texts in the order written", texts(&stored))
}

/// HIST-022.
pub(super) async fn an_offset_counts_messages_and_not_numbers(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_holes(&stores).await?;
    for (offset, at) in (0_u64..).zip(0..stored.len()) {
        let window = stores.b.get_messages(&thread, offset, 3).await?.messages;
        let expected: Vec<_> = stored.iter().skip(at).take(3).cloned().collect();
        expect::equal(&format!("3 messages from offset {offset}"), &window, &expected)?;
    }
    Ok(())
}

/// HIST-022.
pub(super) async fn an_offset_past_the_end_returns_nothing(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("past the end")?;
    say(&*stores.a, &thread, &["a", "b", "c"]).await?;
    let huge = [
        u64::from(u32::MAX),
        u64::from(u32::MAX) + 1,
        (1 << 63) - 1,
        1 << 63,
        (1 << 63) + 1,
        u64::MAX - 1,
        u64::MAX,
    ];
    for offset in [3, 4, 1_000].into_iter().chain(huge) {
        let window = stores.b.get_messages(&thread, offset, PAGE_ITEMS_MAX).await?.messages;
        expect::equal(&format!("messages from offset {offset}"), &window, &Vec::new())?;
    }
    Ok(())
}

/// HIST-023.
pub(super) async fn a_window_of_0_is_empty(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("none")?;
    say(&*stores.a, &thread, &["a", "b", "c"]).await?;
    for offset in [0, 1, 2, 3, 9] {
        let window = stores.b.get_messages(&thread, offset, 0).await?.messages;
        expect::equal(&format!("0 messages from offset {offset}"), &window, &Vec::new())?;
    }
    Ok(())
}

/// HIST-024.
pub(super) async fn a_window_ends_at_the_limit_or_at_the_end_of_the_thread(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_holes(&stores).await?;
    for (offset, at) in (0_u64..).zip(0..=stored.len()) {
        for limit in [1, 2, 5, stored.len() - 1, stored.len(), stored.len() + 1, PAGE_ITEMS_MAX] {
            let window = stores.b.get_messages(&thread, offset, limit).await?.messages;
            let expected: Vec<_> = stored.iter().skip(at).take(limit).cloned().collect();
            expect::equal(&format!("{limit} messages from offset {offset}"), &window, &expected)?;
        }
    }
    Ok(())
}

/// HIST-024: an internal page size of the backend does not truncate a long window.
pub(super) async fn long_windows_are_not_cut_short(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("long")?;
    for part in ["a", "b", "c"] {
        append(&*stores.a, &thread, numbered(part, 900)).await?;
    }
    let window = stores.b.get_messages(&thread, 0, PAGE_ITEMS_MAX).await?.messages;
    let expected: Vec<i64> = (1..=2_700).collect();
    expect::equal("get_messages", &seqs(&window), &expected)?;
    expect::equal("tail", &seqs(&stores.b.tail(&thread, None, PAGE_ITEMS_MAX).await?.messages), &expected)?;
    let page = stores.b.page_after(&thread, Seq::ZERO, PAGE_ITEMS_MAX).await?.messages;
    expect::equal("page_after", &seqs(&page), &expected)?;
    let middle: Vec<i64> = (1_001..=2_600).collect();
    expect::equal(
        "a window inside",
        &seqs(&stores.b.get_messages(&thread, 1_000, 1_600).await?.messages),
        &middle,
    )
}

/// HIST-025.
pub(super) async fn the_tail_returns_the_newest_messages_oldest_first(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_holes(&stores).await?;
    for limit in 1..=stored.len() {
        let expected = stored.get(stored.len() - limit..).unwrap_or_default().to_vec();
        expect::equal(
            &format!("tail of {limit}"),
            &stores.b.tail(&thread, None, limit).await?.messages,
            &expected,
        )?;
    }
    Ok(())
}

/// HIST-026.
pub(super) async fn before_considers_only_smaller_numbers(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_holes(&stores).await?;
    let ends = [Seq::MIN, Seq::new(i64::MIN + 1), Seq::ZERO, Seq::MAX];
    for before in (-5..=20).map(Seq::new).chain(ends) {
        for limit in [1, 3, 100] {
            let older: Vec<_> = stored.iter().filter(|stored| stored.seq < before).cloned().collect();
            let expected = older.get(older.len().saturating_sub(limit)..).unwrap_or_default().to_vec();
            let tail = stores.b.tail(&thread, Some(before), limit).await?.messages;
            expect::equal(&format!("tail of {limit} before {before}"), &tail, &expected)?;
        }
    }
    Ok(())
}

/// HIST-026.
pub(super) async fn a_reader_can_page_backwards(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_holes(&stores).await?;
    for step in [1, 2, 3, 5, 13, 14, 15] {
        let mut walked: Vec<StoredMessage> = Vec::new();
        let mut before = None;
        loop {
            let mut part = stores.b.tail(&thread, before, step).await?.messages;
            let Some(oldest) = part.first() else { break };
            before = Some(oldest.seq);
            part.append(&mut walked);
            walked = part;
            expect::that(walked.len() <= stored.len(), "the walk to end at the oldest", seqs(&walked))?;
        }
        expect::equal(&format!("a walk back in steps of {step}"), &walked, &stored)?;
    }
    Ok(())
}

/// HIST-027.
pub(super) async fn a_tail_of_0_is_empty_and_a_long_one_is_complete(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_holes(&stores).await?;
    for before in [None, Some(Seq::MAX), Some(Seq::new(5))] {
        expect::equal("a tail of 0", &stores.b.tail(&thread, before, 0).await?.messages, &Vec::new())?;
    }
    for limit in [stored.len() + 1, 1_000, PAGE_ITEMS_MAX] {
        expect::equal(
            &format!("tail of {limit}"),
            &stores.b.tail(&thread, None, limit).await?.messages,
            &stored,
        )?;
    }
    Ok(())
}

/// HIST-028.
pub(super) async fn a_page_contains_only_greater_numbers(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, stored) = with_holes(&stores).await?;
    let last = last(&*stores.b, &thread).await?;
    let ends = [Seq::MIN, Seq::new(i64::MIN + 1), Seq::MAX];
    // A position beyond the last one is the subject of HIST-100.
    for after in (-5..=20).map(Seq::new).filter(|after| *after <= last).chain(ends) {
        for limit in [1, 4, 100] {
            let expected: Vec<_> =
                stored.iter().filter(|stored| stored.seq > after).take(limit).cloned().collect();
            let page = stores.b.page_after(&thread, after, limit).await?.messages;
            expect::equal(&format!("{limit} messages after {after}"), &page, &expected)?;
        }
    }
    Ok(())
}

/// HIST-030.
pub(super) async fn a_page_of_0_is_empty(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("none")?;
    say(&*stores.a, &thread, &["a", "b", "c"]).await?;
    for after in [Seq::MIN, Seq::ZERO, Seq::new(1), Seq::MAX] {
        expect::equal("a page of 0", &stores.b.page_after(&thread, after, 0).await?.messages, &Vec::new())?;
    }
    Ok(())
}

/// Reads pages of `limit` until a page is empty that was requested after `done` was set.
async fn read_along(
    store: &dyn HistoryProvider,
    thread: &Thread,
    limit: usize,
    done: &AtomicBool,
) -> CaseResult<Vec<StoredMessage>> {
    let mut read: Vec<StoredMessage> = Vec::new();
    loop {
        let ended = done.load(Ordering::Acquire);
        let after = read.last().map_or(Seq::MIN, |last| last.seq);
        let page = store.page_after(thread, after, limit).await?.messages;
        if page.is_empty() && ended {
            return Ok(read);
        }
        if page.is_empty() {
            tokio::task::yield_now().await;
        }
        read.extend(page);
    }
}

/// HIST-029: a reader pages while eight writers append.
pub(super) async fn a_paging_reader_receives_each_message_once(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("followed")?;
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (store, thread, done) = (Arc::clone(&stores.b), thread.clone(), Arc::clone(&done));
        BackgroundTask::start(async move { read_along(&*store, &thread, 7, &done).await })
    };
    let written = at_once(8, |writer| {
        let (store, thread) = (either(&stores, writer), thread.clone());
        async move {
            for round in 0..6 {
                // Batches of different lengths, so that some take longer to commit than others.
                append(&*store, &thread, numbered(&format!("{writer}.{round}."), 1 + (writer + round) % 4))
                    .await?;
            }
            Ok(())
        }
    })
    .await;
    done.store(true, Ordering::Release);
    let read = reader.end().await??;
    written?;
    let stored = all(&*stores.a, &thread).await?;
    expect::equal("the messages of the reader", &seqs(&read), &seqs(&stored))?;
    let distinct: BTreeSet<&str> = texts(&read).into_iter().collect();
    let expected: usize = (0..8).flat_map(|writer| (0..6).map(move |round| 1 + (writer + round) % 4)).sum();
    expect::equal("number of different messages that it read", &distinct.len(), &expected)
}

/// HIST-028: in a thread of one message, around its number.
pub(super) async fn the_page_after_a_message_excludes_it(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("one")?;
    let only = append(&*stores.a, &thread, vec![ChatMessage::user("only")]).await?.last;
    expect::equal("after it", &stores.b.page_after(&thread, only, 10).await?.messages.len(), &0)?;
    let before = Seq::new(only.get() - 1);
    expect::equal(
        "after what precedes it",
        &stores.b.page_after(&thread, before, 10).await?.messages.len(),
        &1,
    )
}
