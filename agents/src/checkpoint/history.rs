//! The history of channels whose values are in pending writes.

use std::collections::{BTreeMap, BTreeSet};

use larder_kernel::{Key, KeyValueQuery, Result, check};

use super::checkpointer::Checkpointer;
use super::keys;
use super::new::CHANNEL_BYTES_MAX;
use super::read::{Attempts, Found, channels};
use super::record::{ChannelRecord, ValueRecord};
use super::thread::{CheckpointId, CheckpointNamespace};
use super::types::ChannelHistory;

const OPERATION: &str = "checkpoint.history";

/// The ancestors of a checkpoint.
struct Walk {
    /// The ancestors from the parent on, newest first.
    path: Vec<CheckpointId>,
    /// The nearest ancestor that has a value of a channel, with the value.
    seeds: BTreeMap<String, (CheckpointId, ChannelRecord)>,
}

impl Checkpointer {
    /// Returns for each of the channels the value of the nearest ancestor that has one, and the pending
    /// writes to the channel from that ancestor to the parent. The pending writes of the checkpoint itself
    /// are not part of it.
    ///
    /// An ancestor that marked the channel as [`Pending`](super::ChannelUpdate::Pending), or that lacks it,
    /// has no value. The walk ends at the first checkpoint, and at an ancestor that was removed and that no
    /// remaining checkpoint needs.
    ///
    /// # Errors
    /// `InvalidInput` for a channel with an empty name or one of more than 256 bytes; `Corrupt` for a damaged
    /// checkpoint; `Conflict` as for [`get`](Self::get).
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(checkpoints and pending writes since the values). Four calls if that are up to 100 checkpoints, and
    /// one for each further 100.
    pub async fn history(
        &self,
        namespace: &CheckpointNamespace,
        id: &CheckpointId,
        channels: &[&str],
    ) -> Result<BTreeMap<String, ChannelHistory>> {
        for channel in channels {
            check::batch(OPERATION, "channel", channel.len(), CHANNEL_BYTES_MAX)?;
        }
        let mut attempts = Attempts::default();
        loop {
            let Some(target) = self.find(OPERATION, namespace, Some(id)).await? else {
                return Ok(channels.iter().map(|name| ((*name).to_owned(), Default::default())).collect());
            };
            match self.try_history(namespace, &target, channels).await? {
                Some(found) => return Ok(found),
                None => attempts.missed(OPERATION, &target)?,
            }
        }
    }

    async fn try_history(
        &self,
        namespace: &CheckpointNamespace,
        target: &Found,
        names: &[&str],
    ) -> Result<Option<BTreeMap<String, ChannelHistory>>> {
        let mut found: BTreeMap<String, ChannelHistory> =
            names.iter().map(|name| ((*name).to_owned(), ChannelHistory::default())).collect();
        let walk = self.walk(namespace, &target.id, target.record.parent.clone(), names).await?;
        let Some(oldest) = walk.path.last() else { return Ok(Some(found)) };
        let path: BTreeSet<&CheckpointId> = walk.path.iter().collect();
        let wanted = |id: &CheckpointId, channel: &str| {
            let seed = walk.seeds.get(channel).map(|(seed, _)| seed);
            path.contains(id) && names.contains(&channel) && seed.is_none_or(|seed| id >= seed)
        };
        let query = KeyValueQuery::prefix(keys::all_writes(namespace))
            .with_from(Key::new(keys::writes(namespace, oldest))?)
            .with_to(Key::new(keys::writes(namespace, &target.id))?)
            .with_values();
        let items = self.entries(OPERATION, &namespace.thread.bucket, &query).await?;
        let Some(writes) = self.assemble(OPERATION, namespace, items, wanted).await? else {
            return Ok(None);
        };
        // The ids ascend along a path.
        for write in writes.into_values().flatten() {
            if let Some(channel) = found.get_mut(&write.channel) {
                channel.writes.push(write);
            }
        }
        let records: Vec<&ValueRecord> = walk.seeds.values().flat_map(|(_, seed)| seed.values()).collect();
        let Some(values) = self.load(OPERATION, namespace, target, &records).await? else { return Ok(None) };
        let seeds = walk.seeds.iter().map(|(name, (_, record))| (name, record));
        for (name, value) in channels(seeds, &mut values.into_iter()) {
            if let Some(channel) = found.get_mut(&name) {
                channel.seed = Some(value);
            }
        }
        Ok(Some(found))
    }

    /// Follows the parents until each channel has a value.
    async fn walk(
        &self,
        namespace: &CheckpointNamespace,
        id: &CheckpointId,
        parent: Option<CheckpointId>,
        names: &[&str],
    ) -> Result<Walk> {
        let mut open: BTreeSet<&str> = names.iter().copied().collect();
        let mut walk = Walk { path: Vec::new(), seeds: BTreeMap::new() };
        let (mut next, mut before) = (parent, id.clone());
        while next.is_some() && !open.is_empty() {
            let (infos, more) = self.descending(OPERATION, namespace, Some(&before)).await?;
            for (id, record) in infos {
                before = id.clone();
                let Some(wanted) = &next else { break };
                if id != *wanted {
                    continue;
                }
                for (name, channel) in &record.channels {
                    if !channel.pending && open.remove(name.as_str()) {
                        walk.seeds.insert(name.clone(), (id.clone(), channel.clone()));
                    }
                }
                walk.path.push(id);
                next = if open.is_empty() { None } else { record.parent };
            }
            // An ancestor that was passed does not exist.
            if !more || next.as_ref().is_some_and(|next| *next >= before) {
                break;
            }
        }
        Ok(walk)
    }
}
