//! One fault: clients at work, the strike, and what is there afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::plan::{Kind, Plan};
use super::relay::{Relay, Strike};
use crate::harness::{Relayed, StoreSet};
use crate::ledger::{Calls, Clerk, Listeners, Sin, Tally, clerks, recover, step};
use crate::runner::within;

/// How long the clients work at most until a fault strikes.
const STRIKE_MAX: Duration = Duration::from_secs(8);
/// How long they go on once it is over.
const AFTERWARDS: Duration = Duration::from_millis(15);
/// How many calls of a client may fail, once the fault is over, before a write must succeed. Each lets go of a connection
/// that the fault left useless.
const ATTEMPTS_MAX: u32 = 8;
/// How often the comparison is tried where the service itself does not answer.
const READINGS_MAX: u32 = 3;

/// A relay with a store behind it.
pub(super) struct Lane {
    pub(super) relay: Relay,
    pub(super) relayed: Relayed,
    pub(super) in_flight: Arc<AtomicUsize>,
    /// The store behind the relay.
    pub(super) through: StoreSet,
    /// Another handle, past the relay.
    pub(super) direct: StoreSet,
    pub(super) limit: Duration,
}

/// What came of one fault.
pub(super) struct Trial {
    strike: Option<Strike>,
    pub(super) tally: Tally,
    pub(super) attempts: u32,
    /// How often a stream ended and was begun again.
    pub(super) streams: u64,
    pub(super) sins: Vec<Sin>,
    pub(super) script: String,
    pub(super) trouble: Option<String>,
}

impl Trial {
    /// Whether the fault struck while a call was under way.
    pub(super) fn counts(&self) -> bool {
        self.strike.is_some_and(|strike| strike.in_flight > 0)
    }
}

/// Has clients work on things of their own, strikes, and judges.
pub(super) async fn strike(lane: &Lane, era: &str, seed: u64, plan: Plan) -> Trial {
    // A call that waits for what was delayed longer than it waits has its own time yet.
    let calls = Calls::new(lane.relayed.call_time_max, Arc::clone(&lane.in_flight));
    let mut clerks = clerks(&lane.through, era, seed);
    let listeners = Listeners::start(&lane.through, era, lane.relayed.call_time_max);
    let stop = AtomicBool::new(false);
    lane.relay.arm(plan);
    let work = join_all(clerks.iter_mut().map(|clerk| work(clerk.as_mut(), &lane.through, &calls, &stop)));
    let (sins, strike) = tokio::join!(work, async {
        let strike = tokio::time::timeout(STRIKE_MAX, lane.relay.struck()).await.ok();
        if let Some(strike) = strike {
            calls.remark(&format!("STRUCK with {} calls under way", strike.in_flight));
            if plan.kind == Kind::BlackHole {
                tokio::time::sleep(plan.window).await;
            }
        }
        let strike = lane.relay.heal();
        tokio::time::sleep(AFTERWARDS).await;
        stop.store(true, Ordering::SeqCst);
        strike
    });
    let mut sins: Vec<Sin> = sins.into_iter().flatten().collect();
    calls.remark("OVER");
    let recovered =
        join_all(clerks.iter_mut().map(|clerk| work_again(clerk.as_mut(), &lane.through, &calls)));
    let mut attempts_max = 0;
    for (attempts, found) in recovered.await {
        attempts_max = attempts_max.max(attempts);
        sins.extend(found);
    }
    let mut trouble = None;
    for clerk in &clerks {
        match judge(clerk.as_ref(), lane).await {
            Ok(found) => sins.extend(found),
            Err(error) => trouble = Some(format!("cannot read past the relay: {error}")),
        }
    }
    let mut streams = 0;
    match hear_out(listeners, lane).await {
        Ok((began, found)) => {
            streams = began;
            sins.extend(found);
        }
        Err(error) => trouble = Some(format!("cannot read past the relay: {error}")),
    }
    let (tally, script) = (calls.tally(), calls.script());
    Trial { strike, tally, attempts: attempts_max, streams, sins, script, trouble }
}

/// Waits until the readers have met everything, and judges them.
async fn hear_out(
    listeners: larder_kernel::Result<Listeners>,
    lane: &Lane,
) -> larder_kernel::Result<(u64, Vec<Sin>)> {
    // A stream that hangs on a silent connection finds out, begins again and reads.
    let patience = lane.relayed.call_time_max * 2;
    within(lane.limit + patience, "faults.listen", listeners?.judge(&lane.direct, patience)).await
}

async fn work(clerk: &mut dyn Clerk, stores: &StoreSet, calls: &Calls, stop: &AtomicBool) -> Vec<Sin> {
    let mut sins = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        step(clerk, stores, calls, &mut sins).await;
        tokio::task::yield_now().await;
    }
    sins
}

async fn work_again(clerk: &mut dyn Clerk, stores: &StoreSet, calls: &Calls) -> (u32, Vec<Sin>) {
    let mut sins = Vec::new();
    let attempts = recover(clerk, stores, calls, &mut sins, ATTEMPTS_MAX).await;
    (attempts, sins)
}

async fn judge(clerk: &dyn Clerk, lane: &Lane) -> larder_kernel::Result<Vec<Sin>> {
    let mut reading = 1;
    loop {
        let judged = within(lane.limit, "faults.judge", clerk.judge(&lane.direct, "STORE-002")).await;
        match judged {
            Err(error) if error.is_retryable() && reading < READINGS_MAX => reading += 1,
            judged => return judged,
        }
    }
}
