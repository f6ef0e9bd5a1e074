//! Appends on the condition that the thread has a known last number.

use std::time::Duration;

use larder_kernel::{
    AppendOptions, Appended, ContextValue, Error, HistoryProvider, Removal, Replacement, Seq, Thread, Ttl,
};

use super::support::{
    append, at_once, conflict, either, expired, holds, last, messages, numbered, run, say, thread, with_key,
};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

/// Appends one message if the thread has this last number.
async fn say_if(
    store: &dyn HistoryProvider,
    thread: &Thread,
    if_last: Seq,
    text: &str,
) -> Result<Appended, Error> {
    store.append_many(thread, messages(&[text]), AppendOptions::default().with_if_last(if_last)).await
}

/// HIST-106.
pub(super) async fn an_append_on_the_last_number_is_written(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("held")?;
    let first = say_if(&*stores.a, &thread, Seq::ZERO, "1").await?;
    expect::equal("the first number", &first.last.get(), &1)?;
    // With its generation and without.
    let second = say_if(&*stores.b, &thread, first.last, "2").await?;
    let third = say_if(&*stores.a, &thread, Seq::new(second.last.get()), "3").await?;
    let options = AppendOptions::default().with_if_last(last(&*stores.b, &thread).await?);
    let batch = stores.b.append_many(&thread, numbered("m", 3), options).await?;
    expect::equal("the batch", &(batch.first.get(), batch.last.get()), &(third.last.get() + 1, 6))?;
    holds(&*stores.a, &thread, &["1", "2", "3", "m1", "m2", "m3"]).await
}

/// HIST-106: also in a thread that was never written, which stays so.
pub(super) async fn an_append_on_another_number_writes_nothing(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (written, never) = (thread("written")?, thread("never")?);
    let end = say(&*stores.a, &written, &["1", "2", "3"]).await?.last;
    for other in [0, 1, end.get() - 1, end.get() + 1, i64::MAX] {
        let answer = say_if(&*stores.b, &written, Seq::new(other), "no").await;
        conflict(&format!("on {other} instead of {end}"), answer)?;
        let named = Seq::new(other).in_generation(end.generation());
        conflict(&format!("on {}", named.to_text()), say_if(&*stores.b, &written, named, "no").await)?;
    }
    holds(&*stores.a, &written, &["1", "2", "3"]).await?;
    expect::equal("the last number", &last(&*stores.a, &written).await?, &end)?;
    for other in [1, 2, i64::MAX] {
        let answer = say_if(&*stores.b, &never, Seq::new(other), "no").await;
        conflict(&format!("a new thread on {other}"), answer)?;
    }
    holds(&*stores.a, &never, &[]).await?;
    let first = say_if(&*stores.a, &never, Seq::ZERO, "first").await?;
    expect::equal("the first number", &first.last.get(), &1)
}

/// Returns the fact `last` of the error's context.
fn named_last(error: &Error) -> Option<i128> {
    error.context().iter().find_map(|fact| match fact {
        ("last", ContextValue::Number(last)) => Some(*last),
        _ => None,
    })
}

/// HIST-107.
pub(super) async fn the_conflict_names_the_last_number(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, never) = (thread("named")?, thread("never")?);
    let end = say(&*stores.a, &thread, &["1", "2", "3"]).await?.last;
    stores.a.clear(&thread, None).await?;
    for other in [Seq::ZERO, end, Seq::new(end.get() + 2)] {
        let answer = say_if(&*stores.b, &thread, other, "no").await;
        let error = expect::error("another number", answer, larder_kernel::ErrorKind::Conflict)?;
        expect::equal("the field", &error.field(), &Some("if_last"))?;
        expect::equal("the last number in the context", &named_last(&error), &Some(4))?;
    }
    let answer = say_if(&*stores.b, &never, Seq::new(1), "no").await;
    let error = expect::error("a new thread", answer, larder_kernel::ErrorKind::Conflict)?;
    expect::equal("the last number of a new thread", &named_last(&error), &Some(0))
}

