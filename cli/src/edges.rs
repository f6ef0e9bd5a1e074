//! The faults around a backend that the level `faults` causes: see [`larder_conformance::Edge`].

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_conformance::{Edge, EdgeFault, Harness, OpenOptions, Staged, StoreSet, async_trait};
use larder_kernel::{
    ChatMessage, Error, ErrorKind, HistoryProviderExt as _, Namespace, Outcome, Result, Thread,
};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::service;

const OPERATION: &str = "faults.stage";
/// The limit of a wait for a lock, in milliseconds.
const BUSY_MS: u64 = 400;
/// The longest time of a call that waits for locks, which may be several in a row.
const LOCKED_MAX: Duration = Duration::from_secs(8);
/// The longest time of a call to a server.
const SERVER_MAX: Duration = Duration::from_secs(30);
/// The number of times that a writer is stopped until it holds the lock.
const STOPS_MAX: u32 = 200;

/// Opens a harness, given its name and URL.
type Opener<'o> = dyn Fn(&str, &str) -> BoxFuture<'o, Result<Arc<dyn Harness>>> + Send + Sync + 'o;

/// Prepares a fault of the backend behind a URL. `alone` is the same backend in a separate place, opened for
/// each call of `Harness::open`.
pub(crate) async fn stage(
    open: &Opener<'_>,
    edge: Edge,
    backend_url: &str,
    alone: Option<Arc<dyn Harness>>,
) -> Result<Staged> {
    let scheme = backend_url.split(':').next().unwrap_or_default().to_owned();
    let path = alone.as_ref().and_then(|alone| path_of(&alone.shared_url()?));
    Ok(match (edge, scheme.as_str()) {
        (Edge::FrozenHolder, "sqlite" | "file") => {
            let (Some(alone), Some(path)) = (alone, path) else { return Ok(Staged::Impossible) };
            let short = with_parameter(
                &alone.shared_url().unwrap_or_default(),
                &format!("busy_timeout_ms={BUSY_MS}"),
            );
            let harness = open(alone.name(), &short).await?;
            let is_file = scheme == "sqlite";
            Staged::Ready(Box::new(Frozen { harness, url: short, path, is_file, held: Mutex::default() }))
        }
        (Edge::MovedFolder, "sqlite" | "file") => {
            let (Some(harness), Some(path)) = (alone, path) else { return Ok(Staged::Impossible) };
            Staged::Ready(Box::new(Moved { harness, path }))
        }
        (Edge::Standby, "postgres") => elsewhere(open, "LARDER_POSTGRES_REPLICA_URL", STANDBY).await?,
        (Edge::Pooler, "postgres") => elsewhere(open, "LARDER_PGBOUNCER_URL", &[]).await?,
        (Edge::RevokedRole, "postgres" | "redis") => revocable(open, &scheme).await?,
        _ => Staged::Impossible,
    })
}

/// Returns the path in the URL of an embedded backend, as `url::url_of` wrote it.
fn path_of(url: &str) -> Option<PathBuf> {
    let path = url.split('?').next()?.split_once(':')?.1;
    Some(PathBuf::from(path.replace("%3F", "?").replace("%23", "#").replace("%25", "%")))
}

fn with_parameter(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION, message.into()).with_outcome(Outcome::NotApplied)
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |error| failed(what).with_source(error)
}

/// A lock that another process holds, which does not run.
struct Frozen {
    harness: Arc<dyn Harness>,
    url: String,
    path: PathBuf,
    /// True for a database, whose lock only another process can hold; a folder has lock files.
    is_file: bool,
    held: Mutex<Vec<Holder>>,
}

enum Holder {
    Process(Child),
    /// Locked through another descriptor, as by another process.
    Locked(File),
}

impl Drop for Holder {
    fn drop(&mut self) {
        match self {
            Self::Process(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Self::Locked(file) => _ = flock(&*file, FlockOperation::Unlock),
        }
    }
}

#[async_trait]
impl EdgeFault for Frozen {
    fn harness(&self) -> Arc<dyn Harness> {
        Arc::clone(&self.harness)
    }

    fn direct(&self) -> Option<Arc<dyn Harness>> {
        Some(Arc::clone(&self.harness))
    }

    fn call_time_max(&self) -> Duration {
        LOCKED_MAX
    }

    fn kinds(&self) -> &'static [ErrorKind] {
        &[ErrorKind::Timeout]
    }

    async fn begin(&self) -> Result<()> {
        let held = if self.is_file { vec![self.stop_a_writer().await?] } else { self.lock_files()? };
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        Ok(())
    }

    async fn end(&self) -> Result<()> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }
}

