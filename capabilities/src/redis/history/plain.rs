//! Which threads take the shortest append.
//!
//! That append has two keys instead of six and does without what few appends need, which saves a few hundredths of
//! its time. It refuses a thread that is new or has a time to live; so it is only sent for one that the longer append
//! said has neither, and each append stays one round trip.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::address::Address;

/// Threads that are known at once.
const THREADS_MAX: usize = 4_096;

/// The threads that were plain when they were last appended to.
#[derive(Default)]
pub(super) struct Plain {
    names: Mutex<HashSet<Bytes>>,
}

impl Plain {
    pub(super) fn holds(&self, address: &Address) -> bool {
        self.lock().contains(address.name())
    }

    pub(super) fn learn(&self, address: &Address) {
        let mut names = self.lock();
        if names.len() >= THREADS_MAX {
            // Each costs its next append a few microseconds; to know which are old would cost all of them some.
            names.clear();
        }
        names.insert(address.name().clone());
    }

    pub(super) fn forget(&self, address: &Address) {
        self.lock().remove(address.name());
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Bytes>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{Namespace, Thread};

    use super::*;

    #[test]
    fn so_many_threads_are_known_and_no_more() {
        let plain = Plain::default();
        let namespace = Namespace::new("n").unwrap();
        let address =
            |number: usize| Address::new(&namespace, &Thread::new("a", format!("s{number}")).unwrap());
        (0..THREADS_MAX).for_each(|number| plain.learn(&address(number)));
        assert!(plain.holds(&address(0)) && plain.holds(&address(THREADS_MAX - 1)));
        plain.forget(&address(0));
        assert!(!plain.holds(&address(0)));
        (0..2).for_each(|number| plain.learn(&address(THREADS_MAX + number)));
        assert!(plain.holds(&address(THREADS_MAX + 1)) && !plain.holds(&address(1)));
    }
}
