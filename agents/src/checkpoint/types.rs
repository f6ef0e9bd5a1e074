//! The results and filters of checkpoints.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_kernel::{Metadata, RunId, Timestamp, json_equal};

use super::thread::CheckpointId;

/// A checkpoint in a listing, without its values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// The id.
    pub id: CheckpointId,
    /// The checkpoint that it follows. It may have been removed since.
    pub parent: Option<CheckpointId>,
    /// The run that wrote it.
    pub run: Option<RunId>,
    /// Other data about it.
    pub metadata: Metadata,
    /// The time of the write, by the writer's clock.
    pub created_at: Timestamp,
    /// The channels that exist.
    pub channels: BTreeMap<String, ChannelInfo>,
}

impl CheckpointInfo {
    /// Returns the number of deltas that follow the value of a channel. A writer sets the value when this
    /// number reaches the interval that it chose, at most [`DELTAS_MAX`](super::DELTAS_MAX).
    #[must_use]
    pub fn deltas(&self, channel: &str) -> usize {
        self.channels.get(channel).map_or(0, |channel| channel.deltas)
    }
}

/// A channel of a checkpoint, without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelInfo {
    /// The size of the value and its deltas, in bytes.
    pub size_bytes: u64,
    /// The number of deltas that follow the value.
    pub deltas: usize,
    /// `true` if the pending writes of ancestors belong to the channel, too.
    pub pending: bool,
}

/// A checkpoint with its values and pending writes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The checkpoint without its values.
    pub info: CheckpointInfo,
    /// The part of the state that belongs to this checkpoint alone.
    pub state: Bytes,
    /// The channels that exist.
    pub channels: BTreeMap<String, ChannelValue>,
    /// The writes of tasks that ended after the checkpoint, by path, task and index.
    pub writes: Vec<PendingWrite>,
}

/// The value of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChannelValue {
    /// The value that was last set; `None` if the channel has deltas or pending writes alone.
    pub value: Option<Bytes>,
    /// The deltas that follow it, oldest first.
    pub deltas: Vec<Bytes>,
    /// `true` if the pending writes of ancestors belong to the channel, too.
    pub pending: bool,
}

/// The origin of a channel's value: see [`Checkpointer::history`](super::Checkpointer::history).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChannelHistory {
    /// The value in the nearest ancestor that has one; `None` if no ancestor has one.
    pub seed: Option<ChannelValue>,
    /// The pending writes to the channel from that ancestor to the parent, oldest first. The writes of one
    /// ancestor are ordered by path, task and index.
    pub writes: Vec<PendingWrite>,
}

/// A value that a task wrote after a checkpoint, before the next checkpoint exists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingWrite {
    /// The id of the task, 1 to 128 bytes.
    pub task: String,
    /// The position of the write within the task. A write with a negative index replaces the one with that
    /// index; any other leaves it as it is.
    pub index: i32,
    /// The path of the task in the graph, at most 512 bytes. It may be empty.
    pub path: String,
    /// The channel.
    pub channel: String,
    /// The bytes of the value.
    pub value: Bytes,
}

impl PendingWrite {
    /// Creates a write without a path.
    #[must_use]
    pub fn new(
        task: impl Into<String>,
        index: i32,
        channel: impl Into<String>,
        value: impl Into<Bytes>,
    ) -> Self {
        let (task, channel, value) = (task.into(), channel.into(), value.into());
        Self { task, index, path: String::new(), channel, value }
    }

    /// Sets the path of the task.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }
}

/// The checkpoints that a listing returns.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct CheckpointFilter {
    /// Only the checkpoints of this run.
    pub run: Option<RunId>,
    /// Only checkpoints whose metadata has each of these keys with an equal value.
    pub metadata: Metadata,
}

impl CheckpointFilter {
    /// Lists only the checkpoints of a run.
    #[must_use]
    pub fn with_run(mut self, run: impl Into<Option<RunId>>) -> Self {
        self.run = run.into();
        self
    }

    /// Lists only checkpoints whose metadata has each of these keys with an equal value.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    pub(super) fn selects(&self, info: &CheckpointInfo) -> bool {
        (self.run.is_none() || self.run == info.run)
            && self
                .metadata
                .iter()
                .all(|(key, value)| info.metadata.get(key).is_some_and(|found| json_equal(value, found)))
    }
}

/// The checkpoints that a pruning keeps in each namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prune {
    /// The newest ones, this many, but at least one.
    KeepNewest(usize),
    /// The newest one, and all that were written at this time or later, by their writers' clocks.
    KeepSince(Timestamp),
}
