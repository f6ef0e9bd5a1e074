//! Random calls, compared with a model in plain maps.
#![allow(clippy::print_stdout, reason = "a failure is found by its seed")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use larder_kernel::random::Random;
use larder_kernel::{ErrorKind, Metadata, RunId};

use super::support::{Spy, listed, open, run, thread};
use crate::checkpoint::{
    ChannelUpdate, ChannelValue, CheckpointId, CheckpointNamespace, CheckpointThread, Checkpointer,
    NewCheckpoint, PendingWrite, Prune, UnnamedChannels, keys,
};

/// The number of sequences.
const SEQUENCES: u64 = 16;
/// The number of calls of each sequence.
const CALLS: usize = 90;

/// A checkpoint of the model.
#[derive(Debug, Clone)]
struct Item {
    parent: Option<CheckpointId>,
    run: RunId,
    metadata: Metadata,
    state: Bytes,
    channels: BTreeMap<String, ChannelValue>,
    writes: BTreeMap<(String, i32), PendingWrite>,
    removed: bool,
}

/// A namespace of the model. Removed checkpoints stay, because a history may need them.
#[derive(Debug, Clone, Default)]
struct Model(BTreeMap<CheckpointId, Item>);

impl Model {
    fn ids(&self) -> Vec<CheckpointId> {
        self.0.iter().filter(|(_, item)| !item.removed).map(|(id, _)| id.clone()).collect()
    }

    fn has_child(&self, parent: Option<&CheckpointId>) -> bool {
        self.0.values().any(|item| !item.removed && (parent.is_none() || item.parent.as_ref() == parent))
    }

    fn remove(&mut self, ids: &[CheckpointId]) {
        for id in ids {
            self.0.get_mut(id).unwrap().removed = true;
        }
    }

    /// Returns the value and the pending writes of `log`, in the order of a history.
    fn log(&self, id: &CheckpointId) -> (Option<ChannelValue>, Vec<PendingWrite>) {
        let (mut writes, mut next) = (Vec::new(), self.0[id].parent.as_ref());
        while let Some(item) = next.map(|id| &self.0[id]) {
            let own: Vec<PendingWrite> =
                item.writes.values().filter(|write| write.channel == "log").cloned().collect();
            writes.splice(0..0, own);
            if let Some(value) = item.channels.get("log").filter(|value| !value.pending) {
                return (Some(value.clone()), writes);
            }
            next = item.parent.as_ref();
        }
        (None, writes)
    }
}

/// Returns a turn, and the channels that the checkpoint then has.
fn turn(
    random: &mut Random,
    parent: Option<(&CheckpointId, &Item)>,
) -> (NewCheckpoint, BTreeMap<String, ChannelValue>) {
    let text = |random: &mut Random| Bytes::from(random.below(1_000).to_string());
    let mut new = NewCheckpoint::new(parent.map(|(id, _)| id.clone()), text(random));
    let inherited = parent.map(|(_, item)| item.channels.clone()).unwrap_or_default();
    let mut channels = inherited.clone();
    if random.one_in(4) {
        new = new.with_unnamed(UnnamedChannels::Remove);
        channels.clear();
    }
    for name in ["a", "b", "c"] {
        let base = inherited.get(name).cloned();
        let (update, value) = match random.below(6) {
            0 => {
                let value = text(random);
                let own = ChannelValue { value: Some(value.clone()), ..Default::default() };
                (ChannelUpdate::Value(value), Some(own))
            }
            1 => {
                let deltas: Vec<Bytes> = (0..random.below(3)).map(|_| text(random)).collect();
                let mut value = base.unwrap_or_default();
                value.deltas.extend(deltas.iter().cloned());
                (ChannelUpdate::Deltas(deltas), Some(value))
            }
            2 => (ChannelUpdate::Keep, base),
            3 => (ChannelUpdate::Remove, None),
            _ => continue,
        };
        new = new.with_channel(name, update);
        match value {
            Some(value) => channels.insert(name.to_owned(), value),
            None => channels.remove(name),
        };
    }
    // `log` begins with a value and otherwise consists of pending writes.
    let log = if parent.is_none() || random.one_in(6) {
        let value = text(random);
        new = new.with_value("log", value.clone());
        ChannelValue { value: Some(value), ..Default::default() }
    } else {
        new = new.with_channel("log", ChannelUpdate::Pending);
        ChannelValue { pending: true, ..inherited["log"].clone() }
    };
    channels.insert("log".to_owned(), log);
    let metadata = Metadata::new().with("step", random.below(3));
    (new.with_metadata(metadata).with_run(run(random.below(4))), channels)
}