/// The changes of a thread that holds messages, some of them of the run `r`.
const CHANGES: [&str; 9] =
    ["append", "replace", "clear", "clear_run", "fork", "number", "rewind", "pop", "update"];

async fn change(store: &dyn HistoryProvider, thread: &Thread, change: &str) -> CaseResult {
    match change {
        "append" => say(store, thread, &["more"]).await.map(drop),
        "replace" => {
            let end = last(store, thread).await?;
            let replacement = Replacement::new(Seq::new(1), messages(&["new"])).with_seen(end);
            Ok(store.replace(thread, replacement).await.map(drop)?)
        }
        "number" => Ok(store.remove(thread, Removal::numbers([Seq::new(1)])).await.map(drop)?),
        "rewind" => Ok(store.remove(thread, Removal::after(Seq::new(1))).await.map(drop)?),
        "pop" => Ok(store.remove(thread, Removal::newest(1)).await.map(drop)?),
        "update" => super::update::retell(store, thread, 1, "new").await.map(drop),
        "clear" => Ok(store.clear(thread, None).await.map(drop)?),
        "clear_run" => Ok(store.clear_run(thread, &run("r")?, None).await.map(drop)?),
        // A fork writes into a thread without messages.
        _ => {
            let source = super::support::thread("source")?;
            Ok(store.fork(&source, thread, None, None).await.map(drop)?)
        }
    }
}

/// HIST-108.
pub(super) async fn every_change_makes_an_earlier_number_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    say(&*stores.a, &thread("source")?, &["s1", "s2"]).await?;
    for name in CHANGES {
        let thread = thread(name)?;
        let mut batch = numbered("m", 3);
        batch[1].run = Some(run("r")?);
        append(&*stores.a, &thread, batch).await?;
        if name == "fork" {
            stores.a.clear(&thread, None).await?;
        }
        let before = last(&*stores.b, &thread).await?;
        change(&*stores.a, &thread, name).await?;
        conflict(&format!("after {name}"), say_if(&*stores.b, &thread, before, "no").await)?;
        let now = last(&*stores.b, &thread).await?;
        expect::that(now > before, format!("a greater last number after {name}"), now)?;
        let again = say_if(&*stores.b, &thread, now, "again").await?;
        expect::equal(&format!("the number after {name}"), &again.last.get(), &(now.get() + 1))?;
    }
    Ok(())
}

/// HIST-108: a call that changed nothing is no change.
pub(super) async fn reads_and_refused_calls_are_no_change(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("unchanged")?;
    let end = say(&*stores.a, &thread, &["1", "2"]).await?.last;
    stores.a.tail(&thread, None, 10).await?;
    stores.b.thread_info(&thread).await?;
    expect::equal("messages of the run", &stores.a.clear_run(&thread, &run("none")?, None).await?, &0)?;
    conflict("a lost append", say_if(&*stores.b, &thread, Seq::ZERO, "no").await)?;
    stores.b.set_ttl(&thread, Some(Ttl::fixed(Duration::from_secs(3_600))), None).await?;
    let next = say_if(&*stores.b, &thread, end, "3").await?;
    expect::equal("the number", &next.last.get(), &3)
}

