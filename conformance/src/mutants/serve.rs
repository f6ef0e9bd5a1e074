//! The harness of a mutant, and the state that its handles share.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, PollNext};
use futures_util::{StreamExt, future};
use larder_agents::MemoryBackend;
use larder_kernel::{Error, Namespace, Result};
use tokio::sync::watch;

use crate::harness::{Harness, OpenOptions, StoreSet};

type Open = dyn Fn(SharedState, Namespace, &OpenOptions) -> StoreSet + Send + Sync;

/// Locks the mutex and ignores poisoning: each mutant has a separate backend, so state from a panicking case
/// does no harm.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The backend and the namespace that an opening reaches.
#[derive(Debug, Clone, Copy)]
pub(super) enum Opening {
    /// The requested ones.
    Right,
    /// The same namespace for every request.
    OneNamespace,
    /// The namespace of a changed name.
    As(fn(&str) -> String),
    /// The namespace before a colon. The part behind the colon becomes a part of the ids.
    Joined,
    /// A separate backend for each handle.
    HandlesApart,
    /// A backend that declares durability, and loses its data with its last handle.
    Forgetful,
}

/// The state that the handles on one backend share.
#[derive(Clone)]
pub(super) struct SharedState {
    /// The backend.
    pub(super) place: MemoryBackend,
    namespaces: Arc<Mutex<BTreeSet<Namespace>>>,
    named: Arc<Mutex<Vec<String>>>,
    erasures: watch::Sender<()>,
    /// The part of the namespace that ids begin with.
    joined: String,
    /// Held by every handle, so that a forgetful backend can detect the last drop.
    _alive: Arc<()>,
}

impl SharedState {
    /// Returns the other namespaces whose names begin with this one's.
    pub(super) fn alike(&self, namespace: &Namespace) -> Vec<Namespace> {
        let begins =
            |other: &&Namespace| *other != namespace && other.as_str().starts_with(namespace.as_str());
        lock(&self.namespaces).iter().filter(begins).cloned().collect()
    }

    /// Returns the id as the store of the namespace keeps it.
    pub(super) fn joined(&self, id: &str) -> String {
        if self.joined.is_empty() { id.to_owned() } else { format!("{}:{id}", self.joined) }
    }

    /// Notifies the waiting streams of an erasure.
    pub(super) fn erased(&self) {
        self.erasures.send_replace(());
    }

    /// Returns a stream that ends with the next erasure, even in the middle of its events.
    pub(super) fn until_erased<T: Send + 'static>(
        &self,
        operation: &'static str,
        events: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let mut erasures = self.erasures.subscribe();
        let erased = async move {
            match erasures.changed().await {
                Ok(()) => Err(Error::erased(operation)),
                Err(_) => future::pending().await,
            }
        };
        let erasure_first = |_: &mut ()| PollNext::Left;
        stream::select_with_strategy(stream::once(erased), events, erasure_first).boxed()
    }

    /// Records an id that a call named.
    pub(super) fn note(&self, id: &str) {
        lock(&self.named).push(id.to_owned());
    }

    /// Returns the recorded ids.
    pub(super) fn noted(&self) -> Vec<String> {
        lock(&self.named).clone()
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedState")
    }
}

/// One backend, and its remaining handles.
struct Place {
    shared: SharedState,
    last: Weak<()>,
}

impl Place {
    fn new() -> Self {
        let alive = Arc::new(());
        let last = Arc::downgrade(&alive);
        let shared = SharedState {
            place: MemoryBackend::new().with_blob_versions(),
            namespaces: Arc::default(),
            named: Arc::default(),
            erasures: watch::Sender::default(),
            joined: String::new(),
            _alive: alive,
        };
        Self { shared, last }
    }
}

/// Serves the stores that a function opens.
struct Served {
    places: [Mutex<Place>; 2],
    opening: Opening,
    open: Arc<Open>,
}

impl Served {
    fn new(opening: Opening, open: Arc<Open>) -> Self {
        Self { places: [Mutex::new(Place::new()), Mutex::new(Place::new())], opening, open }
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}

#[async_trait]
impl Harness for Served {
    fn name(&self) -> &'static str {
        "mutant"
    }

    fn url(&self) -> String {
        "memory://".to_owned()
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        let [first, second] = &self.places;
        let apart = matches!(self.opening, Opening::HandlesApart) && options.handle % 2 == 1;
        let mut place = lock(if apart { second } else { first });
        // The backend itself holds one reference.
        if matches!(self.opening, Opening::Forgetful) && place.last.strong_count() == 1 {
            *place = Place::new();
        }
        let namespace = match self.opening {
            Opening::OneNamespace => Namespace::new("one")?,
            Opening::As(changed) => Namespace::new(changed(namespace.as_str()))?,
            _ => namespace.clone(),
        };
        let mut shared = place.shared.clone();
        let namespace = match (self.opening, namespace.as_str().split_once(':')) {
            (Opening::Joined, Some((before, behind))) => {
                behind.clone_into(&mut shared.joined);
                Namespace::new(before)?
            }
            _ => namespace,
        };
        lock(&place.shared.namespaces).insert(namespace.clone());
        Ok((self.open)(shared, namespace, options))
    }

    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        let other = || Arc::new(Self::new(self.opening, Arc::clone(&self.open))) as Arc<dyn Harness>;
        Ok(matches!(self.opening, Opening::Forgetful).then(other))
    }
}

/// Returns a harness of the stores that a function opens, which must all be of one contract.
pub(super) fn serve(
    opening: Opening,
    open: impl Fn(SharedState, Namespace, &OpenOptions) -> StoreSet + Send + Sync + 'static,
) -> Arc<dyn Harness> {
    Arc::new(Served::new(opening, Arc::new(open)))
}

/// Returns a stream that waits forever instead of ending with an error.
pub(super) fn asleep<T: Send + 'static>(
    events: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    events.take_while(|event| future::ready(event.is_ok())).chain(stream::pending()).boxed()
}

/// Returns the error with the id that the call named in its text.
pub(super) fn quoting(error: &Error, id: &str) -> Error {
    Error::new(error.kind(), error.operation(), format!("{error}: {id}")).with_outcome(error.outcome())
}

/// Returns an id cut to 40 characters.
pub(super) fn cut(id: &str) -> String {
    id.chars().take(40).collect()
}

/// Returns an id without non-ASCII characters.
pub(super) fn ascii(id: &str) -> String {
    let kept: String = id.chars().filter(char::is_ascii).collect();
    if kept.is_empty() { "_".to_owned() } else { kept }
}
