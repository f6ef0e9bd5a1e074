//! Idempotency keys: repeating an append has no second effect.

use larder_kernel::{AppendOptions, ChatMessage, Metadata, Timestamp, Ttl};

use super::support::{
    all, at_once, conflict, counts, either, holds, key, messages, reads_empty, run, say, texts, thread,
    with_key,
};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

/// HIST-007.
pub(super) async fn repeating_a_key_returns_the_first_result_and_writes_nothing(
    context: Context,
) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("repeat")?;
    say(&*stores.a, &thread, &["earlier"]).await?;
    let batch = messages(&["one", "two", "three"]);
    let first = stores.a.append_many(&thread, batch.clone(), with_key("k")?).await?;
    say(&*stores.b, &thread, &["later"]).await?;
    let before = counts(&*stores.b, &thread).await?;
    for store in [&stores.b, &stores.a, &stores.b] {
        let again = store.append_many(&thread, batch.clone(), with_key("k")?).await?;
        expect::equal("the repeated answer", &again, &first)?;
    }
    holds(&*stores.b, &thread, &["earlier", "one", "two", "three", "later"]).await?;
    expect::equal("the thread's counts", &counts(&*stores.a, &thread).await?, &before)
}

/// HIST-007: a retry may have new timestamps.
pub(super) async fn a_new_timestamp_is_still_the_same_append(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("restamped")?;
    let at = |micros: i64| -> CaseResult<Vec<ChatMessage>> {
        let stamp = Timestamp::from_micros(micros)?;
        Ok(messages(&["one", "two"]).into_iter().map(|message| message.with_created_at(stamp)).collect())
    };
    let first = stores.a.append_many(&thread, at(1)?, with_key("k")?).await?;
    let again = stores.b.append_many(&thread, at(2_000_000)?, with_key("k")?).await?;
    expect::equal("the repeated answer", &again, &first)?;
    let stored = all(&*stores.b, &thread).await?;
    let stamps: Vec<_> = stored.iter().map(|stored| stored.message.created_at.as_micros()).collect();
    expect::equal("the stored times", &stamps, &vec![1, 1])
}

/// HIST-008, for every way in which messages can differ.
pub(super) async fn a_key_with_other_messages_is_a_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("conflict")?;
    let written = messages(&["one", "two"]);
    stores.a.append_many(&thread, written.clone(), with_key("k")?).await?;
    let before = all(&*stores.a, &thread).await?;
    let info = counts(&*stores.a, &thread).await?;
    let changed = |change: &dyn Fn(ChatMessage) -> ChatMessage| {
        written
            .iter()
            .cloned()
            .enumerate()
            .map(|(at, message)| if at == 1 { change(message) } else { message })
            .collect()
    };
    let r = run("r")?;
    let others: Vec<(&str, Vec<ChatMessage>)> = vec![
        ("other text", messages(&["one", "Two"])),
        ("the other order", messages(&["two", "one"])),
        ("fewer", messages(&["one"])),
        ("more", messages(&["one", "two", "three"])),
        ("text cut elsewhere", messages(&["onet", "wo"])),
        ("joined text", messages(&["onetwo"])),
        (
            "another role",
            changed(&|mut message| {
                message.role = larder_kernel::Role::System;
                message
            }),
        ),
        ("a run", changed(&|message| message.with_run(r.clone()))),
        ("a token count", changed(&|message| message.with_token_count(0))),
        ("metadata", changed(&|message| message.with_metadata(Metadata::new().with("k", 1)))),
    ];
    for (what, batch) in others {
        conflict(what, stores.b.append_many(&thread, batch, with_key("k")?).await)?;
    }
    expect::equal("the messages", &all(&*stores.b, &thread).await?, &before)?;
    expect::equal("the counts", &counts(&*stores.b, &thread).await?, &info)
}

/// HIST-008: a conflict does not change the meaning of the key.
pub(super) async fn after_a_conflict_the_first_append_can_still_be_repeated(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("after a conflict")?;
    let first = stores.a.append_many(&thread, messages(&["one"]), with_key("k")?).await?;
    conflict("other text", stores.b.append_many(&thread, messages(&["two"]), with_key("k")?).await)?;
    let again = stores.b.append_many(&thread, messages(&["one"]), with_key("k")?).await?;
    expect::equal("the repeated answer", &again, &first)?;
    // Keys with a common prefix or another case are different keys.
    for name in ["K", "k ", "kk"] {
        stores.b.append_many(&thread, messages(&[name]), with_key(name)?).await?;
    }
    holds(&*stores.a, &thread, &["one", "K", "k ", "kk"]).await
}

