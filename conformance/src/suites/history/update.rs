//! Updates of messages in place.

use std::time::{Duration, Instant};

use larder_kernel::{
    AgentId, AgentRole, AppendOptions, ChatMessage, ErrorKind, HistoryEventKind, HistoryProvider,
    MessageFilter, MessageUpdate, Metadata, Removal, Replacement, Revision, Seq, StoredMessage, Thread,
    ToolCall, Ttl, Updated,
};

use super::support::{
    Stores, all, append, at_once, bodies, bytes, conflict, either, holds, last, messages, next, next_said,
    numbered, refused, replace_now, run, say, seqs, texts, thread,
};
use crate::case::CaseResult;
use crate::context::{Context, Race, attempts};
use crate::expect;

/// Returns the message with a number.
pub(super) async fn at(
    store: &dyn HistoryProvider,
    thread: &Thread,
    number: i64,
) -> CaseResult<StoredMessage> {
    let found = all(store, thread).await?.into_iter().find(|stored| stored.seq.get() == number);
    found.ok_or_else(|| expect::broken(format!("a message with the number {number}"), "none"))
}

/// Updates the text of a message as it is now.
pub(super) async fn retell(
    store: &dyn HistoryProvider,
    thread: &Thread,
    number: i64,
    text: &str,
) -> CaseResult<Updated> {
    let stored = at(store, thread, number).await?;
    Ok(store.update(thread, MessageUpdate::of(&stored, ChatMessage::user(text))).await?)
}

/// Every read of a thread, complete.
async fn reads(
    store: &dyn HistoryProvider,
    thread: &Thread,
) -> CaseResult<[(&'static str, Vec<StoredMessage>); 4]> {
    Ok([
        ("get_messages", store.get_messages(thread, 0, 100).await?.messages),
        ("tail", store.tail(thread, None, 100).await?.messages),
        ("tail_matching", store.tail_matching(thread, &MessageFilter::new(), None, 100).await?.messages),
        ("page_after", store.page_after(thread, Seq::MIN, 100).await?.messages),
    ])
}

/// Returns a message that sets every field.
fn rich(text: &str) -> CaseResult<ChatMessage> {
    let message = ChatMessage::assistant(text)
        .with_author(AgentId::new("critic")?, Some(AgentRole::new("reviewer")?))
        .with_run(run("r")?)
        .with_tool_call(ToolCall::new("c", "search", "{\"q\": \"é\"}"))
        .with_metadata(Metadata::new().with("k", "v"))
        .with_token_count(7);
    Ok(message)
}

/// HIST-140: the newest, the oldest and one in between, with shorter and longer content.
pub(super) async fn an_update_replaces_the_message_under_its_number(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, other) = (thread("updated")?, thread("other")?);
    let mut expected = numbered("m", 5);
    append(&*stores.a, &thread, expected.clone()).await?;
    append(&*stores.a, &other, expected.clone()).await?;
    let long = "long é\0 ".repeat(20_000);
    for (round, (number, message)) in
        [(3, rich("new")?), (5, rich(&long)?), (1, ChatMessage::user("")), (3, ChatMessage::system("short"))]
            .into_iter()
            .enumerate()
    {
        let (store, reader) = (either(&stores, round), either(&stores, round + 1));
        let stored = at(&*store, &thread, number).await?;
        store.update(&thread, MessageUpdate::of(&stored, message.clone())).await?;
        expected[usize::try_from(number - 1).unwrap_or_default()] = message;
        for (what, read) in reads(&*reader, &thread).await? {
            expect::equal(&format!("{what}: the numbers"), &seqs(&read), &vec![1, 2, 3, 4, 5])?;
            expect::equal(&format!("{what}: the messages"), &bodies(&read), &expected)?;
        }
    }
    holds(&*stores.a, &other, &["m1", "m2", "m3", "m4", "m5"]).await
}

/// HIST-141.
pub(super) async fn an_update_of_another_revision_changes_nothing(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("guarded")?;
    let end = say(&*stores.a, &thread, &["1", "2", "3"]).await?.last;
    let stale = at(&*stores.a, &thread, 2).await?;
    retell(&*stores.b, &thread, 2, "new").await?;
    let before = (all(&*stores.a, &thread).await?, last(&*stores.a, &thread).await?);
    let update = |revision| MessageUpdate::new(Seq::new(2), revision, ChatMessage::user("no"));
    conflict("an earlier revision", stores.a.update(&thread, update(stale.revision)).await)?;
    for number in [0, 1, 3, 5, u64::MAX] {
        let named = Revision::new(number).in_generation(end.generation());
        for revision in [Revision::new(number), named] {
            conflict(&format!("revision {number}"), stores.b.update(&thread, update(revision)).await)?;
        }
    }
    let after = (all(&*stores.b, &thread).await?, last(&*stores.b, &thread).await?);
    expect::equal("the thread after the refusals", &after, &before)?;
    stores.b.update(&thread, MessageUpdate::of(&before.0[1], ChatMessage::user("last"))).await?;
    holds(&*stores.a, &thread, &["1", "last", "3"]).await
}

