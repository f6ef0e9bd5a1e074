//! Which stored messages a window lacks, and what left them out.

use std::collections::BTreeSet;

use larder_kernel::{Origin, Seq, WindowMessage};

/// Stored messages that a window lacks and that its summary does not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// The strategy that left them out; `rolling_window` for the limit of the profile, `memory` for what the agent does not
    /// see of the session, `pair_tool_calls` for calls without results and results without calls.
    pub strategy: &'static str,
    /// The messages, oldest first.
    pub messages: Vec<Seq>,
    /// Every message before this place that the window lacks was left out as well, where that is so: the strategy looks
    /// no further back, or the summary that covers them did not fit.
    pub before: Option<Seq>,
}

impl LeftOut {
    /// Whether this left out the message at this place, which the window lacks.
    #[must_use]
    pub fn contains(&self, seq: Seq) -> bool {
        self.before.is_some_and(|before| seq < before) || self.messages.binary_search(&seq).is_ok()
    }
}

/// Follows which stored messages are still in a window.
#[derive(Debug, Default)]
pub(crate) struct Present {
    present: BTreeSet<Seq>,
    pub(crate) left_out: Vec<LeftOut>,
}

impl Present {
    pub(crate) fn new(messages: &[WindowMessage]) -> Self {
        Self { present: places(messages), left_out: Vec::new() }
    }

    /// Notes what a step left out: what it erases, and what no summary covers.
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

    /// Notes that everything before a place was left out.
    pub(crate) fn all_before(&mut self, strategy: &'static str, before: Seq) {
        self.left_out.push(LeftOut { strategy, messages: Vec::new(), before: Some(before) });
    }

    /// Whether a stored message is still in the window.
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
