//! Threads with many messages, and many threads.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use larder_kernel::limits::BATCH_MESSAGES_MAX;
use larder_kernel::{
    AgentId, AgentRole, ChatMessage, Contract, HistoryProvider, MessageFilter, MessageUpdate, PageRequest,
    Removal, Seq, StoredMessage, Thread, Ttl,
};

use super::support::{
    Stores, append, last, list_all, next, reads_empty, replace_now, run, say, texts, thread, with_key,
};
use crate::case::{CaseResult, case};
use crate::context::Context;
use crate::expect;
use crate::suites::many::{Row, count, each};

const CONTRACT: Contract = Contract::History;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        ("append_many", case!(History, "HIST-002", many_batches_get_contiguous_numbers)),
        ("append_many", case!(History, "HIST-007", many_idempotency_keys_are_remembered)),
        ("get_messages", case!(History, "HIST-024", every_window_of_a_long_thread_is_full)),
        ("tail", case!(History, "HIST-025", the_tail_of_a_long_thread_is_complete)),
        ("tail", case!(History, "HIST-026", a_long_thread_is_paged_backwards)),
        ("tail_matching", case!(History, "HIST-090", the_oldest_of_many_messages_is_found)),
        ("page_after", case!(History, "HIST-028", a_long_thread_is_paged_forwards)),
        ("thread_info", case!(History, "HIST-031", many_messages_are_counted)),
        ("thread_info", case!(History, "HIST-032", the_size_of_many_messages_is_their_sum)),
        ("clear", case!(History, "HIST-034", many_messages_are_cleared)),
        ("clear_run", case!(History, "HIST-038", many_messages_of_a_run_are_cleared)),
        ("remove", case!(History, "HIST-113", many_messages_are_removed_by_number)),
        ("remove", case!(History, "HIST-114", many_messages_are_rewound)),
        ("remove", case!(History, "HIST-115", many_messages_are_popped)),
        ("update", case!(History, "HIST-140", messages_of_a_long_thread_are_updated)),
        ("fork", case!(History, "HIST-040", many_messages_are_forked)),
        ("replace", case!(History, "HIST-050", many_messages_are_replaced)),
        ("list_threads", case!(History, "HIST-061", many_threads_are_listed_once)),
        ("list_threads", case!(History, "HIST-062", many_threads_of_an_agent_are_listed)),
        ("set_ttl", case!(History, "HIST-065", many_messages_expire_together)),
        ("subscribe", case!(History, "HIST-080", a_backlog_of_many_messages_is_delivered)),
        ("subscribe", case!(History, "HIST-086", a_subscriber_behind_many_messages_misses_none)),
        ("erase", case!(History, "STORE-006", erasing_many_messages_leaves_none)),
    ]
}

/// Returns a message of the long thread: a critic wrote the oldest one, and `even` every second one.
fn message(number: usize) -> CaseResult<ChatMessage> {
    let message = ChatMessage::user(number.to_string());
    Ok(match number {
        0 => message.with_author(AgentId::new("rare")?, Some(AgentRole::new("critic")?)),
        even if even.is_multiple_of(2) => message.with_author(AgentId::new("even")?, None),
        _ => message,
    })
}

/// Appends many messages in the longest batches, and checks that their numbers follow `before`.
async fn fill(store: &dyn HistoryProvider, thread: &Thread, many: usize, mut before: i64) -> CaseResult {
    let all = (0..many).map(message).collect::<CaseResult<Vec<_>>>()?;
    for batch in all.chunks(BATCH_MESSAGES_MAX) {
        let appended = append(store, thread, batch.to_vec()).await?;
        let expected = (before + 1, before + i64::try_from(batch.len()).unwrap_or(i64::MAX));
        expect::equal("the batch's numbers", &(appended.first.get(), appended.last.get()), &expected)?;
        before = expected.1;
    }
    Ok(())
}

/// One thread with many messages, and many threads with one, of two agents.
async fn large(context: &Context) -> CaseResult<(Stores, Thread, usize)> {
    let many = context.many(CONTRACT);
    let load = |context: Context| async move {
        let store = context.history().await?.a;
        fill(&*store, &thread("long")?, many, 0).await?;
        let store = &*store;
        each(0..many, |number| async move {
            let thread = Thread::new(["many", "many2"][number % 2], format!("{number:06}"))?;
            say(store, &thread, &["one"]).await.map(drop)
        })
        .await
    };
    Ok((context.large(CONTRACT, "many", load).await?.history().await?, thread("long")?, many))
}

