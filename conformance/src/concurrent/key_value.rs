//! Key-value state: three keys of one bucket, whose writes share the bucket's revisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use larder_kernel::{
    BucketName, Capabilities, Contract, Key, KeyValueCondition, KeyValueEntry, KeyValuePutOptions,
    KeyValueStore, KeyValueWrite, Result, Revision,
};
use serde::{Deserialize, Serialize};

use super::check::{Refusal, Reply, Spec};
use super::rng::Rng;
use super::subject::{Subject, Turn, number_in, or_nothing};
use crate::harness::StoreSet;

const KEYS: u8 = 3;
/// The same number, of the calls that touch every key.
const ALL: usize = 3;

/// A bucket.
pub(crate) struct Bucket;

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Put {
        key: u8,
        value: u32,
        when: When,
    },
    Get {
        key: u8,
    },
    Delete {
        key: u8,
        at: Option<u64>,
    },
    /// Writes one value to every key, if the named key is at the revision.
    WriteAll {
        value: u32,
        key: u8,
        at: Option<u64>,
    },
    /// Reads every key.
    GetAll,
    /// Deletes every key by their prefix.
    DeleteAll,
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
    Revisions([u64; ALL]),
    Entries([Option<(u32, u64)>; ALL]),
    Count(u64),
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

    /// Puts one value under every key, in order.
    fn put_all(&self, value: u32, revisions: [Option<u64>; ALL]) -> Option<Self> {
        (0..KEYS).zip(revisions).try_fold(self.clone(), |state, (key, at)| state.put(key, value, at))
    }

    fn remove_all(&self) -> Self {
        (0..KEYS).fold(self.clone(), |state, key| state.remove(key))
    }

    fn count(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
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
            | (Op::Delete { key, at: Some(revision) }, Reply::Refused(Refusal::Conflict))
            | (Op::WriteAll { key, at: Some(revision), .. }, Reply::Refused(Refusal::Conflict)) => {
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
            (Op::WriteAll { value, key, at }, Reply::Answered(Answer::Revisions(revisions))) => {
                let allowed = state.allows(key, at.map_or(When::Always, When::At));
                allowed.then(|| state.put_all(value, revisions.map(Some)))?
            }
            (Op::WriteAll { value, key, at }, Reply::Unknown) => {
                let allowed = state.allows(key, at.map_or(When::Always, When::At));
                allowed.then(|| state.put_all(value, [None; ALL]))?
            }
            (Op::GetAll, Reply::Answered(Answer::Entries(seen))) => {
                (0..KEYS).zip(seen).try_fold(state.clone(), |state, (key, seen)| state.read(key, *seen))
            }
            (Op::DeleteAll, Reply::Answered(Answer::Count(count))) => {
                (state.count() == *count).then(|| state.remove_all())
            }
            (Op::DeleteAll, Reply::Unknown) => Some(state.remove_all()),
            _ => None,
        }
    }

    fn changes(op: &Op, reply: &Reply<Answer>) -> bool {
        let nothing =
            matches!(reply, Reply::Refused(_) | Reply::Answered(Answer::Deleted(false) | Answer::Count(0)));
        !matches!(op, Op::Get { .. } | Op::GetAll) && !nothing
    }

    fn part(op: &Op) -> Option<u8> {
        match *op {
            Op::Put { key, .. } | Op::Get { key } | Op::Delete { key, .. } => Some(key),
            Op::WriteAll { .. } | Op::GetAll | Op::DeleteAll => None,
        }
    }

    fn spans(op: &Op) -> bool {
        Self::part(op).is_none()
    }
}

/// Returns the value and the revision of an entry.
fn seen(entry: &KeyValueEntry) -> (u32, u64) {
    (number_in(&String::from_utf8_lossy(&entry.value), "v"), entry.revision.get())
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
        // A part of the calls touches all keys.
        match (rng.below(100), seen.get(&key)) {
            (0..8, at) => return Op::WriteAll { value, key, at: at.copied().filter(|_| rng.below(2) == 0) },
            (8..14, _) => return Op::GetAll,
            (14..16, _) => return Op::DeleteAll,
            _ => {}
        }
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
                Ok(Answer::Entry(entry.map(|entry| seen(&entry))))
            }
            Op::Delete { key, at } => {
                let at = at.map(Revision::new);
                Ok(Answer::Deleted(store.delete(&bucket, &self::key(key)?, at).await?))
            }
            Op::WriteAll { value, key, at } => {
                let mut writes = Vec::new();
                for number in 0..KEYS {
                    let condition = match at.filter(|_| number == key) {
                        Some(at) => KeyValueCondition::AtRevision(Revision::new(at)),
                        None => KeyValueCondition::None,
                    };
                    let options = KeyValuePutOptions::default().with_condition(condition);
                    writes.push(KeyValueWrite::put(self::key(number)?, format!("v{value}"), options));
                }
                let given = store.write(&bucket, writes).await?;
                let given = |index: usize| given.get(index).copied().flatten().map_or(0, Revision::get);
                Ok(Answer::Revisions(std::array::from_fn(given)))
            }
            Op::GetAll => {
                let keys = (0..KEYS).map(key).collect::<Result<Vec<_>>>()?;
                let found = store.get_many(&bucket, &keys).await?.items;
                let entry = |index: usize| found.get(index).cloned().flatten().map(|entry| seen(&entry));
                Ok(Answer::Entries(std::array::from_fn(entry)))
            }
            Op::DeleteAll => Ok(Answer::Count(store.delete_prefix(&bucket, "k").await?.deleted)),
        }
    }

    fn learn(seen: &mut Self::Memory, op: &Op, answer: &Answer) {
        match (*op, *answer) {
            (Op::Put { key, .. }, Answer::Revision(revision))
            | (Op::Get { key }, Answer::Entry(Some((_, revision)))) => {
                seen.insert(key, revision);
            }
            (Op::WriteAll { .. }, Answer::Revisions(revisions)) => seen.extend((0..KEYS).zip(revisions)),
            (Op::GetAll, Answer::Entries(entries)) => {
                let entries = (0..KEYS).zip(entries);
                seen.extend(entries.filter_map(|(key, entry)| Some((key, entry?.1))));
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
            (Op::WriteAll { at: Some(_), .. }, _) => "KV-060",
            (Op::WriteAll { at: None, .. }, _) => "KV-058",
            (Op::GetAll, _) => "KV-054",
            (Op::DeleteAll, _) => "KV-064",
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
            Op::WriteAll { value, at: None, .. } => format!("write v{value} to all keys"),
            Op::WriteAll { value, key, at: Some(at) } => {
                format!("write v{value} to all keys if {} is at revision {at}", name(key))
            }
            Op::GetAll => "get all keys".to_owned(),
            Op::DeleteAll => "delete all keys".to_owned(),
        }
    }

    fn show_answer(_: &Op, answer: &Answer) -> String {
        let entry = |entry| or_nothing(entry, |(value, revision)| format!("v{value} at revision {revision}"));
        match *answer {
            Answer::Revision(revision) => format!("revision {revision}"),
            Answer::Entry(found) => entry(found),
            Answer::Revisions(revisions) => format!("revisions {revisions:?}"),
            Answer::Entries(entries) => entries.map(entry).join(", "),
            Answer::Count(count) => format!("{count} keys existed"),
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
