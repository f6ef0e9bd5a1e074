//! One agent: a loop of model calls and tool calls over a shared session.

use std::fmt;
use std::sync::Arc;

use larder::context::{AgentContext, WindowExplanation};
use larder::{
    AgentContextProtocol as _, AgentId, AppendOptions, ChatMessage, Claim, HistoryProvider,
    HistoryProviderExt as _, IdempotencyKey, LanguageModel, LanguageModelRequest, Origin, Result, Role,
    RunId, SessionId, StoredMessage, TaskStatus, WindowMessage,
};

use super::board::Board;
use super::steps::Steps;
use super::tools::Tools;

/// The maximum number of messages of one task: the title, the model's messages and the tool results.
const TASK_MESSAGES_MAX: usize = 32;
/// The number of characters of a message to print.
const PRINTED_CHARS: usize = 72;

/// The log output of the runtime.
pub(crate) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// An agent with its board and its view of the session, and the shared tools and models.
pub(super) struct Agent {
    pub(super) id: AgentId,
    pub(super) instructions: &'static str,
    pub(super) board: Board,
    pub(super) context: AgentContext,
    pub(super) session: SessionId,
    pub(super) history: Arc<dyn HistoryProvider>,
    pub(super) model: Arc<dyn LanguageModel>,
    pub(super) tools: Tools,
    pub(super) tell: Tell,
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}

/// The next step of a task.
enum Next {
    Begin,
    Think,
    Act(Arc<ChatMessage>),
    Finish(TaskStatus, String),
}

impl Next {
    /// Derives the next step from the task's messages alone, so a restart continues correctly.
    fn after(said: &[StoredMessage]) -> Self {
        let Some(last) = said.last() else { return Self::Begin };
        let message = &last.message;
        match message.role {
            Role::Assistant if message.tool_calls.is_empty() => {
                Self::Finish(TaskStatus::Succeeded, message.text.clone())
            }
            _ if said.len() >= TASK_MESSAGES_MAX => {
                Self::Finish(TaskStatus::Failed, "no end in sight".to_owned())
            }
            Role::Assistant => Self::Act(message.clone()),
            _ => Self::Think,
        }
    }
}

impl Agent {
    /// Works on a task until it is finished, or until another worker claims it.
    pub(super) async fn work(&self, claim: &Claim, steps: &Steps) -> Result<()> {
        let run = RunId::new(claim.task.id.as_str())?;
        loop {
            steps.pass().await;
            if !self.board.keep(claim).await? {
                (self.tell)("another runtime has the task now");
                return Ok(());
            }
            let said = self.said(&run).await?;
            let message = match Next::after(&said) {
                Next::Begin => ChatMessage::user(&claim.task.title),
                Next::Think => self.think(claim, &said).await?,
                Next::Act(message) => self.act(&message, steps).await?,
                Next::Finish(status, result) => {
                    self.board.finish(claim, status, &result).await?;
                    steps.pass().await;
                    return Ok(());
                }
            };
            // The model or the tools have finished, and the result is not stored yet.
            steps.pass().await;
            let key = IdempotencyKey::new(format!("{run}/{}", said.len()))?;
            let options = AppendOptions::default().with_idempotency_key(key);
            self.context.append_many(&self.session, vec![message.with_run(run.clone())], options).await?;
        }
    }

    /// Returns the task's messages so far. Tasks run one after the other, so these are the newest messages of
    /// the session.
    async fn said(&self, run: &RunId) -> Result<Vec<StoredMessage>> {
        let thread = self.context.thread(&self.session);
        let mut newest = self.history.last_messages(&thread, TASK_MESSAGES_MAX).await?;
        newest.retain(|stored| stored.message.run.as_ref() == Some(run));
        Ok(newest)
    }

    /// Calls the model with its window.
    async fn think(&self, claim: &Claim, said: &[StoredMessage]) -> Result<ChatMessage> {
        let turn = said.iter().filter(|stored| stored.message.role == Role::Assistant).count();
        let task = &claim.task;
        let instructions = format!("{} Task: {}; turn: {turn}.", self.instructions, task.id);
        let mut front = vec![ChatMessage::system(instructions)];
        let notes = self.tools.search(&task.title).await?;
        if !notes.is_empty() {
            front.push(ChatMessage::system(format!("[Notes]\n- {}", notes.join("\n- "))));
        }
        let explanation = self.context.explain_window(&self.session).await?;
        self.show(&format!("== {}, task {}, turn {turn}", self.id, task.id), &front, &explanation);
        // The explanation stores nothing. This stores the summary, and does not ask for it again.
        let window = self.context.get_prompt_window(&self.session).await?;
        let window = window.messages.into_iter().map(|message| ChatMessage::clone(&message.message));
        self.model.generate(LanguageModelRequest::new(front.into_iter().chain(window).collect())).await
    }

    /// Runs the tools that the model called.
    async fn act(&self, message: &ChatMessage, steps: &Steps) -> Result<ChatMessage> {
        let mut results = Vec::with_capacity(message.tool_calls.len());
        for call in &message.tool_calls {
            results.push(self.tools.run(call).await?);
            steps.pass().await;
        }
        Ok(ChatMessage::tool(results))
    }

    /// Prints the messages that the model receives, with the reasons.
    fn show(&self, heading: &str, front: &[ChatMessage], explanation: &WindowExplanation) {
        let mut text = format!("{heading}\n");
        let front = front.iter().cloned().map(WindowMessage::injected);
        for message in front.chain(explanation.window.messages.iter().cloned()) {
            let place = match message.origin {
                Origin::Stored(seq) => format!("#{seq}"),
                Origin::Summary(up_to) => format!("up to #{up_to}"),
                _ => "injected".to_owned(),
            };
            text.push_str(&format!(
                "  {place:>10} {:<9} {}\n",
                message.message.role.as_str(),
                line(&message.message)
            ));
        }
        (self.tell)(&format!("{text}why, {explanation}"));
    }
}

/// Formats a message as one line.
fn line(message: &ChatMessage) -> String {
    let calls = message.tool_calls.iter().map(|call| format!("{}({})", call.name, call.arguments));
    let results = message.tool_results.iter().map(|result| result.content.clone());
    let said = (!message.text.is_empty()).then(|| message.text.clone());
    let whole =
        said.into_iter().chain(calls).chain(results).collect::<Vec<_>>().join(" | ").replace('\n', " ");
    match whole.char_indices().nth(PRINTED_CHARS) {
        Some((end, _)) => format!("{}…", &whole[..end]),
        None => whole,
    }
}
