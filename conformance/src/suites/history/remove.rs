//! Removals: by number, after a position (rewind), and from the end (pop).

use std::collections::BTreeSet;
use std::time::Duration;

use larder_kernel::limits::MESSAGE_BYTES_MAX;
use larder_kernel::{
    ChatMessage, ErrorKind, HistoryEventKind, HistoryProvider, MessageFilter, Removal, RemovalTarget,
    Removed, Replacement, Seq, Thread, Ttl,
};

use super::support::{
    all, append, at_once, conflict, either, holds, key, last, messages, next, next_said, numbered, refused,
    run, say, seqs, texts, thread,
};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

pub(super) fn numbers(numbers: &[i64]) -> Removal {
    Removal::numbers(numbers.iter().copied().map(Seq::new))
}

/// Checks a removal that returns its messages.
pub(super) fn returned(what: &str, removed: &Removed, expected: &[(i64, &str)]) -> CaseResult {
    let (numbers, words): (Vec<i64>, Vec<&str>) = expected.iter().copied().unzip();
    expect::equal(
        &format!("{what}: the count"),
        &removed.removed,
        &larder_kernel::check::size(expected.len()),
    )?;
    let got: Vec<i64> = removed.seqs.iter().map(|seq| seq.get()).collect();
    expect::equal(&format!("{what}: the numbers"), &got, &numbers)?;
    expect::equal(&format!("{what}: the numbers of the messages"), &seqs(&removed.messages), &numbers)?;
    expect::equal(&format!("{what}: the texts"), &texts(&removed.messages), &words)
}

/// HIST-113.
pub(super) async fn a_removal_by_number_removes_exactly_these_messages(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, other) = (thread("these")?, thread("other")?);
    append(&*stores.a, &thread, numbered("m", 6)).await?;
    append(&*stores.a, &other, numbered("m", 6)).await?;
    // In any order, with numbers that no message has.
    let removed = stores.b.remove(&thread, numbers(&[5, 2, 9, 0, -4, i64::MAX, i64::MIN])).await?;
    returned("two of six", &removed, &[(2, "m2"), (5, "m5")])?;
    expect::equal("the last number", &removed.last.get(), &7)?;
    holds(&*stores.a, &thread, &["m1", "m3", "m4", "m6"]).await?;
    holds(&*stores.a, &other, &["m1", "m2", "m3", "m4", "m5", "m6"]).await?;
    // The number of an event is that of no message.
    let removed = stores.a.remove(&thread, numbers(&[7, 6, 2])).await?;
    returned("the newest", &removed, &[(6, "m6")])?;
    holds(&*stores.b, &thread, &["m1", "m3", "m4"]).await
}

/// HIST-114.
pub(super) async fn a_rewind_removes_everything_after_its_position(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("rewound")?;
    let first = append(&*stores.a, &thread, numbered("m", 8)).await?;
    stores.a.remove(&thread, numbers(&[4, 5])).await?;
    for (after, left, count) in [(6, &["m1", "m2", "m3", "m6"][..], 2), (4, &["m1", "m2", "m3"][..], 1)] {
        let position = Seq::new(after).in_generation(first.last.generation());
        let removed = stores.b.remove(&thread, Removal::after(position)).await?;
        expect::equal(&format!("removed after {after}"), &removed.removed, &count)?;
        let returned = (removed.seqs.len(), removed.messages.len());
        expect::equal("the numbers and messages returned", &returned, &(0, 0))?;
        expect::equal("the last number", &removed.last, &last(&*stores.a, &thread).await?)?;
        holds(&*stores.a, &thread, left).await?;
    }
    // A replacement may have numbers below 1.
    let replacement = Replacement::new(Seq::new(1), messages(&["s1", "s2", "s3"]));
    let replacement = replacement.with_seen(last(&*stores.a, &thread).await?);
    stores.a.replace(&thread, replacement).await?;
    let removed = stores.b.remove(&thread, Removal::after(Seq::new(-1))).await?.removed;
    expect::equal("removed after -1", &removed, &4)?;
    holds(&*stores.a, &thread, &["s1"]).await?;
    let removed = stores.a.remove(&thread, Removal::after(Seq::MIN)).await?.removed;
    expect::equal("removed after MIN", &removed, &1)?;
    holds(&*stores.b, &thread, &[]).await
}

