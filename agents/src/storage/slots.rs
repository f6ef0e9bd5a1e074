//! Records that are locked one by one: threads, buckets, conversations.
//!
//! A map's lock is held only to find a slot; the work happens under the slot's own. Nothing here waits while it holds
//! a lock, so a call either happens whole or, dropped before its first poll, not at all.
//!
//! There are several maps, so that threads of the program that use different records seldom meet at one lock: even one
//! that all may share goes from processor to processor each time that it is taken.

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

use super::backend::MemoryBackend;
use super::dues::Mortal;

/// How many slots a walk looks up at once.
const CHUNK_SLOTS: usize = 256;
/// How many maps there are.
const MAPS: usize = 16;

/// What a place holds a record for.
pub(crate) trait Record {
    /// Whether nothing was ever written to it.
    fn is_unused(&self) -> bool;
    /// What it has in the place's account.
    fn held(&self) -> u64;
    /// Takes away what has expired.
    fn expire(&mut self, _place: &MemoryBackend, _now_ms: i64) {}
    /// When there is something to take away, if nothing changes.
    fn expires_at_ms(&self) -> Option<i64> {
        None
    }
}

/// One record's state, `None` once it was erased, and the bell that rings after each write.
pub(crate) struct Slot<T> {
    state: Mutex<Option<T>>,
    changed: Notify,
    /// How many follow the record: where nobody does, a write rings no bell. A follower is counted before it looks at
    /// the state, so whoever changes the state after that look sees it counted.
    followers: AtomicUsize,
    /// When the place looks at the record for what has expired, never later than that is so; `i64::MAX` where it does not.
    due_ms: AtomicI64,
}

impl<T> Slot<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those that follow the record.
    pub(crate) fn ring(&self) {
        if self.followers.load(Ordering::Acquire) > 0 {
            self.changed.notify_waiters();
        }
    }
}

impl<T: Record + Send + 'static> Slot<T> {
    /// When the place has to look at the record, where it does not know that yet. Called under the lock.
    fn newly_due(&self, state: &T) -> Option<i64> {
        let at_ms = state.expires_at_ms()?;
        if self.due_ms.load(Ordering::Relaxed) <= at_ms {
            return None;
        }
        self.due_ms.store(at_ms, Ordering::Relaxed);
        Some(at_ms)
    }

    /// Ends a write: wakes followers, and tells the place when the record expires.
    fn written(self: &Arc<Self>, place: &MemoryBackend, due_ms: Option<i64>) {
        self.ring();
        if let Some(at_ms) = due_ms {
            let record: Weak<Self> = Arc::downgrade(self);
            place.expect(at_ms, record);
        }
        place.sweep_some();
    }
}

impl<T: Record + Send + 'static> Mortal for Slot<T> {
    fn look(&self, place: &MemoryBackend, now_ms: i64, at_ms: i64) -> Option<i64> {
        if self.due_ms.load(Ordering::Relaxed) != at_ms {
            return None;
        }
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.due_ms.store(now_ms + 1, Ordering::Relaxed);
                return Some(now_ms + 1);
            }
        };
        let state_now = state.as_mut()?;
        state_now.expire(place, now_ms);
        let next_ms = state_now.expires_at_ms();
        self.due_ms.store(next_ms.unwrap_or(i64::MAX), Ordering::Relaxed);
        drop(state);
        self.ring();
        next_ms
    }
}

/// The records of one contract in one namespace.
pub(crate) struct Slots<K, T> {
    maps: [Map<K, T>; MAPS],
}

/// Some of the records, in the order of their keys, on cache lines of their own.
#[repr(align(128))]
struct Map<K, T>(RwLock<BTreeMap<K, Arc<Slot<T>>>>);

impl<K, T> Map<K, T> {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<K, Arc<Slot<T>>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<K, Arc<Slot<T>>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, T> Default for Slots<K, T> {
    fn default() -> Self {
        Self { maps: std::array::from_fn(|_| Map(RwLock::new(BTreeMap::new()))) }
    }
}

impl<K: Hash + Ord + Clone, T> Slots<K, T> {
    /// The map that holds `key`, if any does.
    fn map(&self, key: &K) -> &Map<K, T> {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % MAPS as u64).unwrap_or_default();
        &self.maps[place]
    }

    pub(crate) fn find(&self, key: &K) -> Option<Arc<Slot<T>>> {
        self.map(key).read().get(key).cloned()
    }

