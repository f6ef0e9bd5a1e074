//! Plays clients against a store and records what they called and what came back.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use larder_kernel::{Capabilities, Contract, Error, ErrorKind, Namespace, Result};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::blobs::Blobs;
use super::check::{Record, RecordOf, Refusal, Reply};
use super::graph::Graph;
use super::history::OneThread;
use super::key_value::Bucket;
use super::rng::Rng;
use super::subject::{Subject, Turn, reply};
use super::tasks::OneBoard;
use super::vectors::Collection;
use crate::harness::{Harness, OpenOptions, StoreSet};
use crate::runner::{fresh_namespace, within};

/// The clients of a history.
pub(crate) const CLIENTS: u8 = 5;
/// The calls of each.
const CALLS: u8 = 12;

/// What one client does in one history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Script {
    /// The contract whose store it uses.
    pub contract: Contract,
    /// The namespace of the history.
    pub namespace: Namespace,
    /// The history's seed.
    pub seed: u64,
    /// The client's number.
    pub client: u8,
    /// Which handle it uses, as the record names it.
    pub handle: u8,
    /// What the store declares.
    pub capabilities: Capabilities,
    /// How long a call may take, in milliseconds.
    pub timeout_ms: u64,
}

impl Script {
    /// Plays the client and returns what it recorded, as JSON. `now` is a clock that all clients of the history share.
    ///
    /// # Errors
    /// `Unsupported` where the stores lack the contract.
    pub async fn play(&self, stores: &StoreSet, now: &(dyn Fn() -> u64 + Send + Sync)) -> Result<String> {
        match self.contract {
            Contract::History => self.recorded::<OneThread>(stores, now).await,
            Contract::Vectors => self.recorded::<Collection>(stores, now).await,
            Contract::Graph => self.recorded::<Graph>(stores, now).await,
            Contract::Blobs => self.recorded::<Blobs>(stores, now).await,
            Contract::Tasks => self.recorded::<OneBoard>(stores, now).await,
            Contract::KeyValue => self.recorded::<Bucket>(stores, now).await,
        }
    }

    async fn recorded<S: Subject>(
        &self,
        stores: &StoreSet,
        now: &(dyn Fn() -> u64 + Send + Sync),
    ) -> Result<String> {
        let played = play::<S>(&*store::<S>(stores)?, self, now).await;
        serde_json::to_string(&played)
            .map_err(|error| unexpected("what was recorded is not JSON").with_source(error))
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// Starts clients of a history in processes of their own, each of which opens the same place.
///
/// Such a process opens its handle on the script's namespace, waits until all have, and then calls [`Script::play`] with
/// a clock that all processes of the machine share, such as `CLOCK_MONOTONIC`.
#[async_trait]
pub trait Processes: Send + Sync {
    /// Has each script played in a process of its own, all begun together, and returns what each recorded.
    ///
    /// # Errors
    /// `Unavailable` where a process cannot be started or ends too early; the backend's own.
    async fn play(&self, scripts: Vec<Script>) -> Result<Vec<String>>;
}

/// What a client, or all of them, recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Played<O, A> {
    /// The calls, less those that say nothing.
    pub(crate) records: Vec<Record<O, A>>,
    /// How many did not get through.
    pub(crate) lost: u32,
    /// The calls that did not end in time.
    pub(crate) hung: Vec<O>,
}

impl<O, A> Played<O, A> {
    fn new() -> Self {
        Self { records: Vec::new(), lost: 0, hung: Vec::new() }
    }

    fn add(&mut self, other: Self) {
        self.records.extend(other.records);
        self.lost += other.lost;
        self.hung.extend(other.hung);
    }
}

/// What all clients of a history recorded.
pub(crate) type PlayedOf<S> = Played<<S as super::check::Spec>::Op, <S as super::check::Spec>::Answer>;

async fn play<S: Subject>(
    store: &S::Store,
    script: &Script,
    now: &(dyn Fn() -> u64 + Send + Sync),
) -> PlayedOf<S> {
    let (client, handle) = (script.client, script.handle);
    let mut rng = Rng::new(Rng::seed_of(script.seed, "client", client.into()));
    let mut memory = S::Memory::default();
    let mut played = Played::new();
    for number in 0..CALLS {
        let op = S::choose(&memory, &mut rng, Turn { client, number }, &script.capabilities);
        // A store that never waits would else let one client make all its calls before the next.
        if rng.percent(60) {
            step_aside().await;
        }
        let called = now();
        if rng.percent(30) {
            step_aside().await;
        }
        let call = AssertUnwindSafe(S::call(store, &op)).catch_unwind();
        let result = tokio::time::timeout(script.timeout(), call).await;
        let answered = now();
        let Ok(result) = result else {
            played.hung.push(op.clone());
            played.records.extend(record::<S>((client, handle), called, None, op, Reply::Unknown));
            return played;
        };
        // What panics answers nothing that an order could explain.
        let panicked = || Some(Reply::Refused(Refusal::Other("a panic".to_owned())));
        let Some(reply) = result.map_or_else(|_| panicked(), reply) else {
            played.lost += 1;
            continue;
        };
        if let Reply::Answered(answer) = &reply {
            S::learn(&mut memory, &op, answer);
        }
        let answered = (!matches!(reply, Reply::Unknown)).then_some(answered);
        played.lost += u32::from(answered.is_none());
        played.records.extend(record::<S>((client, handle), called, answered, op, reply));
    }
    played
}

/// Lets the other clients go first, be they tasks or threads.
async fn step_aside() {
    tokio::task::yield_now().await;
    std::thread::yield_now();
}

fn record<S: Subject>(
    (client, handle): (u8, u8),
    called: u64,
    answered: Option<u64>,
    op: S::Op,
    reply: Reply<S::Answer>,
) -> Option<RecordOf<S>> {
    // A read without an answer says nothing.
    let says = answered.is_some() || S::changes(&op, &reply);
    says.then(|| Record { client, handle, called, answered, op, reply })
}

fn store<S: Subject>(stores: &StoreSet) -> Result<Arc<S::Store>> {
    S::store(stores).ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "concurrent.play", "the backend does not serve the contract")
    })
}

