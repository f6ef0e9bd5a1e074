//! Counts, and clears of threads and runs.

use larder_kernel::{ChatMessage, HistoryProvider, Metadata, Replacement, Seq, Thread, ToolCall, ToolResult};

use super::support::{
    all, append, bodies, bytes, holds, last, messages, next_said, numbered, reads_empty, replace_now, run,
    say, seqs, texts, thread,
};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

/// Checks that `thread_info` agrees with the readable messages.
async fn counts_agree(what: &str, store: &dyn HistoryProvider, thread: &Thread) -> CaseResult {
    let stored = all(store, thread).await?;
    let info = store.thread_info(thread).await?;
    let count = u64::try_from(stored.len()).unwrap_or(u64::MAX);
    expect::equal(&format!("after {what}: the thread"), &info.thread, thread)?;
    expect::equal(&format!("after {what}: messages"), &info.messages, &count)?;
    expect::equal(&format!("after {what}: bytes"), &info.bytes, &bytes(&bodies(&stored))?)
}

/// HIST-031.
pub(super) async fn counts_follow_every_write(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, copy) = (thread("counted")?, thread("copy")?);
    let (a, b) = (&*stores.a, &*stores.b);
    counts_agree("nothing", b, &thread).await?;
    let tagged: Vec<_> = numbered("tagged", 3)
        .into_iter()
        .map(|m| run("r").map(|r| m.with_run(r)))
        .collect::<Result<_, _>>()?;
    append(a, &thread, numbered("plain", 5)).await?;
    append(a, &thread, tagged).await?;
    expect::equal("messages", &b.thread_info(&thread).await?.messages, &8)?;
    counts_agree("appends", b, &thread).await?;
    replace_now(a, &thread, Seq::new(3), &["s1", "a longer summary", "s3", "s4"]).await?;
    expect::equal("messages", &b.thread_info(&thread).await?.messages, &9)?;
    counts_agree("a replacement", b, &thread).await?;
    a.clear_run(&thread, &run("r")?, None).await?;
    expect::equal("messages", &b.thread_info(&thread).await?.messages, &6)?;
    counts_agree("the clear of a run", b, &thread).await?;
    a.fork(&thread, &copy, Some(Seq::new(4)), None).await?;
    expect::equal("messages of the fork", &b.thread_info(&copy).await?.messages, &5)?;
    counts_agree("a fork", b, &copy).await?;
    a.clear(&thread, None).await?;
    expect::equal("messages", &b.thread_info(&thread).await?.messages, &0)?;
    counts_agree("a clear", b, &thread).await?;
    counts_agree("the clear of its source", b, &copy).await?;
    say(a, &thread, &["again"]).await?;
    counts_agree("an append after the clear", b, &thread).await
}

/// HIST-032.
pub(super) async fn bytes_is_the_sum_of_message_sizes(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("bytes")?;
    let batch = vec![
        ChatMessage::user("é\u{1f980}\0"),
        ChatMessage::assistant("").with_tool_call(ToolCall::new("id", "name", "{\"é\":1}")),
        ChatMessage::tool([ToolResult::new("id", "ß")]),
        ChatMessage::user("").with_metadata(Metadata::new().with("ключ", "да").with("n", 1)),
        ChatMessage::user("").with_run(run("a run's id counts nothing")?),
        ChatMessage::user(""),
    ];
    append(&*stores.a, &thread, batch.clone()).await?;
    // Text 2+4+1; call 2+4+8; result 2+2; metadata 8+4 and 1+8.
    expect::equal("bytes", &stores.b.thread_info(&thread).await?.bytes, &46)?;
    expect::equal("size_bytes of the written messages", &bytes(&batch)?, &46)?;
    counts_agree("an append", &*stores.b, &thread).await
}

