//! The turns of a workflow: the model's window, its tool calls, and the data stored at the end.

use larder_kernel::storage::history::check_append;
use larder_kernel::{
    AppendOptions, ChatMessage, Error, ErrorKind, HistoryProviderExt, IdempotencyKey, Result, Thread,
    ToolCall, ToolResult, Window, WindowMessage, check,
};

use super::carry::told;
use super::open_turn::{OpenTurn, Pending};
use super::record::Visit;
use super::run::{Workflow, unique};
use super::spec::{Control, StateSpec};
use super::tool::{TRANSITION_TOOL, ToolDefinition, arrival, event_of};
use crate::compaction::close_tool_calls;

/// The size limit of a turn's messages, in bytes. They are part of one value of the store while the
/// transition is committed.
const TURN_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The model's input at the beginning of a turn.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TurnWindow {
    /// The unique name of the turn.
    pub turn: String,
    /// The state whose prompt and conversation these are.
    pub state: String,
    /// The text of the state's prompt task.
    pub system_prompt: String,
    /// The summaries of earlier states and then the state's conversation, oldest first. The window names its
    /// thread if the conversation is stored.
    pub window: Window,
    /// The tools of the workflow. The list is empty if the state has no event.
    pub tools: Vec<ToolDefinition>,
}

impl Workflow {
    /// Begins a turn: reads the run, completes work that a crash interrupted, and returns the model's input.
    ///
    /// An open turn of this handle is abandoned first, as by [`abandon_turn`](Self::abandon_turn).
    ///
    /// # Errors
    /// `Conflict` if another worker completed the same work at the same time. `NotFound` if the run no longer
    /// exists. `Corrupt`. The errors of the summarizer if it is set to fail, and of the stores.
    ///
    /// # Cancellation
    /// No turn is open. The run is unchanged, or its interrupted work is complete.
    ///
    /// # Complexity
    /// O(messages in the window), for a conversation of any length.
    pub async fn begin_turn(&mut self) -> Result<TurnWindow> {
        self.abandon_turn();
        self.read().await?;
        self.settle().await?;
        let mut next = self.record.clone();
        next.token = unique();
        if self.land(&mut next, "", &[]).await? {
            self.commit(next).await?;
            self.settle().await?;
        }
        let source = self.record.anchor.clone();
        let (window, load_failure) = self.window(&source).await?;
        let state = self.state_of(&source)?;
        let turn = TurnWindow {
            turn: unique(),
            state: source.state.clone(),
            system_prompt: self.options.task(state).to_owned(),
            window,
            tools: self.tools(),
        };
        self.turn = Some(OpenTurn { id: turn.turn.clone(), source, fired: 0, pending: None, load_failure });
        Ok(turn)
    }

