//! The operations on key-value state: their random generation, and their Rust form.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use larder_kernel::limits::VALUE_BYTES_MAX;
use larder_kernel::{BucketName, Key, KeyValueCondition, KeyValueQuery, PageRequest, Revision};

use crate::model::recorder::{Recorder, bytes, id, with};
use crate::model::rng::{Rng, valid};
use crate::model::shared::{request, ttl};

/// The revision that an operation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum At {
    /// The key's revision, or the bucket's last one if the key is missing.
    Current,
    /// A revision that was never assigned.
    Zero,
    /// The first revision of the bucket.
    First,
    /// The last revision of the bucket.
    Last,
    /// A future revision.
    Ahead,
    /// The largest possible number.
    Far,
}

const ANY: [At; 8] =
    [At::Current, At::Current, At::Current, At::First, At::Last, At::Zero, At::Ahead, At::Far];

/// The condition, before the revision is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Condition {
    None,
    Absent,
    At(At),
}

impl Condition {
    pub(super) fn key_value(self, revision: impl FnOnce(At) -> Revision) -> KeyValueCondition {
        match self {
            Self::None => KeyValueCondition::None,
            Self::Absent => KeyValueCondition::Absent,
            Self::At(at) => KeyValueCondition::AtRevision(revision(at)),
        }
    }
}

#[derive(Debug, Clone)]
pub(in crate::model) struct Put {
    pub(super) bucket: BucketName,
    pub(super) key: Key,
    pub(super) value: Bytes,
    pub(super) condition: Condition,
    pub(super) ttl: Option<Duration>,
}

/// A put or deletion of a `write`.
#[derive(Debug, Clone)]
pub(in crate::model) struct Write {
    pub(super) key: Key,
    pub(super) kind: WriteKind,
}

#[derive(Debug, Clone)]
pub(in crate::model) enum WriteKind {
    Put { value: Bytes, condition: Condition, ttl: Option<Duration> },
    Delete { at: Option<At> },
}

#[derive(Debug, Clone)]
pub(in crate::model) enum Operation {
    Put(Put),
    Write { bucket: BucketName, writes: Vec<Write> },
    GetMany { bucket: BucketName, keys: Vec<Key> },
    DeletePrefix { bucket: BucketName, prefix: String },
    ListEntries { bucket: BucketName, query: KeyValueQuery, page: PageRequest<Key> },
    Get { bucket: BucketName, key: Key },
    Delete { bucket: BucketName, key: Key, at: Option<At> },
    List { bucket: BucketName, prefix: String, page: PageRequest<Key> },
    ListBuckets { page: PageRequest<BucketName> },
    Watch { bucket: BucketName, prefix: String, key: Key, after: At },
    Erase,
}

static VALUES: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    vec![
        Bytes::from_static(b"1"),
        Bytes::from_static(b"2"),
        Bytes::new(),
        Bytes::from_static(b"\0\xff\xfe\n'\"%"),
        Bytes::from_static(b"null"),
        Bytes::from(vec![b'v'; 300]),
        Bytes::from(vec![0; 70_000]),
    ]
});
static TOO_LARGE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![b'v'; VALUE_BYTES_MAX + 1]));

pub(super) fn draw(rng: &mut Rng<'_>) -> Operation {
    match rng.weighted(&[10, 6, 6, 4, 2, 3, 1, 6, 3, 1, 4]) {
        1 => Operation::Get { bucket: bucket(rng), key: key(rng) },
        2 => Operation::Delete { bucket: bucket(rng), key: key(rng), at: at(rng) },
        3 => Operation::List { bucket: bucket(rng), prefix: prefix(rng), page: request(rng, key) },
        4 => Operation::ListBuckets { page: request(rng, other_bucket) },
        5 => Operation::Watch {
            bucket: bucket(rng),
            prefix: prefix(rng),
            key: key(rng),
            after: rng.of(&[At::Zero, At::First, At::Current, At::Last, At::Ahead]),
        },
        6 if rng.one_in(4) => Operation::Erase,
        7 => Operation::Write { bucket: bucket(rng), writes: writes(rng) },
        8 => Operation::GetMany { bucket: bucket(rng), keys: (0..rng.below(6)).map(|_| key(rng)).collect() },
        9 => Operation::DeletePrefix { bucket: bucket(rng), prefix: prefix(rng) },
        10 => Operation::ListEntries { bucket: bucket(rng), query: query(rng), page: request(rng, key) },
        _ => Operation::Put(Put {
            bucket: bucket(rng),
            key: key(rng),
            value: value(rng),
            condition: condition(rng),
            ttl: (rng.below(4) == 3).then(|| ttl(rng)),
        }),
    }
}

