//! The processes that run the clients of the level `concurrent`.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use larder_conformance::concurrent::{Processes, Script};
use larder_kernel::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::worker::Said;

const OPERATION: &str = "concurrent.processes";

/// Processes on one backend. They start with the first history and end when this value is dropped.
pub(crate) struct Workers {
    url: String,
    /// One history at a time uses them.
    running: Arc<Mutex<Vec<Worker>>>,
    /// Lets a history wait for the processes without blocking a thread.
    turn: tokio::sync::Mutex<()>,
}

impl Workers {
    /// Creates the value for the backend behind a URL, without processes yet.
    pub(crate) fn new(url: String) -> Self {
        Self { url, running: Arc::default(), turn: tokio::sync::Mutex::new(()) }
    }
}

impl fmt::Debug for Workers {
    /// Omits the URL, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workers")
    }
}

#[async_trait]
impl Processes for Workers {
    async fn play(&self, scripts: Vec<Script>) -> Result<Vec<String>> {
        let _turn = self.turn.lock().await;
        let (running, url) = (Arc::clone(&self.running), self.url.clone());
        let played = tokio::task::spawn_blocking(move || {
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            let played = play(&mut running, &url, &scripts);
            if played.is_err() {
                // Later messages of the other processes would be ambiguous.
                running.clear();
            }
            played
        });
        played.await.unwrap_or_else(|_| Err(failed("the thread that talks to the processes ended")))
    }
}

fn play(running: &mut Vec<Worker>, url: &str, scripts: &[Script]) -> Result<Vec<String>> {
    while running.len() < scripts.len() {
        running.push(Worker::start(url)?);
    }
    let mut all: Vec<(&mut Worker, &Script)> = running.iter_mut().zip(scripts).collect();
    for (worker, script) in &mut all {
        worker.tell(script)?;
    }
    for (worker, _) in &mut all {
        if !matches!(worker.hear()?, Said::Ready) {
            return Err(failed("a process acted before its instruction"));
        }
    }
    for (worker, _) in &mut all {
        worker.tell(&())?;
    }
    let mut played = Vec::with_capacity(all.len());
    for (worker, _) in &mut all {
        match worker.hear()? {
            Said::Played(recorded) => played.push(recorded),
            _ => return Err(failed("a process did not run its script")),
        }
    }
    Ok(played)
}

/// One process. It is killed on drop.
struct Worker {
    process: Child,
    ears: ChildStdin,
    mouth: BufReader<ChildStdout>,
}

impl Worker {
    fn start(url: &str) -> Result<Self> {
        let cannot = |error| failed("a process cannot be started").with_source(error);
        let program = std::env::current_exe().map_err(cannot)?;
        let mut process = Command::new(program)
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let (Some(ears), Some(mouth)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed("a process has no standard input and output"));
        };
        let mut worker = Self { process, ears, mouth: BufReader::new(mouth) };
        // Sent on standard input, because every user of the machine can read arguments.
        worker.tell(&url)?;
        Ok(worker)
    }

    fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(what).map_err(|_| failed("a script is not JSON"))?;
        let told = writeln!(self.ears, "{line}").and_then(|()| self.ears.flush());
        told.map_err(|error| failed("a process ended too early").with_source(error))
    }

    fn hear(&mut self) -> Result<Said> {
        let mut line = String::new();
        let heard = self.mouth.read_line(&mut line);
        heard.map_err(|error| failed("a process ended too early").with_source(error))?;
        match serde_json::from_str(&line) {
            Ok(Said::Failed(reason)) => Err(Error::new(ErrorKind::Unavailable, OPERATION, reason)),
            Ok(said) => Ok(said),
            Err(_) => Err(failed("a process ended too early")),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn failed(message: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION, message)
}
