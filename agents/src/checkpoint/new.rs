//! A checkpoint to be written.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_kernel::{Metadata, Result, RunId, check};

use super::thread::CheckpointId;

/// The maximum number of deltas that follow the value of a channel. After as many, a turn must set the value.
pub const DELTAS_MAX: usize = 256;
/// The maximum number of values and deltas that one turn writes.
const VALUES_MAX: usize = 900;
/// The maximum length of a channel's name, in bytes of UTF-8.
pub(super) const CHANNEL_BYTES_MAX: usize = 256;

/// A checkpoint to be written.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct NewCheckpoint {
    /// The checkpoint that it follows; `None` for the first one of a namespace.
    pub parent: Option<CheckpointId>,
    /// Its id, which must sort after the parent's; `None` draws one that sorts after all drawn before it.
    /// Either all checkpoints of a namespace have drawn ids, or none has.
    /// A caller that may repeat a put passes an id: the repetition has no second effect.
    pub id: Option<CheckpointId>,
    /// The run that writes it.
    pub run: Option<RunId>,
    /// Other data about it, which listings return and filters compare.
    pub metadata: Metadata,
    /// The part of the state that belongs to this checkpoint alone.
    pub state: Bytes,
    /// The changes of the channels.
    pub channels: BTreeMap<String, ChannelUpdate>,
    /// The treatment of the parent's channels that `channels` does not name.
    pub unnamed: UnnamedChannels,
    /// `true` if the parent may have another child already.
    pub fork: bool,
}

/// The change of a channel in a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelUpdate {
    /// The channel has this value.
    Value(Bytes),
    /// The channel has its value and deltas in the parent, and these deltas.
    Deltas(Vec<Bytes>),
    /// The channel is as in the parent.
    Keep,
    /// The channel is as in the parent, with the pending writes of the parent to this channel.
    /// [`Checkpointer::history`](super::Checkpointer::history) returns them. Pruning keeps what it needs.
    Pending,
    /// The channel is absent.
    Remove,
}

/// The treatment of the parent's channels that a turn does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnnamedChannels {
    /// They are as in the parent.
    #[default]
    Keep,
    /// They are absent.
    Remove,
}

impl NewCheckpoint {
    /// Creates the checkpoint that follows a parent, with the parent's channels.
    #[must_use]
    pub fn new(parent: impl Into<Option<CheckpointId>>, state: impl Into<Bytes>) -> Self {
        Self { parent: parent.into(), state: state.into(), ..Self::default() }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<Option<CheckpointId>>) -> Self {
        self.id = id.into();
        self
    }

    /// Sets the run that writes it.
    #[must_use]
    pub fn with_run(mut self, run: impl Into<Option<RunId>>) -> Self {
        self.run = run.into();
        self
    }

    /// Sets other data about it.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Changes a channel.
    #[must_use]
    pub fn with_channel(mut self, channel: impl Into<String>, update: ChannelUpdate) -> Self {
        self.channels.insert(channel.into(), update);
        self
    }

    /// Sets the value of a channel.
    #[must_use]
    pub fn with_value(self, channel: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.with_channel(channel, ChannelUpdate::Value(value.into()))
    }

    /// Adds one delta to a channel.
    #[must_use]
    pub fn with_delta(self, channel: impl Into<String>, delta: impl Into<Bytes>) -> Self {
        self.with_channel(channel, ChannelUpdate::Deltas(vec![delta.into()]))
    }

    /// Sets the treatment of the parent's channels that are not named.
    #[must_use]
    pub fn with_unnamed(mut self, unnamed: UnnamedChannels) -> Self {
        self.unnamed = unnamed;
        self
    }

    /// Makes it a branch: the parent may have another child already.
    #[must_use]
    pub fn as_fork(mut self) -> Self {
        self.fork = true;
        self
    }

    /// Checks the sizes that do not depend on the parent.
    pub(super) fn check(&self, operation: &'static str) -> Result<()> {
        self.metadata.check(operation, "metadata")?;
        let mut values = 0;
        for (channel, update) in &self.channels {
            check::batch(operation, "channel", channel.len(), CHANNEL_BYTES_MAX)?;
            check::no_nul(operation, "channel", channel)?;
            values += match update {
                ChannelUpdate::Value(_) => 1,
                ChannelUpdate::Deltas(deltas) => deltas.len(),
                ChannelUpdate::Keep | ChannelUpdate::Pending | ChannelUpdate::Remove => 0,
            };
        }
        check::at_most(operation, "channels", values, VALUES_MAX)
    }
}