fn condition(rng: &mut Rng<'_>) -> Condition {
    match rng.below(10) {
        0..5 => Condition::None,
        5..7 => Condition::Absent,
        _ => Condition::At(rng.of(&ANY)),
    }
}

/// Draws writes, mostly of different keys and mostly under conditions that hold.
fn writes(rng: &mut Rng<'_>) -> Vec<Write> {
    let (count, twice) = (rng.below(6), rng.one_in(12));
    let mut writes: Vec<Write> = Vec::new();
    for _ in 0..count {
        let key = key(rng);
        let kind = match rng.below(6) {
            0 => WriteKind::Delete { at: at(rng).filter(|_| rng.one_in(2)) },
            1 => WriteKind::Delete { at: None },
            _ => WriteKind::Put {
                value: value(rng),
                condition: if rng.one_in(3) { condition(rng) } else { Condition::None },
                ttl: (rng.below(6) == 5).then(|| ttl(rng)),
            },
        };
        if twice || writes.iter().all(|write| write.key != key) {
            writes.push(Write { key, kind });
        }
    }
    writes
}

fn query(rng: &mut Rng<'_>) -> KeyValueQuery {
    let mut query = KeyValueQuery::prefix(prefix(rng));
    if rng.one_in(3) {
        query = query.with_from(key(rng));
    }
    if rng.one_in(3) {
        query = query.with_to(key(rng));
    }
    if rng.one_in(2) {
        query = query.descending();
    }
    if rng.one_in(2) { query.with_values() } else { query }
}

fn at(rng: &mut Rng<'_>) -> Option<At> {
    (rng.below(2) == 1).then(|| rng.of(&ANY))
}

fn value(rng: &mut Rng<'_>) -> Bytes {
    match rng.below(400) {
        399 => TOO_LARGE.clone(),
        398 => VALUES[6].clone(),
        small => VALUES[small % 6].clone(),
    }
}

/// Draws from few buckets, so that keys meet.
fn bucket(rng: &mut Rng<'_>) -> BucketName {
    let index = rng.below(5);
    named(&rng.ids.0[[0, 0, 0, 1, 2][index]])
}

fn other_bucket(rng: &mut Rng<'_>) -> BucketName {
    named(&rng.id())
}

fn named(text: &str) -> BucketName {
    valid(BucketName::new(text))
}

fn key(rng: &mut Rng<'_>) -> Key {
    valid(Key::new(rng.id()))
}

fn prefix(rng: &mut Rng<'_>) -> String {
    match rng.below(12) {
        0..5 => String::new(),
        5..9 => rng.id().to_string(),
        9 => rng.id().chars().take(1).collect(),
        10 => "x".repeat(513),
        _ => "a\0".to_owned(),
    }
}

/// Returns the name of a bucket's revision in a recorded script.
pub(super) fn revision_name(bucket: &BucketName, revision: Revision) -> String {
    format!("{bucket}#{revision}")
}

/// Returns a revision as an argument.
pub(super) fn revision(recorder: &Recorder, bucket: &BucketName, revision: Revision) -> String {
    recorder.named(&revision_name(bucket, revision), || format!("Revision::new({revision})"))
}

pub(super) fn put_call(recorder: &Recorder, put: &Put, condition: KeyValueCondition) -> String {
    let options = options(recorder, &put.bucket, condition, put.ttl);
    format!("put({}, {}, {}, {options})", id(&put.bucket), id(&put.key), bytes(&put.value))
}

/// Returns the options of a put as an argument.
pub(super) fn options(
    recorder: &Recorder,
    bucket: &BucketName,
    condition: KeyValueCondition,
    ttl: Option<Duration>,
) -> String {
    let condition = match condition {
        KeyValueCondition::None => "KeyValueCondition::None".to_owned(),
        KeyValueCondition::Absent => "KeyValueCondition::Absent".to_owned(),
        KeyValueCondition::AtRevision(at) => {
            format!("KeyValueCondition::AtRevision({})", revision(recorder, bucket, at))
        }
        _ => unreachable!("the model draws no other condition"),
    };
    let ttl = with("ttl", ttl, |ttl| format!("Duration::from_micros({})", ttl.as_micros()));
    format!("KeyValuePutOptions::default().with_condition({condition}){ttl}")
}
