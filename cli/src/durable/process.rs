//! Writer processes and their kills.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use larder::Registry;
use larder_kernel::{Namespace, Result};

use super::journal::{Told, replay};
use crate::url;
use larder_conformance::case::Level;
use larder_conformance::harness::{Harness, OpenOptions, StoreSet};
use larder_conformance::level::{Counterexample, Effort, LevelReport};
use larder_conformance::oracle::{Calls, Defect, OracleClient, Random, clients, recover, trial_seed};
use larder_conformance::runner::within;

/// The number of kills that the level requires, and the number in a long run.
const REQUIRED: u64 = 50;
const REQUIRED_LONG: u64 = 500;
/// The maximum number of killed writers per kill that counts.
const TRIES_MAX: u64 = 4;
/// The time limit for the first acknowledged writes of a writer.
const START_MAX: Duration = Duration::from_secs(30);
/// The namespace of the writers.
pub const NAMESPACE: &str = "durable";
/// The number of calls of a client that may fail before a write must succeed. A call that collides with an
/// operation from before the kill is refused.
const ATTEMPTS_MAX: u32 = 4;

/// Kills processes that write to a new backend with the scheme and the parameters of `url`.
///
/// Each process is `program writer URL --era … --seed …`, which must call [`write`](super::write) and print
/// its journal. The processes write to the same backend, one after the other.
pub async fn kill_writers(
    registry: &Registry,
    program: &Path,
    name: &str,
    url: &str,
    effort: &Effort,
) -> LevelReport {
    let begun = Instant::now();
    let required = if effort.long { REQUIRED_LONG } else { REQUIRED };
    let mut report = LevelReport::new(name, Level::Durable, None, "kills", required);
    if let Err(reason) = kill_all(registry, program, url, effort, required, &mut report).await {
        report.trouble = Some(reason);
    }
    report.elapsed_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    report
}

async fn kill_all(
    registry: &Registry,
    program: &Path,
    url: &str,
    effort: &Effort,
    required: u64,
    report: &mut LevelReport,
) -> std::result::Result<(), String> {
    let scratch =
        tempfile::tempdir().map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let (scheme, query) = (url.split(':').next().unwrap_or_default(), url.split_once('?'));
    let place = url::url_of(scheme, &scratch.path().join("place"), query.map_or("", |(_, query)| query));
    let wanted = effort.share_of(required);
    let mut earlier = Vec::new();
    let mut sums = Told::default();
    let mut tries = 0;
    while report.executed < wanted && report.counterexamples.is_empty() {
        tries += 1;
        if tries > wanted * TRIES_MAX {
            return Err(format!("only {} of {tries} kills interrupted a write", report.executed));
        }
        let seed = trial_seed(effort.seed, scheme, tries);
        let writer =
            Writer { program: program.to_owned(), url: place.clone(), era: format!("kill-{tries}"), seed };
        let era = writer.era.clone();
        let lines = tokio::task::spawn_blocking(move || writer.run_and_kill())
            .await
            .map_err(|error| format!("a writer's watcher ended: {error}"))?
            .map_err(|error| format!("cannot run `{} writer`: {error}", program.display()))?;
        let judged = verify(registry, &place, scratch.path(), &era, seed, &lines, effort).await;
        let (told, clients, defects) = judged.map_err(|error| format!("cannot use the backend: {error}"))?;
        if let Some(reason) = told.trouble {
            return Err(reason);
        }
        note(report, &defects, &lines, seed);
        sums.acknowledged += told.acknowledged;
        sums.in_flight += told.in_flight;
        report.executed += u64::from(told.in_flight > 0);
        earlier.push(clients);
    }
    let again = judge_again(registry, &place, scratch.path(), &earlier, effort).await;
    note(report, &again.map_err(|error| format!("cannot use the backend: {error}"))?, &[], effort.seed);
    report.notes.push(format!(
        "{tries} writers were killed; {} writes were acknowledged, {} were in progress",
        sums.acknowledged, sums.in_flight
    ));
    Ok(())
}

fn note(report: &mut LevelReport, defects: &[Defect], lines: &[String], seed: u64) {
    for defect in defects {
        let (finding, script) = (defect.finding.clone(), lines.join("\n"));
        report.counterexamples.push(Counterexample { clause: defect.clause, finding, script, seed });
    }
}

