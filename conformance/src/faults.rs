//! The level `faults`: a network that cuts, delays and drops data.
//!
//! A relay on this machine forwards the traffic between the store and its server ([`Harness::relayed`]).
//! While clients write and read through it, one fault at a time hits a connection in use. The connection is
//! cut before the request arrives, after the request and before the reply, or at some byte of either
//! direction. Or data on all connections arrives late or never. Or the connection is reset. A fault counts
//! only if it hit while a call was in flight.
//!
//! Afterwards the same store must work again through the same relay. A second handle reads past the relay,
//! and its results are compared with the clients' records. No acknowledged write is lost or duplicated. A
//! write reported as not applied left no data. A write of unknown outcome is complete or absent and, repeated
//! with its idempotency key, stored once. No call may take longer than the store's declared limit. Readers
//! subscribe to the thread and watch the bucket. After a stream ends, they resume from the last event that
//! they saw. In the end they must have received all stored data, each event once.
//!
//! The level does not cover two simultaneous faults, wrong replies of a server, corrupted bytes, or a
//! connection under TLS. The moment of a fault depends on the machine. So the seed of a trial repeats the
//! fault and the writes, but not always the interleaving. Each finding therefore includes a log of the
//! operations. Jepsen (Kingsbury, since 2013) and Toxiproxy (Shopify, 2014) have made these kinds of faults
//! common.
//!
//! The level also includes faults outside of the connections, such as a moved folder or a silent server, and
//! [`cancellations`], which need no network: every call is dropped at every point where it waits.

mod cancel;
mod edges;
mod plan;
mod relay;
mod trial;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::future::join_all;
use larder_kernel::{Namespace, Result};

pub use cancel::cancellations;
pub use edges::edges;
pub use plan::{Direction, Kind, Plan};
pub use relay::{Relay, Strike};

use crate::case::Level;
use crate::harness::{Harness, OpenOptions, Relayed, StoreSet};
use crate::level::{Counterexample, Effort, LevelReport};
use crate::oracle::{Tally, trial_seed};
use crate::retry_open::retry_open;
use crate::runner::{Probed, fresh_namespace, within};
use trial::{Lane, Trial};

/// The number of faults that prove the level. A long run needs the larger number.
const REQUIRED: u64 = 200;
const REQUIRED_LONG: u64 = 5_000;
/// The number of concurrent trials, each with a separate relay and store. A trial mostly waits.
const LANES: u64 = 8;
/// The number of concurrent trials if a client waits long for a missing reply.
const LANES_PATIENT: u64 = 36;
/// The number of new draws for a fault that hit no call.
const DRAWS_MAX: u64 = 8;
/// The number of findings after which a run ends.
const FINDINGS_MAX: usize = 10;

/// Injects faults into the connections between a store and its server. Returns no report if the backend has
/// no server that can be relayed.
pub async fn run(harness: &Arc<dyn Harness>, _probed: &Probed, effort: &Effort) -> Vec<LevelReport> {
    let servers = harness.servers();
    if servers.is_empty() {
        return Vec::new();
    }
    let begun = Instant::now();
    let required = if effort.long { REQUIRED_LONG } else { REQUIRED };
    let mut report = LevelReport::new(harness.name(), Level::Faults, None, "faults", required);
    let wanted = effort.share_of(required);
    let run = Run {
        harness,
        servers,
        effort,
        wanted,
        next: AtomicU64::new(0),
        counted: AtomicU64::new(0),
        found: Mutex::default(),
    };
    run.go().await;
    let counted = run.counted.load(Ordering::SeqCst);
    run.found.into_inner().unwrap_or_else(PoisonError::into_inner).tell(&mut report, wanted);
    report.executed = counted;
    report.elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    vec![report]
}

/// The state that all lanes share.
struct Run<'a> {
    harness: &'a Arc<dyn Harness>,
    servers: Vec<String>,
    effort: &'a Effort,
    wanted: u64,
    next: AtomicU64,
    counted: AtomicU64,
    found: Mutex<Found>,
}

/// The results of the trials.
#[derive(Default)]
struct Found {
    struck: BTreeMap<Kind, u64>,
    missed: u64,
    tally: Tally,
    /// The largest number of failed calls of a client between the end of a fault and its next successful
    /// write.
    attempts_max: u32,
    /// The number of times that a stream ended and was resumed.
    streams: u64,
    counterexamples: Vec<Counterexample>,
    trouble: Option<String>,
}

