//! Workflows: conversations that move through states.
//!
//! A [`WorkflowSpec`] defines the states and the events that lead from one to another; it is written as JSON.
//! A [`Workflow`] is one run of it: a current state, the history of its transitions, and a conversation per
//! state. The run is stored in a [`KeyValueStore`](larder_kernel::KeyValueStore) under its id, so that any
//! process can [resume](Workflow::resume) it. The conversations are stored in a
//! [`HistoryProvider`](larder_kernel::HistoryProvider).
//!
//! A turn consists of [`begin_turn`](Workflow::begin_turn), the model's calls through
//! [`on_tool_call`](Workflow::on_tool_call), and [`end_turn`](Workflow::end_turn):
//!
//! ```
//! use std::sync::Arc;
//!
//! use larder_agents::workflow::{Workflow, WorkflowOptions, WorkflowSpec};
//! use larder_agents::{InMemoryHistoryProvider, InMemoryKeyValueStore, MemoryBackend};
//! use larder_kernel::{ChatMessage, Namespace, ToolCall};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder_kernel::Result<()> {
//! let spec = WorkflowSpec::from_json(
//!     r#"{"states": {
//!         "triage": {"prompt_task": "triage", "on_event": {"Routed": "routed"}},
//!         "routed": {"prompt_task": "routed", "control": "agent", "on_event": {"ToBilling": "billing"}},
//!         "billing": {"prompt_task": "billing", "terminal": true}
//!     }}"#,
//! )?;
//! let backend = MemoryBackend::new();
//! let history = Arc::new(InMemoryHistoryProvider::open(&backend, Namespace::new("tenant-1")?));
//! let state = Arc::new(InMemoryKeyValueStore::open(&backend, Namespace::new("tenant-1")?));
//! let options = WorkflowOptions::default();
//! let mut workflow = Workflow::start(history, state, spec, options, "ticket-7").await?;
//!
//! let turn = workflow.begin_turn().await?;
//! assert_eq!(turn.system_prompt, "triage");
//! // The model asks for two transitions in one turn.
//! let fire = |id, event: &str| {
//!     ToolCall::new(id, turn.tools[0].name.clone(), format!(r#"{{"event":"{event}"}}"#))
//! };
//! let routed = workflow.on_tool_call(&fire("c1", "Routed")).await?;
//! let billing = workflow.on_tool_call(&fire("c2", "ToBilling")).await?;
//! let said = vec![
//!     ChatMessage::user("My invoice is wrong"),
//!     ChatMessage::assistant("").with_tool_call(fire("c1", "Routed")),
//!     ChatMessage::tool([routed]),
//!     ChatMessage::assistant("").with_tool_call(fire("c2", "ToBilling")),
//!     ChatMessage::tool([billing]),
//!     ChatMessage::assistant("I hand you over to billing."),
//! ];
//! workflow.end_turn(said).await?;
//! assert_eq!(workflow.current_state(), "billing");
//! assert_eq!(workflow.transitions().len(), 2);
//! assert!(workflow.is_complete());
//! # Ok(())
//! # }
//! ```
//!
//! # Storage
//!
//! The bucket `larder.workflows` holds one JSON document for each run, written by compare-and-set. If two
//! workers move one run, one succeeds and the other gets `Conflict`.
//!
//! The conversation of a persistent state is the thread of agent `larder.workflow/ID` and session `p/STATE`;
//! [`Workflow::thread`] returns it. The conversation of a transient state begins empty at each entry. By
//! default it is kept only in the handle and never written; see [`TransientConversations`]. A summary that a
//! transient state carries forward is kept only in the handle too; see [`CarryForward`].
//!
//! # Control
//!
//! The target state of a transition determines the time of its commit. With `control: user` the transition is
//! decided in the turn and committed at its end, together with the turn's messages. With `control: agent` it
//! is committed immediately and the agent continues: the result of the tool call contains the new state's
//! task and events.
//!
//! Until a user-controlled or terminal state is reached, the system prompt and the conversation stay those of
//! the state in which the chain began, the anchor. A chain that was interrupted by a crash or by the end of
//! the turn stays anchored too.
//!
//! # After a crash
//!
//! Committed transitions are permanent. A transition that waits for the end of its turn is lost with the
//! turn, whose messages are not stored either. A single write decides the effect of `end_turn`. After it, the
//! next worker that uses the workflow writes any messages that are not yet in the history.

mod carry;
mod commit;
mod fork;
mod landing;
mod open_turn;
mod options;
mod ordered;
mod record;
mod run;
mod spec;
mod tool;
mod transient;
mod turn;

#[cfg(test)]
mod tests;

pub use crate::load::OnLoadError;
pub use carry::{CarryFailure, CarryForward, Summarizer, SummaryFunction};
pub use options::{TransientConversations, WorkflowOptions};
pub use ordered::Ordered;
pub use record::{TransitionRecord, Visit};
pub use run::Workflow;
pub use spec::{Control, Persistence, StateSpec, WorkflowSpec};
pub use tool::{TRANSITION_TOOL, ToolDefinition};
pub use turn::TurnWindow;
