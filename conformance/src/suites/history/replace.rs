//! Atomic replacement of the beginning of a thread.

use larder_kernel::limits::BATCH_MESSAGES_MAX;
use larder_kernel::{ErrorKind, HistoryProvider, Replaced, Replacement, Seq, Thread};

use super::support::{
    all, append, at_once, bodies, conflict, either, holds, last, list_all, messages, numbered, replace_now,
    run, say, seqs, texts, thread,
};
use crate::case::{CaseResult, Failure};
use crate::context::Context;
use crate::expect;

/// Runs a replacement that must conflict, and checks that it changed nothing.
async fn conflicts(
    store: &dyn HistoryProvider,
    thread: &Thread,
    what: &str,
    replacement: Replacement,
) -> CaseResult {
    let before = (store.thread_info(thread).await?, all(store, thread).await?);
    conflict(what, store.replace(thread, replacement).await)?;
    let after = (store.thread_info(thread).await?, all(store, thread).await?);
    expect::equal(&format!("the thread after {what}"), &after, &before)
}

/// HIST-050.
pub(super) async fn the_replacement_becomes_the_beginning(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, other) = (thread("replaced")?, thread("other")?);
    append(&*stores.a, &thread, numbered("m", 10)).await?;
    append(&*stores.a, &other, numbered("m", 10)).await?;
    let mut summary = messages(&["s1", "s2"]);
    if let Some(first) = summary.first_mut() {
        *first = first.clone().with_run(run("r")?).with_token_count(3);
    }
    let replacement = Replacement::new(Seq::new(6), summary.clone()).with_seen(Seq::new(10));
    let replaced = stores.a.replace(&thread, replacement).await?;
    expect::equal("the answer", &replaced, &Replaced::new(6, Seq::new(11)))?;
    let stored = all(&*stores.b, &thread).await?;
    expect::equal("the texts", &texts(&stored), &vec!["s1", "s2", "m7", "m8", "m9", "m10"])?;
    expect::equal("the numbers", &seqs(&stored), &vec![5, 6, 7, 8, 9, 10])?;
    expect::equal("the replacement, in every field", &bodies(stored.get(..2).unwrap_or_default()), &summary)?;
    expect::equal("get_messages", &stores.b.get_messages(&thread, 0, 100).await?.messages, &stored)?;
    expect::equal("tail", &stores.b.tail(&thread, None, 100).await?.messages, &stored)?;
    expect::equal("the other thread", &all(&*stores.b, &other).await?.len(), &10)
}

/// HIST-050: `up_to` need not be the number of a message, and may be the thread's last.
pub(super) async fn everything_up_to_the_number_is_removed(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for (up_to, left) in [(0, 5), (1, 4), (2, 3), (3, 3), (4, 2), (5, 1), (6, 0), (7, 0)] {
        let thread = thread(&format!("up to {up_to}"))?;
        let mut batch = numbered("m", 6);
        if let Some(third) = batch.get_mut(2) {
            third.run = Some(run("hole")?);
        }
        append(&*stores.a, &thread, batch).await?;
        stores.a.clear_run(&thread, &run("hole")?, None).await?;
        let replaced = replace_now(&*stores.b, &thread, Seq::new(up_to), &["s"]).await?;
        expect::equal(&format!("number of messages replaced up to {up_to}"), &replaced.removed, &(5 - left))?;
        let stored = all(&*stores.a, &thread).await?;
        let first = expect::some("the replacement", stored.first())?;
        expect::equal("the first message", &(first.seq.get(), first.message.text.as_str()), &(up_to, "s"))?;
        let kept = stored.len() - 1;
        expect::equal(
            &format!("number of messages kept after {up_to}"),
            &u64::try_from(kept).ok(),
            &Some(left),
        )?;
        let later = stored.iter().skip(1).all(|stored| stored.seq.get() > up_to);
        expect::that(later, "what stayed to keep its number", seqs(&stored))?;
    }
    Ok(())
}

