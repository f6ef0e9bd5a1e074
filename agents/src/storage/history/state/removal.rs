//! The removal of single messages: by number, after a position, and from the end.

use std::collections::{BTreeSet, HashMap};

use larder_kernel::check::size;
use larder_kernel::limits::POPPED_KEPT_MAX;
use larder_kernel::storage::history::{
    check_if_last, check_remove_at, check_removed_bytes, used_for_another,
};
use larder_kernel::{Error, IdempotencyKey, Removal, RemovalTarget, Removed, Result, Seq, StoredMessage};

use super::{Entry, EventKind, KEY_SHARE_BYTES, ThreadState};
use crate::storage::backend::{MemoryBackend, deadline_ms};

const OPERATION: &str = "history.remove";
/// The quota share of the number of a removed message.
const NUMBER_SHARE_BYTES: u64 = 8;

/// The results of removals and updates with idempotency keys.
#[derive(Default)]
pub(super) struct Removals {
    /// The digest and the result, without messages.
    answers: HashMap<IdempotencyKey, ([u8; 32], Removed)>,
    popped: HashMap<IdempotencyKey, Popped>,
    /// The keys of `popped`, in the order of their ends: every access to the thread looks for the first.
    popped_by_end: BTreeSet<(i64, IdempotencyKey)>,
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
        self.popped_by_end.first().map(|(kept_until_ms, _)| *kept_until_ms)
    }

    /// Returns the digest and the result of a removal or an update.
    pub(super) fn answer(&self, key: &IdempotencyKey) -> Option<&([u8; 32], Removed)> {
        self.answers.get(key)
    }

    /// Remembers the digest and the result of an update.
    pub(super) fn remember(&mut self, key: IdempotencyKey, digest: [u8; 32], last: Seq) {
        self.answers.insert(key, (digest, Removed::new(1, last)));
    }

    fn keep(&mut self, key: &IdempotencyKey, popped: Popped) {
        self.popped_by_end.insert((popped.kept_until_ms, key.clone()));
        self.popped.insert(key.clone(), popped);
    }

    /// Drops the messages that are not kept at a time, or all messages, and returns their quota shares.
    fn forget(&mut self, now_ms: Option<i64>) -> u64 {
        let mut freed = 0;
        while self.expires_at_ms().is_some_and(|end_ms| now_ms.is_none_or(|now_ms| end_ms <= now_ms)) {
            let Some((_, key)) = self.popped_by_end.pop_first() else { break };
            freed += self.popped.remove(&key).map_or(0, |popped| popped.held);
        }
        freed
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
                return Err(used_for_another(OPERATION));
            }
            let answer = answer.clone().with_messages(self.removals.kept(key, now_ms));
            self.raise_fence(removal.fence);
            return Ok(answer);
        }
        self.check_fence(OPERATION, removal.fence)?;
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
        self.raise_fence(removal.fence);
        Ok(removed)
    }

    /// Returns the indexes of the messages that a removal removes, in order.
    fn doomed(&self, removal: &Removal) -> Result<Vec<usize>> {
        let count = self.messages.len();
        let goes: Vec<usize> = match &removal.target {
            RemovalTarget::Numbers(numbers) => {
                let find = |seq: &Seq| self.index_of(seq.get());
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
            self.removals.keep(key, Popped { kept_until_ms, messages, held });
        }
    }

    /// Drops the messages of pops: all messages, or the ones that were kept long enough.
    pub(super) fn forget_popped(&mut self, backend: &MemoryBackend, now_ms: Option<i64>) {
        let freed = self.removals.forget(now_ms);
        self.release(backend, freed);
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{ChatMessage, Thread};

    use super::super::Record;
    use super::*;

    const KEPT_MS: i64 = 600_000;

    fn popping(key: &str) -> Removal {
        Removal::newest(1).with_idempotency_key(IdempotencyKey::new(key).unwrap())
    }

    #[test]
    fn popped_messages_are_dropped_in_the_order_of_their_ends() {
        let backend = MemoryBackend::new();
        let thread = Thread::new("agent", "session").unwrap();
        let mut state = ThreadState::new(OPERATION, &backend, &thread).unwrap();
        state.append(OPERATION, &backend, vec![ChatMessage::user("text"); 4], None).unwrap();
        // The clock is set back twice.
        let pops = [("a", 3_000), ("b", 1_000), ("c", 4_000), ("d", 2_000)];
        for (key, now_ms) in pops {
            assert_eq!(state.remove(&backend, &popping(key), now_ms).unwrap().messages.len(), 1);
        }
        for (key, now_ms) in [("b", 1_000), ("d", 2_000), ("a", 3_000), ("c", 4_000)] {
            let end = now_ms + KEPT_MS;
            assert_eq!(state.expires_at_ms(), Some(end));
            state.expire(&backend, end - 1);
            assert_eq!(state.remove(&backend, &popping(key), end - 1).unwrap().messages.len(), 1);
            // No call returns the messages, whether or not they are already dropped.
            let late = state.remove(&backend, &popping(key), end).unwrap();
            assert_eq!((late.removed, late.seqs.len(), late.messages.len()), (1, 1, 0));
            let before = state.held();
            state.expire(&backend, end);
            assert!(state.held() < before);
            assert_eq!(state.remove(&backend, &popping(key), end - 1).unwrap().messages.len(), 0);
        }
        assert_eq!((state.expires_at_ms(), state.removals.popped.len()), (None, 0));
        assert_eq!(backend.bytes(), state.held());
    }
}
