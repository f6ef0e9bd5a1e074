//! The calls on blobs and their sequential specification.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::concurrent::check::{Refusal, Reply, Spec};

/// Three blobs.
pub(crate) struct Blobs;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Put {
        key: u8,
        value: u32,
        when: When,
    },
    Get {
        key: u8,
    },
    Head {
        key: u8,
    },
    Rename {
        source: u8,
        target: u8,
        replace: bool,
    },
    Delete {
        key: u8,
    },
    /// The first step of a deletion by this client.
    Look {
        key: u8,
        client: u8,
    },
    /// The second step, after that client's look; `None` if it is unknown whether the client looked.
    Remove {
        key: u8,
        client: Option<u8>,
    },
}

/// The condition of a put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum When {
    Always,
    Absent,
    Matches(String),
}

/// A result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Known { etag: String, size: u64 },
    Read { value: u32, etag: String },
    Deleted(bool),
    Removed,
}

/// The state of the blobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The value and the tag of each key. The tag is missing if the write returned no result and no call has
    /// read it.
    pub(super) blobs: BTreeMap<u8, (u32, Option<String>)>,
    /// The clients whose deletion has looked, one bit each.
    looked: u8,
}

impl State {
    fn put(&self, key: u8, value: u32, etag: Option<&str>) -> Self {
        let mut next = self.clone();
        next.blobs.insert(key, (value, etag.map(str::to_owned)));
        next
    }

    fn allows(&self, key: u8, when: &When) -> bool {
        match (when, self.blobs.get(&key)) {
            (When::Always, _) | (When::Absent, None) | (When::Matches(_), Some((_, None))) => true,
            (When::Absent, Some(_)) | (When::Matches(_), None) => false,
            (When::Matches(wanted), Some((_, Some(etag)))) => wanted == etag,
        }
    }

    /// Returns the state after a rename, if the keys allow it.
    fn rename(&self, source: u8, target: u8, replace: bool) -> Option<Self> {
        let mut next = self.clone();
        let blob = next.blobs.remove(&source)?;
        let replaced = next.blobs.insert(target, blob);
        (replace || replaced.is_none()).then_some(next)
    }

    /// Returns the state after a read of this tag, if the key can have the tag.
    fn with_tag(&self, key: u8, etag: &str, fits: impl Fn(u32) -> bool) -> Option<Self> {
        let (value, known) = self.blobs.get(&key)?;
        let same = known.as_deref().is_none_or(|known| known == etag);
        (same && fits(*value)).then(|| self.put(key, *value, Some(etag)))
    }
}

impl Spec for Blobs {
    type State = State;
    type Op = Op;
    type Answer = Answer;

    fn step(state: &State, op: &Op, reply: &Reply<Answer>) -> Option<State> {
        match (op, reply) {
            (Op::Put { key, value, when }, Reply::Answered(Answer::Known { etag, size })) => {
                let right = state.allows(*key, when) && *size == size_of(*value);
                right.then(|| state.put(*key, *value, Some(etag)))
            }
            (Op::Put { key, value, when }, Reply::Unknown) => {
                state.allows(*key, when).then(|| state.put(*key, *value, None))
            }
            (Op::Put { key, when: When::Absent, .. }, Reply::Refused(Refusal::Conflict)) => {
                state.blobs.contains_key(key).then(|| state.clone())
            }
            (Op::Put { key, when: When::Matches(etag), .. }, Reply::Refused(Refusal::Conflict)) => {
                let there = state.blobs.get(key);
                let must_match = there.is_some_and(|(_, known)| known.as_ref() == Some(etag));
                (!must_match).then(|| state.clone())
            }
            (Op::Get { key } | Op::Head { key }, Reply::Refused(Refusal::NotFound)) => {
                (!state.blobs.contains_key(key)).then(|| state.clone())
            }
            (Op::Get { key }, Reply::Answered(Answer::Read { value, etag })) => {
                state.with_tag(*key, etag, |stored| stored == *value)
            }
            (Op::Head { key }, Reply::Answered(Answer::Known { etag, size })) => {
                state.with_tag(*key, etag, |stored| size_of(stored) == *size)
            }
            (Op::Rename { source, target, replace }, Reply::Answered(Answer::Known { etag, size })) => {
                let moved = state.with_tag(*source, etag, |stored| size_of(stored) == *size)?;
                moved.rename(*source, *target, *replace)
            }
            (Op::Rename { source, target, replace }, Reply::Unknown) => {
                state.rename(*source, *target, *replace)
            }
            (Op::Rename { source, .. }, Reply::Refused(Refusal::NotFound)) => {
                (!state.blobs.contains_key(source)).then(|| state.clone())
            }
            (Op::Rename { source, target, replace: false }, Reply::Refused(Refusal::Conflict)) => {
                let both = state.blobs.contains_key(source) && state.blobs.contains_key(target);
                both.then(|| state.clone())
            }
            (Op::Look { key, client }, Reply::Answered(Answer::Deleted(there))) => {
                (state.blobs.contains_key(key) == *there).then(|| {
                    let mut next = state.clone();
                    next.looked |= 1 << client;
                    next
                })
            }
            (Op::Remove { key, client }, Reply::Answered(Answer::Removed) | Reply::Unknown) => {
                let mut next = state.clone();
                if let Some(client) = client {
                    if next.looked & (1 << client) == 0 {
                        return None;
                    }
                    next.looked &= !(1 << client);
                }
                next.blobs.remove(key);
                Some(next)
            }
            _ => None,
        }
    }

    fn changes(op: &Op, reply: &Reply<Answer>) -> bool {
        // A look must stay with its removal.
        !matches!(op, Op::Get { .. } | Op::Head { .. }) && !matches!(reply, Reply::Refused(_))
    }

    /// Renames connect all keys but the first.
    fn part(op: &Op) -> Option<u8> {
        let key = match op {
            Op::Put { key, .. }
            | Op::Get { key }
            | Op::Head { key }
            | Op::Delete { key }
            | Op::Look { key, .. }
            | Op::Remove { key, .. }
            | Op::Rename { source: key, .. } => *key,
        };
        Some(key.min(1))
    }
}

/// Returns the number of repetitions of a value's eight bytes: some blobs are small, and some need several
/// pieces.
pub(super) fn times(value: u32) -> u32 {
    if value.is_multiple_of(4) { 4_096 } else { value % 13 + 1 }
}

pub(super) fn size_of(value: u32) -> u64 {
    u64::from(times(value)) * 8
}
