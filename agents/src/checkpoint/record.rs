//! The stored forms of heads and descriptions, as JSON.

use std::collections::BTreeMap;

use larder_kernel::{Error, ErrorKind, Key, Metadata, Outcome, Result, RunId, Timestamp, check};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::keys;
use super::thread::{CheckpointId, CheckpointNamespace};
use super::types::{ChannelInfo, CheckpointInfo};

/// The format that this version writes, and the newest that it can read.
pub(super) const VERSION: u32 = 1;
/// The size of an entry of a value, in bytes. A larger value is a blob or has several entries.
pub(super) const PART_BYTES: usize = 1024 * 1024;
/// The channel of a hidden checkpoint with the values that the rest of its removal deletes. Some of them may
/// be deleted already. No other channel has an empty name.
pub(super) const UNUSED: &str = "";

/// The head of a namespace. Every change of its checkpoints rewrites it at the revision that it read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct HeadRecord {
    pub(super) version: u32,
    /// The number of the checkpoint that was written last.
    pub(super) number: u64,
    /// Its id.
    pub(super) last: Option<CheckpointId>,
    /// `true` while the namespace is copied to or deleted, and after an interruption of either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) closed: bool,
}

/// The description of a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InfoRecord {
    pub(super) version: u32,
    pub(super) number: u64,
    pub(super) parent: Option<CheckpointId>,
    pub(super) run: Option<RunId>,
    pub(super) metadata: Metadata,
    pub(super) created_at: Timestamp,
    /// The state; `None` if the checkpoint is hidden.
    pub(super) state: Option<ValueRecord>,
    pub(super) channels: BTreeMap<String, ChannelRecord>,
    /// The hash of what the writer passed, if it passed an id.
    pub(super) digest: Option<String>,
    /// `true` if the checkpoint was removed and remains because a later one needs its pending writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) hidden: bool,
}

/// A channel of a checkpoint.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ChannelRecord {
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<ValueRecord>,
    #[serde(rename = "d", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) deltas: Vec<ValueRecord>,
    /// `true` if the pending writes of ancestors belong to the channel.
    #[serde(rename = "p", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) pending: bool,
}

/// The location of a value: the number of the checkpoint that wrote it, its index there, its size, and the
/// name of its blob if it has one. Written as an array, because a description has many.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u32, u64, Option<String>)", into = "(u64, u32, u64, Option<String>)")]
pub(super) struct ValueRecord {
    pub(super) number: u64,
    pub(super) index: u32,
    pub(super) bytes: u64,
    pub(super) blob: Option<String>,
}

impl From<(u64, u32, u64, Option<String>)> for ValueRecord {
    fn from((number, index, bytes, blob): (u64, u32, u64, Option<String>)) -> Self {
        Self { number, index, bytes, blob }
    }
}

impl From<ValueRecord> for (u64, u32, u64, Option<String>) {
    fn from(value: ValueRecord) -> Self {
        (value.number, value.index, value.bytes, value.blob)
    }
}

impl ValueRecord {
    /// Returns the keys of the entries. A blob has none, and an empty value has one.
    pub(super) fn keys(&self, namespace: &CheckpointNamespace) -> Result<Vec<Key>> {
        let parts = if self.blob.is_some() { 0 } else { parts(self.bytes) };
        (0..parts).map(|part| keys::value(namespace, self.number, self.index, part)).collect()
    }
}

impl ChannelRecord {
    /// Returns the locations of the value and the deltas.
    pub(super) fn values(&self) -> impl Iterator<Item = &ValueRecord> {
        self.value.iter().chain(&self.deltas)
    }
}

impl InfoRecord {
    /// Returns the locations of all values.
    pub(super) fn values(&self) -> impl Iterator<Item = &ValueRecord> {
        self.state.iter().chain(self.channels.values().flat_map(ChannelRecord::values))
    }

    pub(super) fn info(&self, id: CheckpointId) -> CheckpointInfo {
        let channel = |record: &ChannelRecord| ChannelInfo {
            size_bytes: record.values().map(|value| value.bytes).sum(),
            deltas: record.deltas.len(),
            pending: record.pending,
        };
        CheckpointInfo {
            id,
            parent: self.parent.clone(),
            run: self.run.clone(),
            metadata: self.metadata.clone(),
            created_at: self.created_at,
            channels: self.channels.iter().map(|(name, record)| (name.clone(), channel(record))).collect(),
        }
    }
}

/// Returns the number of entries of a value that is no blob.
pub(super) fn parts(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(check::size(PART_BYTES)).max(1)).unwrap_or(usize::MAX)
}

pub(super) fn corrupt(operation: &'static str) -> Error {
    let message = "a checkpoint is damaged; restore it from a backup";
    Error::new(ErrorKind::Corrupt, operation, message)
}

/// Writes a record as JSON.
pub(super) fn encode<T: Serialize>(operation: &'static str, record: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(|_| {
        let message = "the description of a checkpoint cannot be written as JSON";
        Error::new(ErrorKind::Unexpected, operation, message).with_outcome(Outcome::NotApplied)
    })
}

/// Reads a record.
pub(super) fn decode<T: DeserializeOwned>(operation: &'static str, bytes: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_slice(bytes).map_err(|_| corrupt(operation))?;
    if version > VERSION {
        let message = "a newer release wrote the checkpoint; upgrade this program";
        return Err(Error::new(ErrorKind::Unsupported, operation, message)
            .with_context("version", u64::from(version))
            .with_context("newest", u64::from(VERSION)));
    }
    serde_json::from_slice(bytes).map_err(|_| corrupt(operation))
}
