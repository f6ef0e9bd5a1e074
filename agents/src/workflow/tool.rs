//! The tool that moves the workflow.

use larder_kernel::{Error, Result, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spec::{Control, StateSpec};

/// The name of the tool that moves the workflow.
pub const TRANSITION_TOOL: &str = "workflow__transition";

/// A tool definition for chat models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name of the tool in calls.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Value,
}

impl ToolDefinition {
    /// Creates a definition; `parameters` is a JSON schema.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self { name: name.into(), description: description.into(), parameters }
    }

    /// Returns the tool for the events of a state, or `None` for a state without events.
    pub(crate) fn transition(state: &StateSpec) -> Option<Self> {
        let events: Vec<&str> = state.events().collect();
        if events.is_empty() {
            return None;
        }
        Some(Self {
            name: TRANSITION_TOOL.to_owned(),
            description:
                "Moves the workflow to its next state. Call it as soon as one of the events has happened."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "event": {"type": "string", "enum": events, "description": "The event that has happened."}
                },
                "required": ["event"],
                "additionalProperties": false
            }),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    event: String,
}

/// Returns the event in a call.
pub(crate) fn event_of(call: &ToolCall) -> Result<String> {
    let arguments: Arguments = serde_json::from_str(&call.arguments).map_err(|_| {
        Error::invalid("workflow.on_tool_call", "arguments", r#"is not an object with the string "event""#)
    })?;
    Ok(arguments.event)
}

/// Returns the message for the model after a transition.
pub(crate) fn arrival(name: &str, state: &StateSpec, task: &str, committed: bool) -> String {
    let next = match (state.is_terminal(), state.control()) {
        (true, _) => "The workflow ends in this state. Finish your turn.",
        (false, Control::User) => "The user speaks next. Finish your turn.",
        (false, Control::Agent) => "You keep the turn. Do the task and continue.",
    };
    let mut told = json!({
        "state": name,
        "prompt_task": state.prompt_task,
        "events": state.events().collect::<Vec<_>>(),
        "control": state.control(),
        "terminal": state.is_terminal(),
        "committed": committed,
        "next": next,
    });
    if let Some(object) = told.as_object_mut() {
        if task != state.prompt_task {
            object.insert("task".to_owned(), task.into());
        }
        if let Some(description) = &state.description {
            object.insert("description".to_owned(), description.as_str().into());
        }
    }
    told.to_string()
}
