//! Servers that are killed while clients write to them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use larder::Registry;
use larder_kernel::{Durability, Error, ErrorKind, Namespace, Result};

use super::process::NAMESPACE;
use super::server::Server;
use crate::service::Service;
use crate::url;
use larder_conformance::case::Level;
use larder_conformance::harness::{Harness, OpenOptions, StoreSet};
use larder_conformance::level::{Counterexample, Effort, LevelReport};
use larder_conformance::oracle::{
    Calls, Defect, OracleClient, Random, Stepped, Tally, clients, recover, step, trial_seed,
};
use larder_conformance::retry_open::retry_open;
use larder_conformance::runner::{Probed, within};

/// The maximum number of attempts for each required kill.
const TRIES_MAX: u64 = 6;
/// The number of kills of Redis without its append-only file.
const FORGETFUL_KILLS: u64 = 5;
/// The time limit for the first acknowledged writes.
const START_MAX: Duration = Duration::from_secs(20);
/// The number of attempts to open the server.
const OPENINGS_MAX: u32 = 5;
/// The number of calls of a client that may fail after a restart before a write must succeed.
const ATTEMPTS_MAX: u32 = 8;
/// The pause of a client after a failed call.
const AFTER_FAILURE: Duration = Duration::from_millis(5);

/// Returns the number of kills that the level requires, by service and length of the run.
fn required(service: &Service, long: bool) -> u64 {
    match service.script {
        _ if long => 500,
        "redis" => 25,
        "postgres" => 15,
        "garage" => 10,
        // A cluster has three servers, and AGE starts with its whole database.
        _ => 5,
    }
}

/// Starts a server of the service's kind and kills it repeatedly.
pub(super) async fn kill_servers(service: &Service, effort: &Effort) -> Vec<LevelReport> {
    let begun = Instant::now();
    let required = required(service, effort.long);
    let mut report = LevelReport::new(service.name, Level::Durable, None, "kills", required);
    let service = *service;
    match blocking(move || Server::start(service)).await {
        Err(reason) => report.trouble = Some(format!("cannot start a server to be killed: {reason}")),
        Ok(server) => {
            if let Err(error) = kill_all(&server, &service, effort, &mut report).await {
                report.trouble = Some(format!("cannot continue with the server: {error:?}"));
            }
            let _ = tokio::task::spawn_blocking(move || server.remove()).await;
        }
    }
    report.elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    vec![report]
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    let failed = |message: String| Error::new(ErrorKind::Unavailable, "durable.server", message);
    let done = tokio::task::spawn_blocking(work).await.map_err(|error| failed(error.to_string()))?;
    done.map_err(|error| failed(error.to_string()))
}

/// A server with two open handles.
struct Opened {
    server: Server,
    _harness: Arc<dyn Harness>,
    stores: StoreSet,
    other: StoreSet,
}

async fn open(server: &Server, name: &str, limit: Duration) -> Result<Opened> {
    // The test servers belong to built-in backends.
    let registry = Registry::default();
    let of = server.clone();
    let url = blocking(move || of.url()).await?;
    // On a busy machine, opening sometimes exceeds the short timeouts of the URL.
    let harness =
        retry_open(|| within(limit, "durable.open", url::named(&registry, name, &url, Path::new("."))))
            .await?;
    let namespace = Namespace::new(NAMESPACE)?;
    let stores = harness.open(&namespace, &OpenOptions::default()).await?;
    let other = harness.open(&namespace, &OpenOptions::default().with_handle(1)).await?;
    Ok(Opened { server: server.clone(), _harness: harness, stores, other })
}

async fn kill_all(
    server: &Server,
    service: &Service,
    effort: &Effort,
    report: &mut LevelReport,
) -> Result<()> {
    let wanted = effort.share_of(report.required);
    let opened = open(server, service.name, effort.timeout).await?;
    let durability = declared(&opened.stores);
    if durability == Durability::None {
        report.trouble = Some("the server declares no durability; nothing can be proven".to_owned());
        return Ok(());
    }
    let (mut tries, mut sums, mut in_flight, mut attempts) = (0, Tally::default(), 0, 0);
    while report.executed < wanted && report.counterexamples.is_empty() {
        tries += 1;
        if tries > wanted * TRIES_MAX {
            report.trouble = Some(format!("only {} of {tries} kills interrupted a call", report.executed));
            return Ok(());
        }
        let seed = trial_seed(effort.seed, service.name, tries);
        let era = format!("kill-{tries}");
        let mut round = Round::new(&opened, &era, seed, effort);
        let met = round.write_and_kill(seed).await?;
        round.restart_and_judge(&mut attempts).await?;
        for defect in round.defects {
            let (finding, script) = (defect.finding, round.calls.script());
            report.counterexamples.push(Counterexample::new(defect.clause, finding, script, seed));
        }
        sums.add(round.calls.tally());
        in_flight += met;
        report.executed += u64::from(met > 0);
    }
    report.notes.push(format!(
        "durability `{}`; {tries} kills interrupted {in_flight} calls; {} calls were acknowledged, {} not \
         applied, {} of unknown outcome; at most {attempts} calls failed before a write succeeded again",
        durability.as_str(),
        sums.done,
        sums.refused,
        sums.open
    ));
    if service.script == "redis" && report.counterexamples.is_empty() {
        drop(opened);
        forgetful(server, service, effort, report).await?;
    }
    Ok(())
}