impl Run<'_> {
    async fn go(&self) {
        let first = match self.lane().await {
            Ok(Some(lane)) => lane,
            Ok(None) => {
                self.trouble("the backend names a server and cannot be relayed to it".to_owned());
                return;
            }
            Err(error) => {
                self.trouble(format!("cannot open the backend through a relay: {error}"));
                return;
            }
        };
        let patient = first.relayed.answer_time_max.as_secs() > 10;
        let lanes = self.wanted.min(if patient { LANES_PATIENT } else { LANES });
        let others = (1..lanes).map(|_| async {
            match self.lane().await {
                Ok(Some(lane)) => self.strike_all(lane).await,
                Ok(None) => {}
                Err(error) => self.trouble(format!("cannot open the backend through a relay: {error}")),
            }
        });
        tokio::join!(self.strike_all(first), join_all(others));
    }

    fn trouble(&self, reason: String) {
        self.found().trouble = Some(reason);
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a relay with a store behind it, with retries: a busy machine sometimes exceeds the short time
    /// limits of such a store.
    async fn lane(&self) -> Result<Option<Lane>> {
        retry_open(|| self.open_lane()).await
    }

    /// Opens a relay with a store behind it, and a second handle past it.
    async fn open_lane(&self) -> Result<Option<Lane>> {
        let in_flight = Arc::new(AtomicUsize::new(0));
        let relay = Relay::start(self.servers.clone(), Arc::clone(&in_flight)).await.map_err(|error| {
            larder_kernel::Error::new(
                larder_kernel::ErrorKind::Unavailable,
                "faults.relay",
                "no port can be had",
            )
            .with_source(error)
        })?;
        let limit = self.effort.timeout;
        let opening = within(limit, "faults.open", self.harness.relayed(relay.addresses()));
        let Some(relayed): Option<Relayed> = opening.await? else { return Ok(None) };
        let namespace = fresh_namespace()?;
        let through = within(limit, "faults.open", open(&relayed.harness, &namespace)).await?;
        let direct = within(limit, "faults.open", open(self.harness, &namespace)).await?;
        Ok(Some(Lane { relay, relayed, in_flight, through, direct, limit }))
    }

    async fn strike_all(&self, lane: Lane) {
        loop {
            let index = self.next.fetch_add(1, Ordering::SeqCst);
            if index >= self.wanted || self.found().is_over() {
                break;
            }
            for draw in 0..DRAWS_MAX {
                let seed = trial_seed(self.effort.seed, "faults", index * DRAWS_MAX + draw);
                let kind = Kind::ALL[usize::try_from(index % 6).unwrap_or(0)];
                let plan = Plan::draw(kind, seed, lane.relayed.answer_time_max);
                let era = format!("fault-{index}-{draw}");
                let trial = trial::strike(&lane, &era, seed, plan).await;
                let counts = trial.counts();
                self.found().take(trial, seed, plan);
                if counts {
                    self.counted.fetch_add(1, Ordering::SeqCst);
                    break;
                }
            }
        }
        let erased = within(lane.limit, "faults.erase", erase(&lane.direct)).await;
        if let Err(error) = erased {
            self.trouble(format!("cannot erase the written data: {error}"));
        }
    }
}

impl Found {
    fn is_over(&self) -> bool {
        self.counterexamples.len() >= FINDINGS_MAX || self.trouble.is_some()
    }

    fn take(&mut self, trial: Trial, seed: u64, plan: Plan) {
        self.tally.add(trial.tally);
        self.attempts_max = self.attempts_max.max(trial.attempts);
        self.streams += trial.streams;
        if trial.counts() {
            *self.struck.entry(plan.kind).or_default() += 1;
        } else {
            self.missed += 1;
        }
        if let Some(reason) = trial.trouble {
            self.trouble = Some(reason);
        }
        for defect in trial.defects {
            let script = format!("{plan:?}\n{}", trial.script);
            self.counterexamples.push(Counterexample {
                clause: defect.clause,
                finding: defect.finding,
                script,
                seed,
            });
        }
    }

    fn tell(self, report: &mut LevelReport, wanted: u64) {
        let kinds = Kind::ALL.map(|kind| (kind, self.struck.get(&kind).copied().unwrap_or(0)));
        let never = kinds.iter().find(|(_, count)| *count == 0);
        let kinds = kinds.map(|(kind, count)| format!("{} {count}", kind.as_str())).join(", ");
        let Tally { done, refused, open, longest_ms } = self.tally;
        report.notes.push(format!("each hit a connection with a call in flight: {kinds}"));
        report.notes.push(format!(
            "{done} calls were answered, {refused} not applied, {open} of unknown outcome; the longest took \
             {longest_ms} ms; at most {} calls of a client failed before it could write again; {} streams \
             began again; {} draws met no call",
            self.attempts_max, self.streams, self.missed
        ));
        report.counterexamples = self.counterexamples;
        report.trouble = self.trouble.or_else(|| {
            let (kind, _) = never.filter(|_| wanted >= 6)?;
            Some(format!("no fault of the kind `{}` met a call", kind.as_str()))
        });
    }
}

async fn open(harness: &Arc<dyn Harness>, namespace: &Namespace) -> Result<StoreSet> {
    harness.open(namespace, &OpenOptions::default()).await
}

/// Removes all data that clients wrote in a namespace.
pub(crate) async fn erase(stores: &StoreSet) -> Result<()> {
    for contract in crate::oracle::CONTRACTS {
        if let Some(store) = stores.store(contract) {
            store.erase().await?;
        }
    }
    Ok(())
}
