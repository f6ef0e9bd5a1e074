//! What happened to a thread beside the messages that it holds.

use larder_kernel::RunId;
use larder_kernel::check::size;

/// What the quota counts for an event beyond its content.
const EVENT_SHARE_BYTES: u64 = 128;

pub(super) struct Event {
    pub(super) seq: i64,
    pub(super) kind: EventKind,
}

pub(super) enum EventKind {
    RunCleared {
        run: RunId,
        removed: u64,
    },
    Cleared {
        removed: u64,
    },
    /// What is left of the replacement stands in `first..=up_to`.
    Replaced {
        first: i64,
        up_to: i64,
        removed: u64,
        thread_bytes: u64,
    },
}

impl Event {
    /// What the quota counts for it.
    pub(super) fn share(&self) -> u64 {
        let run_bytes = match &self.kind {
            EventKind::RunCleared { run, .. } => size(run.as_str().len()),
            EventKind::Cleared { .. } | EventKind::Replaced { .. } => 0,
        };
        EVENT_SHARE_BYTES + run_bytes
    }
}
