//! Records that are locked one by one: threads, buckets, conversations.
//!
//! A shard's lock is held only to find a slot; the work happens under the slot's own lock. Nothing here waits while it holds
//! a lock, so a call either happens whole or, dropped before its first poll, not at all.
//!
//! The map is sharded, so that threads that use different records seldom contend for one lock: even a shared lock moves
//! from core to core each time it is taken.

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

/// How many slots a scan looks up at once.
const CHUNK_SLOTS: usize = 256;
/// Number of shards.
const SHARDS: usize = 16;

/// What a backend holds a record for.
pub(crate) trait Record {
    /// Whether nothing was ever written to it.
    fn is_unused(&self) -> bool;
    /// What it has in the quota.
    fn held(&self) -> u64;
    /// Takes away what has expired.
    fn expire(&mut self, _backend: &MemoryBackend, _now_ms: i64) {}
    /// When there is something to take away, if nothing changes.
    fn expires_at_ms(&self) -> Option<i64> {
        None
    }
}

/// One record's state, `None` once it was erased, and the notification of its followers after each write.
pub(crate) struct Slot<T> {
    state: Mutex<Option<T>>,
    changed: Notify,
    /// How many follow the record: where nobody does, a write notifies nobody. A follower is counted before it looks at
    /// the state, so whoever changes the state after that look sees it counted.
    followers: AtomicUsize,
    /// When the backend looks at the record for what has expired, never later than that is so; `i64::MAX` where it does not.
    expiry_ms: AtomicI64,
}

impl<T> Slot<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those that follow the record.
    pub(crate) fn notify_followers(&self) {
        if self.followers.load(Ordering::Acquire) > 0 {
            self.changed.notify_waiters();
        }
    }
}

impl<T: Record + Send + 'static> Slot<T> {
    /// When the backend has to look at the record, where it does not know that yet. Called under the lock.
    fn new_expiry(&self, state: &T) -> Option<i64> {
        let at_ms = state.expires_at_ms()?;
        if self.expiry_ms.load(Ordering::Relaxed) <= at_ms {
            return None;
        }
        self.expiry_ms.store(at_ms, Ordering::Relaxed);
        Some(at_ms)
    }

    /// Ends a write: wakes followers, and tells the backend when the record expires.
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

/// Some of the records, in the order of their keys, on cache lines of their own.
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
    /// The shard that holds `key`, if any does.
    fn shard(&self, key: &K) -> &Shard<K, T> {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        let shard = usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or_default();
        &self.shards[shard]
    }

    pub(crate) fn find(&self, key: &K) -> Option<Arc<Slot<T>>> {
        self.shard(key).read().get(key).cloned()
    }

    /// The slot of `key`; where there is none, one with the state that `make` gives.
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

    /// Runs `work` on the record, if there is one.
    pub(crate) fn read<R>(&self, key: &K, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.find(key)?.lock().as_mut().map(work)
    }

    /// Runs `work` on the record, if there is one, and wakes its followers.
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

    /// Runs `work` on the record, made if there is none, and wakes its followers. Of work that fails no record stays that
    /// was made for it.
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
            // An erased slot has left its shard already, so the next look finds or makes a fresh one.
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

    /// Follows the record, made if there is none.
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

    /// Takes a record out that nobody ever wrote to, unless somebody else has it in hand.
    pub(crate) fn forget_unused(&self, backend: &MemoryBackend, key: &K, slot: &Arc<Slot<T>>)
    where
        T: Record,
    {
        let mut shard = self.shard(key).write();
        // The shard's and the caller's: while the shard is locked, nobody gets another.
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

    /// Shows the records from `start` on, in order, until `visit` breaks off.
    ///
    /// It goes by chunks, so that the shards' locks are held only for moments.
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

    /// Takes every record out and hands its state to `each`.
    pub(crate) fn erase(&self, mut each: impl FnMut(T)) {
        let shards = self.shards.iter().map(|shard| std::mem::take(&mut *shard.write()));
        for slot in shards.flat_map(BTreeMap::into_values) {
            let state = slot.lock().take();
            slot.notify_followers();
            state.into_iter().for_each(&mut each);
        }
    }
}

/// What one look at a log found.
pub(crate) struct LogPage<E> {
    pub(crate) events: Vec<E>,
    /// Whether the look ended before the log did.
    pub(crate) more: bool,
}

impl<E> LogPage<E> {
    /// The end of a log.
    pub(crate) fn empty() -> Self {
        Self { events: Vec::new(), more: false }
    }
}

/// Somebody who follows a record. One that nobody ever wrote to goes with its last follower.
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
    /// Follows the record that stands where an erased one stood, made if there is none.
    fn follow_anew(&mut self) -> Result<()> {
        let slot = self.map.followed(&self.key, &self.make)?;
        // Nothing of the erased one is left to forget.
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

    /// Streams the record's log: `read` gives what follows the events it gave before, and is asked again after each
    /// write.
    ///
    /// Once the record is erased, `read` is given nothing: either it fails, or the stream goes on with the record that
    /// follows. The stream ends with an error that `read` gives.
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
            // A long log of changes that this follower skips must not keep the thread from other tasks.
            tokio::task::coop::consume_budget().await;
            let slot = Arc::clone(&self.following.slot);
            let mut changed = std::pin::pin!(slot.changed.notified());
            // Listening begins before the look, so that no write falls between the two.
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
