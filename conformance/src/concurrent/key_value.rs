//! Key-value state: three keys of one bucket, whose writes share the bucket's revisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use larder_kernel::{
    BucketName, Capabilities, Contract, Key, KeyValueCondition, KeyValuePutOptions, KeyValueStore, Result,
    Revision,
};
use serde::{Deserialize, Serialize};

use super::check::{Refusal, Reply, Spec};
use super::rng::Rng;
use super::subject::{Subject, Turn, number_in, or_nothing};
use crate::harness::StoreSet;

const KEYS: u8 = 3;

/// A bucket.
pub(crate) struct Bucket;

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Put { key: u8, value: u32, when: When },
    Get { key: u8 },
    Delete { key: u8, at: Option<u64> },
}

/// The condition of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum When {
    Always,
    Absent,
    At(u64),
}

/// A result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Revision(u64),
    Entry(Option<(u32, u64)>),
    Deleted(bool),
}

/// The state of the bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    entries: BTreeMap<u8, Entry>,
    /// A lower bound of the last revision: a deletion does not return its revision.
    last: u64,
}

/// A value and its revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Entry {
    value: u32,
    at_least: u64,
    /// True if the revision is exact; otherwise it is a lower bound, because the put returned no result.
    exact: bool,
}

impl Entry {
    fn may_be_at(&self, revision: u64) -> bool {
        if self.exact { self.at_least == revision } else { self.at_least <= revision }
    }

    fn must_be_at(&self, revision: u64) -> bool {
        self.exact && self.at_least == revision
    }
}

impl State {
    fn put(&self, key: u8, value: u32, revision: Option<u64>) -> Option<Self> {
        let at_least = match revision {
            Some(revision) if revision <= self.last => return None,
            Some(revision) => revision,
            None => self.last + 1,
        };
        let mut next = self.clone();
        next.entries.insert(key, Entry { value, at_least, exact: revision.is_some() });
        next.last = at_least;
        Some(next)
    }

    fn read(&self, key: u8, seen: Option<(u32, u64)>) -> Option<Self> {
        match (self.entries.get(&key), seen) {
            (None, None) => Some(self.clone()),
            (Some(entry), Some((value, revision))) if entry.value == value && entry.may_be_at(revision) => {
                let mut next = self.clone();
                next.entries.insert(key, Entry { value, at_least: revision, exact: true });
                next.last = next.last.max(revision);
                Some(next)
            }
            _ => None,
        }
    }

    fn remove(&self, key: u8) -> Self {
        let mut next = self.clone();
        if next.entries.remove(&key).is_some() {
            next.last += 1;
        }
        next
    }

    fn allows(&self, key: u8, when: When) -> bool {
        match (when, self.entries.get(&key)) {
            (When::Always, _) | (When::Absent, None) => true,
            (When::Absent, Some(_)) | (When::At(_), None) => false,
            (When::At(revision), Some(entry)) => entry.may_be_at(revision),
        }
    }

    fn refuses_at(&self, key: u8, revision: u64) -> bool {
        !self.entries.get(&key).is_some_and(|entry| entry.must_be_at(revision))
    }
}

impl Spec for Bucket {
    type State = State;
    type Op = Op;
    type Answer = Answer;

    fn step(state: &State, op: &Op, reply: &Reply<Answer>) -> Option<State> {
        match (*op, reply) {
            (Op::Put { key, value, when }, Reply::Answered(Answer::Revision(revision))) => {
                state.allows(key, when).then(|| state.put(key, value, Some(*revision)))?
            }
            (Op::Put { key, value, when }, Reply::Unknown) => {
                state.allows(key, when).then(|| state.put(key, value, None))?
            }
            (Op::Put { key, when: When::Absent, .. }, Reply::Refused(Refusal::Conflict)) => {
                state.entries.contains_key(&key).then(|| state.clone())
            }
            (Op::Put { key, when: When::At(revision), .. }, Reply::Refused(Refusal::Conflict))
            | (Op::Delete { key, at: Some(revision) }, Reply::Refused(Refusal::Conflict)) => {
                state.refuses_at(key, revision).then(|| state.clone())
            }
            (Op::Get { key }, Reply::Answered(Answer::Entry(seen))) => state.read(key, *seen),
            (Op::Delete { key, at: None }, Reply::Answered(Answer::Deleted(there))) => {
                (state.entries.contains_key(&key) == *there).then(|| state.remove(key))
            }
            (Op::Delete { key, at: Some(revision) }, Reply::Answered(Answer::Deleted(true))) => {
                state.allows(key, When::At(revision)).then(|| state.remove(key))
            }
            (Op::Delete { key, at }, Reply::Unknown) => {
                state.allows(key, at.map_or(When::Always, When::At)).then(|| state.remove(key))
            }
            _ => None,
        }
    }

    fn changes(op: &Op, reply: &Reply<Answer>) -> bool {
        !matches!(op, Op::Get { .. })
            && !matches!(reply, Reply::Refused(_) | Reply::Answered(Answer::Deleted(false)))
    }

    fn part(op: &Op) -> Option<u8> {
        match *op {
            Op::Put { key, .. } | Op::Get { key } | Op::Delete { key, .. } => Some(key),
        }
    }
}