/// Returns a new thread with many messages, and its stores.
async fn long(context: &Context) -> CaseResult<(Stores, Thread, usize)> {
    let (stores, thread, many) = (context.history().await?, thread("long")?, context.many(CONTRACT));
    fill(&*stores.a, &thread, many, 0).await?;
    Ok((stores, thread, many))
}

/// Checks that these are the messages from one number to another.
fn are(what: &str, found: &[StoredMessage], from: usize, to: usize) -> CaseResult {
    expect::equal(&format!("{what}: the number of messages"), &found.len(), &(to - from))?;
    let expected: Vec<String> = (from..to).map(|number| number.to_string()).collect();
    let equal = texts(found).into_iter().eq(expected.iter().map(String::as_str));
    expect::that(equal, format!("{what}: messages {from} to {to} in order"), texts(found).first())
}

async fn many_batches_get_contiguous_numbers(context: Context) -> CaseResult {
    let (stores, thread, many) = long(&context).await?;
    expect::equal("the last number", &last(&*stores.b, &thread).await?.get(), &(count(many).cast_signed()))
}

async fn many_idempotency_keys_are_remembered(context: Context) -> CaseResult {
    let (stores, thread, many) = (context.history().await?, thread("keys")?, context.many(CONTRACT));
    let assigned = Mutex::new(BTreeMap::new());
    // The oldest keys are repeated, and some of the others.
    for numbers in [(0..many).collect::<Vec<_>>(), (0..100).chain((100..many).step_by(100)).collect()] {
        let (store, thread, assigned, numbers) = (&*stores.a, &thread, &assigned, &numbers);
        each(0..numbers.len(), |at| async move {
            let number = numbers[at];
            let said = vec![ChatMessage::user(number.to_string())];
            let appended = store.append_many(thread, said, with_key(&number.to_string())?).await?;
            let mut assigned = assigned.lock().unwrap_or_else(PoisonError::into_inner);
            let first = assigned.entry(number).or_insert(appended);
            expect::equal(&format!("the result of key {number}"), &appended, first)
        })
        .await?;
    }
    expect::equal("messages", &stores.b.thread_info(&thread).await?.messages, &count(many))
}

async fn every_window_of_a_long_thread_is_full(context: Context) -> CaseResult {
    let (stores, thread, many) = large(&context).await?;
    for (offset, limit) in [(0, 10_000), (10_000, 10_000), (many / 2, 1_001), (many - 1, 10), (many, 10)] {
        let found = stores.b.get_messages(&thread, count(offset), limit).await?;
        let (from, to) = (offset.min(many), (offset + limit).min(many));
        are(&format!("{limit} from {offset}"), &found, from, to)?;
    }
    Ok(())
}

async fn the_tail_of_a_long_thread_is_complete(context: Context) -> CaseResult {
    let (stores, thread, many) = large(&context).await?;
    for limit in [10_000, 2_049] {
        let found = stores.b.tail(&thread, None, limit).await?;
        are(&format!("the newest {limit}"), &found, many.saturating_sub(limit), many)?;
    }
    Ok(())
}

async fn a_long_thread_is_paged_backwards(context: Context) -> CaseResult {
    let (stores, thread, many) = large(&context).await?;
    let (mut before, mut end) = (None, many);
    while end > 0 {
        let page = stores.b.tail(&thread, before, 7_000).await?;
        are("a page", &page, end.saturating_sub(7_000), end)?;
        (before, end) = (page.first().map(|oldest| oldest.seq), end.saturating_sub(7_000));
    }
    are("what precedes the oldest", &stores.b.tail(&thread, before, 10).await?, 0, 0)
}

async fn the_oldest_of_many_messages_is_found(context: Context) -> CaseResult {
    let (stores, thread, many) = large(&context).await?;
    let rare = [
        MessageFilter::new().include_agent(AgentId::new("rare")?),
        MessageFilter::new().include_role(AgentRole::new("critic")?),
        MessageFilter::new().exclude_agent(AgentId::new("even")?).exclude_agent(thread.agent.clone()),
    ];
    for filter in rare {
        are("the oldest", &stores.b.tail_matching(&thread, &filter, None, 10).await?, 0, 1)?;
    }
    let even = MessageFilter::new().include_agent(AgentId::new("even")?);
    let found = stores.b.tail_matching(&thread, &even, None, 10_000).await?;
    let expected: Vec<String> = (2..many).step_by(2).map(|number| number.to_string()).collect();
    expect::equal("the number of messages of one author", &found.len(), &expected.len())?;
    expect::that(texts(&found) == expected, "every second message", texts(&found).first())?;
    let found = stores.b.tail_matching(&thread, &MessageFilter::new(), None, 10_000).await?;
    are("the newest without a filter", &found, many.saturating_sub(10_000), many)
}

