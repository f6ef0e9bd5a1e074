//! Forks: independent copies of threads.

use std::time::{Duration, Instant};

use larder_kernel::{ChatMessage, ErrorKind, Seq, Ttl};

use super::support::{
    all, append, at_once, bodies, either, holds, last, list_all, numbered, reads_empty, refused, replace_now,
    run, say, seqs, texts, thread,
};
use crate::case::{CaseResult, Failure};
use crate::context::{Context, in_time};
use crate::expect;

/// HIST-040.
pub(super) async fn a_fork_contains_the_source_equal_and_in_order(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target) = (thread("source")?, thread("target")?);
    let stamp = larder_kernel::Timestamp::from_micros(5)?;
    let rich = ChatMessage::assistant("\0 é")
        .with_run(run("r")?)
        .with_author(larder_kernel::AgentId::new("critic")?, None)
        .with_created_at(stamp)
        .with_token_count(7)
        .with_metadata(larder_kernel::Metadata::new().with("k", serde_json::json!([1, {"a": null}])))
        .with_tool_call(larder_kernel::ToolCall::new("c", "t", "{"));
    append(&*stores.a, &source, vec![ChatMessage::user("first"), rich, ChatMessage::user("third")]).await?;
    let forked = stores.a.fork(&source, &target, None, None).await?;
    expect::equal("number of copied messages", &forked.messages, &3)?;
    let (copied, original) = (all(&*stores.b, &target).await?, all(&*stores.b, &source).await?);
    expect::equal("the fork", &bodies(&copied), &bodies(&original))?;
    expect::equal("the answer's last", &Some(forked.last), &copied.last().map(|stored| stored.seq))
}

/// HIST-040: `up_to` is included, and need not be the number of a message.
pub(super) async fn a_fork_ends_at_up_to(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let source = thread("source")?;
    let mut batch = numbered("m", 6);
    if let Some(fourth) = batch.get_mut(3) {
        fourth.run = Some(run("hole")?);
    }
    append(&*stores.a, &source, batch).await?;
    stores.a.clear_run(&source, &run("hole")?, None).await?;
    replace_now(&*stores.a, &source, Seq::new(2), &["r1", "r2", "r3"]).await?;
    let original = all(&*stores.a, &source).await?;
    expect::equal("the source's numbers", &seqs(&original), &vec![0, 1, 2, 3, 5, 6])?;
    for up_to in [0, 1, 2, 3, 4, 5, 6, 7, 100, i64::MAX] {
        let target = thread(&format!("up to {up_to}"))?;
        let expected: Vec<_> = original.iter().filter(|stored| stored.seq.get() <= up_to).cloned().collect();
        let forked = stores.a.fork(&source, &target, Some(Seq::new(up_to)), None).await?;
        let copied = all(&*stores.b, &target).await?;
        expect::equal(&format!("the fork up to {up_to}"), &texts(&copied), &texts(&expected))?;
        expect::equal(
            "number of copied messages",
            &usize::try_from(forked.messages).ok(),
            &Some(expected.len()),
        )?;
    }
    Ok(())
}

/// HIST-040: a source longer than any page.
pub(super) async fn a_long_thread_is_forked_completely(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target) = (thread("source")?, thread("target")?);
    for part in ["a", "b", "c"] {
        append(&*stores.a, &source, numbered(part, 700)).await?;
    }
    expect::equal("copied", &stores.b.fork(&source, &target, None, None).await?.messages, &2_100)?;
    let (copied, original) = (all(&*stores.a, &target).await?, all(&*stores.a, &source).await?);
    expect::equal("the fork", &texts(&copied), &texts(&original))
}

/// HIST-041.
pub(super) async fn a_target_with_messages_is_refused(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target) = (thread("source")?, thread("target")?);
    say(&*stores.a, &source, &["a", "b"]).await?;
    say(&*stores.a, &target, &["x"]).await?;
    let before = (stores.a.thread_info(&target).await?, all(&*stores.a, &target).await?);
    for up_to in [None, Some(Seq::new(1))] {
        let result = stores.b.fork(&source, &target, up_to, None).await;
        refused("a fork into a thread that holds messages", result, ErrorKind::AlreadyExists)?;
    }
    let after = (stores.b.thread_info(&target).await?, all(&*stores.b, &target).await?);
    expect::equal("the target", &after, &before)?;
    let result = stores.b.fork(&source, &source, None, None).await;
    refused("a fork into itself", result, ErrorKind::AlreadyExists)?;
    holds(&*stores.b, &source, &["a", "b"]).await
}

/// HIST-041: an emptied target can receive a fork.
pub(super) async fn a_cleared_thread_can_be_a_target(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target) = (thread("source")?, thread("target")?);
    say(&*stores.a, &source, &["a", "b"]).await?;
    say(&*stores.a, &target, &["x"]).await?;
    stores.a.clear(&target, None).await?;
    stores.b.fork(&source, &target, None, None).await?;
    holds(&*stores.a, &target, &["a", "b"]).await
}

