//! The removal of single messages: by number, after a position, and from the end.

use std::collections::HashMap;

use larder_kernel::check::size;
use larder_kernel::limits::POPPED_KEPT_MAX;
use larder_kernel::storage::history::{check_if_last, check_remove_at, check_removed_bytes};
use larder_kernel::{
    Error, ErrorKind, IdempotencyKey, Removal, RemovalTarget, Removed, Result, Seq, StoredMessage,
};

use super::{Entry, EventKind, KEY_SHARE_BYTES, ThreadState};
use crate::storage::backend::{MemoryBackend, deadline_ms};

const OPERATION: &str = "history.remove";
/// The quota share of the number of a removed message.
const NUMBER_SHARE_BYTES: u64 = 8;

/// The results of removals with idempotency keys.
#[derive(Default)]
pub(super) struct Removals {
    /// The digest and the result, without messages.
    answers: HashMap<IdempotencyKey, ([u8; 32], Removed)>,
    popped: HashMap<IdempotencyKey, Popped>,
}

/// The messages of a pop.
struct Popped {
    kept_until_ms: i64,
    messages: Vec<StoredMessage>,
    /// The share of the quota.
    held: u64,
}

impl Removals {
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Returns the time at which the first messages are no longer kept.
    pub(super) fn expires_at_ms(&self) -> Option<i64> {
        self.popped.values().map(|popped| popped.kept_until_ms).min()
    }

    /// Returns the messages of a pop that are still kept.
    fn kept(&self, key: &IdempotencyKey, now_ms: i64) -> Vec<StoredMessage> {
        let kept = self.popped.get(key).filter(|popped| now_ms < popped.kept_until_ms);
        kept.map(|popped| popped.messages.clone()).unwrap_or_default()
    }
}

impl ThreadState {
    pub(in super::super) fn remove(
        &mut self,
        backend: &MemoryBackend,
        removal: &Removal,
        now_ms: i64,
    ) -> Result<Removed> {
        if let Some(key) = &removal.idempotency_key
            && let Some((digest, answer)) = self.removals.answers.get(key)
        {
            if *digest != removal.digest() {
                let message = "the idempotency key was used for another removal; use a new key";
                return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
            }
            return Ok(answer.clone().with_messages(self.removals.kept(key, now_ms)));
        }
        check_if_last(OPERATION, removal.if_last, self.last())?;
        check_remove_at(removal, self.last())?;
        let goes = self.doomed(removal)?;
        let key = removal.idempotency_key.as_ref();
        if let Some(key) = key {
            let numbers = NUMBER_SHARE_BYTES * size(goes.len());
            self.reserve(OPERATION, backend, KEY_SHARE_BYTES + size(key.as_str().len()) + numbers)?;
        }
        let removed = self.take(backend, &removal.target, &goes);
        if let Some(key) = key {
            self.remember(backend, key, removal, &removed, now_ms);
        }
        Ok(removed)
    }

    /// Returns the indexes of the messages that a removal removes, in order.
    fn doomed(&self, removal: &Removal) -> Result<Vec<usize>> {
        let count = self.messages.len();
        let goes: Vec<usize> = match &removal.target {
            RemovalTarget::Numbers(numbers) => {
                let find = |seq: &Seq| self.messages.binary_search_by_key(&seq.get(), |entry| entry.seq).ok();
                let mut goes: Vec<usize> = numbers.iter().filter_map(find).collect();
                goes.sort_unstable();
                goes
            }
            RemovalTarget::After(position) => return Ok((self.index_after(position.get())..count).collect()),
            RemovalTarget::Newest(newest) => (count.saturating_sub(*newest)..count).collect(),
            _ => return Err(Error::unknown_value(OPERATION, "target")),
        };
        check_removed_bytes(removal, goes.iter().map(|index| self.messages[*index].bytes).sum())?;
        Ok(goes)
    }

    /// Removes the messages with these indexes, and adds the event.
    fn take(&mut self, backend: &MemoryBackend, target: &RemovalTarget, goes: &[usize]) -> Removed {
        if goes.is_empty() {
            return Removed::new(0, self.last());
        }
        let gone = self.split(goes);
        self.bytes -= gone.iter().map(|entry| entry.bytes).sum::<u64>();
        self.release(backend, gone.iter().map(Entry::share).sum());
        let count = size(gone.len());
        if let RemovalTarget::After(position) = target {
            self.log(backend, EventKind::Rewound { after: position.get(), removed: count });
            self.end_life_if_empty();
            return Removed::new(count, self.last());
        }
        self.log(backend, EventKind::Removed { seqs: gone.iter().map(|entry| entry.seq).collect() });
        self.end_life_if_empty();
        let messages: Vec<_> = gone.iter().map(|entry| self.stored(entry)).collect();
        let seqs = messages.iter().map(|stored| stored.seq).collect();
        Removed::new(count, self.last()).with_seqs(seqs).with_messages(messages)
    }

    /// Takes the messages with these indexes out of the thread.
    fn split(&mut self, goes: &[usize]) -> Vec<Entry> {
        let kept = self.messages.len() - goes.len();
        if goes.first() == Some(&kept) {
            return self.messages.split_off(kept).into();
        }
        let mut gone = Vec::with_capacity(goes.len());
        let mut going = goes.iter().copied().peekable();
        for (index, entry) in std::mem::take(&mut self.messages).into_iter().enumerate() {
            if going.next_if_eq(&index).is_some() {
                gone.push(entry);
            } else {
                self.messages.push_back(entry);
            }
        }
        gone
    }

    /// Remembers the result of a removal, and for a while the messages of a pop.
    fn remember(
        &mut self,
        backend: &MemoryBackend,
        key: &IdempotencyKey,
        removal: &Removal,
        removed: &Removed,
        now_ms: i64,
    ) {
        let answer = removed.clone().with_messages(Vec::new());
        self.removals.answers.insert(key.clone(), (removal.digest(), answer));
        if matches!(removal.target, RemovalTarget::Newest(_)) && !removed.messages.is_empty() {
            let messages = removed.messages.clone();
            let sizes = messages
                .iter()
                .map(|stored| size(stored.message.size_bytes()) + super::fixed_share(&stored.message));
            let held: u64 = sizes.sum();
            // The messages held as much before.
            backend.count(held);
            self.held += held;
            let kept_until_ms = deadline_ms(now_ms, POPPED_KEPT_MAX);
            self.removals.popped.insert(key.clone(), Popped { kept_until_ms, messages, held });
        }
    }

    /// Drops the messages of pops: all messages, or the ones that were kept long enough.
    pub(super) fn forget_popped(&mut self, backend: &MemoryBackend, now_ms: Option<i64>) {
        let mut freed = 0;
        self.removals.popped.retain(|_, popped| {
            let stays = now_ms.is_some_and(|now_ms| now_ms < popped.kept_until_ms);
            freed += if stays { 0 } else { popped.held };
            stays
        });
        self.release(backend, freed);
    }
}
