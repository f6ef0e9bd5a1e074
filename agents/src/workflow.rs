//! Workflows: conversations that move through states (PK-7 to PK-11).
//!
//! A [`WorkflowSpec`] says which states there are and which events lead from one to another; it is written as JSON. A
//! [`Workflow`] is one run of it: a current state, the history of its transitions, and a conversation per state. The
//! run lives in a [`KeyValueStore`](larder_kernel::KeyValueStore) under its id, so that any process can
//! [resume](Workflow::resume) it, and the conversations live in a
//! [`HistoryProvider`](larder_kernel::HistoryProvider).
//!
//! A turn is [`begin_turn`](Workflow::begin_turn), the model's calls through [`on_tool_call`](Workflow::on_tool_call),
//! and [`end_turn`](Workflow::end_turn):
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
//! let place = MemoryBackend::new();
//! let history = Arc::new(InMemoryHistoryProvider::open(&place, Namespace::new("tenant-1")?));
//! let state = Arc::new(InMemoryKeyValueStore::open(&place, Namespace::new("tenant-1")?));
//! let options = WorkflowOptions::default();
//! let mut workflow = Workflow::start(history, state, spec, options, "ticket-7").await?;
//!
//! let turn = workflow.begin_turn().await?;
//! assert_eq!(turn.system_prompt, "triage");
//! // The model asks for two transitions in one turn.
//! let fire = |id, event: &str| ToolCall::new(id, turn.tools[0].name.clone(), format!(r#"{{"event":"{event}"}}"#));
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
//! # Where a workflow keeps things
//!
//! The bucket `larder.workflows` holds one JSON document for each run, written under compare-and-set: of two workers
//! that move one run, one succeeds and the other gets `Conflict`. A persistent state's conversation is the thread
//! of agent `larder.workflow/ID` and session `p/STATE`; [`Workflow::thread`] tells it. A transient state's
//! conversation begins anew at each entry: by default it is kept in the handle alone and never written, see
//! [`TransientConversations`].
//!
//! # Who holds control
//!
//! The state that a transition leads to decides. Into a state with `control: user` the transition is decided in the
//! turn and committed at its end, together with the turn's messages. Into a state with `control: agent` it is
//! committed at once, and the agent goes on: the result of the tool call tells it the new state's task and events.
//! Meanwhile the system prompt and the conversation stay those of the state in which the chain began, the anchor, until
//! a user-controlled or a terminal state is reached; a chain that a crash or the turn's end cut short stays anchored
//! too.
//!
//! # After a crash
//!
//! Committed transitions stay; a transition that waited for the end of its turn is gone with the turn, whose messages
//! nobody stored either. What `end_turn` does is decided by one write: once that is done, messages that were still on
//! their way to the history are written by whoever touches the workflow next.

mod carry;
mod fork;
mod open_turn;
mod options;
mod ordered;
mod record;
mod run;
mod spec;
mod tool;
mod turn;

#[cfg(test)]
mod tests;

pub use carry::{CarryFailure, CarryForward, Summarizer, SummaryFunction};
pub use options::{TransientConversations, WorkflowOptions};
pub use ordered::Ordered;
pub use record::{TransitionRecord, Visit};
pub use run::Workflow;
pub use spec::{Control, Persistence, StateSpec, WorkflowSpec};
pub use tool::{TRANSITION_TOOL, ToolDefinition};
pub use turn::TurnWindow;