async fn revisions(store: &dyn HistoryProvider, thread: &Thread, what: &str, expected: &[u64]) -> CaseResult {
    for (method, read) in reads(store, thread).await? {
        let got: Vec<u64> = read.iter().map(|stored| stored.revision.get()).collect();
        expect::equal(&format!("{what}: the revisions by {method}"), &got, &expected.to_vec())?;
        let named = read.iter().all(|stored| stored.revision.generation() == stored.seq.generation());
        expect::that(named, format!("{what}: the thread's generation in each revision by {method}"), &read)?;
    }
    Ok(())
}

/// HIST-142.
pub(super) async fn every_read_returns_the_revision(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, fork) = (thread("read")?, thread("fork")?);
    append(&*stores.a, &thread, numbered("m", 4)).await?;
    revisions(&*stores.b, &thread, "appended", &[1, 2, 3, 4]).await?;
    retell(&*stores.a, &thread, 2, "second").await?;
    retell(&*stores.b, &thread, 4, "fourth").await?;
    retell(&*stores.a, &thread, 2, "second again").await?;
    revisions(&*stores.b, &thread, "updated", &[1, 7, 3, 6]).await?;
    stores.b.fork(&thread, &fork, None, None).await?;
    revisions(&*stores.a, &fork, "forked", &[1, 2, 3, 4]).await?;
    // More messages than before, so that numbers reach 0.
    replace_now(&*stores.a, &thread, Seq::new(2), &["s1", "s2", "s3"]).await?;
    revisions(&*stores.b, &thread, "replaced", &[8, 8, 8, 3, 6]).await?;
    retell(&*stores.b, &thread, 0, "first").await?;
    revisions(&*stores.a, &thread, "updated after the replacement", &[9, 8, 8, 3, 6]).await?;
    let lost = MessageUpdate::appended(Seq::new(2), ChatMessage::user("no"));
    conflict("the revision of a replaced message", stores.b.update(&thread, lost).await)
}

/// HIST-143.
pub(super) async fn an_update_takes_a_number(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("numbered")?;
    let end = say(&*stores.a, &thread, &["1", "2"]).await?.last;
    let mut stored = at(&*stores.a, &thread, 1).await?;
    for number in [3, 4, 5] {
        let update = MessageUpdate::of(&stored, ChatMessage::user(format!("update {number}")));
        let updated = stores.b.update(&thread, update).await?;
        expect::equal("the number", &updated.last.get(), &number)?;
        expect::equal("the generation", &updated.last.generation(), &end.generation())?;
        expect::equal("the revision", &updated.revision, &Revision::at(updated.last))?;
        expect::equal("the thread's last number", &last(&*stores.a, &thread).await?, &updated.last)?;
        stored = stored.with_revision(updated.revision);
    }
    let appended = say(&*stores.a, &thread, &["3"]).await?.last;
    expect::equal("the next number", &appended.get(), &6)
}

/// HIST-144.
pub(super) async fn of_concurrent_updates_one_succeeds(context: Context) -> CaseResult {
    const WRITERS: usize = 8;
    let stores = context.history().await?;
    let thread = thread("shared")?;
    say(&*stores.a, &thread, &["before", "after"]).await?;
    for round in 0..4 {
        let stored = at(&*stores.a, &thread, 1).await?;
        let answers = at_once(WRITERS, |writer| {
            let (store, thread) = (either(&stores, writer), thread.clone());
            let update = MessageUpdate::of(&stored, ChatMessage::user(format!("{round} {writer}")));
            async move { Ok(store.update(&thread, update).await) }
        })
        .await?;
        let won = answers.iter().position(Result::is_ok);
        for answer in answers.into_iter().enumerate().filter(|(writer, _)| Some(*writer) != won) {
            conflict("a writer that lost", answer.1)?;
        }
        let Some(won) = won else { return Err(expect::broken("one update to succeed", "none")) };
        holds(&*stores.b, &thread, &[&format!("{round} {won}"), "after"]).await?;
    }
    Ok(())
}

