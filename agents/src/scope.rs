//! The identity of the current agent, which travels with an async task.

use std::fmt;
use std::future::Future;

use larder_kernel::{AgentId, BoardId, ConversationId};
use tokio::task::JoinHandle;

/// The part of a board's address that replaces an unset value.
const UNNAMED: &str = "default";

tokio::task_local! {
    static SCOPE: AgentScope;
}

/// The current agent, its conversation, its label and its parent agent.
///
/// A scope applies to a future and everything that it awaits. `tokio::spawn` does not pass it on; [`spawn`]
/// does.
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
    /// Creates an empty scope.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the current scope, or an empty one.
    #[must_use]
    pub fn current() -> Self {
        SCOPE.try_with(Self::clone).unwrap_or_default()
    }

    /// Sets the conversation.
    #[must_use]
    pub fn with_conversation(mut self, conversation: ConversationId) -> Self {
        self.conversation = Some(conversation);
        self
    }

    /// Sets the agent.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentId) -> Self {
        self.agent = Some(agent);
        self
    }

    /// Sets the display name of the agent.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the parent agent.
    #[must_use]
    pub fn with_parent(mut self, parent: AgentId) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Creates the scope of an agent that works for this one, in the same conversation.
    #[must_use]
    pub fn child(&self, agent: AgentId) -> Self {
        Self {
            conversation: self.conversation.clone(),
            agent: Some(agent),
            label: None,
            parent: self.agent.clone(),
        }
    }

    /// Returns the conversation.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        self.conversation.as_ref()
    }

    /// Returns the agent.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentId> {
        self.agent.as_ref()
    }

    /// Returns the display name of the agent.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Returns the parent agent.
    #[must_use]
    pub fn parent(&self) -> Option<&AgentId> {
        self.parent.as_ref()
    }

    /// Returns the board of the agent in its conversation. If either is unset, `default` is used for it.
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

/// Returns the current scope, or an empty one.
#[must_use]
pub fn current() -> AgentScope {
    AgentScope::current()
}

/// Returns the board of the current agent. Outside any scope it is the board `default` of the conversation
/// `default`.
#[must_use]
pub fn current_board() -> BoardId {
    AgentScope::current().board()
}

/// Spawns a future that keeps the scope of the caller.
///
/// # Panics
/// Panics outside a tokio runtime, like `tokio::spawn`.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(AgentScope::current().run(future))
}

impl fmt::Debug for AgentScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Shows which parts are set, but not their values: a scope appears in logs together with the stores.
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