/// HIST-033.
pub(super) async fn last_is_the_greatest_number_assigned_and_survives_a_clear(
    context: Context,
) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("last")?;
    let (a, b) = (&*stores.a, &*stores.b);
    expect::equal("before anything", &last(b, &thread).await?, &Seq::ZERO)?;
    let tagged = ChatMessage::user("tagged").with_run(run("r")?);
    append(a, &thread, vec![ChatMessage::user("x"), ChatMessage::user("y"), tagged]).await?;
    expect::equal("after 3 messages", &last(b, &thread).await?, &Seq::new(3))?;
    a.clear_run(&thread, &run("r")?, None).await?;
    expect::equal("after the event of a run's clear", &last(b, &thread).await?, &Seq::new(4))?;
    let replaced = replace_now(a, &thread, Seq::new(1), &["s"]).await?;
    expect::equal("the replacement's number", &replaced.seq, &Seq::new(5))?;
    expect::equal("after the event of a replacement", &last(b, &thread).await?, &Seq::new(5))?;
    a.clear(&thread, None).await?;
    expect::equal("after the event of a clear", &last(b, &thread).await?, &Seq::new(6))?;
    expect::equal("counts", &b.thread_info(&thread).await?.messages, &0)?;
    expect::equal("the next message", &say(b, &thread, &["z"]).await?.first, &Seq::new(7))?;
    expect::equal("after it", &last(a, &thread).await?, &Seq::new(7))
}

/// HIST-034.
pub(super) async fn a_clear_returns_the_count_and_removes_everything(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("cleared")?;
    append(&*stores.a, &thread, numbered("m", 7)).await?;
    replace_now(&*stores.a, &thread, Seq::new(2), &["1", "2", "3", "4"]).await?;
    expect::equal("removed", &stores.a.clear(&thread, None).await?, &9)?;
    reads_empty(&*stores.b, &thread).await?;
    reads_empty(&*stores.a, &thread).await?;
    expect::equal("removed the second time", &stores.b.clear(&thread, None).await?, &0)
}

/// HIST-034: for a thread of any length.
pub(super) async fn a_long_thread_is_cleared_completely(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("long")?;
    for part in ["a", "b", "c"] {
        append(&*stores.a, &thread, numbered(part, 800)).await?;
    }
    expect::equal("removed", &stores.b.clear(&thread, None).await?, &2_400)?;
    reads_empty(&*stores.a, &thread).await
}

/// HIST-035.
pub(super) async fn clearing_an_empty_thread_returns_0_and_creates_no_event(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (fresh, cleared) = (thread("fresh")?, thread("cleared")?);
    say(&*stores.a, &cleared, &["x"]).await?;
    stores.a.clear(&cleared, None).await?;
    for thread in [&fresh, &cleared] {
        let before = last(&*stores.a, thread).await?;
        let mut events = stores.b.subscribe(thread, before).await?;
        expect::equal("removed", &stores.a.clear(thread, None).await?, &0)?;
        expect::equal("removed again", &stores.b.clear(thread, None).await?, &0)?;
        expect::equal("last", &last(&*stores.b, thread).await?, &before)?;
        let at = say(&*stores.a, thread, &["next"]).await?.first;
        expect::equal("the next number", &at.get(), &(before.get() + 1))?;
        expect::equal("the next event", &next_said(&mut events, "next").await?.0, &at)?;
    }
    Ok(())
}

/// HIST-036.
pub(super) async fn a_clear_does_not_change_other_threads(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let cleared = Thread::new("agent", "session")?;
    let others = [
        ("agent", "other"),
        ("other", "session"),
        ("agent", "session2"),
        ("agent2", "session"),
        ("agen", "session"),
        ("agent", "sessio"),
        ("Agent", "session"),
        ("agent", "Session"),
        ("agents", "ession"),
        ("session", "agent"),
    ];
    append(&*stores.a, &cleared, numbered("m", 3)).await?;
    let mut before = Vec::new();
    for (agent, session) in others {
        let thread = Thread::new(agent, session)?;
        append(&*stores.a, &thread, numbered(&format!("{agent}/{session} "), 2)).await?;
        before.push((stores.a.thread_info(&thread).await?, all(&*stores.a, &thread).await?));
    }
    expect::equal("removed", &stores.a.clear(&cleared, None).await?, &3)?;
    reads_empty(&*stores.b, &cleared).await?;
    for (info, stored) in before {
        expect::equal("another thread's counts", &stores.b.thread_info(&info.thread).await?, &info)?;
        expect::equal("another thread's messages", &all(&*stores.b, &info.thread).await?, &stored)?;
    }
    Ok(())
}