/// HIST-009.
pub(super) async fn a_key_on_another_thread_is_another_append(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let pairs = [("a", "s"), ("a", "t"), ("b", "s"), ("A", "s"), ("a", "S")];
    for (agent, session) in pairs {
        let thread = larder_kernel::Thread::new(agent, session)?;
        let text = format!("{agent} {session}");
        let answer = stores.a.append_many(&thread, messages(&[&text]), with_key("k")?).await?;
        expect::equal("the first number", &answer.first.get(), &1)?;
    }
    for (agent, session) in pairs {
        let thread = larder_kernel::Thread::new(agent, session)?;
        holds(&*stores.b, &thread, &[&format!("{agent} {session}")]).await?;
    }
    Ok(())
}

/// HIST-009: a fork is another thread and does not copy the source's keys.
pub(super) async fn a_fork_does_not_copy_the_keys(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target) = (thread("source")?, thread("target")?);
    stores.a.append_many(&source, messages(&["one"]), with_key("k")?).await?;
    stores.a.fork(&source, &target, None, None).await?;
    stores.b.append_many(&target, messages(&["other"]), with_key("k")?).await?;
    holds(&*stores.a, &target, &["one", "other"]).await?;
    holds(&*stores.a, &source, &["one"]).await
}

/// HIST-010.
pub(super) async fn a_key_remains_in_effect_after_a_clear(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("cleared")?;
    let batch = messages(&["one", "two"]);
    let first = stores.a.append_many(&thread, batch.clone(), with_key("k")?).await?;
    stores.a.clear(&thread, None).await?;
    let cleared = counts(&*stores.b, &thread).await?;
    let again = stores.b.append_many(&thread, batch, with_key("k")?).await?;
    expect::equal("the repeated answer", &again, &first)?;
    reads_empty(&*stores.a, &thread).await?;
    expect::equal("the counts", &counts(&*stores.a, &thread).await?, &cleared)?;
    conflict("other messages", stores.b.append_many(&thread, messages(&["x"]), with_key("k")?).await)?;
    reads_empty(&*stores.b, &thread).await
}

/// HIST-010: neither the clear of a run nor a replacement forgets the key.
pub(super) async fn a_key_remains_in_effect_after_its_messages_are_removed(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("gone")?;
    let by_run = vec![ChatMessage::user("by run").with_run(run("r")?)];
    let first = stores.a.append_many(&thread, by_run.clone(), with_key("run")?).await?;
    stores.a.clear_run(&thread, &run("r")?, None).await?;
    let replaced = stores.a.append_many(&thread, messages(&["replaced"]), with_key("replaced")?).await?;
    super::support::replace_now(&*stores.b, &thread, replaced.last, &["summary"]).await?;
    let again = stores.b.append_many(&thread, by_run, with_key("run")?).await?;
    expect::equal("after the clear of its run", &again, &first)?;
    let again = stores.b.append_many(&thread, messages(&["replaced"]), with_key("replaced")?).await?;
    expect::equal("after its replacement", &again, &replaced)?;
    holds(&*stores.a, &thread, &["summary"]).await
}

/// HIST-011.
pub(super) async fn of_concurrent_appends_with_one_key_one_writes(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("concurrent")?;
    for round in 0..3 {
        let name = format!("key {round}");
        let text = format!("text {round}");
        let answers = at_once(8, |number| {
            let (store, thread) = (either(&stores, number), thread.clone());
            let (name, text) = (name.clone(), text.clone());
            async move {
                let batch = messages(&[&text, "second"]);
                Ok(store.append_many(&thread, batch, with_key(&name)?).await?)
            }
        })
        .await?;
        let first = expect::some("an answer", answers.first())?;
        expect::that(answers.iter().all(|answer| answer == first), "one result for all", &answers)?;
        let stored = all(&*stores.b, &thread).await?;
        let ours: Vec<_> = stored
            .iter()
            .filter(|stored| (first.first..=first.last).contains(&stored.seq))
            .cloned()
            .collect();
        expect::equal(
            "the messages at the returned position",
            &texts(&ours),
            &vec![text.as_str(), "second"],
        )?;
        expect::equal("the thread's length", &stored.len(), &(2 * (round + 1)))?;
    }
    Ok(())
}

/// HIST-007: other options do not make it another append.
pub(super) async fn a_key_works_with_a_time_to_live(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("with ttl")?;
    let hour = Ttl::fixed(std::time::Duration::from_secs(3600));
    let options = AppendOptions::default().with_idempotency_key(key("k")?).with_ttl(hour);
    let first = stores.a.append_many(&thread, messages(&["one"]), options.clone()).await?;
    let again = stores.b.append_many(&thread, messages(&["one"]), options).await?;
    expect::equal("the repeated answer", &again, &first)?;
    holds(&*stores.b, &thread, &["one"]).await
}
