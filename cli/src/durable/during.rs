//! Clients that write and read during an event at the backend, and the state afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use larder_kernel::Result;

use larder_conformance::harness::StoreSet;
use larder_conformance::oracle::{
    Calls, Defect, Listeners, OracleClient, Stepped, Tally, clients, recover, step, trial_seed,
};
use larder_conformance::runner::within;

/// The number of calls of a client that may fail after the event before a write must succeed.
const ATTEMPTS_MAX: u32 = 8;
/// The pause of a client after a failed call.
const AFTER_FAILURE: Duration = Duration::from_millis(5);

/// The results of the calls so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    /// Calls with a result.
    pub answered: u64,
    /// Calls that failed without an effect.
    pub refused: u64,
    /// Calls with an unknown outcome.
    pub open: u64,
    /// The duration of the longest call.
    pub longest: Duration,
}

impl From<Tally> for Count {
    fn from(tally: Tally) -> Self {
        let longest = Duration::from_millis(u64::try_from(tally.longest_ms).unwrap_or(u64::MAX));
        Self { answered: tally.done, refused: tally.refused, open: tally.open, longest }
    }
}

/// The calls of the clients, observable while they run.
#[derive(Debug)]
pub struct Watched(Calls);

impl Watched {
    /// Returns the results of the calls so far.
    pub fn count(&self) -> Count {
        self.0.tally().into()
    }

    /// Adds a line to the script.
    pub fn remark(&self, text: &str) {
        self.0.remark(text);
    }
}

/// The findings of the clients.
#[derive(Debug)]
pub struct Found {
    /// The results of the calls.
    pub count: Count,
    /// The violations of the contract; each begins with the clause.
    pub defects: Vec<String>,
    /// The first actions, one per line.
    pub script: String,
}

/// Runs clients on the stores until `happening` ends, in `groups` groups per provided contract, each on
/// separate data.
///
/// Then each client must be able to write again. `other`, another handle on the backend, must return every
/// acknowledged write once and in order, no refused write, and every other write complete or not at all.
/// Subscribers and watchers must have received all of it. No call may take longer than `limit`.
///
/// # Errors
/// Fails if the stores cannot be read at the end.
pub async fn during<T>(
    stores: &StoreSet,
    other: &StoreSet,
    (groups, seed, limit): (u64, u64, Duration),
    happening: impl AsyncFnOnce(&Watched) -> T,
) -> Result<(T, Found)> {
    let watched = Watched(Calls::new(limit, Arc::default()));
    let calls = &watched.0;
    let (mut all, mut listening) = (Vec::new(), Vec::new());
    for group in 0..groups {
        let era = format!("during-{group}");
        all.extend(clients(stores, &era, trial_seed(seed, "during", group)));
        listening.push(Listeners::start(stores, &era, limit)?);
    }
    let stop = AtomicBool::new(false);
    let work = join_all(all.iter_mut().map(|client| work(client.as_mut(), stores, calls, &stop)));
    let (defects, happened) = tokio::join!(work, async {
        let happened = happening(&watched).await;
        stop.store(true, Ordering::SeqCst);
        happened
    });
    calls.remark("OVER");
    let mut defects: Vec<Defect> = defects.into_iter().flatten().collect();
    for client in &mut all {
        recover(client.as_mut(), stores, calls, &mut defects, ATTEMPTS_MAX).await;
    }
    for client in &all {
        defects.extend(within(limit * 2, "during.verify", client.verify(other, "STORE-002")).await?);
    }
    for listeners in listening {
        defects.extend(listeners.verify(other, limit).await?.1);
    }
    let defects =
        defects.into_iter().map(|defect| format!("{}: {}", defect.clause, defect.finding)).collect();
    let (count, script) = (watched.count(), calls.script());
    Ok((happened, Found { count, defects, script }))
}

async fn work(
    client: &mut dyn OracleClient,
    stores: &StoreSet,
    calls: &Calls,
    stop: &AtomicBool,
) -> Vec<Defect> {
    let mut defects = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        if step(client, stores, calls, &mut defects).await == Stepped::Failed {
            tokio::time::sleep(AFTER_FAILURE).await;
        }
        tokio::task::yield_now().await;
    }
    defects
}
