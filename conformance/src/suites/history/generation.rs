//! Generations of threads: positions from before an erasure.

use futures_util::StreamExt;
use larder_kernel::{
    ErrorKind, HistoryEventKind, HistoryProvider, MessageFilter, PageRequest, Replacement, Seq, Thread,
};

use super::support::{EVENT_WAIT, Stores, holds, last, next, next_said, say, thread};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

/// Writes a thread, erases it, and writes more messages than before. Returns positions from before the
/// erasure: the second one and the last one.
async fn written_again(stores: &Stores, thread: &Thread) -> CaseResult<[Seq; 2]> {
    let first = say(&*stores.a, thread, &["1", "2", "3"]).await?;
    let second = stores.b.page_after(thread, first.first, 1).await?.messages;
    let second = expect::some("the second message", second.first())?.seq;
    stores.a.erase().await?;
    say(&*stores.a, thread, &["a", "b", "c", "d", "e"]).await?;
    Ok([second, first.last])
}

/// Returns every position that reads of the thread return.
async fn positions(store: &dyn HistoryProvider, thread: &Thread) -> CaseResult<Vec<Seq>> {
    let all = MessageFilter::new();
    let mut found = vec![last(store, thread).await?];
    found.extend(store.list_threads(None, PageRequest::first(10)).await?.items.iter().map(|info| info.last));
    for read in [
        store.get_messages(thread, 0, 10).await?.messages,
        store.tail(thread, None, 10).await?.messages,
        store.tail(thread, Some(Seq::MAX), 10).await?.messages,
        store.tail_matching(thread, &all, None, 10).await?.messages,
        store.page_after(thread, Seq::MIN, 10).await?.messages,
    ] {
        found.extend(read.iter().map(|stored| stored.seq));
    }
    Ok(found)
}

fn one_generation(what: &str, positions: &[Seq]) -> CaseResult {
    let first = expect::some("a position", positions.first())?.generation();
    expect::that(first.is_some(), format!("{what}: a generation in each position"), positions)?;
    let texts: Vec<String> = positions.iter().map(|position| position.to_text()).collect();
    expect::that(
        positions.iter().all(|at| at.generation() == first),
        format!("{what}: one generation"),
        texts,
    )
}

/// HIST-099.
pub(super) async fn every_position_of_a_thread_names_its_generation(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("named")?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    let first = say(&*stores.a, &thread, &["1", "2"]).await?;
    // The first append of a backend may take another way than the following ones.
    let (one, batch) =
        (say(&*stores.a, &thread, &["3"]).await?, say(&*stores.b, &thread, &["4", "5"]).await?);
    let mut seen = vec![first.first, first.last, one.first, one.last, batch.first, batch.last];
    seen.extend(positions(&*stores.b, &thread).await?);
    stores.a.clear(&thread, None).await?;
    seen.push(say(&*stores.a, &thread, &["6", "7"]).await?.last);
    let replacement = Replacement::new(batch.last, super::support::messages(&["new"]));
    let replacement = replacement.with_seen(last(&*stores.b, &thread).await?);
    let end = stores.a.replace(&thread, replacement).await?.seq;
    seen.push(end);
    seen.extend(positions(&*stores.a, &thread).await?);
    seen.push(first.first);
    while seen.last() != Some(&end) {
        let event = next(&mut events, "of the thread").await?;
        if let HistoryEventKind::Replaced { up_to, messages, .. } = event.kind {
            seen.push(up_to);
            seen.extend(messages.iter().map(|stored| stored.seq));
        }
        seen.push(event.seq);
    }
    one_generation("the thread", &seen)?;
    let fork = Thread::new("assistant", "fork")?;
    let forked = stores.b.fork(&thread, &fork, None, None).await?;
    let mut of_fork = vec![forked.last];
    of_fork.extend(stores.a.tail(&fork, None, 10).await?.messages.iter().map(|stored| stored.seq));
    one_generation("the fork", &of_fork)?;
    expect::that(
        forked.last.generation() != first.last.generation(),
        "another generation of the fork",
        forked.last.to_text(),
    )?;
    stores.a.erase().await?;
    let again = say(&*stores.b, &thread, &["1"]).await?.last;
    expect::that(
        again.generation().is_some() && again.generation() != first.last.generation(),
        "another generation after the erasure",
        again.to_text(),
    )
}