async fn open(
    registry: &Registry,
    place: &str,
    scratch: &Path,
) -> Result<(Arc<dyn Harness>, StoreSet, StoreSet)> {
    let harness = url::named(registry, "durable", place, scratch).await?;
    let namespace = Namespace::new(NAMESPACE)?;
    let stores = harness.open(&namespace, &OpenOptions::default()).await?;
    let other = harness.open(&namespace, &OpenOptions::default().with_handle(1)).await?;
    Ok((harness, stores, other))
}

/// The journal's state, the clients, and the defects that they found.
type Judged = (Told, Vec<Box<dyn OracleClient>>, Vec<Defect>);

/// Opens the backend and compares it with the journal, then writes more data and compares again.
async fn verify(
    registry: &Registry,
    place: &str,
    scratch: &Path,
    era: &str,
    seed: u64,
    lines: &[String],
    effort: &Effort,
) -> Result<Judged> {
    let (_harness, stores, other) =
        within(effort.timeout, "durable.open", Box::pin(open(registry, place, scratch))).await?;
    let mut clients = clients(&stores, era, seed);
    let told = replay(lines, &mut clients);
    let mut defects = Vec::new();
    for client in &mut clients {
        defects.extend(within(effort.timeout, "durable.verify", client.verify(&stores, "STORE-005")).await?);
        let calls = Calls::new(effort.timeout, Arc::default());
        recover(client.as_mut(), &stores, &calls, &mut defects, ATTEMPTS_MAX).await;
        defects.extend(within(effort.timeout, "durable.verify", client.verify(&other, "STORE-005")).await?);
    }
    Ok((told, clients, defects))
}

/// Checks that the data of earlier writers survives later kills.
async fn judge_again(
    registry: &Registry,
    place: &str,
    scratch: &Path,
    earlier: &[Vec<Box<dyn OracleClient>>],
    effort: &Effort,
) -> Result<Vec<Defect>> {
    let (_harness, stores, _other) =
        within(effort.timeout, "durable.open", Box::pin(open(registry, place, scratch))).await?;
    let mut defects = Vec::new();
    for client in earlier.iter().flatten() {
        defects.extend(within(effort.timeout, "durable.verify", client.verify(&stores, "STORE-005")).await?);
    }
    Ok(defects)
}

/// A writer process.
struct Writer {
    program: std::path::PathBuf,
    url: String,
    era: String,
    seed: u64,
}

impl Writer {
    /// Starts the process, kills it at a random moment after some acknowledged writes, and returns its
    /// journal.
    fn run_and_kill(&self) -> io::Result<Vec<String>> {
        let mut random = Random::new(self.seed, "moment");
        let (enough, pause) = (1 + random.below(60), Duration::from_micros(random.below(4_000)));
        let mut child = Command::new(&self.program)
            .args(["writer", &self.url, "--era", &self.era, "--seed", &self.seed.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let acknowledged = Arc::new(AtomicU64::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let said = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let (count, end) = (Arc::clone(&acknowledged), Arc::clone(&ended));
        let listening = std::thread::spawn(move || {
            let lines = listen(said, &count);
            end.store(true, Ordering::SeqCst);
            lines
        });
        let deadline = Instant::now() + START_MAX;
        while acknowledged.load(Ordering::SeqCst) < enough
            && !ended.load(Ordering::SeqCst)
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(pause);
        let killed = kill(&mut child)?;
        let lines = listening.join().map_err(|_| io::Error::other("the listener ended"))??;
        if !killed {
            return Err(io::Error::other("it ended before it was killed"));
        }
        Ok(lines)
    }
}

/// Returns whether the kill ended the process.
fn kill(child: &mut Child) -> io::Result<bool> {
    child.kill()?;
    let status = child.wait()?;
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        Ok(status.signal() == Some(9))
    }
    #[cfg(not(unix))]
    Ok(!status.success())
}

/// Returns the complete lines of the journal. The kill may truncate the last line.
fn listen(said: impl Read, acknowledged: &AtomicU64) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let mut said = BufReader::new(said);
    loop {
        let mut line = String::new();
        said.read_line(&mut line)?;
        let Some(line) = line.strip_suffix('\n') else { return Ok(lines) };
        if line.starts_with('<') {
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
        lines.push(line.to_owned());
    }
}
