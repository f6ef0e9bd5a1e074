//! Subscriptions: the backlog, then live events.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use larder_kernel::{ChatMessage, HistoryEvent, HistoryEventKind, Replacement, Seq};

use super::support::{
    SeenReplacement, all, append, at_once, bytes, either, last, list_all, messages, next, next_cleared,
    next_replaced, next_said, numbered, replace_now, run, say, seqs, thread,
};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;
use crate::suites::background::BackgroundTask;

/// HIST-080.
pub(super) async fn the_backlog_is_delivered_before_live_events(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    say(&*stores.a, &thread, &["1", "2", "3"]).await?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    say(&*stores.a, &thread, &["4"]).await?;
    for number in 1..=4_i64 {
        let (seq, _) = next_said(&mut events, &number.to_string()).await?;
        expect::equal("the event's number", &seq.get(), &number)?;
    }
    say(&*stores.b, &thread, &["5", "6"]).await?;
    say(&*stores.a, &thread, &["7"]).await?;
    for number in 5..=7_i64 {
        let (seq, _) = next_said(&mut events, &number.to_string()).await?;
        expect::equal("the event's number", &seq.get(), &number)?;
    }
    Ok(())
}

/// HIST-080: a backlog longer than any page.
pub(super) async fn a_long_backlog_is_delivered_completely(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    for part in ["a", "b", "c"] {
        append(&*stores.a, &thread, numbered(part, 500)).await?;
    }
    let mut events = stores.b.subscribe(&thread, Seq::new(100)).await?;
    say(&*stores.a, &thread, &["last"]).await?;
    for number in 101..=1_500_i64 {
        let event = next(&mut events, &format!("{number}")).await?;
        expect::equal("the event's number", &event.seq.get(), &number)?;
    }
    next_said(&mut events, "last").await.map(drop)
}

/// HIST-080: the messages of a fork are appended to the target.
pub(super) async fn a_forks_messages_reach_the_targets_subscriber(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (source, target) = (thread("source")?, thread("target")?);
    say(&*stores.a, &source, &["a", "b"]).await?;
    let mut live = stores.b.subscribe(&target, Seq::ZERO).await?;
    stores.a.fork(&source, &target, None, None).await?;
    let mut late = stores.b.subscribe(&target, Seq::ZERO).await?;
    say(&*stores.a, &target, &["c"]).await?;
    for events in [&mut live, &mut late] {
        for (text, seq, bytes) in [("a", 1, 1), ("b", 2, 2), ("c", 3, 3)] {
            expect::equal("number and size", &next_said(events, text).await?, &(Seq::new(seq), bytes))?;
        }
    }
    Ok(())
}

/// HIST-081.
pub(super) async fn an_appended_message_carries_the_size_of_the_thread(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let rich = ChatMessage::assistant("é\0")
        .with_run(run("r")?)
        .with_tool_call(larder_kernel::ToolCall::new("c", "t", "{}"))
        .with_metadata(larder_kernel::Metadata::new().with("k", serde_json::json!([1, null])));
    let batches = [messages(&["one"]), vec![rich], messages(&["", "four", "five!"]), messages(&["six"])];
    let mut live = stores.b.subscribe(&thread, Seq::ZERO).await?;
    let mut written = Vec::new();
    for batch in batches {
        append(&*stores.a, &thread, batch.clone()).await?;
        written.extend(batch);
    }
    let mut late = stores.b.subscribe(&thread, Seq::ZERO).await?;
    for events in [&mut live, &mut late] {
        let mut size = 0;
        for (seq, message) in (1..).zip(&written) {
            size += bytes(std::slice::from_ref(message))?;
            let kind = HistoryEventKind::Appended { message: Arc::new(message.clone()), thread_bytes: size };
            let expected = HistoryEvent::new(Seq::new(seq), kind);
            expect::equal("the event", &next(events, "Appended").await?, &expected)?;
        }
    }
    Ok(())
}

/// HIST-081: the size is that of the moment of writing, independent of earlier and later removals.
pub(super) async fn the_size_is_that_of_the_time_of_the_write(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let tagged = ChatMessage::user("12345").with_run(run("r")?);
    append(&*stores.a, &thread, vec![tagged, ChatMessage::user("678")]).await?;
    let after = say(&*stores.a, &thread, &["90"]).await?.last;
    stores.a.clear_run(&thread, &run("r")?, None).await?;
    say(&*stores.a, &thread, &["x"]).await?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    expect::equal("before the clear", &next_said(&mut events, "678").await?.1, &8)?;
    expect::equal("before the clear", &next_said(&mut events, "90").await?, &(after, 10))?;
    next(&mut events, "RunCleared").await?;
    expect::equal("after the clear of 5 bytes", &next_said(&mut events, "x").await?.1, &6)?;
    let replaced = replace_now(&*stores.a, &thread, after, &["summary"]).await?;
    say(&*stores.a, &thread, &["y"]).await?;
    let seen = next_replaced(&mut events).await?;
    expect::equal("the replacement", &(seen.seq, seen.thread_bytes), &(replaced.seq, 8))?;
    expect::equal("after the replacement", &next_said(&mut events, "y").await?.1, &9)
}