async fn put(
    random: &mut Random,
    checkpoints: &Checkpointer,
    namespace: &CheckpointNamespace,
    model: &mut Model,
) {
    let all: Vec<CheckpointId> = model.0.keys().cloned().collect();
    let parent = match (random.below(8), all.is_empty()) {
        (_, true) | (0, _) => None,
        (1..3, _) => Some(random.pick(&all)),
        _ => model.ids().pop(),
    };
    let parent = parent.map(|id| (id.clone(), model.0[&id].clone()));
    let (mut new, channels) = turn(random, parent.as_ref().map(|(id, item)| (id, item)));
    if random.one_in(3) {
        new = new.as_fork();
    }
    let item = Item {
        parent: new.parent.clone(),
        run: new.run.clone().unwrap(),
        metadata: new.metadata.clone(),
        state: new.state.clone(),
        channels,
        writes: BTreeMap::new(),
        removed: false,
    };
    let expected = if parent.as_ref().is_some_and(|(_, item)| item.removed) {
        Some(ErrorKind::NotFound)
    } else if !new.fork && model.has_child(new.parent.as_ref()) {
        Some(ErrorKind::Conflict)
    } else {
        None
    };
    match checkpoints.put(namespace, new).await {
        Ok(id) => {
            assert_eq!(expected, None);
            assert!(model.ids().iter().all(|earlier| *earlier < id));
            model.0.insert(id, item);
        }
        Err(error) => assert_eq!(Some(error.kind()), expected, "{error}"),
    }
}

async fn put_writes(
    random: &mut Random,
    checkpoints: &Checkpointer,
    namespace: &CheckpointNamespace,
    model: &mut Model,
) {
    let ids = model.ids();
    if ids.is_empty() {
        return;
    }
    let id = random.pick(&ids);
    let task = random.below(3).to_string();
    let first = i32::try_from(random.below(4)).unwrap() - 2;
    let write = |index| {
        let channel = random.pick(&["log", "a"]);
        PendingWrite::new(task.clone(), index, channel, random.below(1_000).to_string())
    };
    let writes: Vec<PendingWrite> = (first..first + 2).map(write).collect();
    checkpoints.put_writes(namespace, &id, writes.clone()).await.unwrap();
    let stored = &mut model.0.get_mut(&id).unwrap().writes;
    for write in writes {
        let key = (write.task.clone(), write.index);
        if write.index < 0 || !stored.contains_key(&key) {
            stored.insert(key, write);
        }
    }
}

/// Compares everything that can be read.
async fn compare(checkpoints: &Checkpointer, namespace: &CheckpointNamespace, model: &Model) {
    let mut ids = listed(checkpoints, namespace).await;
    ids.reverse();
    assert_eq!(ids, model.ids());
    for (id, item) in &model.0 {
        let found = checkpoints.get(namespace, Some(id)).await.unwrap();
        if item.removed {
            assert_eq!(found, None);
            continue;
        }
        let found = found.unwrap();
        assert_eq!((&found.info.parent, &found.info.run), (&item.parent, &Some(item.run.clone())));
        assert_eq!((&found.info.metadata, &found.state), (&item.metadata, &item.state));
        assert_eq!(found.channels, item.channels);
        assert_eq!(found.writes, item.writes.values().cloned().collect::<Vec<_>>());
        if item.channels["log"].pending {
            let history = checkpoints.history(namespace, id, &["log"]).await.unwrap();
            assert_eq!((history["log"].seed.clone(), history["log"].writes.clone()), model.log(id));
        }
    }
    garbage(checkpoints, namespace).await;
}

