//! Writes with fencing tokens.

use std::time::Duration;

use larder_kernel::storage::history::fence_of;
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, Error, ErrorKind, FencingToken, Generation, HistoryProvider,
    MessageUpdate, Removal, Replacement, Seq, StoredMessage, Thread, Ttl,
};

use super::support::{
    all, at_once, bodies, conflict, either, expired, holds, key, last, messages, numbered, refused, run, say,
    texts, thread, with_key,
};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

const HOUR: Duration = Duration::from_secs(3_600);

fn token(number: u64) -> Option<FencingToken> {
    Some(FencingToken::new(number))
}

/// Appends one message with a token or none.
async fn say_as(
    store: &dyn HistoryProvider,
    thread: &Thread,
    fence: Option<FencingToken>,
    text: &str,
) -> Result<Appended, Error> {
    store.append_many(thread, messages(&[text]), AppendOptions::default().with_fence(fence)).await
}

/// The writes that the fence binds. `nothing` and `unused` find nothing to remove.
const WRITES: [&str; 12] = [
    "append",
    "replace",
    "number",
    "rewind",
    "pop",
    "nothing",
    "update",
    "clear",
    "clear_run",
    "unused",
    "set_ttl",
    "fork",
];

async fn write(
    store: &dyn HistoryProvider,
    thread: &Thread,
    what: &str,
    fence: Option<FencingToken>,
) -> CaseResult<Result<(), Error>> {
    let remove = async |removal: Removal| store.remove(thread, removal.with_fence(fence)).await.map(drop);
    Ok(match what {
        "append" => say_as(store, thread, fence, "more").await.map(drop),
        "replace" => {
            let replacement = Replacement::new(Seq::new(1), messages(&["new"]));
            let replacement = replacement.with_seen(last(store, thread).await?).with_fence(fence);
            store.replace(thread, replacement).await.map(drop)
        }
        "number" => remove(Removal::numbers([Seq::new(1)])).await,
        "rewind" => remove(Removal::after(Seq::new(1))).await,
        "pop" => remove(Removal::newest(1)).await,
        "nothing" => remove(Removal::numbers([Seq::new(900)])).await,
        "update" => {
            let update = MessageUpdate::appended(Seq::new(1), ChatMessage::user("new"));
            store.update(thread, update.with_fence(fence)).await.map(drop)
        }
        "clear" => store.clear(thread, fence).await.map(drop),
        "clear_run" => store.clear_run(thread, &run("r")?, fence).await.map(drop),
        "unused" => store.clear_run(thread, &run("unused")?, fence).await.map(drop),
        "set_ttl" => store.set_ttl(thread, Some(Ttl::fixed(HOUR)), fence).await,
        // A fork writes into a thread without messages.
        _ => store.fork(&super::support::thread("source")?, thread, None, fence).await.map(drop),
    })
}

/// Writes the thread of a write with this token, and the source of the forks.
async fn prepared(
    store: &dyn HistoryProvider,
    what: &str,
    fence: Option<FencingToken>,
) -> CaseResult<Thread> {
    let (source, thread) = (thread("source")?, thread(what)?);
    if last(store, &source).await? == Seq::ZERO {
        say(store, &source, &["s1", "s2"]).await?;
    }
    let mut batch = numbered("m", 3);
    batch[1].run = Some(run("r")?);
    store.append_many(&thread, batch, AppendOptions::default().with_fence(fence)).await?;
    if what == "fork" {
        store.clear(&thread, fence).await?;
    }
    Ok(thread)
}

/// Returns the messages and the last number.
async fn state(store: &dyn HistoryProvider, thread: &Thread) -> CaseResult<(Vec<StoredMessage>, Seq)> {
    Ok((all(store, thread).await?, last(store, thread).await?))
}

/// HIST-128: also for numbers that differ in their digits.
pub(super) async fn a_lower_token_is_refused(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("tokens")?;
    say(&*stores.a, &thread, &["before"]).await?;
    let tokens = [0, 1, 9, 10, 99, 100, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MAX.unsigned_abs()];
    for (at, number) in tokens.into_iter().enumerate() {
        say_as(&*stores.a, &thread, token(number), "first").await?;
        let before = state(&*stores.b, &thread).await?;
        for lower in &tokens[..at] {
            let answer = say_as(&*stores.b, &thread, token(*lower), "no").await;
            conflict(&format!("{lower} after {number}"), answer)?;
        }
        expect::equal("the thread after the refusals", &state(&*stores.a, &thread).await?, &before)?;
        // The same token writes again, through any handle.
        say_as(&*stores.b, &thread, token(number), "second").await?;
    }
    Ok(())
}

