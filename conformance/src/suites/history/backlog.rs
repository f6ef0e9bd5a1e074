//! The backlog of a late or resumed subscriber.

use larder_kernel::{ChatMessage, HistoryEventKind, Seq, Thread};

use super::support::{
    Stores, append, last, next, next_cleared, next_replaced, next_said, numbered, replace_now, run, say,
    seqs, thread,
};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

/// Returns the events of a backlog, each as its number and a word.
async fn backlog(stores: &Stores, thread: &Thread, after: Seq) -> CaseResult<Vec<(i64, String)>> {
    let end = last(&*stores.a, thread).await?;
    let mut events = stores.b.subscribe(thread, after).await?;
    let mut met = Vec::new();
    while met.last().is_none_or(|(seq, _)| *seq < end.get()) {
        let event = next(&mut events, &format!("up to {end}")).await?;
        let word = match event.kind {
            HistoryEventKind::Appended { message, .. } => message.text.clone(),
            HistoryEventKind::Cleared { .. } => "cleared".to_owned(),
            HistoryEventKind::RunCleared { .. } => "run cleared".to_owned(),
            HistoryEventKind::Replaced { up_to, .. } => format!("replaced up to {up_to}"),
            other => format!("{other:?}"),
        };
        met.push((event.seq.get(), word));
    }
    Ok(met)
}

fn words(expected: &[(i64, &str)]) -> Vec<(i64, String)> {
    expected.iter().map(|(seq, word)| (*seq, (*word).to_owned())).collect()
}

/// HIST-085.
pub(super) async fn the_backlog_contains_surviving_messages_and_events(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let tagged = ChatMessage::user("m2").with_run(run("r")?);
    append(
        &*stores.a,
        &thread,
        vec![ChatMessage::user("m1"), tagged, ChatMessage::user("m3"), ChatMessage::user("m4")],
    )
    .await?;
    stores.a.clear_run(&thread, &run("r")?, None).await?;
    say(&*stores.a, &thread, &["m6"]).await?;
    let expected = words(&[(1, "m1"), (3, "m3"), (4, "m4"), (5, "run cleared"), (6, "m6")]);
    expect::equal("after the clear of a run", &backlog(&stores, &thread, Seq::ZERO).await?, &expected)?;
    // A replacement's messages have their numbers, below 1 too, and its event follows.
    replace_now(&*stores.a, &thread, Seq::new(1), &["s1", "s2", "s3"]).await?;
    let expected = words(&[
        (-1, "s1"),
        (0, "s2"),
        (1, "s3"),
        (3, "m3"),
        (4, "m4"),
        (5, "run cleared"),
        (6, "m6"),
        (7, "replaced up to 1"),
    ]);
    expect::equal("after a replacement", &backlog(&stores, &thread, Seq::MIN).await?, &expected)?;
    stores.a.clear(&thread, None).await?;
    expect::equal("after a clear", &backlog(&stores, &thread, Seq::MIN).await?, &words(&[(8, "cleared")]))?;
    say(&*stores.a, &thread, &["m9"]).await?;
    stores.a.clear(&thread, None).await?;
    say(&*stores.a, &thread, &["m11"]).await?;
    let expected = words(&[(10, "cleared"), (11, "m11")]);
    for after in [Seq::MIN, Seq::ZERO, Seq::new(3), Seq::new(8), Seq::new(9)] {
        expect::equal(&format!("from {after}"), &backlog(&stores, &thread, after).await?, &expected)?;
    }
    expect::equal("from the clear", &backlog(&stores, &thread, Seq::new(10)).await?, &words(&[(11, "m11")]))
}

/// HIST-085: only the last of several covering replacements is reported; a shorter replacement leaves the
/// other.
pub(super) async fn a_covered_replacement_is_not_in_the_backlog(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (covered, uncovered) = (thread("covered")?, thread("uncovered")?);
    for thread in [&covered, &uncovered] {
        append(&*stores.a, thread, numbered("m", 8)).await?;
        replace_now(&*stores.a, thread, Seq::new(4), &["s1", "s2", "s3"]).await?;
    }
    say(&*stores.a, &covered, &["m10", "m11"]).await?;
    replace_now(&*stores.a, &covered, Seq::new(10), &["t1"]).await?;
    let expected = words(&[(10, "t1"), (11, "m11"), (12, "replaced up to 10")]);
    expect::equal("the covered one", &backlog(&stores, &covered, Seq::MIN).await?, &expected)?;
    replace_now(&*stores.a, &uncovered, Seq::new(2), &["t1"]).await?;
    let expected = words(&[
        (2, "t1"),
        (3, "s2"),
        (4, "s3"),
        (5, "m5"),
        (6, "m6"),
        (7, "m7"),
        (8, "m8"),
        (9, "replaced up to 4"),
        (10, "replaced up to 2"),
    ]);
    expect::equal("the uncovered one", &backlog(&stores, &uncovered, Seq::MIN).await?, &expected)
}