fn bucket() -> Result<BucketName> {
    BucketName::new("bucket")
}

fn key(number: u8) -> Result<Key> {
    Key::new(name(number))
}

fn name(key: u8) -> String {
    format!("k{key}")
}

impl Subject for Bucket {
    const CONTRACT: Contract = Contract::KeyValue;
    type Store = dyn KeyValueStore;
    /// The last seen revision of each key.
    type Memory = BTreeMap<u8, u64>;

    fn store(stores: &StoreSet) -> Result<Arc<Self::Store>> {
        stores.key_value()
    }

    fn initial() -> State {
        State::default()
    }

    fn choose(seen: &Self::Memory, rng: &mut Rng, turn: Turn, _: &Capabilities) -> Op {
        let key = rng.below(KEYS);
        let value = turn.value();
        match (rng.below(100), seen.get(&key)) {
            (0..20, _) => Op::Put { key, value, when: When::Always },
            (20..35, _) => Op::Put { key, value, when: When::Absent },
            (35..60, Some(revision)) => Op::Put { key, value, when: When::At(*revision) },
            (60..68, _) => Op::Delete { key, at: None },
            (68..76, Some(revision)) => Op::Delete { key, at: Some(*revision) },
            _ => Op::Get { key },
        }
    }

    async fn call(store: &Self::Store, op: &Op) -> Result<Answer> {
        let bucket = bucket()?;
        match *op {
            Op::Put { key, value, when } => {
                let condition = match when {
                    When::Always => KeyValueCondition::None,
                    When::Absent => KeyValueCondition::Absent,
                    When::At(revision) => KeyValueCondition::AtRevision(Revision::new(revision)),
                };
                let options = KeyValuePutOptions::default().with_condition(condition);
                let bytes = Bytes::from(format!("v{value}"));
                let revision = store.put(&bucket, &self::key(key)?, bytes, options).await?;
                Ok(Answer::Revision(revision.get()))
            }
            Op::Get { key } => {
                let entry = store.get(&bucket, &self::key(key)?).await?;
                Ok(Answer::Entry(entry.map(|entry| {
                    let text = String::from_utf8_lossy(&entry.value);
                    (number_in(&text, "v"), entry.revision.get())
                })))
            }
            Op::Delete { key, at } => {
                let at = at.map(Revision::new);
                Ok(Answer::Deleted(store.delete(&bucket, &self::key(key)?, at).await?))
            }
        }
    }

    fn learn(seen: &mut Self::Memory, op: &Op, answer: &Answer) {
        match (*op, *answer) {
            (Op::Put { key, .. }, Answer::Revision(revision))
            | (Op::Get { key }, Answer::Entry(Some((_, revision)))) => {
                seen.insert(key, revision);
            }
            _ => {}
        }
    }

    fn clause(op: &Op, reply: &Reply<Answer>) -> &'static str {
        match (op, reply) {
            (Op::Get { .. }, _) => "STORE-002",
            (Op::Put { when: When::Always, .. }, _) => "KV-002",
            (Op::Put { when: When::Absent, .. }, Reply::Answered(_)) => "KV-008",
            (Op::Put { when: When::Absent, .. }, _) => "KV-004",
            (Op::Put { when: When::At(_), .. }, Reply::Answered(_)) => "KV-007",
            (Op::Put { when: When::At(_), .. }, _) => "KV-005",
            (Op::Delete { at: None, .. }, Reply::Answered(Answer::Deleted(true))) => "KV-023",
            (Op::Delete { at: None, .. }, _) => "KV-024",
            (Op::Delete { at: Some(_), .. }, _) => "KV-025",
        }
    }

    fn show_op(op: &Op) -> String {
        match *op {
            Op::Put { key, value, when } => {
                let when = match when {
                    When::Always => String::new(),
                    When::Absent => " if absent".to_owned(),
                    When::At(revision) => format!(" at revision {revision}"),
                };
                format!("put {} := v{value}{when}", name(key))
            }
            Op::Get { key } => format!("get {}", name(key)),
            Op::Delete { key, at: None } => format!("delete {}", name(key)),
            Op::Delete { key, at: Some(at) } => format!("delete {} at revision {at}", name(key)),
        }
    }

    fn show_answer(_: &Op, answer: &Answer) -> String {
        match *answer {
            Answer::Revision(revision) => format!("revision {revision}"),
            Answer::Entry(entry) => {
                or_nothing(entry, |(value, revision)| format!("v{value} at revision {revision}"))
            }
            Answer::Deleted(true) => "it existed".to_owned(),
            Answer::Deleted(false) => "it did not exist".to_owned(),
        }
    }

    fn show_state(state: &State) -> String {
        let entry = |(key, entry): (&u8, &Entry)| {
            let about = if entry.exact { "" } else { "or more" };
            format!("{} = v{} at revision {}{about}", name(*key), entry.value, entry.at_least)
        };
        let entries: Vec<String> = state.entries.iter().map(entry).collect();
        let entries = if entries.is_empty() { "no key".to_owned() } else { entries.join(", ") };
        format!("{entries}; last revision {} or more", state.last)
    }
}
