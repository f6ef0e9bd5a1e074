//! The large namespaces of a run.
//!
//! The first case that reads a large namespace loads it. The other cases share it and change
//! nothing. The runner erases it after the last case.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_kernel::{Contract, Namespace};
use tokio::sync::OnceCell;

use crate::case::CaseResult;

/// The smallest number of items that counts as many.
pub(crate) const ITEMS_MIN: usize = 2_500;

/// The large namespaces of a backend, each of one contract and with a name.
#[derive(Debug, Clone, Default)]
pub(crate) struct LargeNamespaces(Arc<Inner>);

/// A namespace that its first caller loads.
type Loaded = Arc<OnceCell<Namespace>>;

#[derive(Debug, Default)]
struct Inner {
    loaded: Mutex<BTreeMap<(Contract, &'static str), Loaded>>,
    /// The namespaces that a case began to load. A case that was aborted leaves a part of one.
    begun: Mutex<Vec<(Contract, Namespace)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LargeNamespaces {
    /// Returns the large namespace, which the first caller loads under the name `namespace`.
    ///
    /// # Errors
    /// Errors of the loading. The next caller loads another namespace.
    pub(crate) async fn get<R>(
        &self,
        contract: Contract,
        name: &'static str,
        namespace: Namespace,
        load: impl FnOnce(Namespace) -> R,
    ) -> CaseResult<Namespace>
    where
        R: Future<Output = CaseResult>,
    {
        let cell = Arc::clone(lock(&self.0.loaded).entry((contract, name)).or_default());
        let loaded = cell.get_or_try_init(|| async move {
            lock(&self.0.begun).push((contract, namespace.clone()));
            load(namespace.clone()).await?;
            Ok(namespace)
        });
        loaded.await.cloned()
    }

    /// Returns the namespaces to erase, and forgets them.
    pub(crate) fn take(&self) -> Vec<(Contract, Namespace)> {
        lock(&self.0.loaded).clear();
        std::mem::take(&mut *lock(&self.0.begun))
    }
}