fn unexpected(message: &'static str) -> Error {
    Error::new(ErrorKind::Unexpected, "concurrent.play", message)
}

/// Records one history: in a fresh namespace, which is erased afterwards.
///
/// # Errors
/// The backend's own, where it cannot be opened, prepared or erased; `Unexpected` where a client ended early.
pub(crate) async fn history<S: Subject>(
    harness: &Arc<dyn Harness>,
    processes: Option<&dyn Processes>,
    capabilities: &Capabilities,
    seed: u64,
    timeout: Duration,
) -> Result<PlayedOf<S>> {
    let namespace = fresh_namespace()?;
    let mut handles = BTreeMap::new();
    for handle in 0..2 {
        let options = OpenOptions::default().with_handle(handle.into());
        let stores = within(timeout, "concurrent.open", harness.open(&namespace, &options)).await?;
        handles.insert(handle, stores);
    }
    let first = handles.get(&0).cloned().unwrap_or_default();
    within(timeout, "concurrent.prepare", S::prepare(&*store::<S>(&first)?)).await?;
    let script = |client| Script {
        contract: S::CONTRACT,
        namespace: namespace.clone(),
        seed,
        client,
        // Each process has one of its own.
        handle: if processes.is_some() { client } else { client % 2 },
        capabilities: capabilities.clone(),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let scripts: Vec<Script> = (0..CLIENTS).map(script).collect();
    let played = match processes {
        None => together::<S>(&handles, scripts).await,
        Some(processes) => apart::<S>(processes, scripts, timeout).await,
    };
    let erased = match first.store(S::CONTRACT) {
        Some(store) => within(timeout, "concurrent.erase", store.erase()).await,
        None => Ok(()),
    };
    played.and_then(|played| erased.map(|()| played))
}

/// The clients in this process: as tasks, which change places whenever one waits, or on threads of their own, which really
/// run at once.
async fn together<S: Subject>(handles: &BTreeMap<u8, StoreSet>, scripts: Vec<Script>) -> Result<PlayedOf<S>> {
    let start = Arc::new(Barrier::new(scripts.len()));
    let running = Arc::new(AtomicUsize::new(scripts.len()));
    let clock = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for script in scripts {
        let stores = handles.get(&script.handle).cloned().unwrap_or_default();
        let store = store::<S>(&stores)?;
        let (start, running, clock) = (Arc::clone(&start), Arc::clone(&running), Arc::clone(&clock));
        let threads = script.seed % 2 == 0;
        let client = async move {
            start.wait().await;
            // Waking takes longer than all calls of some stores.
            running.fetch_sub(1, Ordering::SeqCst);
            while threads && running.load(Ordering::SeqCst) > 0 {
                std::thread::yield_now();
            }
            play::<S>(&*store, &script, &|| clock.fetch_add(1, Ordering::SeqCst)).await
        };
        if threads {
            let runtime = Handle::current();
            clients.spawn_blocking(move || runtime.block_on(client));
        } else {
            clients.spawn(client);
        }
    }
    let mut played = Played::new();
    while let Some(client) = clients.join_next().await {
        played.add(client.map_err(|_| unexpected("a client ended early"))?);
    }
    Ok(played)
}

/// The clients as processes of their own.
async fn apart<S: Subject>(
    processes: &dyn Processes,
    scripts: Vec<Script>,
    timeout: Duration,
) -> Result<PlayedOf<S>> {
    // Every call may take its time, and so may the opening.
    let most = timeout.saturating_mul(u32::from(CALLS) + 2);
    let recorded = within(most, "concurrent.processes", processes.play(scripts)).await?;
    let mut played = Played::new();
    for text in recorded {
        let client: PlayedOf<S> = serde_json::from_str(&text)
            .map_err(|error| unexpected("a process did not answer with a record").with_source(error))?;
        played.add(client);
    }
    Ok(played)
}
