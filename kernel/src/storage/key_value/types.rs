//! Argument and result types of [`KeyValueStore`](super::KeyValueStore).

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{BucketName, Key};
use crate::position::Revision;
use crate::storage::options::{OptionSet, RequestOption};
use crate::timestamp::Timestamp;

/// The condition of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyValueCondition {
    /// The put is unconditional.
    #[default]
    None,
    /// The key does not exist.
    Absent,
    /// The key is at this revision.
    AtRevision(Revision),
}

/// Options of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct KeyValuePutOptions {
    /// The condition of the put.
    pub condition: KeyValueCondition,
    /// The time to live of the key, to the millisecond; `None` keeps the key permanently.
    pub ttl: Option<Duration>,
}

impl KeyValuePutOptions {
    /// Sets the condition of the put.
    #[must_use]
    pub fn with_condition(mut self, condition: KeyValueCondition) -> Self {
        self.condition = condition;
        self
    }

    /// Sets the time to live of the key.
    #[must_use]
    pub fn with_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { condition, ttl } = self;
        OptionSet::NONE
            .with_if(*condition != KeyValueCondition::None, RequestOption::ValueCondition)
            .with_if(ttl.is_some(), RequestOption::ValueTtl)
    }
}

/// A value with its revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyValueEntry {
    /// The bytes of the value.
    pub value: Bytes,
    /// The revision of the write that stored the value.
    pub revision: Revision,
    /// The time from which the key reads as absent, by the store's clock, to the millisecond.
    pub expires_at: Option<Timestamp>,
}

impl KeyValueEntry {
    /// Creates an entry that does not expire.
    #[must_use]
    pub fn new(value: impl Into<Bytes>, revision: Revision) -> Self {
        Self { value: value.into(), revision, expires_at: None }
    }

    /// Sets the time from which the key reads as absent.
    #[must_use]
    pub fn with_expires_at(mut self, expires_at: impl Into<Option<Timestamp>>) -> Self {
        self.expires_at = expires_at.into();
        self
    }
}

/// A key in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyRevision {
    /// The key.
    pub key: Key,
    /// The revision of its value.
    pub revision: Revision,
}

impl KeyRevision {
    /// Creates an item of a listing.
    #[must_use]
    pub fn new(key: Key, revision: Revision) -> Self {
        Self { key, revision }
    }
}

/// A bucket in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BucketInfo {
    /// The bucket.
    pub bucket: BucketName,
    /// The number of keys in the bucket.
    pub keys: u64,
}

impl BucketInfo {
    /// Creates an item of a listing.
    #[must_use]
    pub fn new(bucket: BucketName, keys: u64) -> Self {
        Self { bucket, keys }
    }
}

/// A change to a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyValueEvent {
    /// The key.
    pub key: Key,
    /// The revision of the change.
    pub revision: Revision,
    /// The kind of the change.
    pub kind: KeyValueEventKind,
}

impl KeyValueEvent {
    /// Creates a change.
    #[must_use]
    pub fn new(key: Key, revision: Revision, kind: KeyValueEventKind) -> Self {
        Self { key, revision, kind }
    }
}

/// The kind of a change, with its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum KeyValueEventKind {
    /// A value was written.
    Put {
        /// The bytes of the value.
        value: Bytes,
        /// The time from which the key reads as absent.
        expires_at: Option<Timestamp>,
    },
    /// The key was deleted.
    Deleted,
}
