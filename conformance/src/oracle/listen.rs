//! Readers that follow a client's writes, and resume from the last event that they saw after a stream ends.
//!
//! Even if the connection fails, such a reader must in the end have received all stored data: each message of
//! the thread once and in order, and the last change of each key of the bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{
    BucketName, Error, HistoryEventKind, HistoryProviderExt, KeyValueEventKind, PageRequest, Result,
    Revision, Seq, Thread,
};
use tokio::task::JoinSet;

use super::{Defect, is_outage};
use crate::harness::StoreSet;

/// The pause of a reader after a stream ended.
const AGAIN: Duration = Duration::from_millis(10);
/// The interval between checks for a reader that has received everything.
const LOOK: Duration = Duration::from_millis(10);

/// The readers of an era's data.
#[allow(missing_debug_implementations, reason = "it holds tasks and locks of a running check")]
pub struct Listeners {
    listening: JoinSet<()>,
    thread: Option<(Thread, Ear)>,
    bucket: Option<(BucketName, Ear)>,
}

/// The events that a reader received.
#[derive(Debug, Default)]
struct Heard {
    /// The number of the last event.
    last: u64,
    events: Vec<Event>,
    /// The number of times that the reader resumed.
    starts: u64,
    defects: Vec<Defect>,
}

type Ear = Arc<Mutex<Heard>>;

/// An event: its number, its subject, its text, if any, the number of the message that it updated, and the
/// numbers of the messages that it removed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    number: u64,
    what: String,
    text: Option<Vec<u8>>,
    updated: Option<u64>,
    removed: Vec<u64>,
}

