//! One rule, many places: numbers, limits and missing threads mean the same in every method that takes them.

use larder_kernel::{
    ErrorKind, HistoryEventKind, MessageFilter, Replacement, Seq, StoredMessage, Thread, Ttl,
};

use super::support::{Stores, append, last, next, numbered, run, say, seqs, thread};
use crate::case::{Case, CaseResult, case};
use crate::context::Context;
use crate::expect;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(History, "HIST-026", the_tail_follows_the_table_of_numbers),
        case!(History, "HIST-095", a_filtered_tail_follows_the_table_of_numbers),
        case!(History, "HIST-028", a_page_follows_the_table_of_numbers),
        case!(History, "HIST-088", a_subscription_follows_the_table_of_numbers),
        case!(History, "HIST-040", a_fork_follows_the_table_of_numbers),
        case!(History, "HIST-024", every_read_follows_the_table_of_limits),
        case!(History, "HIST-035", every_change_of_an_empty_thread_follows_the_table),
    ]
}

/// A thread with gaps between its numbers, its messages, and every number that it assigned.
async fn with_gaps(context: &Context) -> CaseResult<(Stores, Thread, Vec<StoredMessage>, Vec<Seq>)> {
    let stores = context.history().await?;
    let thread = thread("gaps")?;
    let mut assigned = Vec::new();
    for round in 0..4 {
        let mut batch = numbered("m", 5);
        for message in batch.iter_mut().skip(1).step_by(2) {
            message.run = Some(run(&round.to_string())?);
        }
        append(&*stores.a, &thread, batch).await?;
        assigned.extend(
            stores.a.page_after(&thread, Seq::ZERO, 100).await?.messages.iter().map(|stored| stored.seq),
        );
        if round % 2 == 0 {
            stores.a.clear_run(&thread, &run(&round.to_string())?, None).await?;
            assigned.push(last(&*stores.a, &thread).await?);
        }
    }
    assigned.sort_unstable();
    assigned.dedup();
    let messages = stores.a.page_after(&thread, Seq::ZERO, 100).await?.messages;
    expect::equal("the number of messages", &messages.len(), &16)?;
    Ok((stores, thread, messages, assigned))
}

fn below(messages: &[StoredMessage], bound: Seq) -> Vec<i64> {
    seqs(messages).into_iter().filter(|seq| *seq < bound.get()).collect()
}

async fn the_tail_follows_the_table_of_numbers(context: Context) -> CaseResult {
    let (stores, thread, messages, assigned) = with_gaps(&context).await?;
    for before in assigned.into_iter().chain([Seq::ZERO, Seq::MAX]) {
        let found = stores.b.tail(&thread, Some(before), 100).await?.messages;
        expect::equal(&format!("the tail before {before}"), &seqs(&found), &below(&messages, before))?;
    }
    Ok(())
}

async fn a_filtered_tail_follows_the_table_of_numbers(context: Context) -> CaseResult {
    let (stores, thread, messages, assigned) = with_gaps(&context).await?;
    let filters = [MessageFilter::new(), MessageFilter::new().include_agent(thread.agent.clone())];
    for before in assigned.into_iter().chain([Seq::ZERO, Seq::MAX]) {
        for filter in &filters {
            let found = stores.b.tail_matching(&thread, filter, Some(before), 100).await?.messages;
            expect::equal(&format!("the tail before {before}"), &seqs(&found), &below(&messages, before))?;
        }
    }
    Ok(())
}

async fn a_page_follows_the_table_of_numbers(context: Context) -> CaseResult {
    let (stores, thread, messages, assigned) = with_gaps(&context).await?;
    for after in assigned.into_iter().chain([Seq::ZERO, Seq::MIN, Seq::MAX]) {
        let found = stores.b.page_after(&thread, after, 100).await?.messages;
        let expected: Vec<i64> = seqs(&messages).into_iter().filter(|seq| *seq > after.get()).collect();
        expect::equal(&format!("the page after {after}"), &seqs(&found), &expected)?;
    }
    Ok(())
}

async fn a_subscription_follows_the_table_of_numbers(context: Context) -> CaseResult {
    let (stores, thread, messages, assigned) = with_gaps(&context).await?;
    let newest = last(&*stores.a, &thread).await?;
    for after in assigned.into_iter().chain([Seq::ZERO]).filter(|after| *after < newest) {
        let mut events = stores.b.subscribe(&thread, after).await?;
        let mut found = Vec::new();
        loop {
            let event = next(&mut events, &format!("after {after}")).await?;
            expect::that(event.seq > after, format!("an event after {after}"), event.seq)?;
            if matches!(event.kind, HistoryEventKind::Appended { .. }) {
                found.push(event.seq.get());
            }
            if event.seq >= newest {
                break;
            }
        }
        let expected: Vec<i64> = seqs(&messages).into_iter().filter(|seq| *seq > after.get()).collect();
        expect::equal(&format!("messages after {after}"), &found, &expected)?;
    }
    Ok(())
}

