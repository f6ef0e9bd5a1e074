//! Who is at work: the identity that travels with a task of the runtime (RAVI-18).

use std::fmt;
use std::future::Future;

use larder_kernel::{AgentId, BoardId, ConversationId};
use tokio::task::JoinHandle;

/// What stands in a board's address for what no scope names.
const UNNAMED: &str = "default";

tokio::task_local! {
    static SCOPE: AgentScope;
}

/// The agent at work, its conversation, its label and the agent it works for.
///
/// A scope holds for a future and everything that it awaits. `tokio::spawn` does not carry it on; [`spawn`] does.
///
/// ```
/// use larder_agents::scope::{self, AgentScope};
/// use larder_kernel::{AgentId, ConversationId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let planner = AgentScope::new()
///     .with_conversation(ConversationId::new("conversation-1")?)
///     .with_agent(AgentId::new("planner")?);
/// let board = planner.run(async { scope::current_board() }).await;
/// assert_eq!(board.agent.as_str(), "planner");
/// assert_eq!(scope::current_board().agent.as_str(), "default");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AgentScope {
    conversation: Option<ConversationId>,
    agent: Option<AgentId>,
    label: Option<String>,
    parent: Option<AgentId>,
}

impl AgentScope {
    /// A scope that names nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The scope that holds here, or one that names nothing.
    #[must_use]
    pub fn current() -> Self {
        SCOPE.try_with(Self::clone).unwrap_or_default()
    }

    /// Names the conversation.
    #[must_use]
    pub fn with_conversation(mut self, conversation: ConversationId) -> Self {
        self.conversation = Some(conversation);
        self
    }

    /// Names the agent.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentId) -> Self {
        self.agent = Some(agent);
        self
    }

    /// Gives the agent a name for people.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Names the agent that this one works for.
    #[must_use]
    pub fn with_parent(mut self, parent: AgentId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// The scope of an agent that works for this one, in the same conversation.
    #[must_use]
    pub fn child(&self, agent: AgentId) -> Self {
        Self {
            conversation: self.conversation.clone(),
            agent: Some(agent),
            label: None,
            parent: self.agent.clone(),
        }
    }

    /// The conversation.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        self.conversation.as_ref()
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentId> {
        self.agent.as_ref()
    }

    /// The agent's name for people.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// The agent that this one works for.
    #[must_use]
    pub fn parent(&self) -> Option<&AgentId> {
        self.parent.as_ref()
    }

    /// The board of the agent in its conversation; `default` stands for each of the two that is not named.
    #[must_use]
    pub fn board(&self) -> BoardId {
        let conversation = self.conversation.clone().unwrap_or_else(|| named(ConversationId::new));
        let agent = self.agent.clone().unwrap_or_else(|| named(AgentId::new));
        BoardId { conversation, agent }
    }

    /// Runs a future in this scope.
    pub async fn run<F: Future>(self, future: F) -> F::Output {
        SCOPE.scope(self, future).await
    }
}

fn named<T>(make: impl FnOnce(&'static str) -> larder_kernel::Result<T>) -> T {
    make(UNNAMED).unwrap_or_else(|_| unreachable!("`default` is within the limits of an id"))
}

/// The scope that holds here, or one that names nothing.
#[must_use]
pub fn current() -> AgentScope {
    AgentScope::current()
}

/// The board of the agent at work; outside any scope, the board `default` of the conversation `default`.
#[must_use]
pub fn current_board() -> BoardId {
    AgentScope::current().board()
}

/// Spawns a future that keeps the scope of the caller.
///
/// # Panics
/// Outside a tokio runtime, as `tokio::spawn` does.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(AgentScope::current().run(future))
}

impl fmt::Debug for AgentScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Which parts are named, not how: a scope stands in logs beside the stores.
        f.debug_struct("AgentScope")
            .field("conversation", &self.conversation.is_some())
            .field("agent", &self.agent.is_some())
            .field("label", &self.label.is_some())
            .field("parent", &self.parent.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(text: &str) -> AgentId {
        AgentId::new(text).unwrap()
    }

    #[tokio::test]
    async fn a_scope_nests_ends_and_is_carried_only_by_its_own_spawn() {
        let outer = AgentScope::new().with_agent(agent("outer")).with_label("Outer");
        let inner = outer.child(agent("inner"));
        outer
            .clone()
            .run(async {
                assert_eq!(inner.clone().run(async { current() }).await.parent(), Some(&agent("outer")));
                assert_eq!(current(), outer);
                assert_eq!(spawn(async { current() }).await.unwrap(), outer);
                assert_eq!(tokio::spawn(async { current() }).await.unwrap(), AgentScope::new());
            })
            .await;
        assert_eq!(current_board(), BoardId::new("default", "default").unwrap());
        assert!(!format!("{outer:?}").contains("outer"));
    }
}