/// HIST-128.
pub(super) async fn tokens_of_any_board_compare_by_their_numbers(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("boards")?;
    let of = |board: u64, number| token(number).map(|it| it.in_generation(Generation::new(board)));
    say_as(&*stores.a, &thread, of(1, 5), "1").await?;
    say_as(&*stores.b, &thread, of(2, 5), "2").await?;
    say_as(&*stores.b, &thread, token(5), "3").await?;
    conflict("a lower number", say_as(&*stores.b, &thread, of(1, 4), "no").await)?;
    say_as(&*stores.a, &thread, of(2, 6), "4").await?;
    conflict("the number before", say_as(&*stores.b, &thread, of(1, 5), "no").await)?;
    holds(&*stores.a, &thread, &["1", "2", "3", "4"]).await
}

/// HIST-129.
pub(super) async fn a_fenced_thread_refuses_writes_without_a_token(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (fenced, free) = (thread("fenced")?, thread("free")?);
    say_as(&*stores.a, &fenced, token(0), "1").await?;
    conflict("an append", say_as(&*stores.b, &fenced, None, "no").await)?;
    conflict("an append", say_as(&*stores.a, &fenced, None, "no").await)?;
    holds(&*stores.b, &fenced, &["1"]).await?;
    say(&*stores.b, &free, &["another thread"]).await.map(drop)
}

/// HIST-130.
pub(super) async fn every_write_is_bound(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for what in WRITES {
        let thread = prepared(&*stores.a, what, token(7)).await?;
        let before = state(&*stores.a, &thread).await?;
        for fence in [None, token(0), token(6)] {
            conflict(&format!("{what} with {fence:?}"), write(&*stores.b, &thread, what, fence).await?)?;
        }
        expect::equal(&format!("after {what}"), &state(&*stores.a, &thread).await?, &before)?;
        write(&*stores.b, &thread, what, token(7)).await??;
        write(&*stores.a, &thread, "clear", token(7)).await??;
    }
    Ok(())
}

/// HIST-131.
pub(super) async fn the_conflict_names_the_greatest_token(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let greatest = token((1 << 53) + 1);
    for what in WRITES {
        let thread = prepared(&*stores.a, what, greatest).await?;
        for fence in [None, token(6)] {
            let answer = write(&*stores.b, &thread, what, fence).await?;
            let error = expect::error(what, answer, ErrorKind::Conflict)?;
            expect::equal("the field", &error.field(), &Some("fence"))?;
            expect::equal("the token in the context", &fence_of(&error), &greatest)?;
        }
    }
    Ok(())
}

/// HIST-132.
pub(super) async fn a_write_that_fails_does_not_raise_the_fence(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (store, thread, emptied) = (&*stores.b, thread("kept")?, thread("emptied")?);
    let options = with_key("k")?.with_fence(token(7));
    let end = store.append_many(&thread, messages(&["1", "2"]), options.clone()).await?.last;
    say_as(store, &emptied, token(7), "1").await?;
    store.clear(&emptied, token(7)).await?;
    let other = Seq::new(end.get() + 5);

    let append = options.with_fence(token(9));
    conflict("a used key", store.append_many(&thread, messages(&["other"]), append).await)?;
    let append = AppendOptions::default().with_fence(token(9)).with_if_last(other);
    conflict("another last number", store.append_many(&thread, messages(&["no"]), append).await)?;
    let removal = Removal::newest(1).with_fence(token(9)).with_if_last(other);
    conflict("another last number", store.remove(&thread, removal).await)?;
    conflict("a lost position", store.remove(&thread, Removal::after(other).with_fence(token(9))).await)?;
    let update = MessageUpdate::appended(other, ChatMessage::user("no")).with_fence(token(9));
    let updated = store.update(&thread, update).await;
    expect::that(updated.is_err(), "an update of no message to fail", &updated)?;
    let replacement = Replacement::new(other, messages(&["no"])).with_fence(token(9));
    conflict("a replacement", store.replace(&thread, replacement).await)?;
    let forked = store.fork(&emptied, &thread, None, token(9)).await;
    expect::that(forked.is_err(), "a fork into a thread with messages to fail", &forked)?;
    let forked = store.fork(&super::support::thread("never")?, &emptied, None, token(9)).await;
    refused("a fork of nothing", forked, ErrorKind::NotFound)?;
    let set = store.set_ttl(&emptied, Some(Ttl::fixed(HOUR)), token(9)).await;
    refused("a time to live of nothing", set, ErrorKind::NotFound)?;

    say_as(&*stores.a, &thread, token(7), "3").await?;
    say_as(&*stores.a, &emptied, token(7), "2").await?;
    holds(&*stores.a, &thread, &["1", "2", "3"]).await?;
    // Nor does a failed write fence a thread.
    let free = super::support::thread("free")?;
    say(store, &free, &["1"]).await?;
    let append = AppendOptions::default().with_fence(token(9)).with_if_last(other);
    conflict("another last number", store.append_many(&free, messages(&["no"]), append).await)?;
    say(&*stores.a, &free, &["2"]).await.map(drop)
}

