//! The turns of a workflow: what the model sees, what it asks for, and what is kept at the end.

use std::sync::Arc;

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::storage::history::check_append;
use larder_kernel::{
    AppendOptions, ChatMessage, Error, ErrorKind, IdempotencyKey, Result, Seq, Thread, ToolCall, ToolResult,
    Window, WindowMessage, check,
};

use super::carry::told;
use super::open_turn::{OpenTurn, Pending};
use super::record::{Carried, Chore, Record, Visit};
use super::run::{Workflow, unique};
use super::spec::{Control, Persistence, StateSpec};
use super::tool::{TRANSITION_TOOL, ToolDefinition, arrival, event_of};
use crate::compaction::pair_ended_tool_calls;

/// Largest turn, in bytes of its messages: it waits in one value of the store while the transition is committed.
const TURN_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What the model is given at the beginning of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnWindow {
    /// The turn's own name.
    pub turn: String,
    /// The state whose prompt and conversation these are.
    pub state: String,
    /// The text of the state's prompt task.
    pub system_prompt: String,
    /// What earlier states hand on, and then the state's conversation, oldest first; it names its thread where it is
    /// stored.
    pub window: Window,
    /// The tools of the workflow; none where no event leads on.
    pub tools: Vec<ToolDefinition>,
}

impl Workflow {
    /// Begins a turn: reads the run, completes what a crash left undone, and says what the model is to see.
    ///
    /// A turn of this handle that was begun and not ended is given up, as by [`abandon_turn`](Self::abandon_turn).
    ///
    /// # Errors
    /// `Conflict` where another worker completed the same at the same time; `NotFound` where the run is gone; `Corrupt`;
    /// the summarizer's own where it is set to fail; the stores' own.
    ///
    /// # Cancellation
    /// No turn is open; the run is as it was, or completed.
    ///
    /// # Complexity
    /// O(messages in the window), whatever the length of the conversation.
    pub async fn begin_turn(&mut self) -> Result<TurnWindow> {
        self.abandon_turn();
        self.read().await?;
        self.settle().await?;
        let mut next = self.record.clone();
        if self.land(&mut next, "", &[]).await? {
            next.token = unique();
            self.commit(next).await?;
            self.settle().await?;
        }
        let source = self.record.anchor.clone();
        let window = self.window(&source).await?;
        let state = self.state_of(&source)?;
        let turn = TurnWindow {
            turn: unique(),
            state: source.state.clone(),
            system_prompt: self.options.task(state).to_owned(),
            window,
            tools: self.tools(),
        };
        self.turn = Some(OpenTurn { id: turn.turn.clone(), source, fired: 0, pending: None });
        Ok(turn)
    }