/// HIST-114.
pub(super) async fn a_long_thread_is_rewound_completely(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("long")?;
    let mut batch = numbered("m", 900);
    for message in batch.iter_mut().step_by(7) {
        message.run = Some(run("r")?);
    }
    append(&*stores.a, &thread, batch.clone()).await?;
    append(&*stores.a, &thread, batch).await?;
    let removed = stores.b.remove(&thread, Removal::after(Seq::new(300))).await?.removed;
    expect::equal("the messages removed", &removed, &1_500)?;
    let left = all(&*stores.a, &thread).await?;
    expect::equal("the messages left", &seqs(&left), &(1..=300).collect())?;
    // The index of the run follows.
    expect::equal("the messages of the run", &stores.a.clear_run(&thread, &run("r")?, None).await?, &43)
}

/// HIST-115.
pub(super) async fn a_pop_removes_the_newest_messages(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("popped")?;
    append(&*stores.a, &thread, numbered("m", 5)).await?;
    returned("one", &stores.b.remove(&thread, Removal::newest(1)).await?, &[(5, "m5")])?;
    returned("two", &stores.a.remove(&thread, Removal::newest(2)).await?, &[(3, "m3"), (4, "m4")])?;
    say(&*stores.b, &thread, &["m8"]).await?;
    let rest = stores.b.remove(&thread, Removal::newest(1_000)).await?;
    returned("all", &rest, &[(1, "m1"), (2, "m2"), (8, "m8")])?;
    holds(&*stores.a, &thread, &[]).await?;
    append(&*stores.a, &thread, numbered("n", 1_000)).await?;
    let most = stores.b.remove(&thread, Removal::newest(1_000)).await?;
    expect::equal("the most at a time", &(most.removed, most.messages.len()), &(1_000, 1_000))
}

/// HIST-116.
pub(super) async fn concurrent_pops_return_each_message_once(context: Context) -> CaseResult {
    const WORKERS: usize = 6;
    let stores = context.history().await?;
    let thread = thread("shared")?;
    append(&*stores.a, &thread, numbered("m", 60)).await?;
    let answers = at_once(WORKERS, |worker| {
        let (store, thread) = (either(&stores, worker), thread.clone());
        async move {
            let mut popped = Vec::new();
            for round in 0..4 {
                let key = key(&format!("{worker} {round}"))?;
                let removal = Removal::newest(1 + (worker + round) % 3).with_idempotency_key(key);
                popped.extend(store.remove(&thread, removal).await?.messages);
            }
            Ok(popped)
        }
    })
    .await?;
    let popped: Vec<i64> = answers.iter().flat_map(|popped| seqs(popped)).collect();
    let distinct: BTreeSet<i64> = popped.iter().copied().collect();
    expect::equal("the number of distinct messages", &distinct.len(), &popped.len())?;
    let left: BTreeSet<i64> = seqs(&all(&*stores.b, &thread).await?).into_iter().collect();
    let everything: BTreeSet<i64> = distinct.union(&left).copied().collect();
    expect::equal("the messages popped or left", &everything, &(1..=60).collect())?;
    expect::that(distinct.is_disjoint(&left), "no popped message to be left", left)
}

/// HIST-117.
pub(super) async fn the_rest_of_the_thread_follows(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("rest")?;
    let mut batch = numbered("m", 8);
    for index in [1, 3, 6] {
        batch[index].run = Some(run("r")?);
    }
    let author = larder_kernel::AgentId::new("critic")?;
    batch[2] = batch[2].clone().with_author(author.clone(), None);
    batch[5] = batch[5].clone().with_author(author.clone(), None);
    append(&*stores.a, &thread, batch).await?;
    stores.a.remove(&thread, numbers(&[2, 3])).await?;
    stores.b.remove(&thread, Removal::newest(1)).await?;
    stores.a.remove(&thread, Removal::after(Seq::new(6))).await?;
    let left = all(&*stores.b, &thread).await?;
    expect::equal("the numbers", &seqs(&left), &vec![1, 4, 5, 6])?;
    let info = stores.b.thread_info(&thread).await?;
    let bytes = left.iter().map(|stored| stored.message.size_bytes()).sum();
    expect::equal("the counts", &(info.messages, info.bytes), &(4, larder_kernel::check::size(bytes)))?;
    expect::equal("the last number", &info.last.get(), &11)?;
    for (what, read) in [
        ("tail", stores.a.tail(&thread, None, 3).await?.messages),
        ("get_messages", stores.a.get_messages(&thread, 1, 10).await?.messages),
        ("page_after", stores.a.page_after(&thread, Seq::new(2), 10).await?.messages),
    ] {
        expect::equal(what, &seqs(&read), &vec![4, 5, 6])?;
    }
    let of_author = MessageFilter::new().include_agent(author);
    let found = stores.a.tail_matching(&thread, &of_author, None, 10).await?.messages;
    expect::equal("the messages of the author", &seqs(&found), &vec![6])?;
    expect::equal("the messages of the run", &stores.a.clear_run(&thread, &run("r")?, None).await?, &1)?;
    let next = say(&*stores.b, &thread, &["next"]).await?;
    expect::equal("the next number", &next.first.get(), &13)?;
    let fork = super::support::thread("fork")?;
    stores.b.fork(&thread, &fork, None, None).await?;
    holds(&*stores.a, &fork, &["m1", "m5", "m6", "next"]).await
}