/// HIST-145.
pub(super) async fn counts_filters_and_runs_follow(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("counted")?;
    let (critic, author) = (AgentId::new("critic")?, AgentId::new("author")?);
    let mut batch = numbered("m", 4);
    batch[0] = batch[0].clone().with_author(author.clone(), None).with_run(run("old")?);
    batch[1] = batch[1].clone().with_author(author.clone(), None).with_run(run("old")?);
    append(&*stores.a, &thread, batch).await?;
    let stored = at(&*stores.a, &thread, 1).await?;
    stores.b.update(&thread, MessageUpdate::of(&stored, rich("a longer text than before")?)).await?;
    let stored = at(&*stores.a, &thread, 3).await?;
    let message = ChatMessage::user("m").with_author(author.clone(), None).with_run(run("r")?);
    stores.a.update(&thread, MessageUpdate::of(&stored, message)).await?;
    let info = stores.b.thread_info(&thread).await?;
    let size = bytes(&bodies(&all(&*stores.a, &thread).await?))?;
    expect::equal("the counts", &(info.messages, info.bytes), &(4, size))?;
    for (what, filter, numbers) in [
        ("the new author", MessageFilter::new().include_agent(critic.clone()), vec![1]),
        ("the author", MessageFilter::new().include_agent(author), vec![2, 3]),
        ("the role", MessageFilter::new().include_role(AgentRole::new("reviewer")?), vec![1]),
        ("all but the new author", MessageFilter::new().exclude_agent(critic), vec![2, 3, 4]),
    ] {
        let found = stores.b.tail_matching(&thread, &filter, None, 10).await?.messages;
        expect::equal(what, &seqs(&found), &numbers)?;
    }
    expect::equal("of the old run", &stores.a.clear_run(&thread, &run("old")?, None).await?, &1)?;
    expect::equal("of the new run", &stores.b.clear_run(&thread, &run("r")?, None).await?, &2)?;
    holds(&*stores.a, &thread, &["m4"]).await?;
    let info = stores.b.thread_info(&thread).await?;
    expect::equal("the counts of the rest", &(info.messages, info.bytes), &(1, 2))
}

/// HIST-146, to a subscriber that waits and to one that comes later.
pub(super) async fn an_update_is_an_event_with_the_message(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("told")?;
    let end = say(&*stores.a, &thread, &["one", "two"]).await?.last;
    let mut live = stores.b.subscribe(&thread, end).await?;
    let message = rich("the first")?;
    let stored = at(&*stores.a, &thread, 1).await?;
    let updated = stores.a.update(&thread, MessageUpdate::of(&stored, message.clone())).await?;
    let thread_bytes = bytes(std::slice::from_ref(&message))? + 3;
    let expected = HistoryEventKind::Updated { of: Seq::new(1), message: message.into(), thread_bytes };
    let mut late = stores.a.subscribe(&thread, Seq::ZERO).await?;
    next(&mut late, "the first message").await?;
    next_said(&mut late, "two").await?;
    for (what, events) in [("live", &mut live), ("late", &mut late)] {
        let event = next(events, "an update").await?;
        expect::equal(&format!("the {what} event"), &event.kind, &expected)?;
        expect::equal(&format!("the number of the {what} event"), &event.seq, &updated.last)?;
        let HistoryEventKind::Updated { of, .. } = event.kind else { return Ok(()) };
        let generations = (of.generation(), event.seq.generation());
        let named = updated.last.generation();
        expect::equal(&format!("the generations of the {what} event"), &generations, &(named, named))?;
    }
    Ok(())
}

/// HIST-147: a redacted text is nowhere.
pub(super) async fn no_reader_receives_the_earlier_content(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, fork) = (thread("redacted")?, thread("fork")?);
    say(&*stores.a, &thread, &["secret 1", "secret 2", "rest"]).await?;
    for number in [1, 2, 1] {
        retell(&*stores.b, &thread, number, &format!("secret {number} again")).await?;
    }
    retell(&*stores.a, &thread, 1, "first").await?;
    retell(&*stores.b, &thread, 2, "second").await?;
    let words = vec!["first", "second", "rest"];
    for (what, read) in reads(&*stores.a, &thread).await? {
        expect::equal(what, &texts(&read), &words)?;
    }
    let mut late = stores.b.subscribe(&thread, Seq::MIN).await?;
    for text in &words {
        next_said(&mut late, text).await?;
    }
    for (number, of, text) in [(7, 1, "first"), (8, 2, "second")] {
        let event = next(&mut late, "the last update").await?;
        expect::equal("the number of the update", &event.seq.get(), &number)?;
        match event.kind {
            HistoryEventKind::Updated { of: got, ref message, .. }
                if got.get() == of && message.text == text => {}
            kind => {
                return Err(expect::broken(format!("an update of {of} to {text:?}"), format!("{kind:?}")));
            }
        }
    }
    stores.a.fork(&thread, &fork, None, None).await?;
    holds(&*stores.b, &fork, &words).await?;
    let popped = stores.b.remove(&thread, Removal::newest(3)).await?;
    expect::equal("the popped messages", &texts(&popped.messages), &words)
}

