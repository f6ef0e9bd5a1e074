//! Times to live. A thread must still exist only in attempts that were fast enough. It must have expired
//! only after a deadline that is counted from the return of the write.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use larder_kernel::{AppendOptions, ErrorKind, HistoryProvider, MessageFilter, Seq, Thread, Ttl};

use super::support::{
    Stores, all, append, holds, last, list_all, messages, next_cleared, next_said, reads_empty, refused, say,
    texts, thread,
};
use crate::case::CaseResult;
use crate::context::{Context, Race, attempts, in_time};
use crate::expect;

const TTL: Duration = Duration::from_millis(200);
const MARGIN: Duration = Duration::from_millis(50);
const HOUR: Duration = Duration::from_secs(3_600);

/// Sleeps until a time to live that was set before `set` has passed.
async fn sleep_past(set: Instant, ttl: Duration) {
    tokio::time::sleep((ttl + MARGIN).saturating_sub(set.elapsed())).await;
}

fn living(ttl: Ttl) -> AppendOptions {
    AppendOptions::default().with_ttl(ttl)
}

/// Writes a thread that lives for [`TTL`], checks that it exists, and waits until it has expired.
async fn expired(stores: &Stores, name: &str) -> CaseResult<(Thread, Seq)> {
    let (thread, last, set) = in_time(TTL, |attempt| async move {
        let thread = thread(&format!("{name} {attempt}"))?;
        let answer = stores.a.append_many(&thread, messages(&["a", "b"]), living(Ttl::fixed(TTL))).await?;
        let set = Instant::now();
        holds(&*stores.b, &thread, &["a", "b"]).await?;
        Ok((thread, answer.last, set))
    })
    .await?;
    sleep_past(set, TTL).await;
    Ok((thread, last))
}

/// HIST-013.
pub(super) async fn an_append_sets_the_time_to_live_of_the_whole_thread(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (thread, set) = in_time(TTL, |attempt| async move {
        let thread = thread(&format!("t{attempt}"))?;
        say(&*stores.a, &thread, &["earlier"]).await?;
        stores.a.append_many(&thread, messages(&["later"]), living(Ttl::fixed(TTL))).await?;
        let set = Instant::now();
        holds(&*stores.b, &thread, &["earlier", "later"]).await?;
        Ok((thread, set))
    })
    .await?;
    sleep_past(set, TTL).await;
    reads_empty(&*stores.b, &thread).await
}

/// HIST-013: like `set_ttl`, an append replaces the previous time to live by a shorter or a longer one.
pub(super) async fn the_time_to_live_of_an_append_replaces_the_earlier_one(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (shorter, longer, set) = in_time(TTL, |attempt| async move {
        let (shorter, longer) =
            (thread(&format!("shorter {attempt}"))?, thread(&format!("longer {attempt}"))?);
        stores.a.append_many(&shorter, messages(&["a"]), living(Ttl::fixed(HOUR))).await?;
        stores.a.append_many(&longer, messages(&["a"]), living(Ttl::fixed(TTL))).await?;
        stores.b.append_many(&shorter, messages(&["b"]), living(Ttl::fixed(TTL))).await?;
        stores.b.append_many(&longer, messages(&["b"]), living(Ttl::fixed(HOUR))).await?;
        Ok((shorter, longer, Instant::now()))
    })
    .await?;
    sleep_past(set, TTL).await;
    reads_empty(&*stores.a, &shorter).await?;
    holds(&*stores.a, &longer, &["a", "b"]).await
}

/// HIST-065.
pub(super) async fn an_expired_thread_reads_as_empty(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let other = thread("other")?;
    say(&*stores.a, &other, &["stays"]).await?;
    let (thread, set) = in_time(TTL, |attempt| async move {
        let thread = thread(&format!("t{attempt}"))?;
        say(&*stores.a, &thread, &["a", "b"]).await?;
        stores.a.set_ttl(&thread, Some(Ttl::fixed(TTL)), None).await?;
        let set = Instant::now();
        holds(&*stores.b, &thread, &["a", "b"]).await?;
        expect::equal("messages", &stores.a.thread_info(&thread).await?.messages, &2)?;
        Ok((thread, set))
    })
    .await?;
    sleep_past(set, TTL).await;
    reads_empty(&*stores.b, &thread).await?;
    reads_empty(&*stores.a, &thread).await?;
    holds(&*stores.b, &other, &["stays"]).await
}

