//! Records with individual locks: threads, buckets, conversations.
//!
//! A shard's lock is held only to find a slot; the work runs under the slot's own lock. No code here waits
//! while it holds a lock. A call therefore happens completely, or not at all if it is dropped before its
//! first poll.
//!
//! The map is sharded, so that threads that use different records rarely contend for one lock. Even a shared
//! lock moves between cores each time it is taken.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, Weak,
};

use futures_util::stream::{self, BoxStream, StreamExt};
use larder_kernel::Result;
use rustc_hash::FxHasher;
use tokio::sync::Notify;

use super::backend::{Expire, MemoryBackend};

/// The number of slots that a scan looks up in one step.
const CHUNK_SLOTS: usize = 256;
/// The number of shards.
const SHARDS: usize = 16;

/// A record of a backend.
pub(crate) trait Record {
    /// Returns `true` if the record was never written.
    fn is_unused(&self) -> bool;
    /// Returns the record's share of the quota.
    fn held(&self) -> u64;
    /// Removes expired data.
    fn expire(&mut self, _backend: &MemoryBackend, _now_ms: i64) {}
    /// Returns the time of the next expiry, if any.
    fn expires_at_ms(&self) -> Option<i64> {
        None
    }
}

/// The state of one record, `None` after an erasure, and the notification of its followers after each write.
pub(crate) struct Slot<T> {
    state: Mutex<Option<T>>,
    changed: Notify,
    /// The number of followers. A write without followers sends no notification. A follower is counted
    /// before it reads the state, so a writer that changes the state after that read sees it counted.
    followers: AtomicUsize,
    /// The time at which the backend next checks the record for expired data, never later than the actual
    /// expiry; `i64::MAX` without a check.
    expiry_ms: AtomicI64,
}

impl<T> Slot<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the followers of the record.
    pub(crate) fn notify_followers(&self) {
        if self.followers.load(Ordering::Acquire) > 0 {
            self.changed.notify_waiters();
        }
    }
}

impl<T: Record + Send + 'static> Slot<T> {
    /// Returns the time at which the backend must check the record, if it is not scheduled yet. Called under
    /// the lock.
    fn new_expiry(&self, state: &T) -> Option<i64> {
        let at_ms = state.expires_at_ms()?;
        if self.expiry_ms.load(Ordering::Relaxed) <= at_ms {
            return None;
        }
        self.expiry_ms.store(at_ms, Ordering::Relaxed);
        Some(at_ms)
    }

    /// Completes a write: wakes followers and schedules the expiry.
    fn written(self: &Arc<Self>, backend: &MemoryBackend, expiry_ms: Option<i64>) {
        self.notify_followers();
        if let Some(at_ms) = expiry_ms {
            let record: Weak<Self> = Arc::downgrade(self);
            backend.schedule_expiry(at_ms, record);
        }
        backend.sweep_some();
    }
}

impl<T: Record + Send + 'static> Expire for Slot<T> {
    fn expire_due(&self, backend: &MemoryBackend, now_ms: i64, at_ms: i64) -> Option<i64> {
        if self.expiry_ms.load(Ordering::Relaxed) != at_ms {
            return None;
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.expiry_ms.store(now_ms + 1, Ordering::Relaxed);
                return Some(now_ms + 1);
            }
        };
        let state_now = state.as_mut()?;
        state_now.expire(backend, now_ms);
        let next_ms = state_now.expires_at_ms();
        self.expiry_ms.store(next_ms.unwrap_or(i64::MAX), Ordering::Relaxed);
        drop(state);
        self.notify_followers();
        next_ms
    }
}

/// The records of one contract in one namespace.
pub(crate) struct ShardedMap<K, T> {
    shards: [Shard<K, T>; SHARDS],
}

/// A part of the records, in key order, on separate cache lines.
#[repr(align(128))]
struct Shard<K, T>(RwLock<BTreeMap<K, Arc<Slot<T>>>>);

impl<K, T> Shard<K, T> {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<K, Arc<Slot<T>>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<K, Arc<Slot<T>>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, T> Default for ShardedMap<K, T> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Shard(RwLock::new(BTreeMap::new()))) }
    }
}

impl<K: Hash + Ord + Clone, T> ShardedMap<K, T> {
    /// Returns the shard of `key`.
    fn shard(&self, key: &K) -> &Shard<K, T> {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        let shard = usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or_default();
        &self.shards[shard]
    }

    pub(crate) fn find(&self, key: &K) -> Option<Arc<Slot<T>>> {
        self.shard(key).read().get(key).cloned()
    }

