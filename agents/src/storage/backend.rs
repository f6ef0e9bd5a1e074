//! The backend in which memory stores live.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use larder_kernel::{Error, ErrorKind, Namespace, Result};

use super::expiry_queue::{Expiry, ExpiryQueue};
use super::quota::Quota;

/// What a backend holds at most unless [`MemoryBackend::with_bytes_max`] says otherwise: 8 GiB.
pub const BACKEND_BYTES_MAX_DEFAULT: u64 = 8 * 1024 * 1024 * 1024;

/// Most records that a write looks at for what has expired in them.
const SWEPT_BY_WRITE_MAX: usize = 4;

/// A record of which something expires.
pub(crate) trait Expire: Send + Sync {
    /// Takes away what has expired by `now_ms`, and answers when to look again, if ever. It was to be looked at at `at_ms`;
    /// where it is to be by now at another time, somebody else does that.
    fn expire_due(&self, backend: &MemoryBackend, now_ms: i64, at_ms: i64) -> Option<i64>;
}

/// A backend in memory: stores opened on one backend and in one namespace see the same data.
///
/// It ends with its last handle. All stores on it share one cap; a write that would exceed it is `ResourceExhausted`
/// and changes nothing. The quota counts content as the contracts measure it, and a fixed share for each record. What has
/// expired leaves the backend with later writes to it, a few records at a time, and all of it before a write is refused.
///
/// ```
/// use larder_agents::storage::{InMemoryKeyValueStore, MemoryBackend};
/// use larder_kernel::Namespace;
///
/// let backend = MemoryBackend::with_bytes_max(64 * 1024 * 1024);
/// let one = InMemoryKeyValueStore::open(&backend, Namespace::new("tenant-1")?);
/// let other = InMemoryKeyValueStore::open(&backend, Namespace::new("tenant-1")?);
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryBackend {
    inner: Arc<Inner>,
}

struct Inner {
    states: Mutex<HashMap<(TypeId, Namespace), Arc<dyn Any + Send + Sync>>>,
    quota: Quota,
    expiries: ExpiryQueue<Weak<dyn Expire>>,
}

