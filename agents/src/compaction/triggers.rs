//! The thresholds that start a long-term strategy, and the part that it processes.

use std::collections::HashMap;

use larder_kernel::{ChatMessage, Error, Result, check};

use super::turns;
use crate::tokens::{TokenCounter, tokens_of};

/// The conditions of a long-term strategy. Any one of them starts it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Triggers {
    pub(super) input_tokens: Option<u64>,
    pub(super) interactions: Option<u64>,
    pub(super) interaction_tokens: Option<u64>,
    pub(super) tools_success: Vec<String>,
    pub(super) tools_error: Vec<String>,
    pub(super) keep: usize,
}

/// Reads a threshold from a document; -1 disables it.
fn threshold(operation: &'static str, field: &'static str, number: i64) -> Result<Option<u64>> {
    match number {
        -1 => Ok(None),
        _ => u64::try_from(number)
            .map(Some)
            .map_err(|_| Error::invalid(operation, field, "is below -1; use -1 for never")),
    }
}

impl Triggers {
    /// Reads the thresholds, by name: tokens of the window, number of interactions and tokens of the
    /// interactions. Also reads the tools whose success or failure starts the strategy.
    pub(super) fn read(
        operation: &'static str,
        thresholds: [(&'static str, i64); 3],
        (success, error): (&[String], &[String]),
        keep: usize,
    ) -> Result<Self> {
        for (field, names) in [("on_tools_success_threshold", success), ("on_tools_error_threshold", error)] {
            names.iter().try_for_each(|name| check::at_least(operation, field, name.len(), 1))?;
        }
        let [input, interactions, tokens] =
            thresholds.map(|(field, number)| threshold(operation, field, number));
        Ok(Self {
            input_tokens: input?,
            interactions: interactions?,
            interaction_tokens: tokens?,
            tools_success: success.to_vec(),
            tools_error: error.to_vec(),
            keep,
        })
    }

    /// Returns the number of messages, oldest first, that the strategy takes. `tokens` is the size of the
    /// whole window.
    ///
    /// The last interaction is left out while it is not complete: the model has yet to reply.
    pub(super) fn plan(&self, messages: &[&ChatMessage], tokens: u64, counter: &dyn TokenCounter) -> usize {
        let interactions = turns::interactions(messages);
        let human = interactions.iter().filter(|turn| turns::is_human_turn(messages[turn.start])).count();
        let over = |limit: Option<u64>, actual: u64| limit.is_some_and(|limit| actual > limit);
        let fires = over(self.input_tokens, tokens)
            || over(self.interactions, check::size(human))
            || over(
                self.interaction_tokens,
                messages.iter().map(|message| tokens_of(counter, message)).sum(),
            )
            || interactions.last().is_some_and(|last| self.tools_fire(&messages[last.clone()]));
        if !fires {
            return 0;
        }
        let kept = match interactions.len().checked_sub(self.keep) {
            None | Some(0) => 0,
            Some(taken) => interactions[taken - 1].end,
        };
        kept.min(turns::closed(messages))
    }

    /// Returns `true` if a configured tool ended as configured in these messages. Only the newest interaction
    /// is checked, so a result that is kept does not start the strategy again with each question.
    fn tools_fire(&self, messages: &[&ChatMessage]) -> bool {
        if self.tools_success.is_empty() && self.tools_error.is_empty() {
            return false;
        }
        let mut names: HashMap<&str, &str> = HashMap::new();
        for message in messages {
            names.extend(message.tool_calls.iter().map(|call| (&*call.id, &*call.name)));
            for result in &message.tool_results {
                let watched = if result.is_error { &self.tools_error } else { &self.tools_success };
                let name = names.get(&*result.call_id);
                if name.is_some_and(|name| watched.iter().any(|tool| tool == name)) {
                    return true;
                }
            }
        }
        false
    }
}