/// HIST-085: a replacement replaces the events that it spans, so no number has two meanings.
pub(super) async fn a_replacement_never_shares_its_numbers_with_an_event(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let tagged = ChatMessage::user("m2").with_run(run("r")?);
    append(&*stores.a, &thread, vec![ChatMessage::user("m1"), tagged, ChatMessage::user("m3")]).await?;
    stores.a.clear_run(&thread, &run("r")?, None).await?;
    replace_now(&*stores.a, &thread, Seq::new(4), &["s1", "s2"]).await?;
    let expected = words(&[(3, "s1"), (4, "s2"), (5, "replaced up to 4")]);
    expect::equal("over the clear of a run", &backlog(&stores, &thread, Seq::MIN).await?, &expected)?;
    expect::equal("from within it", &backlog(&stores, &thread, Seq::new(3)).await?, &expected[1..].to_vec())?;
    stores.a.clear(&thread, None).await?;
    replace_now(&*stores.a, &thread, Seq::new(6), &["t1", "t2"]).await?;
    let expected = words(&[(5, "t1"), (6, "t2"), (7, "replaced up to 6")]);
    expect::equal("over a clear", &backlog(&stores, &thread, Seq::MIN).await?, &expected)
}

/// HIST-088.
pub(super) async fn a_start_from_the_last_number_misses_and_repeats_nothing(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("t")?;
    let tagged = ChatMessage::user("3").with_run(run("r")?);
    append(&*stores.a, &thread, vec![ChatMessage::user("1"), ChatMessage::user("2"), tagged]).await?;
    say(&*stores.a, &thread, &["4", "5", "6", "7"]).await?;
    let mut whole = stores.b.subscribe(&thread, Seq::ZERO).await?;
    // A new subscription for each event: within a batch, at its end, and at an event that is not a message.
    let mut cursor = Seq::ZERO;
    for step in 0..12 {
        match step {
            7 => drop(stores.a.clear_run(&thread, &run("r")?, None).await?),
            8 => drop(replace_now(&*stores.a, &thread, Seq::new(5), &["s", "t"]).await?),
            9 => drop(say(&*stores.b, &thread, &["10", "11"]).await?),
            11 => drop(stores.a.clear(&thread, None).await?),
            _ => {}
        }
        let expected = next(&mut whole, &format!("{step} of one subscription")).await?;
        let mut events = stores.b.subscribe(&thread, cursor).await?;
        let event = next(&mut events, &format!("{step} of a subscription from {cursor}")).await?;
        expect::equal(&format!("event {step}"), &event, &expected)?;
        expect::equal(&format!("the number of event {step}"), &event.seq.get(), &(step + 1))?;
        cursor = event.seq;
    }
    let mut events = stores.b.subscribe(&thread, cursor).await?;
    say(&*stores.a, &thread, &["13"]).await?;
    expect::equal("the next event's number", &next_said(&mut events, "13").await?.0, &Seq::new(13))
}

/// HIST-088: a subscriber that was away during a removal receives the clear, and the later events.
pub(super) async fn a_returning_subscriber_receives_the_removals(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (cleared, replaced) = (thread("cleared")?, thread("replaced")?);
    for thread in [&cleared, &replaced] {
        say(&*stores.a, thread, &["1", "2", "3"]).await?;
        let mut events = stores.b.subscribe(thread, Seq::ZERO).await?;
        next_said(&mut events, "1").await?;
        next_said(&mut events, "2").await?;
    }
    stores.a.clear(&cleared, None).await?;
    say(&*stores.a, &cleared, &["5"]).await?;
    let mut events = stores.b.subscribe(&cleared, Seq::new(2)).await?;
    expect::equal("the clear", &next_cleared(&mut events).await?, &(Seq::new(4), 3))?;
    expect::equal("what followed", &next_said(&mut events, "5").await?, &(Seq::new(5), 1))?;
    // The replacement has smaller numbers than the cursor, so only its event can report it.
    replace_now(&*stores.a, &replaced, Seq::new(2), &["s1", "s2", "s3"]).await?;
    let mut events = stores.b.subscribe(&replaced, Seq::new(2)).await?;
    next_said(&mut events, "3").await?;
    let seen = next_replaced(&mut events).await?;
    expect::equal("the numbers it carries", &seqs(&seen.messages), &vec![0, 1, 2])?;
    expect::equal("its own number", &seen.seq, &Seq::new(4))
}
