//! The events of a thread, apart from its messages.

use larder_kernel::RunId;
use larder_kernel::check::size;

/// The quota share of an event, apart from its content.
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
    Removed {
        seqs: Vec<i64>,
    },
    /// An update of the message with the number `of`. It is shown while the message has this revision.
    Updated {
        of: i64,
        thread_bytes: u64,
    },
    Rewound {
        after: i64,
        removed: u64,
    },
    /// A replacement. Its remaining messages have the positions `first..=up_to`.
    Replaced {
        first: i64,
        up_to: i64,
        removed: u64,
        thread_bytes: u64,
    },
}

impl Event {
    /// Returns the quota share of the event.
    pub(super) fn share(&self) -> u64 {
        let content = match &self.kind {
            EventKind::RunCleared { run, .. } => size(run.as_str().len()),
            EventKind::Removed { seqs } => size(size_of_val(seqs.as_slice())),
            EventKind::Cleared { .. }
            | EventKind::Rewound { .. }
            | EventKind::Updated { .. }
            | EventKind::Replaced { .. } => 0,
        };
        EVENT_SHARE_BYTES + content
    }
}