/// HIST-100.
pub(super) async fn a_page_after_a_lost_position_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("paged")?;
    let lost = written_again(&stores, &thread).await?;
    let end = last(&*stores.b, &thread).await?;
    let beyond = Seq::new(end.get() + 1);
    let named = beyond.in_generation(end.generation());
    for after in lost.into_iter().chain([beyond, named, Seq::new(i64::MAX - 1)]) {
        let page = stores.b.page_after(&thread, after, 10).await;
        let refusal = expect::error(&format!("a page after {}", after.to_text()), page, ErrorKind::Conflict)?;
        expect::equal("the field", &refusal.field(), &Some("after"))?;
    }
    expect::equal(
        "a page after the last one",
        &stores.b.page_after(&thread, end, 10).await?.messages.len(),
        &0,
    )?;
    expect::equal(
        "a page after its number",
        &stores.b.page_after(&thread, Seq::new(5), 9).await?.messages.len(),
        &0,
    )?;
    expect::equal("a page after MAX", &stores.b.page_after(&thread, Seq::MAX, 9).await?.messages.len(), &0)?;
    let absent = Thread::new("assistant", "absent")?;
    for after in [end, Seq::new(1)] {
        let page = stores.a.page_after(&absent, after, 10).await;
        expect::error("a page of a thread that does not exist", page, ErrorKind::Conflict)?;
    }
    stores.a.clear(&thread, None).await?;
    expect::equal("a page after a clear", &stores.b.page_after(&thread, end, 10).await?.messages.len(), &0)
}

/// HIST-101.
pub(super) async fn the_tail_before_a_lost_position_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("backwards")?;
    let lost = written_again(&stores, &thread).await?;
    let end = last(&*stores.b, &thread).await?;
    let beyond = Seq::new(end.get() + 1).in_generation(end.generation());
    for before in lost.into_iter().chain([beyond]) {
        let tail = stores.b.tail(&thread, Some(before), 10).await;
        let refusal =
            expect::error(&format!("the tail before {}", before.to_text()), tail, ErrorKind::Conflict)?;
        expect::equal("the field", &refusal.field(), &Some("before"))?;
    }
    let read = stores.b.tail(&thread, Some(end), 10).await?.messages.len();
    expect::equal("the messages before the last one", &read, &4)?;
    expect::equal("a bound", &stores.b.tail(&thread, Some(Seq::new(100)), 10).await?.messages.len(), &5)
}

/// HIST-105.
pub(super) async fn matches_before_a_lost_position_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("matching")?;
    let lost = written_again(&stores, &thread).await?;
    let end = last(&*stores.b, &thread).await?;
    let beyond = Seq::new(end.get() + 1).in_generation(end.generation());
    for filter in [MessageFilter::new(), MessageFilter::new().include_agent(thread.agent.clone())] {
        for before in lost.into_iter().chain([beyond]) {
            let found = stores.b.tail_matching(&thread, &filter, Some(before), 10).await;
            expect::error(&format!("matches before {}", before.to_text()), found, ErrorKind::Conflict)?;
        }
        let found = stores.b.tail_matching(&thread, &filter, Some(end), 10).await?.messages.len();
        expect::equal("the matches before the last one", &found, &4)?;
    }
    Ok(())
}

