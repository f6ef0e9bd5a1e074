//! The harness of a mutant, and what its handles share.

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

/// Locks; what a panicking case left behind is of no account, as each mutant is judged on a place of its own.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which place and namespace an opening reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// Those asked for.
    Right,
    /// One namespace, whichever was asked for.
    OneNamespace,
    /// A place of its own for each handle.
    HandlesApart,
    /// A place that claims to last, and ends with its last handle.
    Forgetful,
}

/// What the handles on one place share.
#[derive(Clone)]
pub(super) struct SharedState {
    /// The place.
    pub(super) place: MemoryBackend,
    namespaces: Arc<Mutex<BTreeSet<Namespace>>>,
    named: Arc<Mutex<Vec<String>>>,
    erasures: watch::Sender<()>,
    /// Held by every handle, so that a place that forgets knows when the last one is gone.
    _alive: Arc<()>,
}

impl SharedState {
    /// The other namespaces whose names begin with this one's.
    pub(super) fn alike(&self, namespace: &Namespace) -> Vec<Namespace> {
        let begins =
            |other: &&Namespace| *other != namespace && other.as_str().starts_with(namespace.as_str());
        lock(&self.namespaces).iter().filter(begins).cloned().collect()
    }

    /// Tells the streams that look for it of an erasure.
    pub(super) fn erased(&self) {
        self.erasures.send_replace(());
    }

    /// A stream that ends with the next erasure, whatever it has told of.
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

    /// Notes an id that a call named.
    pub(super) fn note(&self, id: &str) {
        lock(&self.named).push(id.to_owned());
    }

    /// The ids noted.
    pub(super) fn noted(&self) -> Vec<String> {
        lock(&self.named).clone()
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedState")
    }
}

/// One place, and who is left of those that opened it.
struct Place {
    shared: SharedState,
    last: Weak<()>,
}

impl Place {
    fn new() -> Self {
        let alive = Arc::new(());
        let last = Arc::downgrade(&alive);
        let shared = SharedState {
            place: MemoryBackend::new(),
            namespaces: Arc::default(),
            named: Arc::default(),
            erasures: watch::Sender::default(),
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
        let apart = self.opening == Opening::HandlesApart && options.handle % 2 == 1;
        let mut place = lock(if apart { second } else { first });
        // The place holds one itself.
        if self.opening == Opening::Forgetful && place.last.strong_count() == 1 {
            *place = Place::new();
        }
        let namespace = match self.opening {
            Opening::OneNamespace => Namespace::new("one")?,
            _ => namespace.clone(),
        };
        lock(&place.shared.namespaces).insert(namespace.clone());
        Ok((self.open)(place.shared.clone(), namespace, options))
    }

    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        let other = || Arc::new(Self::new(self.opening, Arc::clone(&self.open))) as Arc<dyn Harness>;
        Ok((self.opening == Opening::Forgetful).then(other))
    }
}

/// A harness of the stores that a function opens, which must be of one contract only.
pub(super) fn serve(
    opening: Opening,
    open: impl Fn(SharedState, Namespace, &OpenOptions) -> StoreSet + Send + Sync + 'static,
) -> Arc<dyn Harness> {
    Arc::new(Served::new(opening, Arc::new(open)))
}

/// A stream that waits for ever where it should end with an error.
pub(super) fn asleep<T: Send + 'static>(
    events: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    events.take_while(|event| future::ready(event.is_ok())).chain(stream::pending()).boxed()
}

/// The error with the id that the call named put into its text.
pub(super) fn quoting(error: &Error, id: &str) -> Error {
    Error::new(error.kind(), error.operation(), format!("{error}: {id}")).with_outcome(error.outcome())
}

/// An id as it comes to look where only 40 characters of it are kept.
pub(super) fn cut(id: &str) -> String {
    id.chars().take(40).collect()
}

/// An id as it comes to look where only ASCII is kept.
pub(super) fn ascii(id: &str) -> String {
    let kept: String = id.chars().filter(char::is_ascii).collect();
    if kept.is_empty() { "_".to_owned() } else { kept }
}