/// HIST-148.
pub(super) async fn a_number_without_a_message_is_not_found(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (never, written, cleared) = (thread("never")?, thread("written")?, thread("cleared")?);
    append(&*stores.a, &written, numbered("m", 4)).await?;
    stores.a.remove(&written, Removal::numbers([Seq::new(2)])).await?;
    say(&*stores.a, &cleared, &["1"]).await?;
    stores.a.clear(&cleared, None).await?;
    for (thread, numbers) in [(&never, vec![0, 1]), (&written, vec![2, 5, 0, -1, 99]), (&cleared, vec![1, 2])]
    {
        let before = last(&*stores.b, thread).await?;
        for number in numbers {
            for revision in [Revision::new(1), Revision::at(Seq::new(number))] {
                let update = MessageUpdate::new(Seq::new(number), revision, ChatMessage::user("no"));
                let what = format!("{number} of {thread:?}");
                refused(&what, stores.b.update(thread, update).await, ErrorKind::NotFound)?;
            }
        }
        expect::equal("the last number", &last(&*stores.a, thread).await?, &before)?;
    }
    holds(&*stores.a, &written, &["m1", "m3", "m4"]).await
}

/// HIST-154. A store that restarts the time to live keeps the message for half of it longer, so only an
/// attempt that ends before then proves anything.
pub(super) async fn an_update_does_not_change_the_time_to_live(context: Context) -> CaseResult {
    let stores: &Stores = &context.history().await?;
    for refresh in [Ttl::fixed, Ttl::sliding] {
        attempts(|attempt, factor| async move {
            let after = Duration::from_millis(400) * factor;
            let (ttl, race) = (refresh(after), Race::begin());
            let thread = thread(&format!("{} {attempt}", ttl.refresh_on_use))?;
            let options = AppendOptions::default().with_ttl(ttl);
            let end = stores.a.append_many(&thread, messages(&["a"]), options).await?.last;
            let set = Instant::now();
            tokio::time::sleep(after / 2).await;
            let update = MessageUpdate::appended(end, ChatMessage::user("b"));
            let updated = stores.b.update(&thread, update).await;
            if !race.is_won(after) {
                return Ok(None);
            }
            updated?;
            tokio::time::sleep((after + Duration::from_millis(50)).saturating_sub(set.elapsed())).await;
            let gone = holds(&*stores.a, &thread, &[]).await;
            if race.is_won(after * 3 / 2) { gone.map(Some) } else { Ok(None) }
        })
        .await?;
    }
    Ok(())
}

/// HIST-051.
pub(super) async fn an_update_after_seen_makes_a_replacement_conflict(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("summarized")?;
    let end = say(&*stores.a, &thread, &["1", "2", "3"]).await?.last;
    let updated = retell(&*stores.b, &thread, 1, "new").await?;
    let replacement = |seen| Replacement::new(Seq::new(2), messages(&["summary"])).with_seen(seen);
    conflict("an update after `seen`", stores.a.replace(&thread, replacement(end)).await)?;
    stores.a.replace(&thread, replacement(updated.last)).await?;
    holds(&*stores.b, &thread, &["summary", "3"]).await
}

/// HIST-085: also with more forgotten updates than a page of events holds.
pub(super) async fn the_backlog_has_no_update_of_a_missing_message(context: Context) -> CaseResult {
    const MANY: i64 = 300;
    let stores = context.history().await?;
    let thread = thread("forgotten")?;
    append(&*stores.a, &thread, numbered("m", 300)).await?;
    for number in 1..=MANY {
        let update = MessageUpdate::appended(Seq::new(number), ChatMessage::user("secret"));
        stores.a.update(&thread, update).await?;
    }
    stores.b.remove(&thread, Removal::after(Seq::new(1))).await?;
    let mut late = stores.a.subscribe(&thread, Seq::new(1)).await?;
    let event = next(&mut late, "the update of the first message").await?;
    let is_first = matches!(event.kind, HistoryEventKind::Updated { of, .. } if of.get() == 1);
    expect::that(is_first, "the update of the first message", &event)?;
    let event = next(&mut late, "the rewind").await?;
    expect::that(matches!(event.kind, HistoryEventKind::Rewound { .. }), "the rewind", &event)?;
    // The message of the replacement has the number of the updated message.
    replace_now(&*stores.a, &thread, Seq::new(1), &["summary"]).await?;
    let mut late = stores.b.subscribe(&thread, Seq::ZERO).await?;
    next_said(&mut late, "summary").await?;
    let event = next(&mut late, "the rewind").await?;
    expect::that(matches!(event.kind, HistoryEventKind::Rewound { .. }), "the rewind", &event)
}