/// HIST-133.
pub(super) async fn every_write_that_succeeds_raises_the_fence(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for what in WRITES {
        let thread = prepared(&*stores.a, what, None).await?;
        write(&*stores.b, &thread, what, token(5)).await??;
        for fence in [None, token(4)] {
            conflict(&format!("{fence:?} after {what}"), say_as(&*stores.a, &thread, fence, "no").await)?;
        }
        say_as(&*stores.a, &thread, token(5), "yes").await?;
    }
    Ok(())
}

/// HIST-133: also a write that changes nothing else.
pub(super) async fn a_write_that_finds_nothing_raises_the_fence(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("emptied")?;
    say(&*stores.a, &thread, &["1"]).await?;
    stores.a.clear(&thread, None).await?;
    let end = last(&*stores.a, &thread).await?;
    let mut number = 1;
    for what in ["clear", "clear_run", "pop", "rewind", "number", "clear"] {
        if what == "rewind" {
            // The position of a rewind must exist.
            stores.a.remove(&thread, Removal::after(end).with_fence(token(number))).await?;
        } else {
            write(&*stores.b, &thread, what, token(number)).await??;
        }
        conflict(what, say_as(&*stores.a, &thread, token(number - 1), "no").await)?;
        conflict(what, say_as(&*stores.a, &thread, None, "no").await)?;
        number += 1;
    }
    expect::equal("the last number", &last(&*stores.b, &thread).await?, &end)?;
    // A repetition raises it, too.
    let append = |fence: u64| with_key("k").map(|options| options.with_fence(token(fence)));
    let first = stores.a.append_many(&thread, messages(&["2"]), append(number)?).await?;
    let again = stores.b.append_many(&thread, messages(&["2"]), append(number + 1)?).await?;
    expect::equal("the repeated append", &again, &first)?;
    conflict("the first token", say_as(&*stores.a, &thread, token(number), "no").await)?;
    let pop = Removal::newest(1).with_idempotency_key(key("k")?);
    let first = stores.a.remove(&thread, pop.clone().with_fence(token(number + 1))).await?;
    let again = stores.b.remove(&thread, pop.with_fence(token(number + 2))).await?;
    expect::equal("the repeated pop", &again.seqs, &first.seqs)?;
    conflict("the token of the pop", say_as(&*stores.a, &thread, token(number + 1), "no").await)
}

/// HIST-134.
pub(super) async fn only_an_erasure_forgets_the_fence(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (cleared, popped) = (thread("cleared")?, thread("popped")?);
    for thread in [&cleared, &popped] {
        say_as(&*stores.a, thread, token(7), "1").await?;
    }
    let mut threads = vec![cleared.clone(), popped.clone()];
    stores.a.clear(&cleared, token(7)).await?;
    stores.b.remove(&popped, Removal::newest(1).with_fence(token(7))).await?;
    threads.push(expired(stores, "expired", AppendOptions::default().with_fence(token(7))).await?.0);
    for thread in &threads {
        for fence in [None, token(6)] {
            conflict(&format!("{thread:?}"), say_as(&*stores.b, thread, fence, "no").await)?;
        }
        holds(&*stores.a, thread, &[]).await?;
    }
    say_as(&*stores.a, &popped, token(7), "2").await?;
    stores.a.erase().await?;
    say_as(&*stores.a, &popped, None, "new").await?;
    say_as(&*stores.b, &cleared, token(1), "new").await?;
    say_as(&*stores.a, &threads[2], None, "new").await.map(drop).map_err(Into::into)
}

