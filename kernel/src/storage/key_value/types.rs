//! The values that [`KeyValueStore`](super::KeyValueStore) takes and returns.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{BucketName, Key, Revision};
use crate::timestamp::Timestamp;

/// What must hold for a put to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyValueCondition {
    /// Nothing.
    #[default]
    None,
    /// The key is not there.
    Absent,
    /// The key is at this revision.
    AtRevision(Revision),
}

/// Options of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyValuePutOptions {
    /// What must hold.
    pub condition: KeyValueCondition,
    /// How long the key lives, to the millisecond; `None` for good.
    pub ttl: Option<Duration>,
}

impl KeyValuePutOptions {
    /// Sets what must hold.
    #[must_use]
    pub fn with_condition(mut self, condition: KeyValueCondition) -> Self {
        self.condition = condition;
        self
    }

    /// Sets how long the key lives.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// A value with its revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyValueEntry {
    /// The bytes.
    pub value: Bytes,
    /// The revision of the write that put them.
    pub revision: Revision,
    /// From when on the key reads as absent, by the store's clock, to the millisecond.
    pub expires_at: Option<Timestamp>,
}

/// A key in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRevision {
    /// The key.
    pub key: Key,
    /// The revision of its value.
    pub revision: Revision,
}

/// A bucket in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketInfo {
    /// The bucket.
    pub bucket: BucketName,
    /// How many keys it holds.
    pub keys: u64,
}

/// A change to a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyValueEvent {
    /// The key.
    pub key: Key,
    /// The revision that the change took.
    pub revision: Revision,
    /// What changed.
    pub kind: KeyValueEventKind,
}

/// What changed about a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum KeyValueEventKind {
    /// A value was written.
    Put {
        /// The bytes.
        value: Bytes,
        /// From when on the key reads as absent.
        expires_at: Option<Timestamp>,
    },
    /// The key was deleted.
    Deleted,
}