    /// Returns the slot of `key`. Creates one with the state from `make` if none exists.
    pub(crate) fn find_or_make(&self, key: &K, make: impl FnOnce() -> Result<T>) -> Result<Arc<Slot<T>>> {
        if let Some(slot) = self.find(key) {
            return Ok(slot);
        }
        let mut shard = self.shard(key).write();
        if let Some(slot) = shard.get(key) {
            return Ok(Arc::clone(slot));
        }
        let slot = Slot {
            state: Mutex::new(Some(make()?)),
            changed: Notify::new(),
            followers: 0.into(),
            expiry_ms: i64::MAX.into(),
        };
        let slot = Arc::new(slot);
        shard.insert(key.clone(), Arc::clone(&slot));
        Ok(slot)
    }

    /// Runs `work` on the record, if it exists.
    pub(crate) fn read<R>(&self, key: &K, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.find(key)?.lock().as_mut().map(work)
    }

    /// Runs `work` on the record, if it exists, and wakes its followers.
    pub(crate) fn change<R>(
        &self,
        backend: &MemoryBackend,
        key: &K,
        work: impl FnOnce(&mut T) -> R,
    ) -> Option<R>
    where
        T: Record + Send + 'static,
    {
        let slot = self.find(key)?;
        let mut state = slot.lock();
        let done = state.as_mut().map(work);
        let expiry_ms = state.as_ref().and_then(|state| slot.new_expiry(state));
        drop(state);
        slot.written(backend, expiry_ms);
        done
    }

    /// Runs `work` on the record, and creates it if it does not exist. Wakes its followers. If the work
    /// fails, a record that was created for it is removed.
    pub(crate) fn write<R>(
        &self,
        backend: &MemoryBackend,
        key: &K,
        make: impl Fn() -> Result<T>,
        work: impl FnOnce(&mut T) -> Result<R>,
    ) -> Result<R>
    where
        T: Record + Send + 'static,
    {
        loop {
            let slot = self.find_or_make(key, &make)?;
            let mut state = slot.lock();
            // An erased slot has already left its shard, so the next lookup finds or creates a new one.
            let Some(live) = state.as_mut() else { continue };
            let done = work(live);
            let expiry_ms = slot.new_expiry(live);
            drop(state);
            slot.written(backend, expiry_ms);
            if done.is_err() {
                self.forget_unused(backend, key, &slot);
            }
            return done;
        }
    }

    /// Follows the record, and creates it if it does not exist.
    pub(crate) fn follow(
        self: &Arc<Self>,
        backend: &MemoryBackend,
        key: &K,
        make: impl Fn() -> Result<T> + Send + Sync + 'static,
    ) -> Result<Following<K, T>>
    where
        T: Record,
    {
        let slot = self.followed(key, &make)?;
        let (map, backend, key) = (Arc::clone(self), backend.clone(), key.clone());
        Ok(Following { map, backend, key, make: Box::new(make), slot })
    }

    fn followed(&self, key: &K, make: impl FnOnce() -> Result<T>) -> Result<Arc<Slot<T>>> {
        let slot = self.find_or_make(key, make)?;
        slot.followers.fetch_add(1, Ordering::AcqRel);
        Ok(slot)
    }

    /// Removes a record that was never written, unless another caller uses it.
    pub(crate) fn forget_unused(&self, backend: &MemoryBackend, key: &K, slot: &Arc<Slot<T>>)
    where
        T: Record,
    {
        let mut shard = self.shard(key).write();
        // The two references are the shard's and the caller's. While the shard is locked, no other caller
        // gets one.
        let alone =
            shard.get(key).is_some_and(|found| Arc::ptr_eq(found, slot)) && Arc::strong_count(slot) == 2;
        if !alone {
            return;
        }
        let unused = slot.lock().as_ref().filter(|state| state.is_unused()).map(Record::held);
        if let Some(held) = unused {
            shard.remove(key);
            backend.release(held);
        }
    }

    /// Passes the records from `start` on to `visit`, in order, until it stops.
    ///
    /// The scan proceeds in chunks, so that the shards' locks are held only briefly.
    pub(crate) fn scan(&self, mut start: Bound<K>, mut visit: impl FnMut(K, &mut T) -> ControlFlow<()>) {
        loop {
            let chunk = self.chunk(start.as_ref());
            let Some((last, _)) = chunk.last() else { return };
            start = Bound::Excluded(last.clone());
            for (key, slot) in chunk {
                if let Some(state) = slot.lock().as_mut()
                    && visit(key, state).is_break()
                {
                    return;
                }
            }
        }
    }