/// Returns whether the stores declare any durability.
pub(super) fn is_durable(probed: &Probed) -> bool {
    probed.backend.capabilities.values().any(|declared| declared.durability > Durability::None)
}

/// Returns the lowest durability that the stores declare.
fn declared(stores: &StoreSet) -> Durability {
    let of = |contract| stores.capabilities(contract).map(|declared| declared.durability);
    larder_conformance::oracle::CONTRACTS.into_iter().filter_map(of).min().unwrap_or_default()
}

/// Kills the server without its append-only file. The kill must lose acknowledged writes; otherwise the kills
/// above have proven nothing.
async fn forgetful(
    server: &Server,
    service: &Service,
    effort: &Effort,
    report: &mut LevelReport,
) -> Result<()> {
    let kills = effort.share_of(FORGETFUL_KILLS);
    let mut lost = 0;
    for kill in 1..=kills {
        let of = server.clone();
        blocking(move || of.forget()).await?;
        let opened = open(server, service.name, effort.timeout).await?;
        let durability = declared(&opened.stores);
        let seed = trial_seed(effort.seed, "without the log", kill);
        if durability != Durability::None {
            let finding = format!("a server without a log is declared durable: `{}`", durability.as_str());
            let (clause, script) = ("STORE-005", "CONFIG SET appendonly no".to_owned());
            report.counterexamples.push(Counterexample::new(clause, finding, script, seed));
        }
        let era = format!("forgotten-{kill}");
        let mut round = Round::new(&opened, &era, seed, effort);
        round.write_and_kill(seed).await?;
        round.defects.clear();
        round.up().await?;
        // Opened again, because a store refuses a server whose durability has changed.
        let again = open(server, service.name, effort.timeout).await?;
        let gone = round.verify(&again.stores).await?;
        lost += u64::from(gone.iter().any(|defect| defect.clause == "STORE-005"));
    }
    if lost == 0 {
        report.trouble =
            Some("the server lost nothing without its log either, so the kills prove nothing".to_owned());
    }
    report.notes.push(format!("without its log, {lost} of {kills} kills lost acknowledged writes"));
    Ok(())
}

/// One kill of a server.
struct Round<'a> {
    opened: &'a Opened,
    clients: Vec<Box<dyn OracleClient>>,
    calls: Calls,
    defects: Vec<Defect>,
    limit: Duration,
}

impl<'a> Round<'a> {
    fn new(opened: &'a Opened, era: &str, seed: u64, effort: &Effort) -> Self {
        let clients = clients(&opened.stores, era, seed);
        let calls = Calls::new(effort.timeout, Arc::default());
        Self { opened, clients, calls, defects: Vec::new(), limit: effort.timeout }
    }

    /// Runs clients that write, kills the server, and returns how many calls in progress have an unknown
    /// outcome.
    async fn write_and_kill(&mut self, seed: u64) -> Result<u64> {
        let (calls, stores, server) = (&self.calls, &self.opened.stores, &self.opened.server);
        let stop = AtomicBool::new(false);
        let work =
            join_all(self.clients.iter_mut().map(|client| work(client.as_mut(), stores, calls, &stop)));
        let (defects, killed) = tokio::join!(work, async {
            let mut random = Random::new(seed, "moment");
            let (enough, pause) = (5 + random.below(60), Duration::from_micros(random.below(5_000)));
            let deadline = Instant::now() + START_MAX;
            while calls.tally().done < enough && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(pause).await;
            let before = calls.tally();
            let of = server.clone();
            let killed = blocking(move || of.tell("kill")).await;
            calls.remark("KILLED");
            // Calls in progress must end before the clients stop.
            tokio::time::sleep(AFTER_FAILURE).await;
            stop.store(true, Ordering::SeqCst);
            killed.map(|()| before)
        });
        self.defects.extend(defects.into_iter().flatten());
        // A call that found no server was not applied. An unknown outcome belongs to a call that the kill
        // interrupted.
        let (before, after) = (killed?, self.calls.tally());
        Ok(after.open - before.open)
    }

    async fn up(&self) -> Result<()> {
        let (mut tries, server) = (1, &self.opened.server);
        loop {
            let of = server.clone();
            match blocking(move || of.tell("up")).await {
                // On a busy machine, recovery of the server can take longer than its script waits.
                Err(_) if tries < OPENINGS_MAX => tries += 1,
                told => return told,
            }
        }
    }

    async fn restart_and_judge(&mut self, attempts: &mut u32) -> Result<()> {
        self.up().await?;
        self.calls.remark("UP");
        for client in &mut self.clients {
            let (stores, calls) = (&self.opened.stores, &self.calls);
            let took = recover(client.as_mut(), stores, calls, &mut self.defects, ATTEMPTS_MAX).await;
            *attempts = (*attempts).max(took);
        }
        let judged = self.verify(&self.opened.other).await?;
        self.defects.extend(judged);
        Ok(())
    }

    async fn verify(&self, stores: &StoreSet) -> Result<Vec<Defect>> {
        let mut defects = Vec::new();
        for client in &self.clients {
            let mut judged = within(self.limit, "durable.verify", client.verify(stores, "STORE-005")).await;
            if judged.as_ref().is_err_and(Error::is_retryable) {
                judged = within(self.limit, "durable.verify", client.verify(stores, "STORE-005")).await;
            }
            defects.extend(judged?);
        }
        Ok(defects)
    }
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
    }
    defects
}