/// HIST-082.
pub(super) async fn a_clear_is_an_event_with_the_number_of_messages(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    for (round, count) in [(0, 3_u64), (1, 1), (2, 5)] {
        let numbers = usize::try_from(count).unwrap_or_default();
        append(&*stores.a, &thread, numbered(&format!("{round}."), numbers)).await?;
        for number in 1..=count {
            next_said(&mut events, &format!("{round}.{number}")).await?;
        }
        let before = last(&*stores.a, &thread).await?;
        stores.a.clear(&thread, None).await?;
        let after = last(&*stores.a, &thread).await?;
        let (seq, removed) = next_cleared(&mut events).await?;
        expect::equal("number of removed messages", &removed, &count)?;
        expect::equal("the event's number", &seq, &after)?;
        expect::that(seq > before, format!("a separate number above {before}"), seq)?;
    }
    let (seq, size) = {
        say(&*stores.a, &thread, &["next"]).await?;
        next_said(&mut events, "next").await?
    };
    expect::equal("the size after a clear", &size, &4)?;
    expect::equal("last", &last(&*stores.b, &thread).await?, &seq)
}

/// HIST-083.
pub(super) async fn the_clear_of_a_run_is_an_event_that_names_the_run(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let run = run("Run \u{1f980}/%")?;
    let tagged = |text: &str| ChatMessage::user(text).with_run(run.clone());
    let batch = vec![tagged("a"), ChatMessage::user("b"), tagged("c"), ChatMessage::user("d")];
    append(&*stores.a, &thread, batch).await?;
    let mut live = stores.b.subscribe(&thread, Seq::new(4)).await?;
    stores.a.clear_run(&thread, &run, None).await?;
    let mut late = stores.b.subscribe(&thread, Seq::new(4)).await?;
    let kind = HistoryEventKind::RunCleared { run: run.clone(), removed: 2 };
    let expected = HistoryEvent::new(Seq::new(5), kind);
    expect::equal("the live event", &next(&mut live, "RunCleared").await?, &expected)?;
    expect::equal("the event of the backlog", &next(&mut late, "RunCleared").await?, &expected)
}

/// HIST-084.
pub(super) async fn a_replacement_is_an_event_that_carries_its_messages(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    append(&*stores.a, &thread, numbered("m", 5)).await?;
    let mut live = stores.b.subscribe(&thread, Seq::new(5)).await?;
    let summary =
        vec![ChatMessage::system("s1").with_run(run("r")?), ChatMessage::system("s2"), ChatMessage::user("")];
    let replacement = Replacement::new(Seq::new(2), summary).with_seen(Seq::new(5));
    let replaced = stores.a.replace(&thread, replacement).await?;
    let mut late = stores.b.subscribe(&thread, Seq::new(5)).await?;
    let stored = all(&*stores.a, &thread).await?;
    let expected = SeenReplacement {
        seq: replaced.seq,
        up_to: Seq::new(2),
        removed: 2,
        messages: stored.get(..3).unwrap_or_default().to_vec(),
        thread_bytes: stores.a.thread_info(&thread).await?.bytes,
    };
    expect::equal("the numbers of the messages", &seqs(&expected.messages), &vec![0, 1, 2])?;
    expect::equal("the live event", &next_replaced(&mut live).await?, &expected)?;
    expect::equal("the event of the backlog", &next_replaced(&mut late).await?, &expected)?;
    let up_to = Seq::new(2);
    let replaced = replace_now(&*stores.a, &thread, up_to, &[]).await?;
    let expected =
        SeenReplacement { seq: replaced.seq, up_to, removed: 3, messages: Vec::new(), thread_bytes: 6 };
    expect::equal("an empty one", &next_replaced(&mut live).await?, &expected)
}

/// HIST-086.
pub(super) async fn events_of_every_handle_arrive_once_under_concurrent_writers(
    context: Context,
) -> CaseResult {
    const WRITERS: usize = 8;
    let stores = context.history().await?;
    let thread = thread("t")?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    let mut second = stores.a.subscribe(&thread, Seq::ZERO).await?;
    let writing = at_once(WRITERS, |writer| {
        let (store, thread) = (either(&stores, writer), thread.clone());
        async move {
            for round in 0..6 {
                append(&*store, &thread, numbered(&format!("{writer}.{round}."), 1 + (writer + round) % 3))
                    .await?;
            }
            Ok(())
        }
    });
    let expected: usize =
        (0..WRITERS).flat_map(|writer| (0..6).map(move |round| 1 + (writer + round) % 3)).sum();
    let collect = async |events: &mut larder_kernel::HistoryEvents| {
        let mut met = Vec::new();
        for _ in 0..expected {
            met.push(next(events, "Appended").await?);
        }
        CaseResult::Ok(met)
    };
    let (written, one, other) = tokio::join!(writing, collect(&mut events), collect(&mut second));
    written?;
    let stored = all(&*stores.a, &thread).await?;
    for met in [one?, other?] {
        let numbers: Vec<i64> = met.iter().map(|event| event.seq.get()).collect();
        expect::equal("the events' numbers", &numbers, &seqs(&stored))?;
        for (event, stored) in met.iter().zip(&stored) {
            let same = matches!(
                &event.kind,
                HistoryEventKind::Appended { message, .. } if *message == stored.message
            );
            expect::that(same, format!("the message {stored:?}"), event)?;
        }
    }
    say(&*stores.a, &thread, &["end"]).await?;
    next_said(&mut events, "end").await?;
    next_said(&mut second, "end").await.map(drop)
}