async fn a_fork_follows_the_table_of_numbers(context: Context) -> CaseResult {
    let (stores, source, messages, assigned) = with_gaps(&context).await?;
    for (number, up_to) in assigned.into_iter().enumerate() {
        let target = thread(&format!("fork-{number}"))?;
        let expected: Vec<_> = messages.iter().filter(|stored| stored.seq <= up_to).collect();
        let forked = stores.a.fork(&source, &target, Some(up_to), None).await;
        if expected.is_empty() {
            expect::error(&format!("a fork up to {up_to}"), forked, ErrorKind::NotFound)?;
            continue;
        }
        let copied = usize::try_from(forked?.messages).ok();
        expect::equal(&format!("messages up to {up_to}"), &copied, &Some(expected.len()))?;
        let found = stores.b.page_after(&target, Seq::ZERO, 100).await?.messages;
        let found: Vec<_> = found.iter().map(|stored| &stored.message).collect();
        let expected: Vec<_> = expected.iter().map(|stored| &stored.message).collect();
        expect::equal(&format!("the fork up to {up_to}"), &found, &expected)?;
    }
    Ok(())
}

async fn every_read_follows_the_table_of_limits(context: Context) -> CaseResult {
    let (stores, thread, messages, _) = with_gaps(&context).await?;
    let (all, count) = (seqs(&messages), messages.len());
    for limit in [0, 1, 2, count - 1, count, count + 1, 9_999, 10_000] {
        let (first, newest) = (&all[..limit.min(count)], &all[count.saturating_sub(limit)..]);
        let by_filter = stores.b.tail_matching(&thread, &MessageFilter::new(), None, limit).await?.messages;
        let reads = [
            ("get_messages", stores.b.get_messages(&thread, 0, limit).await?.messages, first),
            ("page_after", stores.b.page_after(&thread, Seq::ZERO, limit).await?.messages, first),
            ("tail", stores.b.tail(&thread, None, limit).await?.messages, newest),
            ("tail_matching", by_filter, newest),
        ];
        for (method, found, expected) in reads {
            expect::equal(&format!("{method} with limit {limit}"), &seqs(&found).as_slice(), &expected)?;
        }
    }
    Ok(())
}

async fn every_change_of_an_empty_thread_follows_the_table(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (never, cleared, emptied) = (thread("never")?, thread("cleared")?, thread("emptied")?);
    say(&*stores.a, &cleared, &["1", "2"]).await?;
    stores.a.clear(&cleared, None).await?;
    let mut tagged = numbered("m", 2);
    for message in &mut tagged {
        message.run = Some(run("r")?);
    }
    append(&*stores.a, &emptied, tagged).await?;
    stores.a.clear_run(&emptied, &run("r")?, None).await?;
    let full = thread("full")?;
    say(&*stores.a, &full, &["1"]).await?;
    for (what, empty) in [("never written", &never), ("cleared", &cleared), ("emptied", &emptied)] {
        let before = last(&*stores.b, empty).await?;
        let removed =
            (stores.a.clear(empty, None).await?, stores.a.clear_run(empty, &run("r")?, None).await?);
        expect::equal(&format!("{what}: messages removed"), &removed, &(0, 0))?;
        for ttl in [Some(Ttl::fixed(std::time::Duration::from_secs(60))), None] {
            let set = stores.a.set_ttl(empty, ttl, None).await;
            expect::error(&format!("{what}: a time to live"), set, ErrorKind::NotFound)?;
        }
        let forked = stores.a.fork(empty, &thread("target")?, None, None).await;
        expect::error(&format!("{what}: a fork"), forked, ErrorKind::NotFound)?;
        expect::equal(&format!("{what}: the last number"), &last(&*stores.b, empty).await?, &before)?;
        let stale = Replacement::new(last(&*stores.b, &full).await?, numbered("m", 1));
        if before.get() == 0 {
            let replaced = stores.a.replace(empty, stale).await;
            expect::error(&format!("{what}: a replacement beyond the end"), replaced, ErrorKind::Conflict)?;
        }
    }
    Ok(())
}