/// HIST-118, to a subscriber that waits and to one that comes later.
pub(super) async fn a_removal_is_an_event_without_text(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("told")?;
    let end = append(&*stores.a, &thread, numbered("m", 6)).await?.last;
    let mut live = stores.b.subscribe(&thread, end).await?;
    stores.a.remove(&thread, numbers(&[2, 4, 99])).await?;
    stores.b.remove(&thread, Removal::newest(2).with_idempotency_key(key("k")?)).await?;
    stores.a.remove(&thread, Removal::after(Seq::new(1))).await?;
    let at = |numbers: &[i64]| numbers.iter().copied().map(Seq::new).collect::<Vec<_>>();
    let expected = [
        (7, HistoryEventKind::Removed { seqs: at(&[2, 4]) }),
        (8, HistoryEventKind::Removed { seqs: at(&[5, 6]) }),
        (9, HistoryEventKind::Rewound { after: Seq::new(1), removed: 1 }),
    ];
    for (number, kind) in &expected {
        let event = next(&mut live, "a removal").await?;
        expect::equal("the live event", &(event.seq.get(), &event.kind), &(*number, kind))?;
    }
    let mut late = stores.a.subscribe(&thread, Seq::ZERO).await?;
    next_said(&mut late, "m1").await?;
    for (number, kind) in &expected {
        let event = next(&mut late, "a removal in the backlog").await?;
        expect::equal("the event of the backlog", &(event.seq.get(), &event.kind), &(*number, kind))?;
        let named = match &event.kind {
            HistoryEventKind::Removed { seqs } => seqs.iter().all(|seq| seq.generation().is_some()),
            HistoryEventKind::Rewound { after, .. } => after.generation().is_some(),
            _ => false,
        };
        expect::that(named, "a generation in each position", &event)?;
    }
    Ok(())
}

/// HIST-119.
pub(super) async fn a_removal_of_nothing_creates_no_event(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (never, written, emptied) = (thread("never")?, thread("written")?, thread("emptied")?);
    say(&*stores.a, &written, &["1", "2"]).await?;
    say(&*stores.a, &emptied, &["1", "2"]).await?;
    stores.a.clear(&emptied, None).await?;
    for (thread, pops) in [(&never, true), (&emptied, true), (&written, false)] {
        let before = last(&*stores.b, thread).await?;
        let mut removals = vec![numbers(&[7, 9]), Removal::after(before), numbers(&[i64::MAX])];
        removals.extend(pops.then(|| Removal::newest(3)));
        for removal in removals {
            let removed = stores.a.remove(thread, removal.clone()).await?;
            expect::equal(&format!("{removal:?}"), &removed, &Removed::new(0, before))?;
        }
        expect::equal("the last number", &last(&*stores.b, thread).await?, &before)?;
    }
    let first = say(&*stores.b, &never, &["first"]).await?;
    expect::equal("the first number", &first.first.get(), &1)
}

/// The removals of the thread `m1` to `m6`, and the numbers that each removes.
pub(super) fn kinds() -> [(&'static str, Removal, &'static [i64]); 3] {
    [
        ("numbers", numbers(&[2, 5]), &[2, 5]),
        ("a rewind", Removal::after(Seq::new(4)), &[5, 6]),
        ("a pop", Removal::newest(2), &[5, 6]),
    ]
}

/// Writes the messages `m1` to `m6`, and returns the thread and its last number.
pub(super) async fn six(store: &dyn HistoryProvider, name: &str) -> CaseResult<(Thread, Seq)> {
    let thread = thread(name)?;
    let end = append(store, &thread, numbered("m", 6)).await?.last;
    Ok((thread, end))
}

