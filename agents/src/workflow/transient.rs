//! The summaries of transient states.
//!
//! The summary of a persistent state is part of the stored run. The summary of a transient state would store
//! its conversation, so only the handle holds it.

use super::record::{Carried, Record};

/// The summaries of transient states. No store holds them.
#[derive(Debug, Clone, Default)]
pub(crate) struct TransientSummaries {
    /// The summaries, oldest first.
    summaries: Vec<Carried>,
    /// The number of summaries that were dropped for later ones.
    left_out: u64,
    /// The summary that belongs to a commit whose result is unknown, and the token of that commit.
    draft: Option<(String, Carried)>,
}

impl TransientSummaries {
    /// Holds the summary that belongs to a commit with this token.
    pub(crate) fn draft(&mut self, token: &str, carried: Option<Carried>) {
        self.draft = carried.map(|carried| (token.to_owned(), carried));
    }

    /// Returns the summaries, oldest first.
    pub(crate) fn summaries(&self) -> &[Carried] {
        &self.summaries
    }

    /// Returns the number of summaries that were dropped for later ones.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds the draft if the record is the one that the draft was made for. Drops it otherwise.
    pub(crate) fn settle(&mut self, record: &Record, states_max: usize) {
        let draft = self.draft.take().filter(|(token, _)| *token == record.token);
        self.summaries.extend(draft.map(|(_, carried)| carried));
        while self.summaries.len() > states_max {
            self.summaries.remove(0);
            self.left_out += 1;
        }
    }
}