fn lock(ear: &Ear) -> MutexGuard<'_, Heard> {
    ear.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listeners {
    /// Starts to read the data that the clients of an era write. `limit` is the time limit of a call.
    ///
    /// # Errors
    /// The era is not a valid name.
    pub fn start(stores: &StoreSet, era: &str, limit: Duration) -> Result<Self> {
        let mut all = Self { listening: JoinSet::new(), thread: None, bucket: None };
        if stores.history().is_ok() {
            let (thread, ear) = (Thread::new("client", era)?, Ear::default());
            let (stores, to, heard) = (stores.clone(), thread.clone(), Arc::clone(&ear));
            all.listening.spawn(async move {
                follow(&heard, limit, |after| subscribe(&stores, &to, after)).await;
            });
            all.thread = Some((thread, ear));
        }
        if stores.key_value().is_ok() {
            let (bucket, ear) = (BucketName::new(era)?, Ear::default());
            let (stores, to, heard) = (stores.clone(), bucket.clone(), Arc::clone(&ear));
            all.listening.spawn(async move {
                follow(&heard, limit, |after| watch(&stores, &to, after)).await;
            });
            all.bucket = Some((bucket, ear));
        }
        Ok(all)
    }

    /// Waits until the readers have received all stored data or `wait_max` has passed, and compares the two.
    /// Returns the number of times that readers resumed.
    pub async fn verify(mut self, stores: &StoreSet, wait_max: Duration) -> Result<(u64, Vec<Defect>)> {
        let deadline = Instant::now() + wait_max;
        let (mut starts, mut defects) = (0, Vec::new());
        if let Some((thread, ear)) = &self.thread {
            while let Some(defect) = missed_messages(thread, ear, stores).await? {
                if Instant::now() >= deadline {
                    defects.push(defect);
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        if let Some((bucket, ear)) = &self.bucket {
            while let Some(defect) = missed_changes(bucket, ear, stores).await? {
                if Instant::now() >= deadline {
                    defects.push(defect);
                    break;
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        self.listening.abort_all();
        while let Some(ended) = self.listening.join_next().await {
            if ended.is_err_and(|error| error.is_panic()) {
                defects.push(Defect::new("STORE-011", "a stream panicked"));
            }
        }
        for (ear, clause) in
            [(self.thread.map(|it| it.1), "HIST-088"), (self.bucket.map(|it| it.1), "KV-043")]
        {
            let Some(ear) = ear else { continue };
            let mut heard = lock(&ear);
            starts += heard.starts.saturating_sub(1);
            defects.append(&mut heard.defects);
            defects.extend(repeated(&heard.events, clause));
        }
        Ok((starts, defects))
    }
}

/// Listens until it is stopped, and resumes from the last event after a stream ends.
async fn follow<F, T>(ear: &Ear, limit: Duration, begin: F)
where
    F: Fn(u64) -> T,
    T: Future<Output = Result<BoxStream<'static, Result<Event>>>>,
{
    loop {
        let after = {
            let mut heard = lock(ear);
            heard.starts += 1;
            heard.last
        };
        match tokio::time::timeout(limit, begin(after)).await {
            Err(_) => lock(ear).defects.push(Defect::new("STORE-014", "a stream did not begin in time")),
            Ok(Err(error)) => note(ear, &error),
            Ok(Ok(mut events)) => {
                while let Some(event) = events.next().await {
                    match event {
                        Ok(event) => {
                            let mut heard = lock(ear);
                            heard.last = event.number;
                            heard.events.push(event);
                        }
                        Err(error) => {
                            note(ear, &error);
                            break;
                        }
                    }
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn note(ear: &Ear, error: &Error) {
    if !is_outage(error) {
        let finding = format!("a stream ended with an error that nothing explains: {error}");
        lock(ear).defects.push(Defect::new("STORE-014", finding));
    }
}

async fn subscribe(
    stores: &StoreSet,
    thread: &Thread,
    after: u64,
) -> Result<BoxStream<'static, Result<Event>>> {
    let Ok(history) = stores.history() else { return Ok(futures_util::stream::pending().boxed()) };
    let after = Seq::new(i64::try_from(after).unwrap_or(i64::MAX));
    let events = history.subscribe(thread, after).await?;
    Ok(events
        .map_ok(|event| {
            let number = u64::try_from(event.seq.get()).unwrap_or(0);
            let mut updated = None;
            let (what, text, removed) = match event.kind {
                HistoryEventKind::Appended { message, .. } => {
                    ("a message", Some(message.text.as_bytes().to_vec()), Vec::new())
                }
                HistoryEventKind::Updated { of, message, .. } => {
                    updated = u64::try_from(of.get()).ok();
                    ("an update", Some(message.text.as_bytes().to_vec()), Vec::new())
                }
                HistoryEventKind::Removed { seqs, .. } => {
                    let removed = seqs.iter().filter_map(|seq| u64::try_from(seq.get()).ok());
                    ("a removal", None, removed.collect())
                }
                _ => ("something other than a message", None, Vec::new()),
            };
            Event { number, what: what.to_owned(), text, updated, removed }
        })
        .boxed())
}

async fn watch(
    stores: &StoreSet,
    bucket: &BucketName,
    after: u64,
) -> Result<BoxStream<'static, Result<Event>>> {
    let Ok(values) = stores.key_value() else { return Ok(futures_util::stream::pending().boxed()) };
    let events = values.watch(bucket, "", Revision::new(after)).await?;
    Ok(events
        .map_ok(|event| {
            let (number, what) = (event.revision.get(), event.key.to_string());
            let text = match event.kind {
                KeyValueEventKind::Put { value, .. } => Some(value.to_vec()),
                _ => None,
            };
            Event { number, what, text, updated: None, removed: Vec::new() }
        })
        .boxed())
}

/// Returns a defect for the first stored message that was not received unchanged, or the first event without
/// a stored message.
async fn missed_messages(thread: &Thread, ear: &Ear, stores: &StoreSet) -> Result<Option<Defect>> {
    let Ok(history) = stores.history() else { return Ok(None) };
    let stored = history.all_messages(thread).await?;
    let heard = lock(ear);
    let mut events: BTreeMap<u64, &Event> = heard.events.iter().map(|event| (event.number, event)).collect();
    // The last text of each message: the events are in order.
    let texts: BTreeMap<u64, &Option<Vec<u8>>> =
        heard.events.iter().map(|event| (event.updated.unwrap_or(event.number), &event.text)).collect();
    for message in &stored {
        let number = u64::try_from(message.seq.get()).unwrap_or(0);
        match events.remove(&number) {
            None => {
                let finding = format!(
                    "a subscriber that resumed from its last event never received the message at {number}; \
                     its last event is {}",
                    heard.last
                );
                return Ok(Some(Defect::new("HIST-088", finding)));
            }
            Some(_)
                if texts
                    .get(&number)
                    .is_none_or(|text| text.as_deref() != Some(message.message.text.as_bytes())) =>
            {
                let finding = format!("the message at {number} came as another than is stored");
                return Ok(Some(Defect::new("HIST-081", finding)));
            }
            Some(_) => {}
        }
    }
    // A removal that was received explains itself and its messages, and an update explains itself.
    let removed: BTreeSet<u64> =
        heard.events.iter().flat_map(|event| event.removed.iter().copied()).collect();
    events.retain(|number, event| {
        event.removed.is_empty() && event.updated.is_none() && !removed.contains(number)
    });
    // Events after the read may already have been received.
    let last = stored.last().map_or(0, |message| u64::try_from(message.seq.get()).unwrap_or(0));
    let unstored = events.range(..=last).next();
    Ok(unstored.map(|(number, event)| {
        Defect::new("HIST-086", format!("at {number} came {}, which does not exist", event.what))
    }))
}

/// Returns a defect for the first key whose last change was not received.
async fn missed_changes(bucket: &BucketName, ear: &Ear, stores: &StoreSet) -> Result<Option<Defect>> {
    let Ok(values) = stores.key_value() else { return Ok(None) };
    let stored = values.list(bucket, "", PageRequest::default()).await?;
    let heard = lock(ear);
    let mut last: BTreeMap<&str, &Event> = BTreeMap::new();
    for event in &heard.events {
        last.insert(&event.what, event);
    }
    for there in &stored.items {
        let told = last.remove(there.key.as_str());
        if told.is_none_or(|told| told.number != there.revision.get() || told.text.is_none()) {
            let told = told.map(|told| told.number);
            let finding =
                format!("{} is at revision {}, but a watcher received {told:?}", there.key, there.revision);
            return Ok(Some(Defect::new("KV-042", finding)));
        }
    }
    let kept = last.into_values().find(|event| event.text.is_some());
    Ok(kept.map(|event| {
        let finding = format!("{} does not exist, but a watcher last received {}", event.what, event.number);
        Defect::new("KV-042", finding)
    }))
}

/// Returns a defect for the first event that is out of order.
fn repeated(events: &[Event], clause: &'static str) -> Option<Defect> {
    let pair = events.windows(2).find(|pair| pair[1].number <= pair[0].number)?;
    let finding = format!("after the event {} came {}", pair[0].number, pair[1].number);
    Some(Defect::new(clause, finding))
}
