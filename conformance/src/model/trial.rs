//! One script on a separate namespace.

use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use larder_kernel::{Capabilities, Namespace};

use super::compare::{Checked, Mismatch, Wrong, is_trouble, wrong};
use super::recorder::Recorder;
use super::rng::{self, DrawnScript, Draws, Palette, Rng};
use super::subject::Subject;
use crate::harness::{Harness, OpenOptions, StoreSet};
use crate::retry_open::retry_open;
use crate::runner;

/// The longest silence of a stream that owes an event; a shorter limit applies while a script is shrunk.
const WAIT_MAX: Duration = Duration::from_secs(3);
const SHRINKING_WAIT_MAX: Duration = Duration::from_millis(30);
/// The time for which the script waits for further events. It covers the stream's next read: a store that is
/// dropped during a read closes a connection, and a new connection costs more than all calls of a script.
const QUIET: Duration = Duration::from_millis(25);

/// The purpose of a script's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Find out whether it fails.
    Comparing,
    /// Find out quickly whether a shorter script fails, too.
    Shrinking,
    /// Print it.
    Printing,
}

/// Runs scripts of a contract.
pub(super) struct Trial<S> {
    harness: Arc<dyn Harness>,
    declared: Capabilities,
    timeout: Duration,
    subject: PhantomData<fn() -> S>,
}

impl<S> Clone for Trial<S> {
    fn clone(&self) -> Self {
        Self {
            harness: Arc::clone(&self.harness),
            declared: self.declared.clone(),
            timeout: self.timeout,
            subject: PhantomData,
        }
    }
}

/// A script with its operations, each through one of the handles.
#[derive(Debug, Clone)]
pub(super) struct Script<O> {
    pub(super) steps: Vec<(bool, O)>,
}

/// The end of a script.
#[derive(Debug)]
pub(super) enum Ended {
    /// Store and model agree.
    Well,
    /// Store and model differ.
    Wrong(Box<Wrong>),
    /// The service or the suite failed.
    Trouble(String),
}

/// The result of a script.
#[derive(Debug)]
pub(super) struct Ran {
    /// The number of compared operations.
    pub(super) executed: u64,
    pub(super) ended: Ended,
    pub(super) recorder: Recorder,
}

impl<S: Subject> Trial<S> {
    pub(super) fn new(harness: Arc<dyn Harness>, declared: Capabilities, timeout: Duration) -> Self {
        Self { harness, declared, timeout, subject: PhantomData }
    }

    /// Returns the script of a seed.
    pub(super) fn draw(&self, seed: u64) -> Script<S::Operation> {
        self.script(&rng::draw(seed))
    }

    /// Returns the script of these numbers.
    pub(super) fn script(&self, draw: &DrawnScript) -> Script<S::Operation> {
        let ids = Palette::of(draw.family, |id| S::allows(&self.declared, id));
        let step = |draws: &Draws| {
            let mut rng = Rng::new(draws, &ids);
            let operation = S::draw(&mut rng);
            // Drawn last, so that it does not change the operation.
            (rng.last(), operation)
        };
        Script { steps: draw.draws.iter().map(step).collect() }
    }

    /// Runs a script in a fresh namespace, which is erased afterwards.
    pub(super) async fn run(&self, script: &Script<S::Operation>, purpose: Purpose) -> Ran {
        let wait_max = if purpose == Purpose::Shrinking { SHRINKING_WAIT_MAX } else { WAIT_MAX };
        let recorder = Recorder::new(purpose == Purpose::Printing, wait_max, self.quiet());
        let mut ran = Ran { executed: 0, ended: Ended::Well, recorder };
        let ended = match runner::fresh_namespace() {
            Ok(namespace) => self.run_in(&namespace, script, &mut ran).await,
            Err(error) => Err(Mismatch::Trouble(error.to_string())),
        };
        ran.ended = match ended {
            Ok(()) => Ended::Well,
            Err(Mismatch::Wrong(found)) => Ended::Wrong(found),
            Err(Mismatch::Trouble(reason)) => Ended::Trouble(reason),
        };
        ran
    }

    /// Returns the wait for further events. A store in this process has delivered everything when it is
    /// asked; any other store needs a round trip.
    fn quiet(&self) -> Duration {
        if super::is_in_memory(&self.declared) { Duration::ZERO } else { QUIET }
    }

    async fn run_in(&self, namespace: &Namespace, script: &Script<S::Operation>, ran: &mut Ran) -> Checked {
        let (first, second) = (self.open(namespace, 0).await?, self.open(namespace, 1).await?);
        let store = |stores| S::store(stores).map_err(|error| Mismatch::Trouble(error.to_string()));
        let (a, b) = (store(&first)?, store(&second)?);
        let compared = self.compare(&*a, &*b, script, ran).await;
        let erased = match first.store(S::CONTRACT) {
            Some(store) => tokio::time::timeout(self.timeout, store.erase()).await,
            None => Ok(Ok(())),
        };
        compared?;
        match erased {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if is_trouble(&error) => {
                Err(Mismatch::Trouble(format!("cannot erase the script's namespace: {error:?}")))
            }
            Ok(Err(error)) => {
                ran.recorder.call("STORE-008", |_| "erase()".to_owned());
                let assertion = format!("{}.unwrap();", ran.recorder.answer());
                Err(wrong("STORE-008", "success".to_owned(), format!("{error:?}"), assertion))
            }
            Err(_) => Err(Mismatch::Trouble("erasing the script's namespace did not end".to_owned())),
        }
    }

    async fn open(&self, namespace: &Namespace, handle: usize) -> Checked<StoreSet> {
        let options = OpenOptions::default().with_handle(handle);
        let opened = retry_open(|| self.harness.open(namespace, &options));
        match tokio::time::timeout(self.timeout, opened).await {
            Ok(opened) => {
                opened.map_err(|error| Mismatch::Trouble(format!("cannot open the backend: {error:?}")))
            }
            Err(_) => Err(Mismatch::Trouble("opening the backend did not end".to_owned())),
        }
    }

    async fn compare(
        &self,
        a: &S::Store,
        b: &S::Store,
        script: &Script<S::Operation>,
        ran: &mut Ran,
    ) -> Checked {
        let mut model = S::new(&self.declared);
        for (through_b, operation) in &script.steps {
            ran.recorder.through(if *through_b { "b" } else { "a" });
            let store = if *through_b { b } else { a };
            let step = tokio::time::timeout(self.timeout, model.step(store, operation, &mut ran.recorder));
            let step = AssertUnwindSafe(step).catch_unwind().await;
            self.ended(step, ran)?;
            ran.executed += 1;
        }
        ran.recorder.dumping = true;
        for (handle, store) in [("a", a), ("b", b)] {
            ran.recorder.through(handle);
            let dump = tokio::time::timeout(self.timeout, model.dump(store, &mut ran.recorder));
            let dump = AssertUnwindSafe(dump).catch_unwind().await;
            self.ended(dump, ran)?;
        }
        Ok(())
    }

    /// Returns the result of a step that may have panicked or not ended.
    fn ended<P, E>(&self, step: Result<Result<Checked, E>, P>, ran: &Ran) -> Checked {
        let got = match step {
            Ok(Ok(checked)) => return checked,
            Ok(Err(_)) => format!("none within {} s", self.timeout.as_secs_f64()),
            Err(_) => "a panic".to_owned(),
        };
        let assertion = "// The last call panics, or does not end.".to_owned();
        Err(wrong(ran.recorder.clause, "an answer or a typed error".to_owned(), got, assertion))
    }
}
