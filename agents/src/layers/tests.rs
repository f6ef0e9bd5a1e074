//! Tests of the layers with stores that fail, are slow, and record the calls that reach them.

mod encryption;
mod forwarding;
mod patience;
mod repeating;
mod telling;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use larder_kernel::{
    BlobStore, BucketName, Error, ErrorKind, HistoryProvider, Key, KeyValueStore, Outcome, Result, Thread,
};

use super::answer::Answer;
use super::layer::MiddlewareLayer;
use super::middleware::{Call, Middleware};
use crate::storage::{InMemoryBlobStore, InMemoryHistoryProvider, InMemoryKeyValueStore};

/// The scripted result of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// The call fails before it is made.
    Before(ErrorKind, Outcome),
    /// The call is made, and its reply is lost.
    After(ErrorKind, Outcome),
    /// The call is delayed.
    Late(Duration),
}

/// A layer that follows a script, one step per call, and then passes calls through. It records the calls that
/// reach it.
#[derive(Clone, Default)]
pub(crate) struct Scripted(Arc<Mutex<(VecDeque<Step>, Vec<&'static str>)>>);

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Scripted {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let scripted = Self::default();
        scripted.follow(steps);
        scripted
    }

    /// Replaces the steps that are left, and returns their number.
    pub(crate) fn follow(&self, steps: impl IntoIterator<Item = Step>) -> usize {
        let script = &mut self.0.lock().unwrap().0;
        std::mem::replace(script, steps.into_iter().collect()).len()
    }

    fn calls(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().1.clone()
    }
}

impl MiddlewareLayer for Scripted {
    type Hook = Self;

    fn hook(&self) -> Self {
        self.clone()
    }
}

impl Middleware for Scripted {
    async fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let step = {
            let mut script = self.0.lock().unwrap();
            script.1.push(call.operation);
            script.0.pop_front()
        };
        let failed =
            |kind, outcome| Err(Error::new(kind, call.operation, "as the script says").with_outcome(outcome));
        match step {
            None => attempt().await,
            Some(Step::Before(kind, outcome)) => failed(kind, outcome),
            Some(Step::After(kind, outcome)) => {
                attempt().await?;
                failed(kind, outcome)
            }
            Some(Step::Late(time)) => {
                tokio::time::sleep(time).await;
                attempt().await
            }
        }
    }
}

fn key_value(scripted: &Scripted, outer: &impl super::Layer) -> Arc<dyn KeyValueStore> {
    outer.key_value(super::Layer::key_value(scripted, Arc::new(InMemoryKeyValueStore::new())))
}

fn blobs(scripted: &Scripted, outer: &impl super::Layer) -> Arc<dyn BlobStore> {
    outer.blobs(super::Layer::blobs(scripted, Arc::new(InMemoryBlobStore::new())))
}

fn history(scripted: &Scripted, outer: &impl super::Layer) -> Arc<dyn HistoryProvider> {
    outer.history(super::Layer::history(scripted, Arc::new(InMemoryHistoryProvider::new())))
}

fn place() -> (BucketName, Key) {
    (BucketName::new("secret-bucket").unwrap(), Key::new("secret-key").unwrap())
}

fn thread() -> Thread {
    Thread::new("secret-agent", "secret-session").unwrap()
}

fn value() -> Bytes {
    Bytes::from_static(b"value")
}