/// HIST-102.
pub(super) async fn a_fork_up_to_a_lost_position_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target) = (thread("source")?, thread("target")?);
    for lost in written_again(&stores, &source).await? {
        let forked = stores.b.fork(&source, &target, Some(lost), None).await;
        expect::error(&format!("a fork up to {}", lost.to_text()), forked, ErrorKind::Conflict)?;
        holds(&*stores.a, &target, &[]).await?;
    }
    let own = stores.a.tail(&source, None, 3).await?.messages;
    let own = expect::some("a message", own.first())?.seq;
    stores.b.fork(&source, &target, Some(own), None).await?;
    holds(&*stores.a, &target, &["a", "b", "c"]).await
}

/// HIST-103.
pub(super) async fn a_replacement_at_a_lost_position_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("replaced")?;
    let [second, third] = written_again(&stores, &thread).await?;
    let own = last(&*stores.b, &thread).await?;
    let messages = || super::support::messages(&["summary"]);
    for (up_to, seen) in [(second, third), (second, own), (Seq::new(2), third), (second, second)] {
        let replaced = stores.b.replace(&thread, Replacement::new(up_to, messages()).with_seen(seen)).await;
        let what = format!("a replacement up to {}, seen {}", up_to.to_text(), seen.to_text());
        expect::error(&what, replaced, ErrorKind::Conflict)?;
        holds(&*stores.a, &thread, &["a", "b", "c", "d", "e"]).await?;
    }
    let absent = Thread::new("assistant", "absent")?;
    let replaced = stores.b.replace(&absent, Replacement::new(second, messages())).await;
    expect::error("a replacement in a thread that does not exist", replaced, ErrorKind::Conflict)?;
    stores.b.replace(&thread, Replacement::new(Seq::new(2), messages()).with_seen(own)).await?;
    holds(&*stores.a, &thread, &["summary", "c", "d", "e"]).await
}

/// HIST-104.
pub(super) async fn subscribing_after_a_lost_position_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("followed")?;
    let lost = written_again(&stores, &thread).await?;
    let end = last(&*stores.b, &thread).await?;
    let beyond = Seq::new(end.get() + 1);
    for after in lost.into_iter().chain([beyond, beyond.in_generation(end.generation())]) {
        refuses(&stores, &thread, after).await?;
    }
    refuses(&stores, &Thread::new("assistant", "absent")?, end).await?;
    let mut events = stores.b.subscribe(&thread, end).await?;
    say(&*stores.a, &thread, &["f"]).await?;
    next_said(&mut events, "f").await.map(drop)
}

async fn refuses(stores: &Stores, thread: &Thread, after: Seq) -> CaseResult {
    let subscribed = stores.b.subscribe(thread, after).await.map(drop);
    expect::error(&format!("a subscription after {}", after.to_text()), subscribed, ErrorKind::Conflict)
        .map(drop)
}

/// HIST-098: the thread is written past the position before the subscription reads again.
pub(super) async fn a_subscription_does_not_continue_in_another_generation(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("followed")?;
    let begun = say(&*stores.a, &thread, &["1", "2", "3"]).await?;
    let mut delivered = stores.b.subscribe(&thread, Seq::ZERO).await?;
    for text in ["1", "2", "3"] {
        next_said(&mut delivered, text).await?;
    }
    // Neither has delivered an event.
    let resumed = stores.b.subscribe(&thread, begun.last).await?;
    let bare = stores.b.subscribe(&thread, Seq::new(3)).await?;
    stores.a.erase().await?;
    say(&*stores.a, &thread, &["a", "b", "c", "d", "e"]).await?;
    for (what, mut events) in [("delivered", delivered), ("resumed", resumed), ("bare", bare)] {
        let Ok(told) = tokio::time::timeout(EVENT_WAIT, events.next()).await else {
            return Err(expect::broken(format!("Conflict for {what}"), "nothing came"));
        };
        let told = expect::some("Conflict", told)?;
        expect::error(&format!("the subscription ({what})"), told, ErrorKind::Conflict)?;
    }
    Ok(())
}
