//! The settings of a workflow.

use std::collections::BTreeMap;

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{Error, Result, check};

use super::carry::CarryForward;
use super::spec::{StateSpec, WorkflowSpec};

/// The location of a transient state's conversation during the visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TransientConversations {
    /// The handle keeps the conversation, and no store does. Another handle, or the process after a restart,
    /// finds an empty conversation. Route all requests of one run to one worker.
    #[default]
    Memory,
    /// The history keeps the conversation, in a thread for the visit that is cleared when the state is left.
    /// Any worker can continue.
    UntilLeft,
}

/// The settings of a workflow.
///
/// By default a window has the newest 100 messages of the state's conversation, nothing is carried forward,
/// and transient conversations are kept in memory. The name of a prompt task is used as its text.
#[derive(Debug, Clone)]
pub struct WorkflowOptions {
    prompts: BTreeMap<String, String>,
    carry_forward: Option<CarryForward>,
    transient: TransientConversations,
    window_messages: usize,
}

impl Default for WorkflowOptions {
    fn default() -> Self {
        Self {
            prompts: BTreeMap::new(),
            carry_forward: None,
            transient: TransientConversations::default(),
            window_messages: 100,
        }
    }
}

impl WorkflowOptions {
    /// Sets the text of a prompt task. Once one task has a text, all tasks of the workflow must have one.
    #[must_use]
    pub fn with_prompt(mut self, task: impl Into<String>, text: impl Into<String>) -> Self {
        self.prompts.insert(task.into(), text.into());
        self
    }

    /// Carries summaries of earlier states forward.
    #[must_use]
    pub fn with_carry_forward(mut self, carry_forward: CarryForward) -> Self {
        self.carry_forward = Some(carry_forward);
        self
    }

    /// Sets the location of transient conversations.
    #[must_use]
    pub fn with_transient(mut self, transient: TransientConversations) -> Self {
        self.transient = transient;
        self
    }

    /// Sets the largest number of the state's messages in a window: 1 to 10,000.
    #[must_use]
    pub fn with_window_messages(mut self, window_messages: usize) -> Self {
        self.window_messages = window_messages;
        self
    }

    pub(crate) fn check(&self, spec: &WorkflowSpec) -> Result<()> {
        const OPERATION: &str = "workflow.options";
        check::batch(OPERATION, "window_messages", self.window_messages, PAGE_ITEMS_MAX)?;
        if let Some(carry_forward) = &self.carry_forward {
            carry_forward.check()?;
        }
        let missing = |state: &StateSpec| !self.prompts.contains_key(&state.prompt_task);
        match spec.states().iter().find(|(_, state)| missing(state)) {
            Some((name, _)) if !self.prompts.is_empty() => {
                let message = format!("states.{name}.prompt_task: no prompt of this name was given");
                Err(Error::invalid(OPERATION, "prompts", message))
            }
            _ => Ok(()),
        }
    }

    /// Returns the text of a state's prompt task.
    pub(crate) fn task<'a>(&'a self, state: &'a StateSpec) -> &'a str {
        self.prompts.get(&state.prompt_task).unwrap_or(&state.prompt_task)
    }

    pub(crate) fn carry_forward(&self) -> Option<&CarryForward> {
        self.carry_forward.as_ref()
    }

    pub(crate) fn transient(&self) -> TransientConversations {
        self.transient
    }

    pub(crate) fn window_messages(&self) -> usize {
        self.window_messages
    }
}