/// HIST-037.
pub(super) async fn numbers_continue_after_a_clear(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("goes on")?;
    let mut greatest = append(&*stores.a, &thread, numbered("m", 5)).await?.last;
    for (writer, clearer) in [(&stores.a, &stores.b), (&stores.b, &stores.a), (&stores.a, &stores.a)] {
        clearer.clear(&thread, None).await?;
        let answer = say(&**writer, &thread, &["after"]).await?;
        expect::that(answer.first > greatest, format!("a number above {greatest}"), answer)?;
        greatest = answer.last;
        let page = stores.b.page_after(&thread, Seq::new(answer.first.get() - 1), 10).await?.messages;
        expect::equal("the page after the cleared messages", &texts(&page), &vec!["after"])?;
    }
    Ok(())
}

/// HIST-038.
pub(super) async fn exactly_the_messages_of_the_run_are_removed(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, other) = (thread("runs")?, thread("other")?);
    let tags = [
        Some("run"),
        None,
        Some("run1"),
        Some("run"),
        Some("Run"),
        Some("ru"),
        Some("run "),
        Some("r%n"),
        Some("run"),
        None,
        Some("r_n"),
        Some("*"),
        Some("run\u{e9}"),
        Some("rune\u{301}"),
    ];
    let mut batch = Vec::new();
    for (number, tag) in tags.into_iter().enumerate() {
        let mut message = ChatMessage::user(format!("m{number} run"));
        message.run = tag.map(run).transpose()?;
        batch.push(message);
    }
    append(&*stores.a, &thread, batch.clone()).await?;
    append(&*stores.a, &other, batch).await?;
    let whole = all(&*stores.a, &thread).await?;
    expect::equal("removed", &stores.a.clear_run(&thread, &run("run")?, None).await?, &3)?;
    let kept = |name: &str| {
        whole
            .iter()
            .filter(|stored| stored.message.run.as_ref().is_none_or(|run| run.as_str() != name))
            .cloned()
            .collect::<Vec<_>>()
    };
    expect::equal("the remaining data", &all(&*stores.b, &thread).await?, &kept("run"))?;
    expect::equal("the other thread's numbers", &seqs(&all(&*stores.b, &other).await?), &seqs(&whole))?;
    expect::equal("removed the second time", &stores.b.clear_run(&thread, &run("run")?, None).await?, &0)?;
    for pattern in ["r%n", "r_n", "*", "run\u{e9}"] {
        expect::equal(
            &format!("removed of {pattern}"),
            &stores.b.clear_run(&thread, &run(pattern)?, None).await?,
            &1,
        )?;
    }
    let left = ["m1 run", "m2 run", "m4 run", "m5 run", "m6 run", "m9 run", "m13 run"];
    holds(&*stores.a, &thread, &left).await
}

/// HIST-038: messages from a replacement or a fork belong to their runs like any other.
pub(super) async fn a_run_is_cleared_from_replacements_and_forks_too(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target) = (thread("source")?, thread("target")?);
    say(&*stores.a, &source, &["a", "b"]).await?;
    let tagged = ChatMessage::system("summary").with_run(run("r")?);
    stores.a.replace(&source, Replacement::new(Seq::new(1), vec![tagged]).with_seen(Seq::new(2))).await?;
    stores.a.fork(&source, &target, None, None).await?;
    expect::equal("removed from the fork", &stores.b.clear_run(&target, &run("r")?, None).await?, &1)?;
    holds(&*stores.a, &target, &["b"]).await?;
    holds(&*stores.a, &source, &["summary", "b"]).await?;
    expect::equal("removed from the source", &stores.b.clear_run(&source, &run("r")?, None).await?, &1)?;
    holds(&*stores.a, &source, &["b"]).await
}

/// HIST-039.
pub(super) async fn clearing_a_missing_run_returns_0_and_creates_no_event(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (fresh, used) = (thread("fresh")?, thread("used")?);
    append(&*stores.a, &used, messages(&["plain"])).await?;
    for thread in [&fresh, &used] {
        let before = last(&*stores.a, thread).await?;
        let mut events = stores.b.subscribe(thread, before).await?;
        expect::equal("removed", &stores.a.clear_run(thread, &run("absent")?, None).await?, &0)?;
        expect::equal("last", &last(&*stores.b, thread).await?, &before)?;
        // No message was removed since `before`, so a replacement based on it does not conflict.
        let replaced = stores.b.replace(thread, Replacement::new(before, messages(&["s"]))).await?;
        let event = super::support::next_replaced(&mut events).await?;
        expect::equal("the next event", &event.seq, &replaced.seq)?;
    }
    Ok(())
}
