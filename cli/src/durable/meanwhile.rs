//! Clients that write and read while something happens to the place, and what is there afterwards.

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

/// How many calls of a client may fail, once it is over, before a write must succeed.
const ATTEMPTS_MAX: u32 = 8;
/// How long a client waits after a call that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(5);

/// How calls have ended so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    /// With an answer.
    pub answered: u64,
    /// With an error that says that nothing was done.
    pub refused: u64,
    /// With an unknown outcome.
    pub open: u64,
    /// How long the longest took.
    pub longest: Duration,
}

impl From<Tally> for Count {
    fn from(tally: Tally) -> Self {
        let longest = Duration::from_millis(u64::try_from(tally.longest_ms).unwrap_or(u64::MAX));
        Self { answered: tally.done, refused: tally.refused, open: tally.open, longest }
    }
}

/// The clients' calls, as they can be seen while they go on.
#[derive(Debug)]
pub struct Watched(Calls);

impl Watched {
    /// How calls have ended so far.
    pub fn count(&self) -> Count {
        self.0.tally().into()
    }

    /// Adds a line to what was done.
    pub fn remark(&self, text: &str) {
        self.0.remark(text);
    }
}

/// What clients found.
#[derive(Debug)]
pub struct Found {
    /// How their calls ended.
    pub count: Count,
    /// What contradicts a contract: each begins with the clause.
    pub defects: Vec<String>,
    /// What was done first, line by line.
    pub script: String,
}

/// Has clients work on the stores, `groups` for each contract that is served and each on things of its own, until
/// `happening` ends. Then each must be able to write again, and `other`, another handle on the place, must show every
/// acknowledged write once and in its order, none that was refused, and every other whole or absent; subscribers and
/// watchers must have met it all. No call may take longer than `limit`.
///
/// # Errors
/// Where the stores cannot be read in the end.
pub async fn meanwhile<T>(
    stores: &StoreSet,
    other: &StoreSet,
    (groups, seed, limit): (u64, u64, Duration),
    happening: impl AsyncFnOnce(&Watched) -> T,
) -> Result<(T, Found)> {
    let watched = Watched(Calls::new(limit, Arc::default()));
    let calls = &watched.0;
    let (mut all, mut listening) = (Vec::new(), Vec::new());
    for group in 0..groups {
        let era = format!("meanwhile-{group}");
        all.extend(clients(stores, &era, trial_seed(seed, "meanwhile", group)));
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
        defects.extend(within(limit * 2, "meanwhile.verify", client.verify(other, "STORE-002")).await?);
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
