//! Faults around a backend, outside of its connections: a frozen process that holds a lock, a silent server,
//! a folder that moves, a role that loses its rights, a standby, and a pooler.
//!
//! The harness causes them ([`Harness::stage`]); the relay causes the silence. Clients write and read before
//! the fault, during it and after it. During the fault each call ends within its limit, and a write fails
//! with one of the allowed kinds, or succeeds if the fault must not be noticed. Afterwards writes succeed
//! again, and another handle finds no acknowledged write lost and no refused one stored. A standby is judged
//! by its reads. A fault whose service is missing is skipped and named.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use larder_kernel::{
    BlobKey, BlobStoreExt as _, BucketName, ChatMessage, Entity, EntityId, EntityType, ErrorKind,
    HistoryProviderExt as _, Key, KeyValueStoreExt as _, Namespace, Outcome, Result, Thread,
};

use super::plan::{Direction, Kind, Plan};
use super::relay::Relay;
use crate::case::Level;
use crate::harness::{Edge, EdgeFault, Harness, OpenOptions, Relayed, Staged, StoreSet};
use crate::level::{Counterexample, Effort, LevelReport};
use crate::oracle::{Calls, Defect, OracleClient, clients, recover, step, trial_seed};
use crate::runner::{fresh_namespace, within};

/// The time that the clients work before the fault.
const BEFORE: Duration = Duration::from_millis(300);
/// The time that the clients work during the fault, in addition to the calls that it holds up.
const DURING: Duration = Duration::from_millis(1_500);
/// The number of calls of a client that may fail after the fault before a write must succeed.
const ATTEMPTS_MAX: u32 = 8;
/// The clause of calls that end in time with the right error.
const TYPED: &str = "STORE-014";
/// The clause of writes that are kept.
const KEPT: &str = "STORE-002";

/// Causes each fault that the harness can cause. Returns no report if it can cause none.
pub async fn edges(harness: &Arc<dyn Harness>, effort: &Effort) -> Vec<LevelReport> {
    let begun = Instant::now();
    let mut report = LevelReport::new(harness.name(), Level::Faults, None, "edges", 0);
    let mut skipped = 0;
    for edge in Edge::ALL {
        let staged = within(effort.timeout, "faults.stage", stage(harness, edge)).await;
        let fault = match staged {
            Ok(Staged::Impossible) => continue,
            Ok(Staged::Skipped(reason)) => {
                skipped += 1;
                report.notes.push(format!("{} skipped: {reason}", edge.as_str()));
                continue;
            }
            Ok(Staged::Ready(fault)) => fault,
            Err(error) => {
                report.trouble = Some(format!("{}: cannot be caused: {error}", edge.as_str()));
                continue;
            }
        };
        report.required += 1;
        let seed = trial_seed(effort.seed, edge.as_str(), 0);
        match judge(harness, edge, &*fault, effort, seed).await {
            Ok((defects, note, script)) => {
                report.executed += 1;
                report.notes.push(note);
                report.counterexamples.extend(defects.into_iter().map(
                    |Defect { clause, finding, .. }| {
                        let finding = format!("{}: {finding}", edge.as_str());
                        Counterexample { clause, finding, script: script.clone(), seed }
                    },
                ));
            }
            Err(error) => report.trouble = Some(format!("{}: {error}", edge.as_str())),
        }
    }
    if report.required == 0 && skipped == 0 {
        return Vec::new();
    }
    if skipped > 0 {
        report.notes.push(format!("{skipped} faults were skipped"));
    }
    report.elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    vec![report]
}

async fn stage(harness: &Arc<dyn Harness>, edge: Edge) -> Result<Staged> {
    if edge != Edge::SilentServer {
        return harness.stage(edge).await;
    }
    let servers = harness.servers();
    if servers.is_empty() {
        return Ok(Staged::Impossible);
    }
    let relay = match Relay::start(servers, Arc::new(AtomicUsize::new(0))).await {
        Ok(relay) => relay,
        Err(error) => return Ok(Staged::Skipped(format!("no port is free: {error}"))),
    };
    match harness.relayed(relay.addresses()).await? {
        Some(relayed) => Ok(Staged::Ready(Box::new(Silence { relay, relayed }))),
        None => Ok(Staged::Impossible),
    }
}

/// A server that gets no byte.
struct Silence {
    relay: Relay,
    relayed: Relayed,
}

#[async_trait]
impl EdgeFault for Silence {
    fn harness(&self) -> Arc<dyn Harness> {
        Arc::clone(&self.relayed.harness)
    }

    fn call_time_max(&self) -> Duration {
        self.relayed.call_time_max
    }

    fn kinds(&self) -> &'static [ErrorKind] {
        &[ErrorKind::Timeout, ErrorKind::Unavailable]
    }

    async fn begin(&self) -> Result<()> {
        let window = Duration::MAX;
        self.relay.arm(Plan {
            kind: Kind::BlackHole,
            direction: Direction::Up,
            skip: 0,
            byte: 0,
            delay: Duration::ZERO,
            forward: false,
            window,
        });
        Ok(())
    }

    async fn end(&self) -> Result<()> {
        self.relay.heal();
        Ok(())
    }
}

type Judged = (Vec<Defect>, String, String);