/// Checks that every stored value and pending write belongs to a description.
async fn garbage(checkpoints: &Checkpointer, namespace: &CheckpointNamespace) {
    let infos = checkpoints.infos("test", namespace).await.unwrap();
    let mut named = BTreeSet::new();
    for value in infos.values().flat_map(|info| info.values()) {
        named.extend(value.keys(namespace).unwrap());
    }
    let bucket = &namespace.thread().bucket;
    let query = |prefix| larder_kernel::KeyValueQuery::prefix(prefix);
    let stored = checkpoints.entries("test", bucket, &query(keys::values(namespace))).await.unwrap();
    assert_eq!(stored.into_iter().map(|item| item.key).collect::<BTreeSet<_>>(), named);
    let writes = checkpoints.entries("test", bucket, &query(keys::all_writes(namespace))).await.unwrap();
    for item in writes {
        assert!(infos.contains_key(&keys::WriteKey::read(namespace, &item.key).unwrap().id));
    }
}

/// Performs one call on a namespace, or on its whole thread.
async fn step(
    random: &mut Random,
    checkpoints: &Checkpointer,
    namespace: &CheckpointNamespace,
    model: &mut Model,
) {
    let thread: &CheckpointThread = namespace.thread();
    match random.below(40) {
        0 => {
            let keep = random.below(4);
            let ids = model.ids();
            let gone = &ids[..ids.len().saturating_sub(keep.max(1))];
            let removed = checkpoints.prune(thread, Prune::KeepNewest(keep)).await.unwrap();
            assert_eq!(usize::try_from(removed).unwrap(), gone.len());
            model.remove(gone);
        }
        1 => {
            let of_run = run(random.below(4));
            let ids: Vec<_> = model.ids().into_iter().filter(|id| model.0[id].run == of_run).collect();
            let removed = checkpoints.delete_runs(thread, &[of_run]).await.unwrap();
            assert_eq!(usize::try_from(removed).unwrap(), ids.len());
            model.remove(&ids);
        }
        2 if random.one_in(3) => {
            let removed = checkpoints.delete(thread).await.unwrap();
            assert_eq!(usize::try_from(removed).unwrap(), model.ids().len());
            *model = Model::default();
        }
        3..15 => put_writes(random, checkpoints, namespace, model).await,
        _ => put(random, checkpoints, namespace, model).await,
    }
}

#[tokio::test]
async fn any_sequence_of_calls_has_the_effect_of_the_model() {
    for seed in 0..SEQUENCES {
        let mut random = Random::new(seed);
        let (_, checkpoints, namespace): (std::sync::Arc<Spy>, _, _) = open();
        let mut model = Model::default();
        for call in 0..CALLS {
            step(&mut random, &checkpoints, &namespace, &mut model).await;
            if call % 10 == 0 {
                println!("seed {seed}, call {call}");
                compare(&checkpoints, &namespace, &model).await;
            }
        }
        compare(&checkpoints, &namespace, &model).await;
        // A copy has the same checkpoints, and goes on like its source.
        let copy = thread("copy");
        let copied = checkpoints.copy(namespace.thread(), &copy).await.unwrap();
        assert_eq!(usize::try_from(copied).unwrap(), model.ids().len());
        let mut copied = model.clone();
        for _ in 0..20 {
            step(&mut random, &checkpoints, &copy.root(), &mut copied).await;
        }
        compare(&checkpoints, &copy.root(), &copied).await;
        compare(&checkpoints, &namespace, &model).await;
    }
}