/// HIST-065: writers find it empty, too.
pub(super) async fn an_expired_thread_is_empty_to_writers(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (cleared, _) = expired(stores, "cleared").await?;
    let (source, _) = expired(stores, "source").await?;
    let (target, _) = expired(stores, "target").await?;
    let (replaced, seen) = expired(stores, "replaced").await?;
    expect::equal("removed by a clear", &stores.b.clear(&cleared, None).await?, &0)?;
    let copy = thread("copy")?;
    refused("a fork from it", stores.a.fork(&source, &copy, None, None).await, ErrorKind::NotFound)?;
    let kept = thread("kept")?;
    say(&*stores.a, &kept, &["k"]).await?;
    stores.b.fork(&kept, &target, None, None).await?;
    holds(&*stores.a, &target, &["k"]).await?;
    // The expiry removed the messages that the caller had read, as a clear would have.
    let replacement = larder_kernel::Replacement::new(seen, messages(&["s"]));
    super::support::conflict("a replacement of it", stores.a.replace(&replaced, replacement).await)?;
    reads_empty(&*stores.b, &replaced).await
}

/// HIST-063.
pub(super) async fn an_expired_thread_is_not_listed(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let kept = thread("kept")?;
    let options = living(Ttl::fixed(HOUR));
    stores.a.append_many(&kept, messages(&["x"]), options).await?;
    let (gone, _) = expired(stores, "gone").await?;
    for limit in [1, 100] {
        let listed: Vec<_> = list_all(&*stores.b, limit).await?.into_iter().map(|info| info.thread).collect();
        expect::equal("the threads", &listed, &vec![kept.clone()])?;
    }
    let page = stores.b.list_threads(Some(&gone.agent), larder_kernel::PageRequest::first(1)).await?;
    expect::equal("the next page of the agent", &page.next, &None)
}

/// A use of a thread.
#[derive(Debug, Clone, Copy)]
enum Use {
    Append,
    GetMessages,
    Tail,
    TailMatching,
    PageAfter,
}

impl Use {
    /// Uses the thread and returns `true` if it contained messages before.
    async fn once(self, store: &dyn HistoryProvider, thread: &Thread) -> CaseResult<bool> {
        Ok(match self {
            Self::Append => {
                say(store, thread, &["use"]).await?;
                // A read of the counts is not a read of messages.
                store.thread_info(thread).await?.messages > 1
            }
            Self::GetMessages => !store.get_messages(thread, 0, 1).await?.messages.is_empty(),
            Self::Tail => !store.tail(thread, None, 1).await?.messages.is_empty(),
            // A search without a match is a use, too.
            Self::TailMatching => {
                let own = MessageFilter::new().include_agent(thread.agent.clone());
                let other = MessageFilter::new().exclude_agent(thread.agent.clone());
                let found = !store.tail_matching(thread, &own, None, 1).await?.messages.is_empty();
                found && store.tail_matching(thread, &other, None, 1).await?.messages.is_empty()
            }
            Self::PageAfter => !store.page_after(thread, Seq::ZERO, 1).await?.messages.is_empty(),
        })
    }
}

/// Writes a thread with a time to live, which the append or a separate call sets.
async fn living_thread(stores: &Stores, thread: &Thread, ttl: Ttl, by_append: bool) -> CaseResult {
    if by_append {
        stores.a.append_many(thread, messages(&["first"]), living(ttl)).await?;
    } else {
        say(&*stores.a, thread, &["first"]).await?;
        stores.a.set_ttl(thread, Some(ttl), None).await?;
    }
    Ok(())
}

/// Uses a thread repeatedly for longer than its time to live, each time before it has passed. An attempt that
/// was too slow proves nothing and is repeated.
async fn kept_alive_by(context: &Context, used: Use, by_append: bool) -> CaseResult {
    const SLIDING: Duration = Duration::from_millis(400);
    const STEP: Duration = Duration::from_millis(150);
    let stores = &context.history().await?;
    attempts(|attempt, times| async move {
        let (thread, sliding) = (thread(&format!("t{attempt}"))?, SLIDING * times);
        let mut renewed = Race::begin();
        living_thread(stores, &thread, Ttl::sliding(sliding), by_append).await?;
        for number in 0..4 {
            tokio::time::sleep(STEP * times).await;
            let begun = Race::begin();
            let there = used.once(&*super::support::either(stores, number), &thread).await?;
            if !renewed.is_won(sliding) {
                return Ok(None);
            }
            expect::that(
                there,
                format!("the thread to be kept by its use {number}: {used:?}"),
                "it expired",
            )?;
            renewed = begun;
        }
        sleep_past(Instant::now(), sliding).await;
        reads_empty(&*stores.b, &thread).await.map(Some)
    })
    .await
}

/// HIST-066.
pub(super) async fn an_append_restarts_the_time_to_live(context: Context) -> CaseResult {
    kept_alive_by(&context, Use::Append, true).await
}

