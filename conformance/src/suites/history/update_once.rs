//! Updates on a condition, and repeated updates.

use larder_kernel::{ChatMessage, ContextValue, ErrorKind, MessageUpdate, Removal, Revision, Seq};

use super::support::{all, conflict, holds, key, last, refused, say, thread};
use super::update::{at, retell};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

fn to(text: &str, number: i64) -> MessageUpdate {
    MessageUpdate::appended(Seq::new(number), ChatMessage::user(text))
}

/// HIST-149.
pub(super) async fn an_update_may_require_the_last_number(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("conditional")?;
    let end = say(&*stores.a, &thread, &["1", "2", "3"]).await?.last;
    for other in [Seq::ZERO, Seq::new(2), Seq::new(4), Seq::MAX] {
        let lost = stores.b.update(&thread, to("no", 1).with_if_last(other)).await;
        let error = expect::error(&format!("on {other}"), lost, ErrorKind::Conflict)?;
        expect::equal("the field", &error.field(), &Some("if_last"))?;
    }
    holds(&*stores.a, &thread, &["1", "2", "3"]).await?;
    let updated = stores.b.update(&thread, to("first", 1).with_if_last(end)).await?;
    conflict("the earlier number", stores.a.update(&thread, to("no", 2).with_if_last(end)).await)?;
    stores.a.update(&thread, to("second", 2).with_if_last(updated.last)).await?;
    holds(&*stores.b, &thread, &["first", "second", "3"]).await?;
    let absent = stores.a.update(&super::support::thread("never")?, to("no", 1).with_if_last(end)).await;
    conflict("of a new thread", absent)
}

/// HIST-150.
pub(super) async fn a_repeated_update_changes_nothing(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("repeated")?;
    let end = say(&*stores.a, &thread, &["1", "2"]).await?.last;
    let update = to("new", 1).with_idempotency_key(key("k")?).with_if_last(end);
    let first = stores.a.update(&thread, update.clone()).await?;
    let repeat = async |texts: &[&str]| -> CaseResult {
        let before = last(&*stores.a, &thread).await?;
        for store in [&stores.b, &stores.a] {
            let again = store.update(&thread, update.clone()).await?;
            expect::equal("the result", &again, &first)?;
            let generation = again.revision.generation();
            expect::equal("the generation", &generation, &first.revision.generation())?;
        }
        expect::equal("the last number", &last(&*stores.b, &thread).await?, &before)?;
        holds(&*stores.a, &thread, texts).await
    };
    repeat(&["new", "2"]).await?;
    retell(&*stores.b, &thread, 1, "newer").await?;
    repeat(&["newer", "2"]).await?;
    stores.b.remove(&thread, Removal::numbers([Seq::new(1)])).await?;
    repeat(&["2"]).await?;
    stores.a.clear(&thread, None).await?;
    repeat(&[]).await?;
    // A failed update does not use up its key.
    say(&*stores.a, &thread, &["again"]).await?;
    let number = last(&*stores.a, &thread).await?.get();
    let retried = to("once", number).with_idempotency_key(key("retried")?);
    let lost = retried.clone().with_if_last(Seq::new(1));
    conflict("a lost update", stores.b.update(&thread, lost).await)?;
    stores.b.update(&thread, retried).await?;
    holds(&*stores.a, &thread, &["once"]).await
}

/// HIST-151.
pub(super) async fn a_key_with_another_update_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("reused")?;
    say(&*stores.a, &thread, &["1", "2", "3"]).await?;
    stores.a.update(&thread, to("new", 1).with_idempotency_key(key("k")?)).await?;
    stores.a.remove(&thread, Removal::numbers([Seq::new(3)]).with_idempotency_key(key("r")?)).await?;
    let before = all(&*stores.a, &thread).await?;
    for (what, update) in [
        ("another text", MessageUpdate::of(&before[0], ChatMessage::user("other"))),
        ("another message", to("new", 2)),
    ] {
        conflict(what, stores.b.update(&thread, update.with_idempotency_key(key("k")?)).await)?;
    }
    let of_removal = to("new", 2).with_idempotency_key(key("r")?);
    conflict("the key of a removal", stores.b.update(&thread, of_removal).await)?;
    let removal = Removal::newest(1).with_idempotency_key(key("k")?);
    conflict("a removal with the key of an update", stores.b.remove(&thread, removal).await)?;
    expect::equal("the thread", &all(&*stores.b, &thread).await?, &before)?;
    // The keys of appends are separate.
    let options = super::support::with_key("k")?;
    stores.b.append_many(&thread, vec![ChatMessage::user("4")], options).await?;
    holds(&*stores.a, &thread, &["new", "2", "4"]).await
}

/// HIST-152.
pub(super) async fn an_update_that_names_another_generation_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("erased")?;
    say(&*stores.a, &thread, &["1", "2"]).await?;
    let old = at(&*stores.a, &thread, 1).await?;
    stores.a.erase().await?;
    let update = MessageUpdate::of(&old, ChatMessage::user("no"));
    conflict("a thread that does not exist", stores.b.update(&thread, update.clone()).await)?;
    say(&*stores.a, &thread, &["1", "2", "3"]).await?;
    let new = at(&*stores.b, &thread, 1).await?;
    for (what, seq, revision) in [
        ("both", old.seq, old.revision),
        ("the number", old.seq, Revision::new(1)),
        ("the revision", Seq::new(1), old.revision),
        ("one of each", new.seq, old.revision),
    ] {
        let update = MessageUpdate::new(seq, revision, ChatMessage::user("no"));
        conflict(what, stores.b.update(&thread, update).await)?;
    }
    holds(&*stores.a, &thread, &["1", "2", "3"]).await?;
    let beyond = Seq::new(9).in_generation(new.seq.generation());
    let update = MessageUpdate::new(beyond, Revision::new(9), ChatMessage::user("no"));
    conflict("a number beyond the last", stores.b.update(&thread, update).await)?;
    stores.b.update(&thread, MessageUpdate::of(&new, ChatMessage::user("new"))).await?;
    holds(&*stores.a, &thread, &["new", "2", "3"]).await?;
    let update = MessageUpdate::new(Seq::new(9), Revision::new(9), ChatMessage::user("no"));
    refused("a number without a generation", stores.a.update(&thread, update).await, ErrorKind::NotFound)
}

/// HIST-153.
pub(super) async fn the_conflict_names_the_revision(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("named")?;
    say(&*stores.a, &thread, &["1", "2"]).await?;
    for (number, expected) in [(1, 3), (2, 4), (1, 5)] {
        retell(&*stores.a, &thread, number, "new").await?;
        let update = MessageUpdate::new(Seq::new(number), Revision::new(99), ChatMessage::user("no"));
        let lost = stores.b.update(&thread, update).await;
        let error = expect::error("a lost update", lost, ErrorKind::Conflict)?;
        expect::equal("the field", &error.field(), &Some("revision"))?;
        let named = error.context().iter().find_map(|fact| match fact {
            ("revision", ContextValue::Number(revision)) => Some(*revision),
            _ => None,
        });
        expect::equal("the revision in the context", &named, &Some(expected))?;
    }
    Ok(())
}
