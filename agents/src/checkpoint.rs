//! Checkpoints of agent runs: the state after each turn, with its parent.
//!
//! A [`Checkpointer`] stores the checkpoints of a thread in one bucket of a
//! [`KeyValueStore`](larder_kernel::KeyValueStore), and large values in a
//! [`BlobStore`](larder_kernel::BlobStore) if it has one. It has the semantics of LangGraph's savers:
//! threads, namespaces, parents, pending writes, filters, delta channels, copies and pruning. In addition:
//!
//! - A turn is one atomic `write`: a checkpoint exists with all of its values or not at all.
//! - Of two writers that continue one checkpoint, one succeeds and the other gets `Conflict`.
//! - The numbers of calls and bytes of a turn do not depend on the number of earlier turns.
//!
//! # Values
//!
//! A checkpoint has a `state`, which belongs to it alone, and named channels. A channel that a turn does not
//! name keeps its value, and the turn does not write it again. A channel that grows can be written as deltas:
//! each turn adds one, and a turn that sets the value starts again. At most [`DELTAS_MAX`] deltas follow a
//! value. A channel whose whole value is set costs the size of the value in every turn that sets it.
//!
//! # Storage
//!
//! The bucket `larder.checkpoints/THREAD` has, for each namespace, a head, and for each checkpoint a
//! description, an entry that names its parent, its values and its pending writes. Each change of the
//! checkpoints of a namespace rewrites the head at the revision that it read. A checkpoint that changed or
//! disappeared in between therefore never becomes a parent.
//!
//! With a blob store, a value over 1 MiB is first written as a blob `cp/…` and then named by the turn.
//! Without one, the value is divided into entries of 1 MiB. An interrupted turn leaves only blobs that no
//! checkpoint names; [`Checkpointer::collect_blobs`] deletes them.

mod checkpointer;
mod collect;
mod copy;
mod delete;
mod guard;
mod history;
mod keys;
mod new;
mod plan;
mod prune;
mod put;
mod read;
mod record;
#[cfg(test)]
mod tests;
mod thread;
mod types;
mod values;
mod writes;

pub use checkpointer::Checkpointer;
pub use new::{ChannelUpdate, DELTAS_MAX, NewCheckpoint, UnnamedChannels};
pub use thread::{CheckpointId, CheckpointNamespace, CheckpointThread};
pub use types::{
    ChannelHistory, ChannelInfo, ChannelValue, Checkpoint, CheckpointFilter, CheckpointInfo, PendingWrite,
    Prune,
};
