//! Deciding which checkpoints a removal deletes and which it only hides.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{ChannelRecord, InfoRecord};
use super::thread::CheckpointId;

/// The descriptions of all checkpoints of a namespace.
pub(super) type Infos = BTreeMap<CheckpointId, InfoRecord>;

/// The effect of a removal on a checkpoint.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Delete,
    /// The checkpoint remains for its pending writes, with these channels, and no listing shows it.
    Hide(BTreeMap<String, ChannelRecord>),
}

/// Returns the effects of a removal. Of the checkpoints to remove, and of those hidden before, it hides the
/// ancestors of remaining ones up to the values of their pending channels.
pub(super) fn plan(infos: &Infos, remove: &BTreeSet<CheckpointId>) -> BTreeMap<CheckpointId, Action> {
    let gone = |id: &CheckpointId, info: &InfoRecord| info.hidden || remove.contains(id);
    let mut needed: BTreeMap<&CheckpointId, BTreeSet<&str>> = BTreeMap::new();
    for (_, info) in infos.iter().filter(|(id, info)| !gone(id, info)) {
        for (name, _) in info.channels.iter().filter(|(_, channel)| channel.pending) {
            let mut next = info.parent.as_ref();
            while let Some((id, ancestor)) = next.and_then(|id| infos.get_key_value(id)) {
                let unvisited = needed.entry(id).or_default().insert(name);
                if !unvisited || ancestor.channels.get(name).is_some_and(|channel| !channel.pending) {
                    break;
                }
                next = ancestor.parent.as_ref();
            }
        }
    }
    let action = |(id, info): (&CheckpointId, &InfoRecord)| {
        let Some(names) = needed.get(id) else { return Some((id.clone(), Action::Delete)) };
        let kept = info.channels.iter().filter(|(name, _)| names.contains(name.as_str()));
        let kept: BTreeMap<_, _> = kept.map(|(name, channel)| (name.clone(), channel.clone())).collect();
        let unchanged = info.hidden && kept.len() == info.channels.len();
        (!unchanged).then(|| (id.clone(), Action::Hide(kept)))
    };
    infos.iter().filter(|(id, info)| gone(id, info)).filter_map(action).collect()
}
