//! The settings of a workflow.

use std::collections::BTreeMap;

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{Error, Result, check};

use super::carry::CarryForward;
use super::spec::{StateSpec, WorkflowSpec};
use crate::load::OnLoadError;

/// The default number of the state's messages in a window.
const WINDOW_MESSAGES_DEFAULT: usize = 100;

/// The location of a transient state's conversation during the visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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
    window_messages: Option<usize>,
    on_load_error: OnLoadError,
}

impl Default for WorkflowOptions {
    fn default() -> Self {
        Self {
            prompts: BTreeMap::new(),
            carry_forward: None,
            transient: TransientConversations::default(),
            window_messages: Some(WINDOW_MESSAGES_DEFAULT),
            on_load_error: OnLoadError::default(),
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

    /// Sets the largest number of the state's messages in a window: 1 to 10,000, or -1 for no limit.
    #[must_use]
    pub fn with_window_messages(mut self, window_messages: i64) -> Self {
        self.window_messages = match window_messages {
            -1 => None,
            // A number below -1 is refused with the options, as 0 is.
            most => Some(usize::try_from(most).unwrap_or(0)),
        };
        self
    }

    /// Sets the reaction to a conversation that [`begin_turn`](super::Workflow::begin_turn) cannot load. By
    /// default, `begin_turn` returns the error.
    ///
    /// With [`OnLoadError::Empty`], the window has no messages of the conversation, and
    /// [`Workflow::load_failure`](super::Workflow::load_failure) returns the error. A run that cannot be read
    /// is always an error, because its state is unknown.
    #[must_use]
    pub fn with_on_load_error(mut self, on_load_error: OnLoadError) -> Self {
        self.on_load_error = on_load_error;
        self
    }

    pub(crate) fn check(&self, spec: &WorkflowSpec) -> Result<()> {
        const OPERATION: &str = "workflow.options";
        let most = self.window_messages.unwrap_or(PAGE_ITEMS_MAX);
        check::batch(OPERATION, "window_messages", most, PAGE_ITEMS_MAX)?;
        if let Some(carry_forward) = &self.carry_forward {
            carry_forward.check()?;
        }
        let missing = |state: &StateSpec| !self.prompts.contains_key(&state.prompt_task);
        match spec.states().iter().find(|(_, state)| missing(state)) {
            Some((name, _)) if !self.prompts.is_empty() => {
                let message = format!("states.{name}.prompt_task: this prompt is not defined; add it");
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

    /// Returns the largest number of messages in a window, or `None` without a limit.
    pub(crate) fn window_messages(&self) -> Option<usize> {
        self.window_messages
    }

    pub(crate) fn on_load_error(&self) -> OnLoadError {
        self.on_load_error
    }
}