/// HIST-051, for a clear, a replacement and the clear of a run.
pub(super) async fn a_removal_after_seen_is_a_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for what in ["a clear", "a replacement", "an empty replacement", "the clear of a run"] {
        let thread = thread(what)?;
        let mut batch = numbered("m", 4);
        if let Some(newest) = batch.last_mut() {
            newest.run = Some(run("r")?);
        }
        let seen = append(&*stores.a, &thread, batch).await?.last;
        match what {
            "a clear" => drop(stores.b.clear(&thread, None).await?),
            "a replacement" => drop(replace_now(&*stores.b, &thread, Seq::new(1), &["s"]).await?),
            "an empty replacement" => drop(replace_now(&*stores.b, &thread, Seq::new(1), &[]).await?),
            _ => drop(stores.b.clear_run(&thread, &run("r")?, None).await?),
        }
        let again = say(&*stores.b, &thread, &["later"]).await?.last;
        for up_to in [Seq::ZERO, Seq::new(2), seen] {
            let replacement = Replacement::new(up_to, messages(&["x"])).with_seen(seen);
            conflicts(&*stores.a, &thread, &format!("{what}, replacing up to {up_to}"), replacement).await?;
        }
        let replacement = Replacement::new(Seq::new(2), messages(&["x"])).with_seen(again);
        stores.a.replace(&thread, replacement).await?;
    }
    Ok(())
}

/// HIST-051: a removal before `seen` is not a conflict.
pub(super) async fn a_removal_before_seen_does_not_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("before")?;
    append(&*stores.a, &thread, numbered("m", 3)).await?;
    stores.a.clear(&thread, None).await?;
    append(&*stores.a, &thread, numbered("n", 3)).await?;
    let first = replace_now(&*stores.b, &thread, Seq::new(5), &["s"]).await?;
    // The number of the replacement's event is a valid `seen`.
    let second = Replacement::new(Seq::new(6), messages(&["t"])).with_seen(first.seq);
    let second = stores.a.replace(&thread, second).await?;
    expect::that(second.seq > first.seq, format!("a number above {}", first.seq), second)?;
    holds(&*stores.b, &thread, &["t", "n3"]).await
}

/// HIST-052.
pub(super) async fn an_append_after_seen_does_not_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("appended")?;
    let seen = append(&*stores.a, &thread, numbered("m", 4)).await?.last;
    say(&*stores.b, &thread, &["late 1", "late 2"]).await?;
    let replacement = Replacement::new(seen, messages(&["s"]));
    let replaced = stores.a.replace(&thread, replacement).await?;
    expect::equal("removed", &replaced.removed, &4)?;
    let stored = all(&*stores.b, &thread).await?;
    expect::equal("the texts", &texts(&stored), &vec!["s", "late 1", "late 2"])?;
    expect::equal("the numbers", &seqs(&stored), &vec![4, 5, 6])
}

/// HIST-053.
pub(super) async fn of_concurrent_replacements_one_succeeds(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("concurrent")?;
    for round in 0..3 {
        append(&*stores.a, &thread, numbered("m", 4)).await?;
        let seen = last(&*stores.a, &thread).await?;
        let results = at_once(8, |number| {
            let (store, thread) = (either(&stores, number), thread.clone());
            async move {
                let texts = [format!("{number} a"), format!("{number} b")];
                let messages = messages(&texts.each_ref().map(String::as_str));
                match store.replace(&thread, Replacement::new(seen, messages)).await {
                    Ok(_) => Ok(Some(number)),
                    Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
                    Err(error) => Err(Failure::from(error)),
                }
            }
        })
        .await?;
        let winners: Vec<_> = results.into_iter().flatten().collect();
        expect::equal(&format!("number of successes in round {round}"), &winners.len(), &1)?;
        let winner = expect::some("the replacement that succeeded", winners.first())?;
        holds(&*stores.b, &thread, &[&format!("{winner} a"), &format!("{winner} b")]).await?;
        expect::equal("last", &last(&*stores.b, &thread).await?.get(), &(seen.get() + 1))?;
    }
    Ok(())
}

/// HIST-054.
pub(super) async fn a_longer_replacement_reaches_below_1(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("longer")?;
    append(&*stores.a, &thread, numbered("m", 3)).await?;
    replace_now(&*stores.a, &thread, Seq::new(2), &["a", "b", "c", "d", "e"]).await?;
    let stored = all(&*stores.b, &thread).await?;
    expect::equal("the numbers", &seqs(&stored), &vec![-2, -1, 0, 1, 2, 3])?;
    expect::equal("the texts", &texts(&stored), &vec!["a", "b", "c", "d", "e", "m3"])?;
    expect::equal(
        "a window",
        &texts(&stores.b.get_messages(&thread, 1, 2).await?.messages),
        &vec!["b", "c"],
    )?;
    let tail = stores.b.tail(&thread, Some(Seq::new(0)), 10).await?.messages;
    expect::equal("the tail before 0", &texts(&tail), &vec!["a", "b"])?;
    let page = stores.b.page_after(&thread, Seq::new(-2), 2).await?.messages;
    expect::equal("the page after -2", &texts(&page), &vec!["b", "c"])?;
    replace_now(&*stores.b, &thread, Seq::ZERO, &["x", "y"]).await?;
    let stored = all(&*stores.a, &thread).await?;
    expect::equal("the numbers after another", &seqs(&stored), &vec![-1, 0, 1, 2, 3])?;
    holds(&*stores.a, &thread, &["x", "y", "d", "e", "m3"]).await
}

