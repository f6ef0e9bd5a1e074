//! Removals on a condition, and repeated removals.

use larder_kernel::{Removal, Removed, Seq, Thread};

use super::remove::{kinds, numbers, returned, six};
use super::support::{Stores, all, conflict, holds, key, messages, say, seqs, thread};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;

/// HIST-120.
pub(super) async fn a_removal_may_require_the_last_number(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for (what, removal, gone) in kinds() {
        let (thread, end) = six(&*stores.a, what).await?;
        for other in [Seq::ZERO, Seq::new(5), Seq::new(7), Seq::MAX] {
            let lost = stores.b.remove(&thread, removal.clone().with_if_last(other)).await;
            conflict(&format!("{what} on {other}"), lost)?;
        }
        let before = seqs(&all(&*stores.b, &thread).await?);
        expect::equal("the messages", &before, &(1..=6).collect())?;
        let removed = stores.b.remove(&thread, removal.clone().with_if_last(end)).await?;
        expect::equal(what, &removed.removed, &larder_kernel::check::size(gone.len()))?;
        let again = stores.a.remove(&thread, removal.clone().with_if_last(end)).await;
        conflict(&format!("{what} again"), again)?;
        let next = stores.a.remove(&thread, Removal::newest(1).with_if_last(removed.last)).await?;
        expect::equal("removed on the new last number", &next.removed, &1)?;
    }
    let nothing = stores.a.remove(&thread("never")?, Removal::newest(1).with_if_last(Seq::ZERO)).await?;
    expect::equal("of a new thread", &nothing.removed, &0)?;
    let removal = Removal::newest(1).with_if_last(Seq::new(1));
    conflict("of a new thread", stores.a.remove(&thread("never")?, removal).await)
}

/// HIST-121.
pub(super) async fn a_repeated_removal_removes_no_more(context: Context) -> CaseResult {
    let stores = context.history().await?;
    for (what, removal, gone) in kinds() {
        let (thread, end) = six(&*stores.a, what).await?;
        let removal = removal.with_idempotency_key(key("k")?).with_if_last(end);
        let first = stores.a.remove(&thread, removal.clone()).await?;
        expect::equal(what, &first.removed, &larder_kernel::check::size(gone.len()))?;
        say(&*stores.b, &thread, &["later", "and later"]).await?;
        for store in [&stores.b, &stores.a] {
            let again = store.remove(&thread, removal.clone()).await?;
            expect::equal("the count", &again.removed, &first.removed)?;
            expect::equal("the numbers", &again.seqs, &first.seqs)?;
            expect::equal("the last number", &again.last, &first.last)?;
        }
        let left: Vec<i64> = (1..=6).filter(|seq| !gone.contains(seq)).chain([8, 9]).collect();
        expect::equal(what, &seqs(&all(&*stores.b, &thread).await?), &left)?;
    }
    // A removal that found nothing is repeated, too.
    for name in ["never", "emptied"] {
        let thread = thread(name)?;
        if name == "emptied" {
            say(&*stores.a, &thread, &["1"]).await?;
            stores.a.clear(&thread, None).await?;
        }
        let pop = Removal::newest(1).with_idempotency_key(key("k")?);
        expect::equal(name, &stores.a.remove(&thread, pop.clone()).await?.removed, &0)?;
        say(&*stores.b, &thread, &["stays"]).await?;
        expect::equal(name, &stores.b.remove(&thread, pop).await?.removed, &0)?;
        holds(&*stores.a, &thread, &["stays"]).await?;
    }
    Ok(())
}

/// HIST-122.
pub(super) async fn a_key_with_another_removal_conflicts(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, _) = six(&*stores.a, "taken").await?;
    let (other, _) = six(&*stores.a, "other").await?;
    let taken = key("k")?;
    let with_key = |removal: Removal| removal.with_idempotency_key(taken.clone());
    stores.a.remove(&thread, with_key(Removal::newest(2))).await?;
    for removal in [Removal::newest(3), Removal::after(Seq::new(2)), numbers(&[2]), numbers(&[5, 6])] {
        conflict(&format!("{removal:?}"), stores.b.remove(&thread, with_key(removal)).await)?;
    }
    expect::equal("the messages", &seqs(&all(&*stores.b, &thread).await?), &vec![1, 2, 3, 4])?;
    // The key belongs to its thread, and an append may use it, too.
    stores.b.remove(&other, with_key(Removal::newest(3))).await?;
    expect::equal("the other thread", &seqs(&all(&*stores.a, &other).await?), &vec![1, 2, 3])?;
    let appended = stores.b.append_many(&thread, messages(&["m8"]), super::support::with_key("k")?).await?;
    expect::equal("the append", &appended.last.get(), &8)
}

async fn popped(stores: &Stores, thread: &Thread, name: &str) -> CaseResult<Removed> {
    let pop = Removal::newest(2).with_idempotency_key(key(name)?);
    Ok(stores.b.remove(thread, pop).await?)
}

/// HIST-123.
pub(super) async fn a_repeated_pop_returns_its_messages_again(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, _) = six(&*stores.a, "again").await?;
    let first = popped(&stores, &thread, "first").await?;
    returned("the first pop", &first, &[(5, "m5"), (6, "m6")])?;
    expect::equal("the repetition", &popped(&stores, &thread, "first").await?, &first)?;
    say(&*stores.a, &thread, &["later"]).await?;
    let second = popped(&stores, &thread, "second").await?;
    returned("the second pop", &second, &[(4, "m4"), (8, "later")])?;
    popped(&stores, &thread, "third").await?;
    expect::equal("the first pop again", &popped(&stores, &thread, "first").await?, &first)?;
    expect::equal("the second pop again", &popped(&stores, &thread, "second").await?, &second)
}

/// HIST-124.
pub(super) async fn a_clear_ends_what_a_pop_keeps(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (full, _) = six(&*stores.a, "full").await?;
    let empty = thread("empty")?;
    say(&*stores.a, &empty, &["1", "2"]).await?;
    for thread in [&full, &empty] {
        let first = popped(&stores, thread, "k").await?;
        expect::equal("the messages popped", &first.messages.len(), &2)?;
        stores.a.clear(thread, None).await?;
        let again = popped(&stores, thread, "k").await?;
        expect::equal("the numbers", &again.seqs, &first.seqs)?;
        expect::equal("the messages", &again.messages.len(), &0)?;
    }
    Ok(())
}

/// HIST-125.
pub(super) async fn a_repeated_removal_by_number_returns_no_messages(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let (thread, _) = six(&*stores.a, "redacted").await?;
    let removal = numbers(&[2, 3]).with_idempotency_key(key("k")?);
    let first = stores.a.remove(&thread, removal.clone()).await?;
    returned("the removal", &first, &[(2, "m2"), (3, "m3")])?;
    let again = stores.b.remove(&thread, removal).await?;
    expect::equal("the repetition", &again, &first.with_messages(Vec::new()))
}
