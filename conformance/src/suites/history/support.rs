//! Short functions of the cases that write and read threads.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{
    AppendOptions, Appended, ChatMessage, ErrorKind, HistoryEvent, HistoryEventKind, HistoryEvents,
    HistoryProvider, HistoryProviderExt, IdempotencyKey, MessageFilter, Page, PageRequest, Replacement,
    RunId, Seq, StoredMessage, Thread, ThreadInfo, Ttl,
};

use crate::case::{CaseResult, Failure, implemented};
use crate::context::{Handles, in_time};
use crate::expect;

/// Two handles on the conversations of a namespace.
pub(crate) type Stores = Handles<dyn HistoryProvider>;

/// The longest wait of a subscriber for an event.
pub(super) const EVENT_WAIT: Duration = Duration::from_secs(10);

/// Returns the thread `session` of the agent that most cases use.
pub(crate) fn thread(session: &str) -> CaseResult<Thread> {
    Ok(Thread::new("assistant", session)?)
}

/// Returns a run's id.
pub(crate) fn run(name: &str) -> CaseResult<RunId> {
    Ok(RunId::new(name)?)
}

/// Returns an idempotency key.
pub(crate) fn key(name: &str) -> CaseResult<IdempotencyKey> {
    Ok(IdempotencyKey::new(name)?)
}

/// Returns options with an idempotency key.
pub(crate) fn with_key(name: &str) -> CaseResult<AppendOptions> {
    Ok(AppendOptions::default().with_idempotency_key(key(name)?))
}

/// Returns one user message for each text.
pub(crate) fn messages(texts: &[&str]) -> Vec<ChatMessage> {
    texts.iter().map(|text| ChatMessage::user(*text)).collect()
}

/// Returns `count` messages whose texts begin with `prefix` and end with their number, from 1.
pub(crate) fn numbered(prefix: &str, count: usize) -> Vec<ChatMessage> {
    (1..=count).map(|number| ChatMessage::user(format!("{prefix}{number}"))).collect()
}

/// Appends one user message for each text, as one batch.
pub(crate) async fn say(
    store: &dyn HistoryProvider,
    thread: &Thread,
    texts: &[&str],
) -> CaseResult<Appended> {
    append(store, thread, messages(texts)).await
}

/// Appends a batch without options.
pub(crate) async fn append(
    store: &dyn HistoryProvider,
    thread: &Thread,
    batch: Vec<ChatMessage>,
) -> CaseResult<Appended> {
    Ok(store.append_many(thread, batch, AppendOptions::default()).await?)
}

/// Returns the whole thread, read by the first of three methods that the store implements.
pub(crate) async fn all(store: &dyn HistoryProvider, thread: &Thread) -> CaseResult<Vec<StoredMessage>> {
    if let Some(messages) = implemented(store.all_messages(thread).await)? {
        return Ok(messages);
    }
    let window = match implemented(store.get_messages(thread, 0, PAGE_ITEMS_MAX).await)? {
        Some(window) => window,
        None => store.tail(thread, None, PAGE_ITEMS_MAX).await?,
    };
    // One window does not show the whole of a longer thread.
    if window.next(PAGE_ITEMS_MAX).is_none() {
        Ok(window.messages)
    } else {
        Ok(store.all_messages(thread).await?)
    }
}

/// The time to live of the threads of [`expired`].
const TTL: Duration = Duration::from_millis(200);

/// Writes a thread that lives for [`TTL`], and returns it with its last number after it has expired.
pub(super) async fn expired(
    stores: &Stores,
    name: &str,
    options: AppendOptions,
) -> CaseResult<(Thread, Seq)> {
    let options = &options.with_ttl(Ttl::fixed(TTL));
    let (thread, end, set) = in_time(TTL, |attempt| async move {
        let thread = thread(&format!("{name} {attempt}"))?;
        let end = stores.a.append_many(&thread, messages(&["a", "b"]), options.clone()).await?.last;
        let set = Instant::now();
        holds(&*stores.b, &thread, &["a", "b"]).await?;
        Ok((thread, end, set))
    })
    .await?;
    tokio::time::sleep((TTL + Duration::from_millis(50)).saturating_sub(set.elapsed())).await;
    Ok((thread, end))
}