async fn judge(
    harness: &Arc<dyn Harness>,
    edge: Edge,
    fault: &dyn EdgeFault,
    effort: &Effort,
    seed: u64,
) -> Result<Judged> {
    let namespace = fresh_namespace()?;
    let limit = effort.timeout + fault.call_time_max();
    let open = async |harness: &Arc<dyn Harness>, namespace: &Namespace| {
        within(limit, "faults.open", harness.open(namespace, &OpenOptions::default())).await
    };
    let direct_harness = fault.direct().unwrap_or_else(|| Arc::clone(harness));
    let writing = if edge == Edge::Standby { Arc::clone(&direct_harness) } else { fault.harness() };
    let through = open(&writing, &namespace).await?;
    let calls = Calls::new(fault.call_time_max(), Arc::new(AtomicUsize::new(0)));
    // A client separates the parts of its texts by spaces.
    let mut clients = clients(&through, &edge.as_str().replace(' ', "-"), seed);
    let mut defects = work(&mut clients, &through, &calls, tokio::time::sleep(BEFORE)).await;
    let before = calls.tally();
    if before.refused + before.open > 0 {
        defects.push(Defect::new(TYPED, "a call failed before the fault".to_owned()));
    }
    within(limit, "faults.begin", fault.begin()).await?;
    calls.remark("FAULT");
    let probed = open(&fault.harness(), &namespace).await;
    let hit = async {
        let probe = match &probed {
            Ok(stores) if edge == Edge::Standby => tokio::time::timeout(limit, write(stores)).await,
            _ => tokio::time::timeout(limit, write(&through)).await,
        };
        tokio::time::sleep(DURING).await;
        probe
    };
    let (found, probe) = during(&mut clients, &through, &calls, hit).await;
    // The clients know the errors of an outage alone.
    let is_explained = |defect: &Defect| {
        fault.kinds().iter().any(|kind| defect.finding.contains(&format!("nothing explains: {kind:?} ")))
    };
    defects.extend(found.into_iter().filter(|defect| !is_explained(defect)));
    defects.extend(wrong(fault.kinds(), probe));
    within(limit, "faults.end", fault.end()).await?;
    calls.remark("OVER");
    for client in &mut clients {
        recover(client.as_mut(), &through, &calls, &mut defects, ATTEMPTS_MAX).await;
    }
    let reading = if edge == Edge::Standby { fault.harness() } else { direct_harness };
    let direct = open(&reading, &namespace).await?;
    if edge == Edge::Standby {
        // It lags behind.
        tokio::time::sleep(DURING).await;
    }
    for client in &clients {
        defects.extend(within(limit, "faults.verify", client.verify(&direct, KEPT)).await?);
    }
    super::erase(&through).await?;
    let tally = calls.tally();
    let note = format!(
        "{}: {} calls were answered, {} not applied, {} of unknown outcome; the longest took {} ms",
        edge.as_str(),
        tally.done,
        tally.refused,
        tally.open,
        tally.longest_ms
    );
    Ok((defects, note, calls.script()))
}

async fn work(
    clients: &mut [Box<dyn OracleClient>],
    stores: &StoreSet,
    calls: &Calls,
    until: impl Future<Output = ()>,
) -> Vec<Defect> {
    during(clients, stores, calls, until).await.0
}

/// Lets the clients work until something is done.
async fn during<T>(
    clients: &mut [Box<dyn OracleClient>],
    stores: &StoreSet,
    calls: &Calls,
    until: impl Future<Output = T>,
) -> (Vec<Defect>, T) {
    let stop = AtomicBool::new(false);
    let work = join_all(clients.iter_mut().map(|client| async {
        let mut defects = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            step(client.as_mut(), stores, calls, &mut defects).await;
            tokio::task::yield_now().await;
        }
        defects
    }));
    let (defects, done) = tokio::join!(work, async {
        let done = until.await;
        stop.store(true, Ordering::SeqCst);
        done
    });
    (defects.into_iter().flatten().collect(), done)
}

/// Judges a write during the fault.
fn wrong(
    kinds: &[ErrorKind],
    probe: std::result::Result<Result<()>, tokio::time::error::Elapsed>,
) -> Option<Defect> {
    let finding = match probe {
        Err(_) => "a write did not end in time".to_owned(),
        Ok(Ok(())) if kinds.is_empty() => return None,
        Ok(Ok(())) => "a write succeeded, so the fault had no effect".to_owned(),
        Ok(Err(error)) if !kinds.contains(&error.kind()) => {
            format!("a write failed with `{:?}`: {error}", error.kind())
        }
        Ok(Err(error))
            if error.outcome() == Outcome::Unknown && error.kind() == ErrorKind::PermissionDenied =>
        {
            format!("a refused write has an unknown outcome: {error}")
        }
        Ok(Err(_)) => return None,
    };
    Some(Defect::new(TYPED, finding))
}

/// Writes to one contract of the backend.
async fn write(stores: &StoreSet) -> Result<()> {
    if let Ok(history) = stores.history() {
        return history.append(&Thread::new("edge", "probe")?, ChatMessage::user("probe")).await.map(drop);
    }
    if let Ok(values) = stores.key_value() {
        return values.set(&BucketName::new("edge")?, &Key::new("probe")?, "v".into()).await.map(drop);
    }
    if let Ok(blobs) = stores.blobs() {
        return blobs.put_bytes(&BlobKey::new("edge/probe")?, "v".into()).await.map(drop);
    }
    if let Ok(graph) = stores.graph() {
        let entity = Entity::new(EntityId::new("probe")?, EntityType::new("edge")?);
        return graph.upsert_entities(vec![entity]).await.map(drop);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
