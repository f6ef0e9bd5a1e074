//! One fault: clients at work, the fault, and the comparison afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::plan::{Kind, Plan};
use super::relay::{Relay, Strike};
use crate::harness::{Relayed, StoreSet};
use crate::oracle::{Calls, Defect, Listeners, OracleClient, Tally, clients, recover, step};
use crate::runner::within;

/// The longest time that the clients work before a fault hits.
const STRIKE_MAX: Duration = Duration::from_secs(8);
/// The time that the clients continue after the fault.
const AFTERWARDS: Duration = Duration::from_millis(15);
/// The number of calls of a client that may fail after the fault before a write must succeed. Each call drops
/// a connection that the fault broke.
const ATTEMPTS_MAX: u32 = 8;
/// The number of attempts for the comparison if the service does not reply.
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

/// The result of one fault.
pub(super) struct Trial {
    strike: Option<Strike>,
    pub(super) tally: Tally,
    pub(super) attempts: u32,
    /// The number of times that a stream ended and was resumed.
    pub(super) streams: u64,
    pub(super) defects: Vec<Defect>,
    pub(super) script: String,
    pub(super) trouble: Option<String>,
}

impl Trial {
    /// Returns `true` if the fault hit while a call was in flight.
    pub(super) fn counts(&self) -> bool {
        self.strike.is_some_and(|strike| strike.in_flight > 0)
    }
}

/// Runs clients on separate data, injects the fault, and judges the result.
pub(super) async fn strike(lane: &Lane, era: &str, seed: u64, plan: Plan) -> Trial {
    // A call can wait for data that is delayed for longer than the call's reply limit, so the call limit
    // applies.
    let calls = Calls::new(lane.relayed.call_time_max, Arc::clone(&lane.in_flight));
    let mut clients = clients(&lane.through, era, seed);
    let listeners = Listeners::start(&lane.through, era, lane.relayed.call_time_max);
    let stop = AtomicBool::new(false);
    lane.relay.arm(plan);
    let work = join_all(clients.iter_mut().map(|client| work(client.as_mut(), &lane.through, &calls, &stop)));
    let (defects, strike) = tokio::join!(work, async {
        let strike = tokio::time::timeout(STRIKE_MAX, lane.relay.struck()).await.ok();
        if let Some(strike) = strike {
            calls.remark(&format!("FAULT with {} calls in flight", strike.in_flight));
            if plan.kind == Kind::BlackHole {
                tokio::time::sleep(plan.window).await;
            }
        }
        let strike = lane.relay.heal();
        tokio::time::sleep(AFTERWARDS).await;
        stop.store(true, Ordering::SeqCst);
        strike
    });
    let mut defects: Vec<Defect> = defects.into_iter().flatten().collect();
    calls.remark("OVER");
    let recovered =
        join_all(clients.iter_mut().map(|client| work_again(client.as_mut(), &lane.through, &calls)));
    let mut attempts_max = 0;
    for (attempts, found) in recovered.await {
        attempts_max = attempts_max.max(attempts);
        defects.extend(found);
    }
    let mut trouble = None;
    for client in &clients {
        match verify(client.as_ref(), lane).await {
            Ok(found) => defects.extend(found),
            Err(error) => trouble = Some(format!("cannot read past the relay: {error}")),
        }
    }
    let mut streams = 0;
    match hear_out(listeners, lane).await {
        Ok((began, found)) => {
            streams = began;
            defects.extend(found);
        }
        Err(error) => trouble = Some(format!("cannot read past the relay: {error}")),
    }
    let (tally, script) = (calls.tally(), calls.script());
    Trial { strike, tally, attempts: attempts_max, streams, defects, script, trouble }
}

/// Waits until the readers have received everything, and judges them.
async fn hear_out(
    listeners: larder_kernel::Result<Listeners>,
    lane: &Lane,
) -> larder_kernel::Result<(u64, Vec<Defect>)> {
    // A stream that hangs on a silent connection must first detect it, resume and read.
    let wait_max = lane.relayed.call_time_max * 2;
    within(lane.limit + wait_max, "faults.listen", listeners?.verify(&lane.direct, wait_max)).await
}

async fn work(
    client: &mut dyn OracleClient,
    stores: &StoreSet,
    calls: &Calls,
    stop: &AtomicBool,
) -> Vec<Defect> {
    let mut defects = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        step(client, stores, calls, &mut defects).await;
        tokio::task::yield_now().await;
    }
    defects
}

async fn work_again(client: &mut dyn OracleClient, stores: &StoreSet, calls: &Calls) -> (u32, Vec<Defect>) {
    let mut defects = Vec::new();
    let attempts = recover(client, stores, calls, &mut defects, ATTEMPTS_MAX).await;
    (attempts, defects)
}

async fn verify(client: &dyn OracleClient, lane: &Lane) -> larder_kernel::Result<Vec<Defect>> {
    let mut reading = 1;
    loop {
        let judged = within(lane.limit, "faults.verify", client.verify(&lane.direct, "STORE-002")).await;
        match judged {
            Err(error) if error.is_retryable() && reading < READINGS_MAX => reading += 1,
            judged => return judged,
        }
    }
}