/// Returns the thread's last number.
pub(crate) async fn last(store: &dyn HistoryProvider, thread: &Thread) -> CaseResult<Seq> {
    Ok(store.thread_info(thread).await?.last)
}

/// Returns the thread's counts; `None` if the store does not implement them yet.
pub(crate) async fn counts(store: &dyn HistoryProvider, thread: &Thread) -> CaseResult<Option<ThreadInfo>> {
    implemented(store.thread_info(thread).await)
}

/// Returns the texts of stored messages.
pub(crate) fn texts(stored: &[StoredMessage]) -> Vec<&str> {
    stored.iter().map(|stored| stored.message.text.as_str()).collect()
}

/// Returns the numbers of stored messages.
pub(crate) fn seqs(stored: &[StoredMessage]) -> Vec<i64> {
    stored.iter().map(|stored| stored.seq.get()).collect()
}

/// Returns the messages without their numbers.
pub(crate) fn bodies(stored: &[StoredMessage]) -> Vec<ChatMessage> {
    stored.iter().map(|stored| stored.message.as_ref().clone()).collect()
}

/// Returns the total size of messages, as the contract counts it.
pub(crate) fn bytes(messages: &[ChatMessage]) -> CaseResult<u64> {
    let bytes = messages.iter().map(ChatMessage::size_bytes).sum::<usize>();
    u64::try_from(bytes).map_err(|error| Failure::Engine(error.to_string()))
}

/// Checks that the thread reads as exactly these texts.
pub(crate) async fn holds(store: &dyn HistoryProvider, thread: &Thread, expected: &[&str]) -> CaseResult {
    let stored = all(store, thread).await?;
    expect::equal("the thread's texts", &texts(&stored), &expected.to_vec())
}

/// Checks that every implemented read method returns an empty thread.
pub(crate) async fn reads_empty(store: &dyn HistoryProvider, thread: &Thread) -> CaseResult {
    let nothing = Vec::new();
    expect::equal("the thread", &all(store, thread).await?, &nothing)?;
    let mut reads = vec![
        ("get_messages", store.get_messages(thread, 0, 100).await),
        ("tail", store.tail(thread, None, 100).await),
        ("page_after", store.page_after(thread, Seq::MIN, 100).await),
    ];
    for filter in [MessageFilter::new(), MessageFilter::new().include_agent(thread.agent.clone())] {
        reads.push(("tail_matching", store.tail_matching(thread, &filter, None, 100).await));
    }
    for (method, read) in reads {
        let found = implemented(read)?.map(|page| page.messages);
        expect::equal(method, &found.unwrap_or_default(), &nothing)?;
    }
    if let Some(info) = counts(store, thread).await? {
        expect::equal("thread_info's messages and bytes", &(info.messages, info.bytes), &(0, 0))?;
    }
    if implemented(store.list_threads(None, PageRequest::first(1)).await)?.is_none() {
        return Ok(());
    }
    let listed = list_all(store, 100).await?;
    expect::that(listed.iter().all(|info| info.thread != *thread), "the thread not to be listed", listed)
}

/// Lists every thread of the namespace in pages of `limit`.
pub(crate) async fn list_all(store: &dyn HistoryProvider, limit: usize) -> CaseResult<Vec<ThreadInfo>> {
    let mut listed = Vec::new();
    let mut request = PageRequest::first(limit);
    loop {
        let Page { items, next, .. } = store.list_threads(None, request).await?;
        listed.extend(items);
        let Some(next) = next else { return Ok(listed) };
        if listed.last().is_none_or(|last| last.thread != next) {
            return Err(expect::broken("`next` to be the last thread of the page", "another thread"));
        }
        request = PageRequest::after(next, limit);
    }
}

/// Replaces everything up to `up_to`, with the thread's current number as `seen`.
pub(crate) async fn replace_now(
    store: &dyn HistoryProvider,
    thread: &Thread,
    up_to: Seq,
    texts: &[&str],
) -> CaseResult<larder_kernel::Replaced> {
    let seen = last(store, thread).await?;
    Ok(store.replace(thread, Replacement::new(up_to, messages(texts)).with_seen(seen)).await?)
}

