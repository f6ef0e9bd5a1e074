//! Runs clients against a store and records their calls and results.

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

/// The number of clients of a history.
pub(crate) const CLIENTS: u8 = 5;
/// The number of calls of each client.
const CALLS: u8 = 12;

/// The calls of one client in one history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Script {
    /// The contract of the store.
    pub contract: Contract,
    /// The namespace of the history.
    pub namespace: Namespace,
    /// The history's seed.
    pub seed: u64,
    /// The client's number.
    pub client: u8,
    /// The number of its handle, as the record shows it.
    pub handle: u8,
    /// The capabilities that the store declares.
    pub capabilities: Capabilities,
    /// The time limit of a call, in milliseconds.
    pub timeout_ms: u64,
}

impl Script {
    /// Runs the client and returns its record as JSON. `now` is a clock that all clients of the history
    /// share.
    ///
    /// # Errors
    /// `Unsupported` if the stores lack the contract.
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
        let played = play::<S>(&*S::store(stores)?, self, now).await;
        serde_json::to_string(&played)
            .map_err(|error| unexpected("the recorded calls are not JSON").with_source(error))
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// Runs clients of a history in separate processes that open the same database.
///
/// Such a process opens its handle on the script's namespace and waits until all processes have done so. Then
/// it calls [`Script::play`] with a clock that all processes of the machine share, such as `CLOCK_MONOTONIC`.
#[async_trait]
pub trait Processes: Send + Sync {
    /// Runs each script in a separate process, all started together, and returns the record of each.
    ///
    /// # Errors
    /// `Unavailable` if a process cannot be started or ends too early; errors of the backend.
    async fn play(&self, scripts: Vec<Script>) -> Result<Vec<String>>;
}

/// The record of one client, or of all clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Played<O, A> {
    /// The calls, without calls that carry no information.
    pub(crate) records: Vec<Record<O, A>>,
    /// The number of calls that did not reach the store.
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

/// The record of all clients of a history.
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
        // Otherwise, on a store that never waits, one client would make all its calls before the next client
        // starts.
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
        // No order can explain a call that panics.
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

/// Yields to the other clients, whether they are tasks or threads.
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
    // A read without a result carries no information.
    let says = answered.is_some() || S::changes(&op, &reply);
    says.then(|| Record { client, handle, called, answered, op, reply })
}

fn unexpected(message: &'static str) -> Error {
    Error::new(ErrorKind::Unexpected, "concurrent.play", message)
}

/// Records one history in a fresh namespace, which is erased afterwards.
///
/// # Errors
/// Errors of the backend if it cannot be opened, prepared or erased; `Unexpected` if a client ended early.
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
    within(timeout, "concurrent.prepare", S::prepare(&*S::store(&first)?)).await?;
    let script = |client| Script {
        contract: S::CONTRACT,
        namespace: namespace.clone(),
        seed,
        client,
        // Each process has a separate handle.
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

/// Runs the clients in this process: as tasks, which switch when one waits, or on separate threads, which run
/// in parallel.
async fn together<S: Subject>(handles: &BTreeMap<u8, StoreSet>, scripts: Vec<Script>) -> Result<PlayedOf<S>> {
    let start = Arc::new(Barrier::new(scripts.len()));
    let running = Arc::new(AtomicUsize::new(scripts.len()));
    let clock = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for script in scripts {
        let stores = handles.get(&script.handle).cloned().unwrap_or_default();
        let store = S::store(&stores)?;
        let (start, running, clock) = (Arc::clone(&start), Arc::clone(&running), Arc::clone(&clock));
        let threads = script.seed % 2 == 0;
        let client = async move {
            start.wait().await;
            // Waking a thread takes longer than all calls of some stores.
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

/// Runs the clients as separate processes.
async fn apart<S: Subject>(
    processes: &dyn Processes,
    scripts: Vec<Script>,
    timeout: Duration,
) -> Result<PlayedOf<S>> {
    // Every call may use its full time limit, and so may the opening.
    let most = timeout.saturating_mul(u32::from(CALLS) + 2);
    let recorded = within(most, "concurrent.processes", processes.play(scripts)).await?;
    let mut played = Played::new();
    for text in recorded {
        let client: PlayedOf<S> = serde_json::from_str(&text)
            .map_err(|error| unexpected("a process did not return a record").with_source(error))?;
        played.add(client);
    }
    Ok(played)
}