    fn chunk(&self, start: Bound<&K>) -> Vec<(K, Arc<Slot<T>>)> {
        let shards: Vec<_> = self.shards.iter().map(Shard::read).collect();
        let mut ranges: Vec<_> =
            shards.iter().map(|shard| shard.range((start, Bound::Unbounded)).peekable()).collect();
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK_SLOTS {
            let heads = ranges.iter_mut().filter_map(|range| Some((range.peek()?.0, range)));
            let Some((_, first)) = heads.min_by_key(|(key, _)| *key) else { break };
            chunk.extend(first.next().map(|(key, slot)| (key.clone(), Arc::clone(slot))));
        }
        chunk
    }

    /// Removes every record and passes its state to `each`.
    pub(crate) fn erase(&self, mut each: impl FnMut(T)) {
        let shards = self.shards.iter().map(|shard| std::mem::take(&mut *shard.write()));
        for slot in shards.flat_map(BTreeMap::into_values) {
            let state = slot.lock().take();
            slot.notify_followers();
            state.into_iter().for_each(&mut each);
        }
    }
}

/// The result of reading a page of a log.
pub(crate) struct LogPage<E> {
    pub(crate) events: Vec<E>,
    /// `true` if the log continues after the page.
    pub(crate) more: bool,
}

impl<E> LogPage<E> {
    /// Returns the end of a log.
    pub(crate) fn empty() -> Self {
        Self { events: Vec::new(), more: false }
    }
}

/// A follower of a record. A record that was never written is removed with its last follower.
pub(crate) struct Following<K: Hash + Ord + Clone, T: Record> {
    map: Arc<ShardedMap<K, T>>,
    backend: MemoryBackend,
    key: K,
    make: Box<dyn Fn() -> Result<T> + Send + Sync>,
    slot: Arc<Slot<T>>,
}

impl<K: Hash + Ord + Clone, T: Record> Drop for Following<K, T> {
    fn drop(&mut self) {
        self.slot.followers.fetch_sub(1, Ordering::AcqRel);
        if self.slot.lock().as_ref().is_some_and(Record::is_unused) {
            self.map.forget_unused(&self.backend, &self.key, &self.slot);
        }
    }
}

impl<K: Hash + Ord + Clone, T: Record> Following<K, T> {
    /// Follows the record that replaces an erased one, and creates it if it does not exist.
    fn follow_anew(&mut self) -> Result<()> {
        let slot = self.map.followed(&self.key, &self.make)?;
        // The erased record needs no cleanup.
        std::mem::replace(&mut self.slot, slot).followers.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }
}

impl<K, T> Following<K, T>
where
    K: Hash + Ord + Clone + Send + Sync + 'static,
    T: Record + Send + 'static,
{
    pub(crate) fn slot(&self) -> &Slot<T> {
        &self.slot
    }

    /// Streams the record's log. `read` returns the events after the ones it returned before, and is called
    /// again after each write.
    ///
    /// After the record is erased, `read` receives `None`. It either fails, or the stream continues with the
    /// next record. An error from `read` ends the stream.
    pub(crate) fn stream<E, F>(self, read: F) -> BoxStream<'static, Result<E>>
    where
        E: Send + 'static,
        F: FnMut(Option<&mut T>) -> Result<LogPage<E>> + Send + 'static,
    {
        let follower = Follower { following: self, read, buffer: VecDeque::new(), ended: false };
        stream::unfold(follower, |mut follower| async move {
            let event = follower.next().await?;
            Some((event, follower))
        })
        .boxed()
    }
}

struct Follower<K: Hash + Ord + Clone, T: Record, E, F> {
    following: Following<K, T>,
    read: F,
    buffer: VecDeque<E>,
    ended: bool,
}

impl<K, T, E, F> Follower<K, T, E, F>
where
    K: Hash + Ord + Clone,
    T: Record,
    F: FnMut(Option<&mut T>) -> Result<LogPage<E>>,
{
    async fn next(&mut self) -> Option<Result<E>> {
        loop {
            if let Some(event) = self.buffer.pop_front() {
                return Some(Ok(event));
            }
            if self.ended {
                return None;
            }
            // If this follower skips many changes, the thread must still run other tasks.
            tokio::task::coop::consume_budget().await;
            let slot = Arc::clone(&self.following.slot);
            let mut changed = std::pin::pin!(slot.changed.notified());
            // Waiting begins before the read, so that no write in between is missed.
            changed.as_mut().enable();
            let (page, erased) = {
                let mut state = slot.lock();
                ((self.read)(state.as_mut()), state.is_none())
            };
            let page =
                if erased { page.and_then(|page| self.following.follow_anew().map(|()| page)) } else { page };
            match page {
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Ok(page) if page.events.is_empty() && !page.more && !erased => changed.await,
                Ok(page) => self.buffer.extend(page.events),
            }
        }
    }
}
