//! A single run of an agent: its messages carry its id and are removed at its end if so configured.

use larder_kernel::{
    AppendOptions, ChatMessage, HistoryRetention, Result, RunId, Seq, SessionId, Thread, Window,
};

use super::{AgentContext, WindowExplanation};

/// A single run of an agent in a session.
///
/// Messages that it appends carry the run id. With retention `NONE` nothing is written: the run holds its
/// messages in memory, includes them in its windows, and drops them at its end.
///
/// ```
/// use larder_agents::context::{AgentContext, ContextConfig};
/// use larder_kernel::{AgentContextProtocol, ChatMessage, HistoryRetention, RunId, SessionId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let context = AgentContext::new(ContextConfig::default().with_retention(HistoryRetention::Run))?;
/// let session = SessionId::new("session-1")?;
/// let mut run = context.begin_run(&session, RunId::new("run-1")?);
/// run.append(ChatMessage::user("Only for now")).await?;
/// assert_eq!(run.window().await?.messages.len(), 1);
/// assert_eq!(run.end().await?, 1);
/// assert!(context.get_prompt_window(&session).await?.messages.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ContextRun {
    context: AgentContext,
    thread: Thread,
    run: RunId,
    first: Option<Seq>,
    /// `true` if an append failed with an unknown outcome.
    uncertain: bool,
    held: Vec<ChatMessage>,
}

impl AgentContext {
    /// Begins a run of the agent in a session.
    #[must_use]
    pub fn begin_run(&self, session: &SessionId, run: RunId) -> ContextRun {
        ContextRun::new(self.clone(), self.thread(session), run)
    }
}

impl ContextRun {
    fn new(context: AgentContext, thread: Thread, run: RunId) -> Self {
        Self { context, thread, run, first: None, uncertain: false, held: Vec::new() }
    }

    /// Returns the run's id.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.run
    }

    /// Appends a message of the run. Returns `None` if nothing is written.
    ///
    /// # Errors
    /// As [`AgentContext::append_many`].
    pub async fn append(&mut self, message: ChatMessage) -> Result<Option<Seq>> {
        self.append_many(vec![message], AppendOptions::default()).await
    }

    /// Appends all messages of the run or none, and returns the position of the last one. Returns `None` if
    /// nothing is written.
    ///
    /// # Errors
    /// As [`AgentContext::append_many`].
    ///
    /// # Cancellation
    /// All messages of the batch are written or none.
    pub async fn append_many(
        &mut self,
        mut messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Option<Seq>> {
        for message in &mut messages {
            message.run = Some(self.run.clone());
        }
        let held = (self.context.retention() == HistoryRetention::None).then(|| messages.clone());
        // The outcome is uncertain until the reply arrives, and stays so if the caller drops the future.
        let known = std::mem::replace(&mut self.uncertain, true);
        let appended = self.context.append_to(&self.thread, messages, options).await;
        if !matches!(&appended, Err(error) if error.outcome() == larder_kernel::Outcome::Unknown) {
            self.uncertain = known;
        }
        let appended = appended?;
        if let Some(appended) = appended {
            self.first = self.first.or(Some(appended.first));
        }
        self.held.extend(held.into_iter().flatten());
        Ok(appended.map(|appended| appended.last))
    }

    /// Makes the window of the session, including the messages that the run holds in memory.
    ///
    /// # Errors
    /// As [`AgentContext::window_with`].
    ///
    /// # Cancellation
    /// The call stores nothing.
    pub async fn window(&self) -> Result<Window> {
        Ok(self.context.assemble(self.thread.clone(), self.held.clone(), false).await?.window)
    }

    /// Makes the window of the session and explains the effect of each step.
    ///
    /// # Errors
    /// As [`AgentContext::explain_window`].
    ///
    /// # Cancellation
    /// The call stores nothing.
    pub async fn explain(&self) -> Result<WindowExplanation> {
        let assembly = self.context.assemble(self.thread.clone(), self.held.clone(), true).await?;
        Ok(assembly.explain(self.context.counter()))
    }

    /// Ends the run and returns the number of removed messages. If you drop a run without this call, end it
    /// with [`AgentContext::end_run`].
    ///
    /// # Errors
    /// The errors of the history. After an error, end the run with [`AgentContext::end_run`].
    ///
    /// # Cancellation
    /// All messages of the run are removed or none.
    pub async fn end(self) -> Result<u64> {
        let first = if self.uncertain { None } else { Some(self.first.unwrap_or(Seq::MAX)) };
        self.context.end_run_of(&self.thread, &self.run, first).await
    }
}