    /// The tools that the model has now: after a transition that was committed at once, those of the new state.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolDefinition> {
        if self.turn.as_ref().is_some_and(|turn| turn.pending.is_some()) {
            return Vec::new();
        }
        self.spec.state(self.current_state()).and_then(ToolDefinition::transition).into_iter().collect()
    }

    /// The state that the open turn's transition leads to when the turn ends.
    #[must_use]
    pub fn pending_state(&self) -> Option<&str> {
        self.turn.as_ref()?.pending.as_ref().map(|pending| pending.to.as_str())
    }

    /// Answers a call of the workflow's tool, and leaves calls of other tools, with `None`, to their own.
    ///
    /// # Errors
    /// As [`on_tool_call`](Self::on_tool_call).
    ///
    /// # Cancellation
    /// As [`on_tool_call`](Self::on_tool_call).
    pub async fn handle_tool_call(&mut self, call: &ToolCall) -> Result<Option<ToolResult>> {
        if call.name == TRANSITION_TOOL { self.on_tool_call(call).await.map(Some) } else { Ok(None) }
    }

    /// Answers a call of the workflow's tool, [`TRANSITION_TOOL`] (PK-10).
    ///
    /// Into an agent-controlled state the transition is committed here; into any other it waits for
    /// [`end_turn`](Self::end_turn), and no further one is accepted. The answer tells the model the new state's task and
    /// events. A slip of the model's (arguments that are no JSON, an event that the state lacks, a transition too many)
    /// is an answer with `is_error`, and changes nothing.
    ///
    /// # Errors
    /// `InvalidInput` naming `name` for another tool's call; `Conflict` where no turn is open, or where another worker
    /// moved the workflow since the turn began: begin again. After any other error the same call may be repeated, and
    /// moves the workflow once.
    ///
    /// # Cancellation
    /// Moved or not moved; the same call may be repeated, and moves the workflow once.
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

    /// The event that a call asks for and where it leads, or what to tell the model.
    fn asked(&self, turn: &OpenTurn, call: &ToolCall) -> std::result::Result<(String, String), String> {
        if turn.pending.is_some() {
            return Err("A transition waits for the end of this turn. Finish your turn.".to_owned());
        }
        let state = self.state_of(&self.record.current).map_err(|error| error.to_string())?;
        let events = state.events().collect::<Vec<_>>().join(", ");
        let event = event_of(call).map_err(|error| format!("{}. Events: {events}", error.message()))?;
        let Some(to) = state.target(&event) else {
            return Err(if events.is_empty() {
                "The workflow has ended: no event leads on.".to_owned()
            } else {
                format!("This state has no such event. Events: {events}")
            });
        };
        if turn.fired >= self.spec.max_transitions_per_turn() {
            return Err("This turn has made as many transitions as it may. Finish your turn.".to_owned());
        }
        self.check_room("workflow.on_tool_call").map_err(|_| {
            "The workflow has made as many transitions as it may. Finish your turn.".to_owned()
        })?;
        Ok((event, to.to_owned()))
    }

    /// Ends the turn: keeps its messages, oldest first, in the conversation of the state in which it began, and commits
    /// the transition that waited.
    ///
    /// A turn that moves the workflow is one write: of two workers, one succeeds and keeps its messages, the other gets
    /// `Conflict` and keeps none. A turn that moves nothing adds its messages whatever others did meanwhile.
    ///
    /// # Errors
    /// `InvalidInput` naming `messages` or the field of a message, with at most 1,000 messages and 2 MiB in a turn;
    /// `Conflict` where no turn is open, or where another worker moved the workflow first; the summarizer's own where it
    /// is set to fail; the stores' own. Nothing changes, and the turn stays open: after a passing failure end it again,
    /// after a `Conflict` begin a new one.
    ///
    /// # Cancellation
    /// Ended or not ended; ending it again with the same messages has no second effect.
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
        if self.land(&mut next, &turn.id, &messages).await? {
            next.token = format!("{}#end", turn.id);
            self.commit(next).await?;
            self.turn = None;
            // Committed, and the messages with it: whoever comes next writes what cannot be written now.
            let _ = self.settle().await;
            return Ok(());
        }
        self.keep(&turn, messages).await?;
        self.turn = None;
        Ok(())
    }

    /// Gives the open turn up, if there is one: the transition that waited for its end is dropped, and so are its
    /// messages; transitions that were committed at once stay.
    pub fn abandon_turn(&mut self) {
        self.turn = None;
    }

    fn open_turn(&self, operation: &'static str) -> Result<&OpenTurn> {
        self.turn
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::Conflict, operation, "no turn is open; begin one"))
    }

    /// Adds a turn's messages to the conversation that it belongs to.
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
        let transient = self.state_of(&turn.source)?.persistence() == Persistence::Transient;
        self.history.append_many(&thread, messages, options).await?;
        // Somebody may have left the state meanwhile and cleared the conversation before these messages came.
        if transient && self.load().await?.0.anchor != turn.source {
            self.history.clear(&thread).await?;
        }
        Ok(())
    }

    /// Ends a chain of transitions where it has reached a state with a prompt of its own: hands on what was said, and
    /// leaves the turn's messages to be stored. Says whether there is something to commit.
    pub(crate) async fn land(&self, next: &mut Record, turn: &str, messages: &[ChatMessage]) -> Result<bool> {
        let left = next.anchor.clone();
        if next.current == left || !self.state_of(&next.current)?.lands() {
            return Ok(false);
        }
        self.carry(next, &left, messages).await?;
        let persistent = self.state_of(&left)?.persistence() == Persistence::Persistent;
        next.chore = match self.home(&left)? {
            Some(thread) if !persistent => Some(Chore::Clear { thread }),
            Some(thread) if !messages.is_empty() => {
                Some(Chore::Append { thread, turn: turn.to_owned(), messages: messages.to_vec() })
            }
            _ => None,
        };
        next.anchor = next.current.clone();
        Ok(true)
    }

    async fn carry(&self, next: &mut Record, left: &Visit, messages: &[ChatMessage]) -> Result<()> {
        let Some(carry_forward) = self.options.carry_forward() else { return Ok(()) };
        let persistent = self.state_of(left)?.persistence() == Persistence::Persistent;
        let goes_on = |carried: &Carried| carried.visit.state == left.state && carried.up_to.is_some();
        let earlier = next.carried.iter().position(goes_on).filter(|_| persistent);
        let earlier = earlier.map(|at| next.carried.remove(at));
        let after = earlier.as_ref().and_then(|earlier| earlier.up_to).unwrap_or(Seq::MIN);
        let (mut said, last) = match self.home(left)? {
            Some(thread) => self.said_since(&thread, after).await?,
            None => (self.local_of(left).to_vec(), after),
        };
        said.extend_from_slice(messages);
        if said.is_empty() {
            next.carried.extend(earlier);
            return Ok(());
        }
        let before = earlier.as_ref().map(|earlier| earlier.text.as_str());
        let (text, verbatim) = carry_forward.text(&left.state, before, &said).await?;
        // Before its first message a thread stands at 0.
        let up_to = persistent.then(|| last.max(Seq::ZERO));
        next.carried.push(Carried { visit: left.clone(), text, verbatim, up_to });
        while next.carried.len() > carry_forward.states_max() {
            next.carried.remove(0);
            next.carried_left_out += 1;
        }
        Ok(())
    }

    /// What was stored after a place, and the place of the last of it.
    async fn said_since(&self, thread: &Thread, mut after: Seq) -> Result<(Vec<ChatMessage>, Seq)> {
        let mut said = Vec::new();
        loop {
            let page = self.history.page_after(thread, after, PAGE_ITEMS_MAX).await?;
            let Some(last) = page.last() else { return Ok((said, after)) };
            after = last.seq;
            let full = page.len() == PAGE_ITEMS_MAX;
            said.extend(page.into_iter().map(|stored| Arc::unwrap_or_clone(stored.message)));
            if !full {
                return Ok((said, after));
            }
        }
    }

    fn local_of(&self, visit: &Visit) -> &[ChatMessage] {
        match &self.local {
            Some((local, messages)) if local == visit => messages,
            _ => &[],
        }
    }

    async fn window(&self, source: &Visit) -> Result<Window> {
        let thread = self.home(source)?;
        let most = self.options.window_messages();
        let conversation = match &thread {
            Some(thread) => {
                let newest = self.history.tail(thread, None, most).await?;
                newest.into_iter().map(WindowMessage::from).collect()
            }
            None => {
                let local = self.local_of(source);
                let newest = local.iter().skip(local.len().saturating_sub(most));
                newest.cloned().map(WindowMessage::injected).collect()
            }
        };
        let persistent = self.state_of(source)?.persistence() == Persistence::Persistent;
        let own = |carried: &Carried| persistent && carried.visit.state == source.state;
        let others: Vec<Carried> =
            self.record.carried.iter().filter(|carried| !own(carried)).cloned().collect();
        let mut messages: Vec<WindowMessage> =
            told(&others, self.record.carried_left_out).map(WindowMessage::injected).into_iter().collect();
        // A turn is stored whole, so no tool is still running when the next one begins.
        messages.extend(pair_ended_tool_calls(conversation));
        if self.record.current != *source {
            messages.push(WindowMessage::injected(self.whereabouts()?));
        }
        Ok(Window { thread, messages })
    }

    /// Tells the model where a chain stands that an earlier turn began: the tool's answer may never have been stored.
    fn whereabouts(&self) -> Result<ChatMessage> {
        let state: &StateSpec = self.state_of(&self.record.current)?;
        let told = arrival(self.current_state(), state, self.options.task(state), true);
        Ok(ChatMessage::system(format!("The workflow stands in this state: {told}")))
    }
}