/// HIST-109.
pub(super) async fn of_concurrent_appends_on_one_number_one_succeeds(context: Context) -> CaseResult {
    const WRITERS: usize = 8;
    let stores = context.history().await?;
    for (name, texts) in [("new", &[][..]), ("written", &["1", "2"][..])] {
        let thread = thread(name)?;
        if !texts.is_empty() {
            say(&*stores.a, &thread, texts).await?;
        }
        for round in 0..4 {
            let end = last(&*stores.a, &thread).await?;
            let answers = at_once(WRITERS, |writer| {
                let (store, thread) = (either(&stores, writer), thread.clone());
                async move { Ok(say_if(&*store, &thread, end, &format!("{round} {writer}")).await) }
            })
            .await?;
            let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
            for answer in lost {
                conflict("a writer that lost", answer)?;
            }
            let won = won.into_iter().collect::<Result<Vec<_>, _>>()?;
            let numbers: Vec<i64> = won.iter().map(|appended| appended.last.get()).collect();
            expect::equal("the numbers of the successful appends", &numbers, &vec![end.get() + 1])?;
        }
        let messages = stores.b.thread_info(&thread).await?.messages;
        expect::equal("the messages", &messages, &larder_kernel::check::size(texts.len() + 4))?;
    }
    Ok(())
}

/// HIST-110.
pub(super) async fn a_repetition_returns_the_first_result(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("repeated")?;
    let end = say(&*stores.a, &thread, &["1"]).await?.last;
    let options = with_key("k")?.with_if_last(end);
    let first = stores.a.append_many(&thread, messages(&["2"]), options.clone()).await?;
    let write = async |store: &dyn HistoryProvider| -> CaseResult {
        let again = store.append_many(&thread, messages(&["2"]), options.clone()).await?;
        expect::equal("the repeated answer", &again, &first)
    };
    write(&*stores.b).await?;
    say(&*stores.b, &thread, &["3"]).await?;
    write(&*stores.a).await?;
    let other = stores.b.append_many(&thread, messages(&["other"]), options.clone()).await;
    conflict("the key with other messages", other)?;
    // A lost append leaves its key unused.
    let lost = with_key("lost")?.with_if_last(end);
    conflict("a lost append", stores.a.append_many(&thread, messages(&["4"]), lost).await)?;
    let won = with_key("lost")?.with_if_last(last(&*stores.b, &thread).await?);
    stores.a.append_many(&thread, messages(&["4"]), won).await?;
    stores.a.clear(&thread, None).await?;
    write(&*stores.b).await?;
    holds(&*stores.b, &thread, &[]).await
}

/// HIST-111.
pub(super) async fn another_generation_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("erased")?;
    let old = say(&*stores.a, &thread, &["1", "2"]).await?.last;
    stores.a.erase().await?;
    conflict("a thread that does not exist", say_if(&*stores.b, &thread, old, "no").await)?;
    let nothing = Seq::ZERO.in_generation(old.generation());
    conflict("0 of the old generation", say_if(&*stores.b, &thread, nothing, "no").await)?;
    let new = say(&*stores.a, &thread, &["a", "b"]).await?.last;
    conflict("the same number", say_if(&*stores.b, &thread, old, "no").await)?;
    holds(&*stores.a, &thread, &["a", "b"]).await?;
    say_if(&*stores.b, &thread, new, "c").await.map(drop).map_err(Into::into)
}

/// HIST-112: no call has recorded the expiry before the append.
pub(super) async fn an_expiry_counts_from_its_instant(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (thread, end) = expired(stores, "counted", AppendOptions::default()).await?;
    let answer = say_if(&*stores.b, &thread, end, "no").await;
    let error = expect::error("on the number before the expiry", answer, larder_kernel::ErrorKind::Conflict)?;
    expect::equal("the last number in the context", &named_last(&error), &Some(3))?;
    let now = last(&*stores.a, &thread).await?;
    expect::equal("the last number", &now.get(), &3)?;
    holds(&*stores.b, &thread, &[]).await?;
    say_if(&*stores.b, &thread, now, "c").await?;
    holds(&*stores.a, &thread, &["c"]).await?;
    // The number of the expiry is known before anyone asks.
    let (thread, end) = expired(stores, "known", AppendOptions::default()).await?;
    let next = say_if(&*stores.b, &thread, Seq::new(end.get() + 1), "c").await?;
    expect::equal("the number after the expiry", &next.last.get(), &4)?;
    holds(&*stores.a, &thread, &["c"]).await
}