/// Checks that the call failed with a conflict that was not applied.
pub(crate) fn conflict<T: std::fmt::Debug>(what: &str, result: larder_kernel::Result<T>) -> CaseResult {
    refused(what, result, ErrorKind::Conflict)
}

/// Checks that the call failed with `kind`, without effect.
pub(crate) fn refused<T: std::fmt::Debug>(
    what: &str,
    result: larder_kernel::Result<T>,
    kind: ErrorKind,
) -> CaseResult {
    let error = expect::error(what, result, kind)?;
    let outcome = error.outcome();
    expect::equal(&format!("{what}: the outcome"), &outcome, &larder_kernel::Outcome::NotApplied)
}

/// Returns the next event of a subscription, which must arrive.
pub(crate) async fn next(events: &mut HistoryEvents, expected: &str) -> CaseResult<HistoryEvent> {
    match tokio::time::timeout(EVENT_WAIT, events.next()).await {
        Ok(Some(event)) => Ok(event?),
        Ok(None) => Err(expect::broken(format!("event {expected}"), "the stream ended")),
        Err(_) => Err(expect::broken(format!("event {expected}"), "nothing came in 10 s")),
    }
}

/// Returns the number and the thread's size from the next event, which must be the appended message `text`.
pub(crate) async fn next_said(events: &mut HistoryEvents, text: &str) -> CaseResult<(Seq, u64)> {
    let event = next(events, &format!("Appended {text:?}")).await?;
    match event.kind {
        HistoryEventKind::Appended { ref message, thread_bytes } if message.text == text => {
            Ok((event.seq, thread_bytes))
        }
        _ => Err(expect::broken(format!("event Appended {text:?}"), format!("{event:?}"))),
    }
}

/// Returns the number and the count of removed messages from the next event, which must be a clear.
pub(crate) async fn next_cleared(events: &mut HistoryEvents) -> CaseResult<(Seq, u64)> {
    let event = next(events, "Cleared").await?;
    match event.kind {
        HistoryEventKind::Cleared { removed } => Ok((event.seq, removed)),
        _ => Err(expect::broken("event Cleared", format!("{event:?}"))),
    }
}

/// A replacement as a subscriber receives it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenReplacement {
    /// The event's number.
    pub(crate) seq: Seq,
    /// The last number that was replaced.
    pub(crate) up_to: Seq,
    /// The number of removed messages.
    pub(crate) removed: u64,
    /// The messages of the event.
    pub(crate) messages: Vec<StoredMessage>,
    /// The thread's size after it.
    pub(crate) thread_bytes: u64,
}

/// Returns the next event, which must be a replacement.
pub(crate) async fn next_replaced(events: &mut HistoryEvents) -> CaseResult<SeenReplacement> {
    let event = next(events, "Replaced").await?;
    let seq = event.seq;
    match event.kind {
        HistoryEventKind::Replaced { up_to, removed, messages, thread_bytes } => {
            Ok(SeenReplacement { seq, up_to, removed, messages, thread_bytes })
        }
        _ => Err(expect::broken("event Replaced", format!("{event:?}"))),
    }
}

/// Runs `count` tasks concurrently and returns their results, in the order of their numbers from 0.
pub(crate) async fn at_once<T, R>(count: usize, task: impl Fn(usize) -> R) -> CaseResult<Vec<T>>
where
    T: Send + 'static,
    R: Future<Output = CaseResult<T>> + Send + 'static,
{
    let barrier = Arc::new(tokio::sync::Barrier::new(count));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..count {
        let (barrier, work) = (Arc::clone(&barrier), task(number));
        tasks.spawn(async move {
            barrier.wait().await;
            (number, work.await)
        });
    }
    let mut yielded = Vec::with_capacity(count);
    while let Some(ended) = tasks.join_next().await {
        let (number, result) = ended?;
        yielded.push((number, result?));
    }
    yielded.sort_by_key(|(number, _)| *number);
    Ok(yielded.into_iter().map(|(_, value)| value).collect())
}

/// Returns the two handles alternately.
pub(crate) fn either(stores: &Stores, number: usize) -> Arc<dyn HistoryProvider> {
    Arc::clone(if number.is_multiple_of(2) { &stores.a } else { &stores.b })
}