impl Frozen {
    /// Locks every lock file of a folder.
    fn lock_files(&self) -> Result<Vec<Holder>> {
        let mut held = Vec::new();
        for entry in std::fs::read_dir(self.path.join(".larder/locks")).map_err(io("no folder of locks"))? {
            let path = entry.map_err(io("the folder of locks cannot be read"))?.path();
            let file = File::options().write(true).open(path).map_err(io("a lock cannot be opened"))?;
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|error| io("a lock cannot be taken")(error.into()))?;
            held.push(Holder::Locked(file));
        }
        Ok(held)
    }

    /// Starts a process that writes, and stops it while it holds the lock.
    async fn stop_a_writer(&self) -> Result<Holder> {
        let program = std::env::current_exe().map_err(io("this program has no path"))?;
        let mut child = Command::new(program)
            .args(["writer", &self.url, "--era", "frozen", "--seed", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(io("the writer cannot be started"))?;
        let lines = child.stdout.take().ok_or_else(|| failed("the writer has no output"))?;
        let (begun, first) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(lines).lines();
            let _ = begun.send(lines.next().is_some());
            // Reads on, so that the writer never waits for a full pipe.
            lines.for_each(drop);
        });
        let holder = Holder::Process(child);
        if !first.await.unwrap_or(false) {
            return Err(failed("the writer ended before its first write"));
        }
        let Holder::Process(child) = &holder else { return Ok(holder) };
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| failed("the writer has no process id"))?;
        let signal = |signal| kill_process(process, signal).map_err(|error| io("no signal")(error.into()));
        let stores = self.harness.open(&Namespace::new("frozen-probe")?, &OpenOptions::default()).await?;
        for attempt in 0..STOPS_MAX {
            signal(Signal::STOP)?;
            if is_locked(&stores).await? {
                return Ok(holder);
            }
            signal(Signal::CONT)?;
            tokio::time::sleep(Duration::from_micros(u64::from(attempt % 17) * 300)).await;
        }
        Err(failed("the writer never held the lock when it was stopped"))
    }
}

async fn is_locked(stores: &StoreSet) -> Result<bool> {
    let history = stores.history()?;
    match history.append(&Thread::new("edge", "probe")?, ChatMessage::user("probe")).await {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(true),
        Err(error) => Err(error),
    }
}

/// A file or folder that moves away.
struct Moved {
    harness: Arc<dyn Harness>,
    path: PathBuf,
}

impl Moved {
    fn rename(&self, away: bool) -> Result<()> {
        for suffix in ["", "-wal", "-shm", ".blobs"] {
            let end = |more: &str| {
                let mut path = self.path.as_os_str().to_owned();
                path.push(suffix);
                path.push(more);
                PathBuf::from(path)
            };
            let (from, to) = if away { (end(""), end(".moved")) } else { (end(".moved"), end("")) };
            match std::fs::rename(from, to) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io("the backend's files cannot be moved")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[async_trait]
impl EdgeFault for Moved {
    fn harness(&self) -> Arc<dyn Harness> {
        Arc::clone(&self.harness)
    }

    fn direct(&self) -> Option<Arc<dyn Harness>> {
        Some(Arc::clone(&self.harness))
    }

    fn call_time_max(&self) -> Duration {
        LOCKED_MAX
    }

    fn kinds(&self) -> &'static [ErrorKind] {
        &[ErrorKind::Unavailable]
    }

    async fn begin(&self) -> Result<()> {
        self.rename(true)
    }

    async fn end(&self) -> Result<()> {
        self.rename(false)
    }
}

/// The kinds of error of a write to a standby.
const STANDBY: &[ErrorKind] = &[ErrorKind::Unavailable];

/// The same database behind another address, which is the fault.
struct Elsewhere {
    harness: Arc<dyn Harness>,
    kinds: &'static [ErrorKind],
}

async fn elsewhere(open: &Opener<'_>, variable: &str, kinds: &'static [ErrorKind]) -> Result<Staged> {
    let Ok(url) = std::env::var(variable) else {
        return Ok(Staged::Skipped(format!("{variable} is not set")));
    };
    let harness = open("elsewhere", &url).await?;
    Ok(Staged::Ready(Box::new(Elsewhere { harness, kinds })))
}

#[async_trait]
impl EdgeFault for Elsewhere {
    fn harness(&self) -> Arc<dyn Harness> {
        Arc::clone(&self.harness)
    }

    fn call_time_max(&self) -> Duration {
        SERVER_MAX
    }

    fn kinds(&self) -> &'static [ErrorKind] {
        self.kinds
    }

    async fn begin(&self) -> Result<()> {
        Ok(())
    }

    async fn end(&self) -> Result<()> {
        Ok(())
    }
}

/// A role whose rights the script of the service takes away and gives back.
struct Role {
    harness: Arc<dyn Harness>,
    script: PathBuf,
}

/// Runs a command of the service's script, and returns its output.
async fn run(script: &Path, action: &'static str) -> std::result::Result<String, String> {
    let mut command = Command::new(script);
    command.arg(action).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().last().unwrap_or("the script of the service failed").to_owned())
}

async fn revocable(open: &Opener<'_>, scheme: &str) -> Result<Staged> {
    let script = service::scripts().join(scheme);
    let url = match run(&script, "grant").await {
        Ok(url) => url,
        Err(reason) => return Ok(Staged::Skipped(format!("no role can be made: {reason}"))),
    };
    let harness = open("role", &url).await?;
    Ok(Staged::Ready(Box::new(Role { harness, script })))
}

#[async_trait]
impl EdgeFault for Role {
    fn harness(&self) -> Arc<dyn Harness> {
        Arc::clone(&self.harness)
    }

    fn call_time_max(&self) -> Duration {
        SERVER_MAX
    }

    fn kinds(&self) -> &'static [ErrorKind] {
        &[ErrorKind::PermissionDenied]
    }

    async fn begin(&self) -> Result<()> {
        run(&self.script, "revoke").await.map(drop).map_err(failed)
    }

    async fn end(&self) -> Result<()> {
        run(&self.script, "grant").await.map(drop).map_err(failed)
    }
}
