//! The backend of in-memory stores.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use larder_kernel::{Error, ErrorKind, Namespace, Result};

use super::expiry_queue::{Expiry, ExpiryQueue};
use super::quota::Quota;

/// The default capacity of a backend: 8 GiB. [`MemoryBackend::with_bytes_max`] sets another.
pub const BACKEND_BYTES_MAX_DEFAULT: u64 = 8 * 1024 * 1024 * 1024;

/// The largest number of records that a write checks for expired data.
const SWEPT_BY_WRITE_MAX: usize = 4;

/// A record with data that expires.
pub(crate) trait Expire: Send + Sync {
    /// Removes the data that has expired by `now_ms`. Returns the time of the next check, if any. The check
    /// was scheduled for `at_ms`. If the record has since been scheduled for another time, that check does
    /// the work.
    fn expire_due(&self, backend: &MemoryBackend, now_ms: i64, at_ms: i64) -> Option<i64>;
}

/// An in-memory backend. Stores that are opened on one backend and in one namespace share their data.
///
/// The backend is freed with its last handle. All its stores share one cap. A write that would exceed it
/// fails with `ResourceExhausted` and changes nothing. The quota counts content as the contracts measure it,
/// and a fixed share for each record. Later writes remove expired data, a few records at a time. Before a
/// write fails, all expired data is removed.
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
    blob_versions: AtomicBool,
}

impl MemoryBackend {
    /// Creates a backend with a capacity of [`BACKEND_BYTES_MAX_DEFAULT`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_bytes_max(BACKEND_BYTES_MAX_DEFAULT)
    }

    /// Creates a backend with a capacity of `bytes_max`.
    #[must_use]
    pub fn with_bytes_max(bytes_max: u64) -> Self {
        let inner = Inner {
            states: Mutex::new(HashMap::new()),
            quota: Quota::new(bytes_max),
            expiries: ExpiryQueue::new(),
            blob_versions: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Keeps earlier versions of the blobs that stores overwrite or delete. Call it before you open stores: a
    /// store that is open keeps the setting that it was opened with.
    #[must_use]
    pub fn with_blob_versions(self) -> Self {
        self.inner.blob_versions.store(true, Ordering::Relaxed);
        self
    }

    /// Returns `true` if stores keep earlier versions of blobs.
    pub(crate) fn keeps_blob_versions(&self) -> bool {
        self.inner.blob_versions.load(Ordering::Relaxed)
    }

    /// Returns the used bytes; approximate during concurrent writes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.quota.bytes()
    }

    /// Returns the capacity, in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.inner.quota.bytes_max()
    }

    /// Reserves `bytes` for `operation`, or fails.
    pub(crate) fn try_reserve(&self, operation: &'static str, bytes: u64) -> Result<()> {
        let reserve = || self.inner.quota.try_reserve(bytes);
        let reserved = reserve().or_else(|held| if self.sweep(usize::MAX) { reserve() } else { Err(held) });
        reserved.map_err(|held| {
            Error::new(
                ErrorKind::ResourceExhausted,
                operation,
                "the memory backend is full; raise its limit or delete data",
            )
            .with_field("place.bytes")
            .with_limit(held.saturating_add(bytes), self.bytes_max())
        })
    }

    /// Reserves `needed` instead of `freed` bytes for `operation`, or fails.
    pub(crate) fn exchange(&self, operation: &'static str, freed: u64, needed: u64) -> Result<()> {
        if needed > freed {
            return self.try_reserve(operation, needed - freed);
        }
        self.release(freed - needed);
        Ok(())
    }

    /// Reserves `bytes` regardless of the cap, for the record that a removal leaves.
    pub(crate) fn count(&self, bytes: u64) {
        self.inner.quota.count(bytes);
    }

    /// Releases `bytes`.
    pub(crate) fn release(&self, bytes: u64) {
        self.inner.quota.release(bytes);
    }

    /// Schedules a check of a record for expired data.
    pub(crate) fn schedule_expiry(&self, at_ms: i64, record: Weak<dyn Expire>) {
        self.inner.expiries.push(Expiry { at_ms, record });
    }

    /// Removes some expired data, as each write does.
    pub(crate) fn sweep_some(&self) {
        if !self.inner.expiries.is_empty() {
            self.sweep(SWEPT_BY_WRITE_MAX);
        }
    }

    /// Removes expired data from at most `at_most` records. Returns `true` if any check was due. A record
    /// that is locked is left for later, so the holder of a lock may call this.
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

    /// Removes the data that has expired by a time that a test chooses.
    #[cfg(test)]
    pub(crate) fn sweep_at(&self, now_ms: i64) {
        self.sweep_by(now_ms, usize::MAX);
    }

    /// Returns the number of scheduled checks.
    #[cfg(test)]
    pub(crate) fn scheduled_expiries(&self) -> usize {
        self.inner.expiries.len()
    }

    /// Returns the state of type `T` in `namespace`, and creates it on first use. Each contract has its own
    /// type.
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
        // The key contains the type, so the downcast always succeeds. A new state is a harmless fallback.
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

/// Returns the default namespace of a store.
pub(crate) fn default_namespace() -> Namespace {
    Namespace::new("default")
        .unwrap_or_else(|_| unreachable!("`default` is within the limits of a namespace"))
}

/// Returns the time of the stores' clock, in milliseconds since the epoch.
pub(crate) fn now_ms() -> i64 {
    larder_kernel::Timestamp::now().as_micros().div_euclid(1_000)
}

/// Returns the instant `after` from `now_ms`, truncated to milliseconds.
pub(crate) fn deadline_ms(now_ms: i64, after: std::time::Duration) -> i64 {
    now_ms.saturating_add(i64::try_from(after.as_millis()).unwrap_or(i64::MAX))
}

/// Converts a deadline to a timestamp.
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