/// HIST-086: messages and clears of runs together stay in order, and every clear arrives.
pub(super) async fn removals_by_other_handles_arrive_once(context: Context) -> CaseResult {
    const WRITERS: usize = 6;
    let stores = context.history().await?;
    let thread = thread("t")?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    let writing = at_once(WRITERS, |writer| {
        let (store, thread) = (either(&stores, writer), thread.clone());
        async move {
            for round in 0..3 {
                let run = run(&format!("{writer}.{round}"))?;
                append(&*store, &thread, vec![ChatMessage::user("x").with_run(run.clone()); 2]).await?;
                expect::equal("removed", &store.clear_run(&thread, &run, None).await?, &2)?;
            }
            Ok(())
        }
    });
    let reading = async {
        let (mut cleared, mut previous) = (std::collections::BTreeSet::new(), Seq::ZERO);
        while cleared.len() < WRITERS * 3 {
            let event = next(&mut events, "RunCleared").await?;
            expect::that(event.seq > previous, format!("a number above {previous}"), &event)?;
            previous = event.seq;
            if let HistoryEventKind::RunCleared { run, .. } = event.kind {
                expect::that(cleared.insert(run.clone()), "each clear once", run)?;
            }
        }
        CaseResult::Ok(())
    };
    let (written, read) = tokio::join!(writing, reading);
    written?;
    read
}

/// HIST-087.
pub(super) async fn a_subscriber_to_an_empty_thread_waits_for_the_first_event(
    context: Context,
) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
    let early = tokio::time::timeout(Duration::from_millis(100), events.next()).await;
    expect::that(early.is_err(), "nothing before the first event", &early)?;
    expect::equal("the listing", &list_all(&*stores.a, 10).await?, &Vec::new())?;
    let writer = {
        let (store, thread) = (Arc::clone(&stores.a), thread.clone());
        BackgroundTask::start(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            say(&*store, &thread, &["first"]).await
        })
    };
    let (seq, size) = next_said(&mut events, "first").await?;
    expect::equal("number and size", &(seq.get(), size), &(1, 5))?;
    writer.end().await?.map(drop)
}

/// HIST-086: an event of any kind wakes a subscriber that has read everything and waits.
pub(super) async fn a_waiting_subscriber_is_woken_by_every_kind_of_event(context: Context) -> CaseResult {
    let quiet = context.quiet().await?;
    waits(&quiet).await?;
    quiet.leave(&context).await
}

async fn waits(context: &Context) -> CaseResult {
    let stores = context.history().await?;
    let (other, thread) = (thread("other")?, thread("quiet")?);
    say(&*stores.a, &other, &["forked"]).await?;
    let mut events = stores.a.subscribe(&thread, Seq::ZERO).await?;
    for (round, kind) in ["append", "replace", "clear_run", "clear", "fork"].into_iter().enumerate() {
        let waiting = BackgroundTask::start(async move {
            let event = next(&mut events, kind).await?;
            CaseResult::Ok((events, event))
        });
        tokio::time::sleep(Duration::from_millis(30)).await;
        // Through the subscriber's handle and through the other.
        let store = either(&stores, round);
        match kind {
            "append" => {
                append(&*store, &thread, vec![ChatMessage::user("1").with_run(run("r")?)]).await?;
            }
            "replace" => {
                let tagged = vec![ChatMessage::system("2").with_run(run("r")?), ChatMessage::user("3")];
                let seen = last(&*store, &thread).await?;
                store.replace(&thread, Replacement::new(seen, tagged).with_seen(seen)).await?;
            }
            "clear_run" => drop(store.clear_run(&thread, &run("r")?, None).await?),
            "clear" => drop(store.clear(&thread, None).await?),
            _ => drop(store.fork(&other, &thread, None, None).await?),
        }
        let (back, event) = waiting.end().await??;
        events = back;
        let shown = match event.kind {
            HistoryEventKind::Appended { .. } if round == 0 => "append",
            HistoryEventKind::Appended { .. } => "fork",
            HistoryEventKind::Replaced { .. } => "replace",
            HistoryEventKind::RunCleared { .. } => "clear_run",
            HistoryEventKind::Cleared { .. } => "clear",
            _ => "another",
        };
        expect::equal("the event's kind", &shown, &kind)?;
    }
    Ok(())
}