/// HIST-135.
pub(super) async fn a_fork_has_its_own_fence(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, free, lower) = (thread("source")?, thread("free")?, thread("lower")?);
    say_as(&*stores.a, &source, token(7), "1").await?;
    stores.a.fork(&source, &free, None, None).await?;
    say_as(&*stores.b, &free, None, "2").await?;
    say_as(&*stores.a, &free, token(1), "3").await?;
    stores.b.fork(&source, &lower, None, token(3)).await?;
    conflict("a lower token than the fork's", say_as(&*stores.a, &lower, token(2), "no").await)?;
    say_as(&*stores.a, &lower, token(3), "2").await?;
    // The source keeps its own fence.
    conflict("the source", say_as(&*stores.b, &source, token(6), "no").await)?;
    let (source, fork) = (all(&*stores.b, &source).await?, all(&*stores.b, &free).await?);
    expect::equal("the copied message", &bodies(&fork)[0].text, &bodies(&source)[0].text)
}

/// HIST-136.
pub(super) async fn a_repetition_needs_no_token(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("repeated")?;
    let append = |fence| with_key("k").map(|options| options.with_fence(fence));
    let first = stores.a.append_many(&thread, messages(&["1", "2"]), append(token(7))?).await?;
    let pop = Removal::newest(1).with_idempotency_key(key("k")?);
    let popped = stores.a.remove(&thread, pop.clone().with_fence(token(7))).await?;
    let update = MessageUpdate::appended(Seq::new(1), ChatMessage::user("new"));
    let update = update.with_idempotency_key(key("u")?);
    let updated = stores.b.update(&thread, update.clone().with_fence(token(7))).await?;
    say_as(&*stores.b, &thread, token(8), "3").await?;
    for fence in [token(7), token(0), None, token(8)] {
        let again = stores.a.update(&thread, update.clone().with_fence(fence)).await?;
        expect::equal("the repeated update", &again, &updated)?;
        let again = stores.b.append_many(&thread, messages(&["1", "2"]), append(fence)?).await?;
        expect::equal("the repeated append", &again, &first)?;
        let again = stores.b.remove(&thread, pop.clone().with_fence(fence)).await?;
        expect::equal("the repeated pop", &(again.removed, &again.seqs), &(1, &popped.seqs))?;
    }
    holds(&*stores.a, &thread, &["new", "3"]).await?;
    conflict("a new append", say_as(&*stores.a, &thread, token(7), "no").await)
}

/// HIST-137.
pub(super) async fn of_concurrent_writers_none_follows_a_greater_token(context: Context) -> CaseResult {
    const WRITERS: usize = 8;
    let stores = context.history().await?;
    for round in 0..6 {
        let thread = thread(&format!("round {round}"))?;
        let answers = at_once(WRITERS, |writer| {
            let (store, thread) = (either(&stores, writer), thread.clone());
            // The lower tokens begin in some rounds, and the greater ones in the others.
            let number = if round % 2 == 0 { writer } else { WRITERS - 1 - writer };
            async move {
                let fence = token(larder_kernel::check::size(number));
                Ok((number, say_as(&*store, &thread, fence, &format!("{number}")).await))
            }
        })
        .await?;
        let mut won = Vec::new();
        for (number, answer) in answers {
            match answer {
                Ok(_) => won.push(number),
                lost => conflict(&format!("the writer with {number}"), lost)?,
            }
        }
        won.sort_unstable();
        expect::equal("the greatest successful token", &won.last().copied(), &Some(WRITERS - 1))?;
        let stored = all(&*stores.b, &thread).await?;
        let expected: Vec<String> = won.iter().map(ToString::to_string).collect();
        expect::equal(
            "the texts, in the order of their tokens",
            &texts(&stored),
            &expected.iter().map(String::as_str).collect(),
        )?;
    }
    Ok(())
}