async fn a_long_thread_is_paged_forwards(context: Context) -> CaseResult {
    let (stores, thread, many) = large(&context).await?;
    for limit in [10_000, 977] {
        let (mut after, mut found) = (Seq::ZERO, Vec::new());
        loop {
            let page = stores.b.page_after(&thread, after, limit).await?;
            let Some(newest) = page.last() else { break };
            let full = page.len() == limit.min(many - found.len().min(many));
            expect::that(full, format!("a page of {limit} or of all that remain"), page.len())?;
            after = newest.seq;
            found.extend(page);
        }
        are(&format!("pages of {limit}"), &found, 0, many)?;
    }
    Ok(())
}

async fn many_messages_are_counted(context: Context) -> CaseResult {
    let (stores, thread, many) = large(&context).await?;
    expect::equal("messages", &stores.b.thread_info(&thread).await?.messages, &count(many))
}

async fn the_size_of_many_messages_is_their_sum(context: Context) -> CaseResult {
    let (stores, thread, many) = large(&context).await?;
    let sizes = (0..many).map(|number| Ok(message(number)?.size_bytes()));
    let sum = sizes.sum::<CaseResult<usize>>()?;
    expect::equal("bytes", &stores.b.thread_info(&thread).await?.bytes, &count(sum))
}

async fn many_messages_are_cleared(context: Context) -> CaseResult {
    let (stores, thread, many) = long(&context).await?;
    expect::equal("messages removed", &stores.a.clear(&thread, None).await?, &count(many))?;
    reads_empty(&*stores.b, &thread).await
}

async fn many_messages_of_a_run_are_cleared(context: Context) -> CaseResult {
    let (stores, thread, many) = (context.history().await?, thread("long")?, context.many(CONTRACT));
    let tagged = run("r")?;
    say(&*stores.a, &thread, &["0"]).await?;
    for from in (0..many).step_by(BATCH_MESSAGES_MAX) {
        let batch = from..many.min(from + BATCH_MESSAGES_MAX);
        let batch = batch.map(|number| ChatMessage::user(number.to_string()).with_run(tagged.clone()));
        append(&*stores.a, &thread, batch.collect()).await?;
    }
    say(&*stores.a, &thread, &["1"]).await?;
    expect::equal("messages removed", &stores.a.clear_run(&thread, &tagged, None).await?, &count(many))?;
    are("what remains", &stores.b.get_messages(&thread, 0, 10_000).await?, 0, 2)
}

async fn many_messages_are_forked(context: Context) -> CaseResult {
    let (stores, source, many) = long(&context).await?;
    let target = thread("target")?;
    let forked = stores.a.fork(&source, &target, None, None).await?;
    expect::equal("messages forked", &forked.messages, &count(many))?;
    let mut found = stores.b.get_messages(&target, 0, 10_000).await?;
    found.extend(stores.b.get_messages(&target, 10_000, 10_000).await?);
    are("the fork", &found, 0, many)
}

async fn many_messages_are_removed_by_number(context: Context) -> CaseResult {
    let (stores, thread, many) = long(&context).await?;
    let numbers: Vec<Seq> = (2..=count(many).cast_signed()).map(Seq::new).collect();
    for batch in numbers.chunks(BATCH_MESSAGES_MAX) {
        let removed = stores.a.remove(&thread, Removal::numbers(batch.iter().copied())).await?;
        expect::equal("messages removed", &removed.removed, &count(batch.len()))?;
    }
    are("the thread", &stores.b.get_messages(&thread, 0, 10_000).await?, 0, 1)
}

async fn many_messages_are_rewound(context: Context) -> CaseResult {
    let (stores, thread, many) = long(&context).await?;
    let removed = stores.a.remove(&thread, Removal::after(Seq::new(1))).await?;
    expect::equal("messages removed", &removed.removed, &count(many - 1))?;
    are("the thread", &stores.b.get_messages(&thread, 0, 10_000).await?, 0, 1)
}

async fn many_messages_are_popped(context: Context) -> CaseResult {
    let (stores, thread, mut left) = long(&context).await?;
    while left > 0 {
        let popped = stores.a.remove(&thread, Removal::newest(BATCH_MESSAGES_MAX)).await?;
        let before = left;
        left = left.saturating_sub(BATCH_MESSAGES_MAX);
        are("the popped messages", &popped.messages, left, before)?;
    }
    reads_empty(&*stores.b, &thread).await
}