/// HIST-126.
pub(super) async fn messages_that_are_too_large_together_are_refused(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("large")?;
    let large = || ChatMessage::user("x".repeat(MESSAGE_BYTES_MAX));
    append(&*stores.a, &thread, vec![ChatMessage::user("small"), large(), large()]).await?;
    append(&*stores.a, &thread, vec![large(), large()]).await?;
    for (removal, field) in [
        (Removal::newest(5), "newest"),
        (Removal::newest(6).with_idempotency_key(key("k")?), "newest"),
        (numbers(&[1, 2, 3, 4, 5]), "numbers"),
    ] {
        let answer = stores.b.remove(&thread, removal.clone()).await;
        refused("too many bytes", answer, ErrorKind::InvalidInput)?;
        let error = expect::invalid("too many bytes", stores.b.remove(&thread, removal).await, field)?;
        let bytes = 4 * MESSAGE_BYTES_MAX;
        let limits = (error.actual(), error.limit());
        let expected = (Some(larder_kernel::check::size(bytes + 5)), Some(larder_kernel::check::size(bytes)));
        expect::equal("the size and the limit", &limits, &expected)?;
    }
    expect::equal("the messages", &stores.a.thread_info(&thread).await?.messages, &5)?;
    let most = stores.b.remove(&thread, Removal::newest(4)).await?;
    expect::equal("the most at a time", &most.messages.len(), &4)?;
    holds(&*stores.a, &thread, &["small"]).await
}

/// HIST-127.
pub(super) async fn a_lost_position_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, old) = six(&*stores.a, "lost").await?;
    stores.a.erase().await?;
    let absent = stores.b.remove(&thread, Removal::after(old)).await;
    conflict("a rewind of a thread that does not exist", absent)?;
    let end = append(&*stores.a, &thread, numbered("n", 8)).await?.last;
    let beyond = Seq::new(9).in_generation(end.generation());
    for removal in [
        Removal::after(old),
        Removal::after(beyond),
        Removal::after(Seq::new(9)),
        Removal::numbers([old]),
        Removal::numbers([end, Seq::new(2).in_generation(old.generation())]),
        Removal::numbers([Seq::new(1), beyond]),
    ] {
        let field = if matches!(removal.target, RemovalTarget::After(_)) { "after" } else { "numbers" };
        let lost = stores.b.remove(&thread, removal.clone()).await;
        let error = expect::error(&format!("{removal:?}"), lost, ErrorKind::Conflict)?;
        expect::equal("the field", &error.field(), &Some(field))?;
    }
    expect::equal("the messages", &stores.a.thread_info(&thread).await?.messages, &8)?;
    let removed = stores.b.remove(&thread, Removal::numbers([end, Seq::new(99)])).await?;
    expect::equal("removed by number", &removed.removed, &1)
}

/// HIST-051.
pub(super) async fn a_removal_after_seen_makes_a_replacement_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for (what, removal, gone) in kinds() {
        let (thread, end) = six(&*stores.a, what).await?;
        let removed = stores.b.remove(&thread, removal).await?;
        let replacement = |seen| Replacement::new(Seq::new(1), messages(&["new"])).with_seen(seen);
        conflict(what, stores.a.replace(&thread, replacement(end)).await)?;
        stores.a.replace(&thread, replacement(removed.last)).await?;
        let left = stores.b.thread_info(&thread).await?.messages;
        expect::equal(what, &left, &larder_kernel::check::size(6 - gone.len()))?;
    }
    Ok(())
}

/// HIST-071.
pub(super) async fn removing_the_last_message_removes_the_time_to_live(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let all_of_it = [numbers(&[1, 2]), Removal::after(Seq::ZERO), Removal::newest(2)];
    let mut threads = Vec::new();
    for (index, removal) in all_of_it.into_iter().enumerate() {
        let thread = thread(&format!("emptied {index}"))?;
        say(&*stores.a, &thread, &["1", "2"]).await?;
        stores.a.set_ttl(&thread, Some(Ttl::fixed(Duration::from_millis(400))), None).await?;
        let removed = stores.b.remove(&thread, removal).await?.removed;
        // On a busy machine the thread may have expired before.
        if removed == 2 {
            say(&*stores.b, &thread, &["3"]).await?;
            threads.push(thread);
        }
    }
    tokio::time::sleep(Duration::from_millis(600)).await;
    for thread in threads {
        holds(&*stores.a, &thread, &["3"]).await?;
    }
    Ok(())
}