impl MemoryBackend {
    /// A backend that holds up to [`BACKEND_BYTES_MAX_DEFAULT`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_bytes_max(BACKEND_BYTES_MAX_DEFAULT)
    }

    /// A backend that holds up to `bytes_max`.
    #[must_use]
    pub fn with_bytes_max(bytes_max: u64) -> Self {
        let inner = Inner {
            states: Mutex::new(HashMap::new()),
            quota: Quota::new(bytes_max),
            expiries: ExpiryQueue::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How many bytes the backend counts as held; while others write, about as many.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.quota.bytes()
    }

    /// How many bytes it may hold.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.inner.quota.bytes_max()
    }

    /// Counts `bytes` more, for `operation`, or refuses all of them.
    pub(crate) fn try_reserve(&self, operation: &'static str, bytes: u64) -> Result<()> {
        let reserve = || self.inner.quota.try_reserve(bytes);
        let reserved = reserve().or_else(|held| if self.sweep(usize::MAX) { reserve() } else { Err(held) });
        reserved.map_err(|held| {
            Error::new(ErrorKind::ResourceExhausted, operation, "the place in memory is full")
                .with_field("place.bytes")
                .with_limit(held.saturating_add(bytes), self.bytes_max())
        })
    }

    /// Counts `needed` instead of `freed`, for `operation`, or refuses to.
    pub(crate) fn exchange(&self, operation: &'static str, freed: u64, needed: u64) -> Result<()> {
        if needed > freed {
            return self.try_reserve(operation, needed - freed);
        }
        self.release(freed - needed);
        Ok(())
    }

    /// Counts `bytes` more whatever the cap, for the trace that a removal leaves.
    pub(crate) fn count(&self, bytes: u64) {
        self.inner.quota.count(bytes);
    }

    /// Counts `bytes` less.
    pub(crate) fn release(&self, bytes: u64) {
        self.inner.quota.release(bytes);
    }

    /// Has a record looked at when something in it has expired.
    pub(crate) fn schedule_expiry(&self, at_ms: i64, record: Weak<dyn Expire>) {
        self.inner.expiries.push(Expiry { at_ms, record });
    }

    /// Takes away what has expired, as each write does.
    pub(crate) fn sweep_some(&self) {
        if !self.inner.expiries.is_empty() {
            self.sweep(SWEPT_BY_WRITE_MAX);
        }
    }

    /// Takes away what has expired in so many records at most, and says whether there was any to look at. A record that
    /// somebody works on is left for later, so this may be called by somebody who does.
    fn sweep(&self, at_most: usize) -> bool {
        self.sweep_by(now_ms(), at_most)
    }

    fn sweep_by(&self, now_ms: i64, at_most: usize) -> bool {
        let due = self.inner.expiries.take(now_ms, at_most);
        let any = !due.is_empty();
        for Expiry { at_ms, record } in due {
            let next_ms = record.upgrade().and_then(|record| record.expire_due(self, now_ms, at_ms));
            if let Some(at_ms) = next_ms {
                self.schedule_expiry(at_ms, record);
            }
        }
        any
    }

    /// Takes away what has expired by a time of the test's choice.
    #[cfg(test)]
    pub(crate) fn sweep_at(&self, now_ms: i64) {
        self.sweep_by(now_ms, usize::MAX);
    }

    /// How many records are to be looked at at some time.
    #[cfg(test)]
    pub(crate) fn scheduled_expiries(&self) -> usize {
        self.inner.expiries.len()
    }

    /// The state of type `T` in `namespace`, made on first use: each contract keeps one type of its own.
    pub(crate) fn namespace_state<T: Default + Send + Sync + 'static>(
        &self,
        namespace: &Namespace,
    ) -> Arc<T> {
        let mut states = self.inner.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states
            .entry((TypeId::of::<T>(), namespace.clone()))
            .or_insert_with(|| Arc::new(T::default()))
            .clone();
        drop(states);
        // The key holds the type, so the downcast always succeeds; a fresh state is the harmless way out.
        state.downcast().unwrap_or_default()
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend")
            .field("bytes", &self.bytes())
            .field("bytes_max", &self.bytes_max())
            .finish_non_exhaustive()
    }
}

/// The namespace of a store that is made without one.
pub(crate) fn default_namespace() -> Namespace {
    Namespace::new("default")
        .unwrap_or_else(|_| unreachable!("`default` is within the limits of a namespace"))
}

/// The stores' clock: milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    larder_kernel::Timestamp::now().as_micros().div_euclid(1_000)
}

/// The instant `after` from `now_ms`, to the millisecond; what is less is cut off.
pub(crate) fn deadline_ms(now_ms: i64, after: std::time::Duration) -> i64 {
    now_ms.saturating_add(i64::try_from(after.as_millis()).unwrap_or(i64::MAX))
}

/// A deadline as callers read it.
pub(crate) fn timestamp(at_ms: i64) -> larder_kernel::Timestamp {
    let since_epoch = std::time::Duration::from_millis(u64::try_from(at_ms).unwrap_or(0));
    larder_kernel::Timestamp::default().saturating_add(since_epoch)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn the_cap_refuses_whole_reservations_and_states_are_by_type_and_namespace() {
        let backend = MemoryBackend::with_bytes_max(10);
        backend.try_reserve("key_value.put", 8).unwrap();
        let error = backend.try_reserve("key_value.put", 3).unwrap_err();
        assert_eq!((error.kind(), error.limit()), (ErrorKind::ResourceExhausted, Some(10)));
        backend.release(8);
        assert_eq!(backend.bytes(), 0);

        let [one, two] = ["one", "two"].map(|name| Namespace::new(name).unwrap());
        let state = backend.namespace_state::<AtomicU64>(&one);
        assert!(Arc::ptr_eq(&state, &backend.clone().namespace_state::<AtomicU64>(&one)));
        assert!(!Arc::ptr_eq(&state, &backend.namespace_state::<AtomicU64>(&two)));
    }
}
