//! The context of a case: a separate namespace, handles on it, and a random seed.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use larder_kernel::{
    BlobStore, Capability, Contract, GraphStore, HistoryProvider, KeyValueStore, Namespace, TaskStore,
    VectorStore, random,
};

use crate::failure::{CaseResult, Failure};
use crate::harness::{Harness, OpenOptions, StoreSet};
use crate::large::{ITEMS_MIN, LargeNamespaces};
use crate::retry_open::retry_open;

/// Two handles on one namespace of one database. Cases write through one handle and read through the other.
#[derive(Debug)]
pub struct Handles<T: ?Sized> {
    /// One handle.
    pub a: Arc<T>,
    /// The other.
    pub b: Arc<T>,
}

/// The context of a case.
#[derive(Debug, Clone)]
pub struct Context {
    /// The backend.
    pub harness: Arc<dyn Harness>,
    /// A namespace that no other case uses.
    pub namespace: Namespace,
    /// The random seed of the case, derived from the run's seed and the case's name.
    pub seed: u64,
    siblings: Arc<Mutex<Vec<Namespace>>>,
    large: LargeNamespaces,
}

macro_rules! handles {
    ($(#[$doc:meta])* $method:ident, $store:ident) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// `Engine` if the backend cannot be opened; `Broken` if it does not serve the contract.
        pub async fn $method(&self) -> CaseResult<Handles<dyn $store>> {
            let second = OpenOptions::default().with_handle(1);
            let (a, b) = (self.open().await?, self.open_with(&self.namespace, &second).await?);
            Ok(Handles { a: a.$method()?, b: b.$method()? })
        }
    };
}

impl Context {
    /// Creates the context of a case in `namespace`.
    #[must_use]
    pub fn new(harness: Arc<dyn Harness>, namespace: Namespace, seed: u64) -> Self {
        Self { harness, namespace, seed, siblings: Arc::default(), large: LargeNamespaces::default() }
    }

    /// Shares the large namespaces of a run.
    pub(crate) fn with_large(mut self, large: &LargeNamespaces) -> Self {
        self.large = large.clone();
        self
    }

    /// Returns the number of items that counts as many for the backend.
    pub(crate) fn many(&self, contract: Contract) -> usize {
        self.harness.many_items(contract).max(ITEMS_MIN)
    }

    /// Returns a context of a large namespace of the contract. The first case that needs it loads it. Cases
    /// only read what it loaded.
    ///
    /// # Errors
    /// Errors of the loading.
    pub(crate) async fn large<R>(
        &self,
        contract: Contract,
        name: &'static str,
        load: impl FnOnce(Self) -> R,
    ) -> CaseResult<Self>
    where
        R: Future<Output = CaseResult>,
    {
        let of = |namespace| Self::new(Arc::clone(&self.harness), namespace, self.seed);
        // Short, because stores without long keys keep no longer namespaces.
        let own = Namespace::new(format!("{}-l", self.namespace))?;
        let namespace = self.large.get(contract, name, own, |namespace| load(of(namespace))).await?;
        Ok(of(namespace))
    }

    /// Returns the further namespaces that the case has taken.
    pub(crate) fn siblings(&self) -> Vec<Namespace> {
        self.siblings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the case's namespace again.
    ///
    /// # Errors
    /// Errors of the backend.
    pub async fn open(&self) -> CaseResult<StoreSet> {
        self.open_with(&self.namespace, &OpenOptions::default()).await
    }

    /// Opens a namespace with options. Cases take further namespaces from [`Context::sibling`].
    ///
    /// # Errors
    /// Errors of the backend.
    pub async fn open_with(&self, namespace: &Namespace, options: &OpenOptions) -> CaseResult<StoreSet> {
        let opened = retry_open(|| self.harness.open(namespace, options)).await;
        Ok(opened?)
    }

    /// Returns another namespace whose name begins with the name of the case's namespace. The runner erases
    /// it after the case, even if the case fails.
    ///
    /// # Errors
    /// `Engine` if the backend rejects the name.
    pub fn sibling(&self, suffix: &str) -> CaseResult<Namespace> {
        let name = format!("{}{suffix}", self.namespace);
        let sibling = Namespace::new(name).map_err(|error| Failure::Engine(error.to_string()))?;
        self.siblings.lock().unwrap_or_else(PoisonError::into_inner).push(sibling.clone());
        Ok(sibling)
    }

    handles!(
        /// Two handles on the case's conversations.
        history, HistoryProvider
    );
    handles!(
        /// Two handles on the case's documents.
        vectors, VectorStore
    );
    handles!(
        /// Two handles on the case's graph.
        graph, GraphStore
    );
    handles!(
        /// Two handles on the case's files.
        blobs, BlobStore
    );
    handles!(
        /// Two handles on the case's task boards.
        tasks, TaskStore
    );
    handles!(
        /// Two handles on the case's small state.
        key_value, KeyValueStore
    );

    /// Returns the case's namespace in an isolated database, if the backend can provide one. In a shared
    /// database, the writes of other cases can wake waiting readers, and hide that the case's writes do not.
    ///
    /// # Errors
    /// `Engine` if the database cannot be created.
    pub(crate) async fn quiet(&self) -> CaseResult<Self> {
        let isolated = self.harness.isolated().await;
        let isolated = isolated.map_err(|error| Failure::Engine(format!("{error:?}")))?;
        Ok(match isolated {
            Some(harness) => Self::new(harness, self.namespace.clone(), self.seed),
            None => self.clone(),
        })
    }

    /// Removes the database that [`Context::quiet`] created for the case with the context `outer`.
    ///
    /// # Errors
    /// `Engine` if the database cannot be removed.
    pub(crate) async fn leave(self, outer: &Self) -> CaseResult {
        if Arc::ptr_eq(&self.harness, &outer.harness) {
            return Ok(());
        }
        self.harness.destroy().await.map_err(|error| Failure::Engine(format!("{error:?}")))
    }

    /// Ends the case as unsupported unless the backend declares the capability.
    ///
    /// # Errors
    /// `Unsupported`, which names the capability.
    pub async fn require(&self, contract: Contract, capability: Capability) -> CaseResult {
        let declared =
            self.open().await?.capabilities(contract).is_some_and(|declared| declared.has(capability));
        if declared { Ok(()) } else { Err(Failure::Unsupported(capability)) }
    }

    /// Returns a random number from the case's seed: the same for the same `draw` in every run with the seed.
    #[must_use]
    pub fn random(&self, draw: u64) -> u64 {
        random::at(self.seed, draw)
    }
}

/// Repeats a step that races against a time to live until it completes within `within`, so that a slow
/// machine makes the case slower and not wrong. An attempt counts only with 5 ms to spare, also by the system
/// clock. Each attempt receives its number, from which it can form fresh ids.
///
/// # Errors
/// The error of the step; `Engine` if none of ten attempts was fast enough.
pub async fn in_time<T, R>(within: Duration, step: impl Fn(u32) -> R) -> CaseResult<T>
where
    R: Future<Output = CaseResult<T>>,
{
    attempts(|attempt, _| {
        let (race, running) = (Race::begin(), step(attempt));
        async move {
            let result = running.await;
            if race.is_won(within) { result.map(Some) } else { Ok(None) }
        }
    })
    .await
}

/// Repeats a step until it returns a value; a step that was too slow returns none. The step receives the
/// number of the attempt and a factor by which to multiply all durations, because a busy machine does not get
/// faster.
pub(crate) async fn attempts<T, R>(step: impl Fn(u32, u32) -> R) -> CaseResult<T>
where
    R: Future<Output = CaseResult<Option<T>>>,
{
    for attempt in 0..10 {
        if let Some(proven) = step(attempt, 1 << (attempt / 3)).await? {
            return Ok(proven);
        }
    }
    Err(Failure::Engine("no attempt of ten was quick enough".to_owned()))
}

/// A step that races against a time to live. Stores measure it by the system clock, which may jump forward,
/// and may truncate a millisecond. So the step must also win by that clock, with some time to spare.
#[derive(Clone, Copy)]
pub(crate) struct Race {
    begun: Instant,
    clock: SystemTime,
}

impl Race {
    const SPARE: Duration = Duration::from_millis(5);

    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), clock: SystemTime::now() }
    }

    pub(crate) fn is_won(&self, within: Duration) -> bool {
        // If the clock was set back, the store waits longer, which does no harm.
        let by_clock = self.clock.elapsed().unwrap_or_default();
        self.begun.elapsed().max(by_clock) + Self::SPARE < within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a use in the last millisecond of a lifetime was once reported as an early expiry.
    #[test]
    fn a_race_is_won_by_both_clocks_and_with_a_little_to_spare() {
        let second = Duration::from_secs(1);
        let race = Race::begin();
        assert!(race.is_won(60 * second));
        assert!(!race.is_won(Race::SPARE));
        let late = Race { begun: race.begun.checked_sub(second).unwrap_or(race.begun), ..race };
        assert!(!late.is_won(second + Race::SPARE));
        let set_forward = Race { clock: race.clock - second, ..race };
        assert!(!set_forward.is_won(second + Race::SPARE));
        let set_back = Race { clock: race.clock + 3_600 * second, ..race };
        assert!(set_back.is_won(60 * second));
    }
}