/// HIST-066.
pub(super) async fn get_messages_restarts_the_time_to_live(context: Context) -> CaseResult {
    kept_alive_by(&context, Use::GetMessages, false).await
}

/// HIST-066.
pub(super) async fn tail_restarts_the_time_to_live(context: Context) -> CaseResult {
    kept_alive_by(&context, Use::Tail, true).await
}

/// HIST-066.
pub(super) async fn tail_matching_restarts_the_time_to_live(context: Context) -> CaseResult {
    kept_alive_by(&context, Use::TailMatching, false).await
}

/// HIST-066.
pub(super) async fn page_after_restarts_the_time_to_live(context: Context) -> CaseResult {
    kept_alive_by(&context, Use::PageAfter, false).await
}

/// Uses a thread late in its fixed life, and checks that its life does not get longer.
async fn not_kept_alive_by(stores: &Stores, used: Use, by_append: bool) -> CaseResult {
    attempts(|attempt, times| async move {
        let (thread, ttl) = (thread(&format!("{used:?} {attempt}"))?, TTL * times);
        let life = Race::begin();
        living_thread(stores, &thread, Ttl::fixed(ttl), by_append).await?;
        let set = Instant::now();
        // Equally far from the end of its life as the read below is from the end of a prolonged life.
        tokio::time::sleep((ttl + MARGIN) / 2).await;
        let prolonged = Race::begin();
        let there = used.once(&*stores.b, &thread).await?;
        if !life.is_won(ttl) {
            return Ok(None);
        }
        expect::that(there, "the thread late in its life", "nothing")?;
        sleep_past(set, ttl).await;
        reads_empty(&*stores.a, &thread).await?;
        // A later read would have found nothing in either case.
        Ok(prolonged.is_won(ttl).then_some(()))
    })
    .await
}

const USES: [Use; 4] = [Use::Append, Use::GetMessages, Use::Tail, Use::PageAfter];

/// HIST-067.
pub(super) async fn use_does_not_extend_a_fixed_time_to_live(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    try_join_all(USES.map(|used| not_kept_alive_by(stores, used, false))).await.map(drop)
}

/// HIST-067.
pub(super) async fn use_does_not_extend_a_fixed_time_to_live_of_an_append(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    try_join_all(USES.map(|used| not_kept_alive_by(stores, used, true))).await.map(drop)
}

/// HIST-068.
pub(super) async fn a_thread_without_a_time_to_live_remains(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    for ttl in [Ttl::fixed(TTL), Ttl::sliding(TTL)] {
        let (thread, set) = in_time(TTL, |attempt| async move {
            let thread = thread(&format!("{} {attempt}", ttl.refresh_on_use))?;
            stores.a.append_many(&thread, messages(&["a"]), living(ttl)).await?;
            let set = Instant::now();
            stores.b.set_ttl(&thread, None, None).await?;
            Ok((thread, set))
        })
        .await?;
        sleep_past(set, TTL).await;
        holds(&*stores.a, &thread, &["a"]).await?;
        say(&*stores.b, &thread, &["b"]).await?;
        holds(&*stores.b, &thread, &["a", "b"]).await?;
    }
    Ok(())
}

/// HIST-068: removing a time to live that is not set succeeds, and a later one applies.
pub(super) async fn a_longer_time_to_live_replaces_a_shorter_one(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (thread, set) = in_time(TTL, |attempt| async move {
        let thread = thread(&format!("t{attempt}"))?;
        say(&*stores.a, &thread, &["a"]).await?;
        stores.a.set_ttl(&thread, None, None).await?;
        stores.a.set_ttl(&thread, Some(Ttl::fixed(TTL)), None).await?;
        let set = Instant::now();
        let century = Duration::from_millis(larder_kernel::limits::TTL_MS_MAX);
        stores.b.set_ttl(&thread, Some(Ttl::sliding(century)), None).await?;
        Ok((thread, set))
    })
    .await?;
    sleep_past(set, TTL).await;
    holds(&*stores.a, &thread, &["a"]).await
}

/// HIST-069.
pub(super) async fn a_thread_without_messages_refuses_a_time_to_live(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (fresh, cleared) = (thread("fresh")?, thread("cleared")?);
    say(&*stores.a, &cleared, &["x"]).await?;
    stores.a.clear(&cleared, None).await?;
    let (gone, _) = expired(stores, "expired").await?;
    for thread in [&fresh, &cleared, &gone] {
        for ttl in [None, Some(Ttl::fixed(TTL)), Some(Ttl::sliding(HOUR))] {
            refused("set_ttl", stores.b.set_ttl(thread, ttl, None).await, ErrorKind::NotFound)?;
        }
        reads_empty(&*stores.a, thread).await?;
        say(&*stores.a, thread, &["y"]).await?;
    }
    // The rejected times to live have no effect on the threads.
    sleep_past(Instant::now(), TTL).await;
    for thread in [&fresh, &cleared, &gone] {
        holds(&*stores.b, thread, &["y"]).await?;
    }
    Ok(())
}

