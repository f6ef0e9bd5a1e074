//! Explanations of a session's window: the messages that reach the model, and the effect of each step.

use larder_kernel::{ChatMessage, Reach, Result, SessionId, Window};

use super::config::{Memory, Persistence};
use super::inference::Made;
use super::sessions::Sessions;
use super::state::{State, Walk};
use super::window::{Parts, Told};
use crate::context::explain::{Size, WindowExplanation, explain_steps};

impl Sessions {
    /// Makes the window of a session as an inference without new messages would, and explains the effect of
    /// each step.
    ///
    /// # Errors
    /// As [`explain_window_with`](Self::explain_window_with).
    ///
    /// # Cancellation
    /// The call changes nothing.
    pub async fn explain_window(&self, id: &SessionId) -> Result<WindowExplanation> {
        self.explain_window_with(id, Vec::new()).await
    }

    /// Returns the window that [`begin`](Self::begin) would build for these new messages, with the messages
    /// that were read and the effect of each step. The steps are each strategy, `rolling_window` for the
    /// profile's limit, `pair_tool_calls` for calls without results and results without calls, and `session`
    /// for the prompt and the hints.
    ///
    /// If [the default](Self::with_default_memory) is no memory, the window has the new messages only.
    ///
    /// Like an `EPHEMERAL` inference, it makes no summary and stores nothing. An existing summary is in
    /// front.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    ///
    /// # Cancellation
    /// The call changes nothing.
    ///
    /// # Complexity
    /// O(window), for a session of any length.
    pub async fn explain_window_with(
        &self,
        id: &SessionId,
        new: Vec<ChatMessage>,
    ) -> Result<WindowExplanation> {
        self.explain(id, new, false).await
    }

    /// Works as [`explain_window_with`](Self::explain_window_with), but makes a summary that is due, as an
    /// inference would. Nothing is stored. The next inference does not ask the model again.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    ///
    /// # Cancellation
    /// The call changes nothing.
    pub async fn explain_window_asking(
        &self,
        id: &SessionId,
        new: Vec<ChatMessage>,
    ) -> Result<WindowExplanation> {
        self.explain(id, new, true).await
    }

    async fn explain(
        &self,
        id: &SessionId,
        new: Vec<ChatMessage>,
        asks_model: bool,
    ) -> Result<WindowExplanation> {
        const OPERATION: &str = "session.explain";
        new.iter().try_for_each(|message| message.check(OPERATION))?;
        let new = self.stamped(new, None);
        if self.memory == Memory::Off {
            return Ok(self.without_memory(new));
        }
        let thread = self.thread(id);
        let (record, reader) = self.used(OPERATION, id).await?;
        self.check_view(OPERATION, Some(&record.profile), Persistence::Ephemeral)?;
        let reach = self.assembler.reach(&record);
        let threshold = self.summarizer.as_ref().and(record.profile.summarization_threshold());
        let tokens = threshold.filter(|_| asks_model);
        let state = reader.read(&thread, Walk { reach, tokens, before: None, after: None }).await?;
        let parts = Parts { thread: &thread, record: &record, state: &state, new: &new, asks_model };
        let mut told = Told::explains();
        let Made { assembled, state, .. } = self.make(&reader, parts, &mut told).await?;
        let counter = &*reader.counter;
        let State { summary, read, .. } = state;
        let stages = told.stages();
        let mut steps = explain_steps(counter, &stages);
        steps.retain(|step| step.name != "pair_tool_calls" || !step.is_unchanged());
        Ok(WindowExplanation {
            reach,
            messages_read: read.messages,
            pages_read: read.pages,
            scan_ended: false,
            began_with_summary_up_to: summary.map(|held| held.up_to),
            read: stages.first().map_or_else(Size::default, |stage| Size::of(counter, &stage.messages)),
            steps,
            result: Size::of(counter, &assembled.window.messages),
            window: assembled.window,
        })
    }

    /// Returns the explanation of a window without the session.
    fn without_memory(&self, new: Vec<ChatMessage>) -> WindowExplanation {
        let window = Window::injected(new);
        WindowExplanation {
            reach: Reach::Messages(0),
            messages_read: 0,
            pages_read: 0,
            scan_ended: false,
            began_with_summary_up_to: None,
            read: Size::default(),
            steps: Vec::new(),
            result: Size::of(&*self.reader.counter, &window.messages),
            window,
        }
    }
}