    /// The slot of `key`; where there is none, one with the state that `make` gives.
    pub(crate) fn find_or_make(&self, key: &K, make: impl FnOnce() -> Result<T>) -> Result<Arc<Slot<T>>> {
        if let Some(slot) = self.find(key) {
            return Ok(slot);
        }
        let mut map = self.map(key).write();
        if let Some(slot) = map.get(key) {
            return Ok(Arc::clone(slot));
        }
        let slot = Slot {
            state: Mutex::new(Some(make()?)),
            changed: Notify::new(),
            followers: 0.into(),
            due_ms: i64::MAX.into(),
        };
        let slot = Arc::new(slot);
        map.insert(key.clone(), Arc::clone(&slot));
        Ok(slot)
    }

    /// Runs `work` on the record, if there is one.
    pub(crate) fn read<R>(&self, key: &K, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.find(key)?.lock().as_mut().map(work)
    }

    /// Runs `work` on the record, if there is one, and wakes its followers.
    pub(crate) fn change<R>(
        &self,
        place: &MemoryBackend,
        key: &K,
        work: impl FnOnce(&mut T) -> R,
    ) -> Option<R>
    where
        T: Record + Send + 'static,
    {
        let slot = self.find(key)?;
        let mut state = slot.lock();
        let done = state.as_mut().map(work);
        let due_ms = state.as_ref().and_then(|state| slot.newly_due(state));
        drop(state);
        slot.written(place, due_ms);
        done
    }

    /// Runs `work` on the record, made if there is none, and wakes its followers. Of work that fails no record stays that
    /// was made for it.
    pub(crate) fn write<R>(
        &self,
        place: &MemoryBackend,
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
            // An erased slot has left the map already, so the next look finds or makes a fresh one.
            let Some(live) = state.as_mut() else { continue };
            let done = work(live);
            let due_ms = slot.newly_due(live);
            drop(state);
            slot.written(place, due_ms);
            if done.is_err() {
                self.forget_unused(place, key, &slot);
            }
            return done;
        }
    }

    /// Follows the record, made if there is none.
    pub(crate) fn follow(
        self: &Arc<Self>,
        place: &MemoryBackend,
        key: &K,
        make: impl Fn() -> Result<T> + Send + Sync + 'static,
    ) -> Result<Following<K, T>>
    where
        T: Record,
    {
        let slot = self.followed(key, &make)?;
        let (slots, place, key) = (Arc::clone(self), place.clone(), key.clone());
        Ok(Following { slots, place, key, make: Box::new(make), slot })
    }

    fn followed(&self, key: &K, make: impl FnOnce() -> Result<T>) -> Result<Arc<Slot<T>>> {
        let slot = self.find_or_make(key, make)?;
        slot.followers.fetch_add(1, Ordering::AcqRel);
        Ok(slot)
    }

    /// Takes a record out that nobody ever wrote to, unless somebody else has it in hand.
    pub(crate) fn forget_unused(&self, place: &MemoryBackend, key: &K, slot: &Arc<Slot<T>>)
    where
        T: Record,
    {
        let mut map = self.map(key).write();
        // The map's and the caller's: while the map is locked, nobody gets another.
        let alone =
            map.get(key).is_some_and(|found| Arc::ptr_eq(found, slot)) && Arc::strong_count(slot) == 2;
        if !alone {
            return;
        }
        let unused = slot.lock().as_ref().filter(|state| state.is_unused()).map(Record::held);
        if let Some(held) = unused {
            map.remove(key);
            place.release(held);
        }
    }

    /// Shows the records from `start` on, in order, until `visit` breaks off.
    ///
    /// It goes by chunks, so that the maps' locks are held only for moments.
    pub(crate) fn walk(&self, mut start: Bound<K>, mut visit: impl FnMut(K, &mut T) -> ControlFlow<()>) {
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
        let maps: Vec<_> = self.maps.iter().map(Map::read).collect();
        let mut ranges: Vec<_> =
            maps.iter().map(|map| map.range((start, Bound::Unbounded)).peekable()).collect();
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
        let maps = self.maps.iter().map(|map| std::mem::take(&mut *map.write()));
        for slot in maps.flat_map(BTreeMap::into_values) {
            let state = slot.lock().take();
            slot.ring();
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
    slots: Arc<Slots<K, T>>,
    place: MemoryBackend,
    key: K,
    make: Box<dyn Fn() -> Result<T> + Send + Sync>,
    slot: Arc<Slot<T>>,
}

impl<K: Hash + Ord + Clone, T: Record> Drop for Following<K, T> {
    fn drop(&mut self) {
        self.slot.followers.fetch_sub(1, Ordering::AcqRel);
        if self.slot.lock().as_ref().is_some_and(Record::is_unused) {
            self.slots.forget_unused(&self.place, &self.key, &self.slot);
        }
    }
}

impl<K: Hash + Ord + Clone, T: Record> Following<K, T> {
    /// Follows the record that stands where an erased one stood, made if there is none.
    fn follow_anew(&mut self) -> Result<()> {
        let slot = self.slots.followed(&self.key, &self.make)?;
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