/// HIST-070.
pub(super) async fn numbers_continue_after_an_expiry(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (thread, greatest) = expired(stores, "t").await?;
    let seen = last(&*stores.b, &thread).await?;
    expect::that(seen >= greatest, format!("last to be {greatest} or more"), seen)?;
    let answer = say(&*stores.b, &thread, &["new"]).await?;
    expect::that(answer.first > greatest, format!("a number above {greatest}"), answer)?;
    let stored = all(&*stores.a, &thread).await?;
    expect::equal("the thread", &texts(&stored), &vec!["new"])?;
    let info = stores.a.thread_info(&thread).await?;
    expect::equal("messages and bytes", &(info.messages, info.bytes), &(1, 3))?;
    expect::equal("get_messages", &stores.a.get_messages(&thread, 0, 10).await?.messages, &stored)?;
    expect::equal("tail", &stores.b.tail(&thread, None, 10).await?.messages, &stored)
}

/// HIST-070: a new time to live does not restore them either.
pub(super) async fn a_later_append_does_not_restore_expired_messages(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (thread, _) = expired(stores, "t").await?;
    stores.b.append_many(&thread, messages(&["new"]), living(Ttl::sliding(HOUR))).await?;
    stores.a.set_ttl(&thread, None, None).await?;
    holds(&*stores.b, &thread, &["new"]).await
}

/// HIST-071.
pub(super) async fn a_clear_removes_the_time_to_live(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    for ttl in [Ttl::fixed(TTL), Ttl::sliding(TTL)] {
        let (thread, set) = in_time(TTL, |attempt| async move {
            let thread = thread(&format!("{} {attempt}", ttl.refresh_on_use))?;
            stores.a.append_many(&thread, messages(&["a"]), living(ttl)).await?;
            expect::equal("removed", &stores.b.clear(&thread, None).await?, &1)?;
            say(&*stores.a, &thread, &["b"]).await?;
            Ok((thread, Instant::now()))
        })
        .await?;
        sleep_past(set, TTL).await;
        holds(&*stores.b, &thread, &["b"]).await?;
    }
    Ok(())
}

/// HIST-071: an expiry is a clear, so later messages do not expire.
pub(super) async fn messages_after_an_expiry_do_not_expire(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (thread, _) = expired(stores, "t").await?;
    append(&*stores.b, &thread, messages(&["new"])).await?;
    sleep_past(Instant::now(), TTL).await;
    holds(&*stores.a, &thread, &["new"]).await
}

/// HIST-089.
pub(super) async fn an_expiry_is_a_clear_before_the_next_event(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (thread, set, mut events) = in_time(TTL, |attempt| async move {
        let thread = thread(&format!("t{attempt}"))?;
        let mut events = stores.b.subscribe(&thread, Seq::ZERO).await?;
        stores.a.append_many(&thread, messages(&["a", "b"]), living(Ttl::fixed(TTL))).await?;
        let set = Instant::now();
        next_said(&mut events, "a").await?;
        next_said(&mut events, "b").await?;
        Ok((thread, set, events))
    })
    .await?;
    sleep_past(set, TTL).await;
    let answer = say(&*stores.a, &thread, &["c"]).await?;
    let (cleared, removed) = next_cleared(&mut events).await?;
    expect::equal("number of messages removed by the clear", &removed, &2)?;
    let between = Seq::new(2) < cleared && cleared < answer.first;
    expect::that(between, format!("the clear between 2 and {}", answer.first), cleared)?;
    let (seq, bytes) = next_said(&mut events, "c").await?;
    expect::equal("the next event's number", &seq, &answer.first)?;
    expect::equal("the thread's size after it", &bytes, &1)
}

/// HIST-089: the same for a later subscriber.
pub(super) async fn an_expiry_is_in_the_backlog(context: Context) -> CaseResult {
    let stores = &context.history().await?;
    let (thread, seen) = expired(stores, "t").await?;
    say(&*stores.a, &thread, &["c"]).await?;
    for after in [seen, Seq::ZERO, Seq::MIN] {
        let mut events = stores.b.subscribe(&thread, after).await?;
        expect::equal("number of messages removed by the clear", &next_cleared(&mut events).await?.1, &2)?;
        next_said(&mut events, "c").await?;
    }
    Ok(())
}