/// HIST-054: the longest possible replacement.
pub(super) async fn the_longest_replacement_is_stored_completely(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, written) = (thread("longest")?, numbered("s", BATCH_MESSAGES_MAX));
    append(&*stores.a, &thread, numbered("m", 20)).await?;
    let replacement = Replacement::new(Seq::new(20), written.clone());
    expect::equal("removed", &stores.a.replace(&thread, replacement).await?.removed, &20)?;
    let stored = all(&*stores.b, &thread).await?;
    expect::equal("the messages", &bodies(&stored), &written)?;
    let numbers: Vec<i64> = (-979..=20).collect();
    expect::equal("the numbers", &seqs(&stored), &numbers)
}

/// HIST-055.
pub(super) async fn an_empty_replacement_only_removes(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("empty")?;
    append(&*stores.a, &thread, numbered("m", 5)).await?;
    let replaced = replace_now(&*stores.a, &thread, Seq::new(2), &[]).await?;
    expect::equal("the answer", &replaced, &Replaced::new(2, Seq::new(6)))?;
    let stored = all(&*stores.b, &thread).await?;
    expect::equal("the numbers", &seqs(&stored), &vec![3, 4, 5])?;
    let replaced = replace_now(&*stores.b, &thread, Seq::new(5), &[]).await?;
    expect::equal("removed", &replaced.removed, &3)?;
    super::support::reads_empty(&*stores.a, &thread).await
}

/// HIST-056.
pub(super) async fn a_number_beyond_the_last_is_a_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (used, fresh) = (thread("used")?, thread("fresh")?);
    append(&*stores.a, &used, numbered("m", 3)).await?;
    for (thread, up_to, seen) in [
        (&used, 4, 4),
        (&used, 3, 4),
        (&used, 0, 4),
        (&used, 1_000, 1_000),
        (&used, i64::MAX, i64::MAX),
        (&used, 2, i64::MAX),
        (&fresh, 1, 1),
        (&fresh, 0, 1),
        (&fresh, i64::MAX, i64::MAX),
    ] {
        for texts in [&["s"] as &[&str], &[]] {
            let replacement = Replacement::new(Seq::new(up_to), messages(texts)).with_seen(Seq::new(seen));
            let what = format!("a replacement up to {up_to} that saw {seen}");
            conflicts(&*stores.b, thread, &what, replacement).await?;
        }
    }
    expect::equal("number of threads", &list_all(&*stores.a, 10).await?.len(), &1)?;
    expect::equal("the first number", &say(&*stores.a, &fresh, &["x"]).await?.first, &Seq::new(1))
}

/// HIST-057.
pub(super) async fn an_empty_thread_accepts_a_replacement_at_0(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("fresh")?;
    let replacement = Replacement::new(Seq::ZERO, messages(&["a", "b", "c"]));
    let replaced = stores.a.replace(&thread, replacement).await?;
    expect::equal("the answer", &replaced, &Replaced::new(0, Seq::new(1)))?;
    let stored = all(&*stores.b, &thread).await?;
    expect::equal("the texts", &texts(&stored), &vec!["a", "b", "c"])?;
    expect::equal("the numbers", &seqs(&stored), &vec![-2, -1, 0])?;
    expect::equal("get_messages", &stores.b.get_messages(&thread, 0, 10).await?.messages, &stored)?;
    expect::equal("tail", &stores.b.tail(&thread, None, 10).await?.messages, &stored)?;
    let listed = list_all(&*stores.b, 10).await?;
    expect::equal("the listing", &listed, &vec![stores.a.thread_info(&thread).await?])?;
    expect::equal("messages", &listed.first().map(|info| info.messages), &Some(3))?;
    let next = say(&*stores.b, &thread, &["d"]).await?.first;
    expect::that(next > replaced.seq, "a number above the event's", next)?;
    holds(&*stores.a, &thread, &["a", "b", "c", "d"]).await
}