async fn messages_of_a_long_thread_are_updated(context: Context) -> CaseResult {
    let (stores, thread, many) = long(&context).await?;
    for index in [0, many / 2, many - 1] {
        let read = async |store: &dyn HistoryProvider| store.get_messages(&thread, count(index), 1).await;
        let found = read(&*stores.a).await?;
        let Some(stored) = found.first() else { return Err(expect::broken("a message", "none")) };
        stores.a.update(&thread, MessageUpdate::of(stored, ChatMessage::user("new"))).await?;
        let found = read(&*stores.b).await?;
        expect::equal(&format!("the message at {index}"), &texts(&found), &vec!["new"])?;
    }
    expect::equal("the messages", &stores.b.thread_info(&thread).await?.messages, &count(many))
}

async fn many_messages_are_replaced(context: Context) -> CaseResult {
    let (stores, thread, many) = long(&context).await?;
    let up_to = last(&*stores.a, &thread).await?;
    say(&*stores.a, &thread, &["1"]).await?;
    let replaced = replace_now(&*stores.a, &thread, up_to, &["0"]).await?;
    expect::equal("messages removed", &replaced.removed, &count(many))?;
    are("the thread", &stores.b.get_messages(&thread, 0, 10_000).await?, 0, 2)
}

async fn many_threads_are_listed_once(context: Context) -> CaseResult {
    let (stores, long, many) = large(&context).await?;
    for limit in [10_000, 977] {
        let found = list_all(&*stores.b, limit).await?;
        expect::equal("the number of threads", &found.len(), &(many + 1))?;
        let ordered = found.windows(2).all(|pair| pair[0].thread < pair[1].thread);
        expect::that(ordered, "each thread once, in byte order", found.first())?;
        let lengths = found.iter().find(|info| info.thread == long).map(|info| info.messages);
        expect::equal("the messages of the long thread", &lengths, &Some(count(many)))?;
    }
    let page = stores.b.list_threads(None, PageRequest::first(10_000)).await?;
    expect::equal("the threads of the longest page", &page.items.len(), &(many + 1).min(10_000))
}

async fn many_threads_of_an_agent_are_listed(context: Context) -> CaseResult {
    let (stores, _, many) = large(&context).await?;
    for (agent, expected) in [("many", many.div_ceil(2)), ("many2", many / 2)] {
        let agent = AgentId::new(agent)?;
        let (mut found, mut page) = (0, PageRequest::first(4_999));
        loop {
            let part = stores.b.list_threads(Some(&agent), page).await?;
            let own = part.items.iter().all(|info| info.thread.agent == agent);
            expect::that(own, format!("threads of {agent}"), part.items.first())?;
            found += part.items.len();
            let Some(next) = part.next else { break };
            page = PageRequest::after(next, 4_999);
        }
        expect::equal(&format!("the number of threads of {agent}"), &found, &expected)?;
    }
    Ok(())
}

async fn many_messages_expire_together(context: Context) -> CaseResult {
    let (stores, thread, _) = long(&context).await?;
    let life = Duration::from_millis(100);
    stores.a.set_ttl(&thread, Some(Ttl::fixed(life)), None).await?;
    tokio::time::sleep(2 * life).await;
    reads_empty(&*stores.b, &thread).await?;
    say(&*stores.a, &thread, &["0"]).await?;
    are("the thread", &stores.b.get_messages(&thread, 0, 10_000).await?, 0, 1)
}

async fn a_backlog_of_many_messages_is_delivered(context: Context) -> CaseResult {
    let (stores, thread, many) = large(&context).await?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    for number in 1..=count(many).cast_signed() {
        let event = next(&mut events, &format!("{number} of the backlog")).await?;
        expect::equal("the event's number", &event.seq.get(), &number)?;
    }
    Ok(())
}

async fn a_subscriber_behind_many_messages_misses_none(context: Context) -> CaseResult {
    let (stores, thread) = (context.history().await?, thread("long")?);
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    say(&*stores.a, &thread, &["first"]).await?;
    next(&mut events, "before the others").await?;
    let many = context.many(CONTRACT);
    fill(&*stores.a, &thread, many, 1).await?;
    for number in 2..=count(many + 1).cast_signed() {
        let event = next(&mut events, &format!("{number} after the wait")).await?;
        expect::equal("the event's number", &event.seq.get(), &number)?;
    }
    Ok(())
}

async fn erasing_many_messages_leaves_none(context: Context) -> CaseResult {
    let (stores, thread, _) = long(&context).await?;
    stores.a.erase().await?;
    reads_empty(&*stores.b, &thread).await?;
    expect::equal("the threads", &list_all(&*stores.b, 10).await?, &Vec::new())
}