    /// Returns the tools that the model has now. After a transition that was committed immediately, they are
    /// those of the new state.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolDefinition> {
        if self.turn.as_ref().is_some_and(|turn| turn.pending.is_some()) {
            return Vec::new();
        }
        self.spec.state(self.current_state()).and_then(ToolDefinition::transition).into_iter().collect()
    }

    /// Returns the error of a conversation that could not be loaded, if the open turn continues without it.
    /// See [`WorkflowOptions::with_on_load_error`](super::WorkflowOptions::with_on_load_error).
    #[must_use]
    pub fn load_failure(&self) -> Option<&Error> {
        self.turn.as_ref()?.load_failure.as_ref()
    }

    /// Returns the target state of the open turn's pending transition.
    #[must_use]
    pub fn pending_state(&self) -> Option<&str> {
        self.turn.as_ref()?.pending.as_ref().map(|pending| pending.to.as_str())
    }

    /// Handles a call of the workflow's tool. Returns `None` for calls of other tools.
    ///
    /// # Errors
    /// As [`on_tool_call`](Self::on_tool_call).
    ///
    /// # Cancellation
    /// As [`on_tool_call`](Self::on_tool_call).
    pub async fn handle_tool_call(&mut self, call: &ToolCall) -> Result<Option<ToolResult>> {
        if call.name == TRANSITION_TOOL { self.on_tool_call(call).await.map(Some) } else { Ok(None) }
    }

    /// Handles a call of the workflow's tool, [`TRANSITION_TOOL`].
    ///
    /// A transition into an agent-controlled state is committed here. Any other transition waits for
    /// [`end_turn`](Self::end_turn), and the turn accepts no further one. The result contains the new state's
    /// task and events.
    ///
    /// A mistake of the model returns a result with `is_error` and changes nothing. Mistakes are arguments
    /// that are not JSON, an event that the state does not have, and a transition too many.
    ///
    /// # Errors
    /// `InvalidInput` with `name` for a call of another tool. `Conflict` if no turn is open, or if another
    /// worker has moved the workflow since the turn began: begin a new turn. After any other error you may
    /// repeat the same call; it moves the workflow once.
    ///
    /// # Cancellation
    /// The workflow has moved or not. You may repeat the same call; it moves the workflow once.
    pub async fn on_tool_call(&mut self, call: &ToolCall) -> Result<ToolResult> {
        const OPERATION: &str = "workflow.on_tool_call";
        if call.name != TRANSITION_TOOL {
            return Err(Error::invalid(OPERATION, "name", "a call of another tool"));
        }
        let turn = self.open_turn(OPERATION)?.clone();
        let (event, to) = match self.asked(&turn, call) {
            Ok(asked) => asked,
            Err(slip) => return Ok(ToolResult::error(&call.id, slip)),
        };
        let state = self.state_of(&Visit { state: to.clone(), number: 0 })?;
        let committed = state.control() == Control::Agent;
        let told = arrival(&to, state, self.options.task(state), committed);
        let event_id = format!("{}#{}", turn.id, turn.fired);
        let pending = if committed {
            let mut next = self.record.clone();
            next.step(&event, &to, &event_id);
            next.token = event_id;
            self.commit(next).await?;
            None
        } else {
            Some(Pending { event, to, event_id })
        };
        self.turn = Some(OpenTurn { fired: turn.fired + 1, pending, ..turn });
        Ok(ToolResult::new(&call.id, told))
    }

    /// Returns the requested event and its target state, or the message for the model.
    fn asked(&self, turn: &OpenTurn, call: &ToolCall) -> std::result::Result<(String, String), String> {
        if turn.pending.is_some() {
            return Err("A transition waits for the end of this turn. Finish your turn.".to_owned());
        }
        let state = self.state_of(&self.record.current).map_err(|error| error.to_string())?;
        let events = state.events().collect::<Vec<_>>().join(", ");
        let event = event_of(call).map_err(|error| format!("{}. Events: {events}", error.message()))?;
        let Some(to) = state.target(&event) else {
            return Err(if events.is_empty() {
                "The workflow has ended. Finish your turn.".to_owned()
            } else {
                format!("This state has no such event. Events: {events}")
            });
        };
        if turn.fired >= self.spec.max_transitions_per_turn() {
            return Err("This turn has reached its limit of transitions. Finish your turn.".to_owned());
        }
        self.check_room("workflow.on_tool_call")
            .map_err(|_| "The workflow has reached its limit of transitions. Finish your turn.".to_owned())?;
        Ok((event, to.to_owned()))
    }

    /// Ends the turn: stores its messages, oldest first, in the conversation of the state in which it began,
    /// and commits the pending transition.
    ///
    /// A turn that moves the workflow is a single write. Of two workers, one succeeds and stores its
    /// messages; the other gets `Conflict` and stores none. A turn that does not move the workflow adds its
    /// messages regardless of concurrent writes.
    ///
    /// # Errors
    /// `InvalidInput` with `messages` or the field of a message; a turn has at most 1,000 messages and 2 MiB.
    /// `Conflict` if no turn is open, or if another worker moved the workflow first. The errors of the
    /// summarizer if it is set to fail, and of the stores. After an error nothing has changed and the turn
    /// stays open: after a transient failure end it again, after a `Conflict` begin a new one.
    ///
    /// # Cancellation
    /// The turn has ended or not. Ending it again with the same messages has no second effect.
    pub async fn end_turn(&mut self, messages: Vec<ChatMessage>) -> Result<()> {
        const OPERATION: &str = "workflow.end_turn";
        let turn = self.open_turn(OPERATION)?.clone();
        if !messages.is_empty() {
            check_append(&messages, &AppendOptions::default())?;
            let bytes = messages.iter().map(ChatMessage::size_bytes).sum();
            check::at_most(OPERATION, "messages", bytes, TURN_BYTES_MAX)?;
        }
        let mut next = self.record.clone();
        if let Some(pending) = &turn.pending {
            next.step(&pending.event, &pending.to, &pending.event_id);
        }
        next.token = format!("{}#end", turn.id);
        if self.land(&mut next, &turn.id, &messages).await? {
            self.commit(next).await?;
            self.turn = None;
            // The commit includes the messages. If they cannot be written now, the next worker writes them.
            let _ = self.settle().await;
            return Ok(());
        }
        self.keep(&turn, messages).await?;
        self.turn = None;
        Ok(())
    }

    /// Abandons the open turn, if any. The pending transition and the turn's messages are dropped.
    /// Transitions that were committed immediately stay.
    pub fn abandon_turn(&mut self) {
        self.turn = None;
    }

    fn open_turn(&self, operation: &'static str) -> Result<&OpenTurn> {
        self.turn
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::Conflict, operation, "no turn is open; begin one"))
    }

    /// Adds a turn's messages to the conversation of its state.
    async fn keep(&mut self, turn: &OpenTurn, messages: Vec<ChatMessage>) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let Some(thread) = self.home(&turn.source)? else {
            match &mut self.local {
                Some((visit, local)) if *visit == turn.source => local.extend(messages),
                local => *local = Some((turn.source.clone(), messages)),
            }
            return Ok(());
        };
        let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new(&turn.id)?);
        let transient = !self.is_persistent(&turn.source)?;
        self.history.append_many(&thread, messages, options).await?;
        // Another worker may have left the state and cleared the conversation before these messages were
        // written.
        if transient && self.load().await?.0.anchor != turn.source {
            self.history.clear(&thread, None).await?;
        }
        Ok(())
    }

    /// Makes the window of a turn. Also returns the error of a conversation that could not be loaded.
    async fn window(&self, source: &Visit) -> Result<(Window, Option<Error>)> {
        let thread = self.home(source)?;
        let (conversation, failure) = match self.conversation(source, thread.as_ref()).await {
            Err(error) if self.options.on_load_error().continues(&error) => (Vec::new(), Some(error)),
            conversation => (conversation?, None),
        };
        let (earlier, left_out) = self.earlier(source)?;
        let mut messages: Vec<WindowMessage> =
            told(&earlier, left_out).map(WindowMessage::injected).into_iter().collect();
        // A turn is stored as a whole, so no tool is still running when the next one begins.
        messages.extend(close_tool_calls(&conversation));
        if self.record.current != *source {
            messages.push(WindowMessage::injected(self.whereabouts()?));
        }
        Ok((Window::new(messages).with_thread(thread), failure))
    }

    /// Reads the newest messages of a conversation, oldest first.
    async fn conversation(&self, source: &Visit, thread: Option<&Thread>) -> Result<Vec<WindowMessage>> {
        let most = self.options.window_messages();
        let Some(thread) = thread else {
            let local = self.local_of(source);
            let newest = local.iter().skip(local.len().saturating_sub(most.unwrap_or(usize::MAX)));
            return Ok(newest.cloned().map(WindowMessage::injected).collect());
        };
        match most {
            Some(most) => {
                let newest = self.history.last_messages(thread, most).await?;
                Ok(newest.into_iter().map(WindowMessage::from).collect())
            }
            None => {
                let all = self.history.all_messages(thread).await?;
                Ok(all.into_iter().map(WindowMessage::from).collect())
            }
        }
    }

    /// Returns a message with the current state of a chain that an earlier turn began. The tool's result may
    /// never have been stored.
    fn whereabouts(&self) -> Result<ChatMessage> {
        let state: &StateSpec = self.state_of(&self.record.current)?;
        let told = arrival(self.current_state(), state, self.options.task(state), true);
        Ok(ChatMessage::system(format!("The current state of the workflow: {told}")))
    }
}