/// HIST-042.
pub(super) async fn an_empty_source_is_not_found_and_creates_nothing(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (absent, cleared, source) = (thread("absent")?, thread("cleared")?, thread("source")?);
    say(&*stores.a, &cleared, &["x"]).await?;
    stores.a.clear(&cleared, None).await?;
    say(&*stores.a, &source, &["a", "b"]).await?;
    let target = thread("target")?;
    let sources = [
        (&absent, None),
        (&cleared, None),
        (&absent, Some(Seq::MAX)),
        (&source, Some(Seq::ZERO)),
        (&source, Some(Seq::MIN)),
    ];
    for (from, up_to) in sources {
        let result = stores.b.fork(from, &target, up_to, None).await;
        refused("a fork of nothing", result, ErrorKind::NotFound)?;
        reads_empty(&*stores.a, &target).await?;
    }
    expect::equal("the target's last", &last(&*stores.a, &target).await?, &Seq::ZERO)?;
    expect::equal("number of listed threads", &list_all(&*stores.a, 100).await?.len(), &1)
}

/// HIST-043.
pub(super) async fn a_fork_and_its_source_are_independent(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target, second) = (thread("source")?, thread("target")?, thread("second")?);
    let tagged = ChatMessage::user("b").with_run(run("r")?);
    append(&*stores.a, &source, vec![ChatMessage::user("a"), tagged, ChatMessage::user("c")]).await?;
    stores.a.fork(&source, &target, None, None).await?;
    stores.b.fork(&target, &second, None, None).await?;
    say(&*stores.b, &source, &["s"]).await?;
    say(&*stores.a, &target, &["t"]).await?;
    holds(&*stores.b, &target, &["a", "b", "c", "t"]).await?;
    stores.a.clear_run(&target, &run("r")?, None).await?;
    holds(&*stores.b, &source, &["a", "b", "c", "s"]).await?;
    replace_now(&*stores.a, &source, Seq::new(2), &["summary"]).await?;
    holds(&*stores.b, &target, &["a", "c", "t"]).await?;
    stores.b.clear(&source, None).await?;
    holds(&*stores.a, &target, &["a", "c", "t"]).await?;
    stores.a.clear(&target, None).await?;
    holds(&*stores.b, &second, &["a", "b", "c"]).await?;
    reads_empty(&*stores.b, &target).await
}

/// HIST-043: the fork stays after its source expires.
pub(super) async fn a_fork_survives_the_removal_of_its_source(context: Context) -> CaseResult {
    const TTL: Duration = Duration::from_millis(250);
    let stores = context.history().await?;
    let (source, target, forked_at) = in_time(TTL, |attempt| {
        let stores = &stores;
        async move {
            let (source, target) =
                (thread(&format!("source {attempt}"))?, thread(&format!("target {attempt}"))?);
            say(&*stores.a, &source, &["a", "b"]).await?;
            stores.a.set_ttl(&source, Some(Ttl::fixed(TTL)), None).await?;
            stores.a.fork(&source, &target, None, None).await?;
            Ok((source, target, Instant::now()))
        }
    })
    .await?;
    tokio::time::sleep((TTL + Duration::from_millis(50)).saturating_sub(forked_at.elapsed())).await;
    reads_empty(&*stores.b, &source).await?;
    holds(&*stores.b, &target, &["a", "b"]).await
}

/// HIST-044.
pub(super) async fn a_fork_is_numbered_by_its_target(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, fresh, used) = (thread("source")?, thread("fresh")?, thread("used")?);
    append(&*stores.a, &source, numbered("m", 6)).await?;
    replace_now(&*stores.a, &source, Seq::new(4), &["s"]).await?;
    let forked = stores.a.fork(&source, &fresh, None, None).await?;
    expect::equal("the numbers in a new thread", &seqs(&all(&*stores.b, &fresh).await?), &vec![1, 2, 3])?;
    expect::equal("the answer's last", &forked.last, &Seq::new(3))?;
    expect::equal("the thread's last", &last(&*stores.b, &fresh).await?, &Seq::new(3))?;
    append(&*stores.b, &used, numbered("x", 9)).await?;
    stores.b.clear(&used, None).await?;
    let before = last(&*stores.a, &used).await?.get();
    let forked = stores.a.fork(&source, &used, None, None).await?;
    let expected: Vec<i64> = (before + 1..=before + 3).collect();
    expect::equal("the numbers in a used thread", &seqs(&all(&*stores.b, &used).await?), &expected)?;
    expect::equal("the answer's last", &forked.last.get(), &(before + 3))?;
    let next = say(&*stores.b, &used, &["next"]).await?.first;
    expect::equal("the next number", &next.get(), &(before + 4))
}

/// HIST-045.
pub(super) async fn of_concurrent_forks_one_succeeds(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for number in 0..4 {
        append(&*stores.a, &thread(&format!("source {number}"))?, numbered(&format!("{number}."), 3)).await?;
    }
    for round in 0..3 {
        let target = thread(&format!("target {round}"))?;
        let results = at_once(8, |number| {
            let (store, target) = (either(&stores, number), target.clone());
            async move {
                let source = thread(&format!("source {}", number % 4))?;
                match store.fork(&source, &target, None, None).await {
                    Ok(_) => Ok(Some(number % 4)),
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                    Err(error) => Err(Failure::from(error)),
                }
            }
        })
        .await?;
        let winners: Vec<_> = results.into_iter().flatten().collect();
        expect::equal("number of successful forks", &winners.len(), &1)?;
        let winner = expect::some("the fork that succeeded", winners.first())?;
        let expected = [1, 2, 3].map(|at| format!("{winner}.{at}"));
        holds(&*stores.b, &target, &expected.each_ref().map(String::as_str)).await?;
        expect::equal("the numbers", &seqs(&all(&*stores.a, &target).await?), &vec![1, 2, 3])?;
    }
    Ok(())
}
