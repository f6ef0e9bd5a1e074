//! The threads that use the fast append.
//!
//! The fast append has two keys instead of six and skips the steps that few appends need, which saves a few
//! percent of its time. It rejects a thread that is new or has a time to live, so it is sent only for a
//! thread for which the full append reported neither. Each append stays one round trip.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::address::Address;

/// The maximum number of threads in the cache.
const THREADS_MAX: usize = 4_096;

/// The threads that allowed the fast append at their last append.
#[derive(Default)]
pub(super) struct FastAppendCache {
    names: Mutex<HashSet<Bytes>>,
}

impl FastAppendCache {
    pub(super) fn contains(&self, address: &Address) -> bool {
        self.lock().contains(address.name())
    }

    pub(super) fn insert(&self, address: &Address) {
        let mut names = self.lock();
        if names.len() >= THREADS_MAX {
            // Each thread costs its next append a few microseconds; tracking their age would cost every
            // append.
            names.clear();
        }
        names.insert(address.name().clone());
    }

    pub(super) fn remove(&self, address: &Address) {
        self.lock().remove(address.name());
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Bytes>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{Namespace, Thread};

    use super::super::super::key::KeyPrefix;
    use super::*;

    #[test]
    fn the_cache_holds_a_limited_number_of_threads() {
        let cache = FastAppendCache::default();
        let namespace = Namespace::new("n").unwrap();
        let prefix = KeyPrefix::default();
        let address = |number: usize| {
            Address::new(&prefix, &namespace, &Thread::new("a", format!("s{number}")).unwrap())
        };
        (0..THREADS_MAX).for_each(|number| cache.insert(&address(number)));
        assert!(cache.contains(&address(0)) && cache.contains(&address(THREADS_MAX - 1)));
        cache.remove(&address(0));
        assert!(!cache.contains(&address(0)));
        (0..2).for_each(|number| cache.insert(&address(THREADS_MAX + number)));
        assert!(cache.contains(&address(THREADS_MAX + 1)) && !cache.contains(&address(1)));
    }
}
