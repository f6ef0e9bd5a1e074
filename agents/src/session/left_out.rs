//! Stored messages that are missing from a window, with the step that left them out.

use std::collections::BTreeSet;

use larder_kernel::{Origin, Seq, WindowMessage};

/// Stored messages that are missing from a window and that its summary does not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The strategy that left the messages out. Other values are `rolling_window` for the limit of the
    /// profile, `memory` for messages that the agent may not see, and `pair_tool_calls` for calls without
    /// results and results without calls.
    pub strategy: &'static str,
    /// The messages, oldest first.
    pub messages: Vec<Seq>,
    /// The position before which every missing message was left out too, if any. The strategy looks no
    /// further back, or the summary that covers these messages did not fit.
    pub before: Option<Seq>,
}

impl LeftOut {
    /// Returns `true` if this step left out the missing message at `seq`.
    #[must_use]
    pub fn contains(&self, seq: Seq) -> bool {
        self.before.is_some_and(|before| seq < before) || self.messages.binary_search(&seq).is_ok()
    }
}

/// Tracks the stored messages that are still in a window.
#[derive(Debug, Default)]
pub(crate) struct Present {
    present: BTreeSet<Seq>,
    pub(crate) left_out: Vec<LeftOut>,
}

impl Present {
    pub(crate) fn new(messages: &[WindowMessage]) -> Self {
        Self { present: places(messages), left_out: Vec::new() }
    }

    /// Records the messages that a step left out: messages that it erases, and messages that no summary
    /// covers.
    pub(crate) fn step(
        &mut self,
        strategy: &'static str,
        messages: &[WindowMessage],
        (covered, erased): (Option<Seq>, Option<Seq>),
    ) {
        let now = places(messages);
        let gone = self.present.difference(&now).copied();
        let leaves = |seq: &Seq| Some(*seq) > covered || Some(*seq) <= erased;
        let gone: Vec<Seq> = gone.filter(leaves).collect();
        self.present = now;
        if !gone.is_empty() {
            self.left_out.push(LeftOut { strategy, messages: gone, before: None });
        }
    }

    /// Records that everything before a position was left out.
    pub(crate) fn all_before(&mut self, strategy: &'static str, before: Seq) {
        self.left_out.push(LeftOut { strategy, messages: Vec::new(), before: Some(before) });
    }

    /// Returns `true` if a stored message is still in the window.
    pub(crate) fn has(&self, seq: Seq) -> bool {
        self.present.contains(&seq)
    }
}

fn places(messages: &[WindowMessage]) -> BTreeSet<Seq> {
    let places = messages.iter().filter_map(|message| match message.origin {
        Origin::Stored(seq) => Some(seq),
        _ => None,
    });
    places.collect()
}
