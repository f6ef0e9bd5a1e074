//! Which messages an agent sees, by who wrote them (AKKA-4).

use larder_kernel::{AgentId, AgentRole, ChatMessage, Thread};
use serde::{Deserialize, Serialize};

/// Who wrote a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// The agent of this id.
    Agent(AgentId),
    /// Any agent that plays this role.
    Role(AgentRole),
}

impl Selector {
    fn matches(&self, thread: &Thread, message: &ChatMessage) -> bool {
        match (self, &message.author) {
            (Self::Agent(agent), Some(author)) => author.agent == *agent,
            // A thread that several share names the author of each message; one that does not is its agent's alone.
            (Self::Agent(agent), None) => thread.agent == *agent,
            (Self::Role(role), author) => {
                author.as_ref().is_some_and(|author| author.role.as_ref() == Some(role))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Include(Vec<Selector>),
    Exclude(Vec<Selector>),
}

impl Kind {
    fn keeps(&self, thread: &Thread, message: &ChatMessage) -> bool {
        match self {
            Self::Include(selectors) => selectors.iter().any(|selector| selector.matches(thread, message)),
            Self::Exclude(selectors) => !selectors.iter().any(|selector| selector.matches(thread, message)),
        }
    }
}

/// A chain of filters by author. An empty one keeps everything.
///
/// Filters of one kind are one filter: a message is included that matches any of the included, and excluded that matches
/// any of the excluded. The kinds apply in the order in which they first stand in the chain. A message that names no
/// author counts as written by the agent whose thread it is, in no role.
///
/// ```
/// use larder_agents::context::memory::MemoryFilter;
/// use larder_kernel::{AgentId, AgentRole, ChatMessage, Thread};
///
/// let filter = MemoryFilter::new()
///     .include_agent(AgentId::new("weather")?)
///     .exclude_role(AgentRole::new("internal")?)
///     .include_agent(AgentId::new("traffic")?);
/// let thread = Thread::new("shared", "session-1")?;
/// let says = |agent, role| -> larder_kernel::Result<ChatMessage> {
///     Ok(ChatMessage::assistant("…").with_author(AgentId::new(agent)?, Some(AgentRole::new(role)?)))
/// };
/// assert!(filter.keeps(&thread, &says("traffic", "public")?));
/// assert!(!filter.keeps(&thread, &says("traffic", "internal")?));
/// assert!(!filter.keeps(&thread, &says("news", "public")?));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Kind>", into = "Vec<Kind>")]
pub struct MemoryFilter {
    kinds: Vec<Kind>,
}

impl MemoryFilter {
    /// Keeps everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps what this agent wrote, beside what is included already.
    #[must_use]
    pub fn include_agent(self, agent: AgentId) -> Self {
        self.with(Kind::Include(vec![Selector::Agent(agent)]))
    }

    /// Keeps what agents of this role wrote, beside what is included already.
    #[must_use]
    pub fn include_role(self, role: AgentRole) -> Self {
        self.with(Kind::Include(vec![Selector::Role(role)]))
    }

    /// Drops what this agent wrote.
    #[must_use]
    pub fn exclude_agent(self, agent: AgentId) -> Self {
        self.with(Kind::Exclude(vec![Selector::Agent(agent)]))
    }

    /// Drops what agents of this role wrote.
    #[must_use]
    pub fn exclude_role(self, role: AgentRole) -> Self {
        self.with(Kind::Exclude(vec![Selector::Role(role)]))
    }

    /// Adds another chain behind this one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        other.kinds.into_iter().fold(self, Self::with)
    }

    /// Whether it keeps everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Whether a message of a thread stays.
    #[must_use]
    pub fn keeps(&self, thread: &Thread, message: &ChatMessage) -> bool {
        self.kinds.iter().all(|kind| kind.keeps(thread, message))
    }

    fn with(mut self, new: Kind) -> Self {
        for kind in &mut self.kinds {
            match (kind, &new) {
                (Kind::Include(there), Kind::Include(more)) | (Kind::Exclude(there), Kind::Exclude(more)) => {
                    there.extend(more.iter().cloned());
                    return self;
                }
                _ => {}
            }
        }
        self.kinds.push(new);
        self
    }
}

impl From<Vec<Kind>> for MemoryFilter {
    fn from(kinds: Vec<Kind>) -> Self {
        kinds.into_iter().fold(Self::new(), Self::with)
    }
}

impl From<MemoryFilter> for Vec<Kind> {
    fn from(filter: MemoryFilter) -> Self {
        filter.kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(id: &str) -> AgentId {
        AgentId::new(id).unwrap()
    }

    fn role(name: &str) -> AgentRole {
        AgentRole::new(name).unwrap()
    }

    fn kept(filter: &MemoryFilter) -> Vec<&'static str> {
        let thread = Thread::new("owner", "s").unwrap();
        let authors = [("a", Some("x")), ("a", None), ("b", Some("x")), ("c", Some("y"))];
        let mut kept: Vec<&str> = Vec::new();
        for ((id, played), name) in authors.into_iter().zip(["a/x", "a", "b/x", "c/y"]) {
            let message = ChatMessage::assistant("").with_author(agent(id), played.map(role));
            kept.extend(filter.keeps(&thread, &message).then_some(name));
        }
        kept.extend(filter.keeps(&thread, &ChatMessage::user("")).then_some("none"));
        kept
    }

    /// Proves: AKKA-4
    #[test]
    fn filters_of_one_kind_merge_and_the_kinds_keep_their_order() {
        let none = MemoryFilter::new();
        assert_eq!(kept(&none), ["a/x", "a", "b/x", "c/y", "none"]);
        let either = none.clone().include_agent(agent("a")).include_role(role("y"));
        assert_eq!(kept(&either), ["a/x", "a", "c/y"]);
        let neither = none.clone().exclude_agent(agent("a")).exclude_role(role("y"));
        assert_eq!(kept(&neither), ["b/x", "none"]);
        let both = none.clone().include_agent(agent("a")).exclude_role(role("x")).include_agent(agent("b"));
        assert_eq!(kept(&both), ["a"]);
        let json = r#"[{"include":[{"agent":"a"},{"agent":"b"}]},{"exclude":[{"role":"x"}]}]"#;
        assert_eq!(serde_json::to_string(&both).unwrap(), json);
        assert_eq!(serde_json::from_str::<MemoryFilter>(json).unwrap(), both);
        let turned = none.clone().exclude_role(role("x")).and(none.include_agent(agent("a")));
        assert_eq!(kept(&turned), ["a"]);
        assert!(serde_json::to_string(&turned).unwrap().starts_with(r#"[{"exclude""#));
        let apart = r#"[{"include":[{"agent":"a"}]},{"exclude":[{"role":"x"}]},{"include":[{"agent":"b"}]}]"#;
        assert_eq!(serde_json::from_str::<MemoryFilter>(apart).unwrap(), both);
    }

    /// Proves: AKKA-1, AKKA-4
    #[test]
    fn a_message_without_author_is_of_the_threads_agent() {
        assert_eq!(kept(&MemoryFilter::new().include_agent(agent("owner"))), ["none"]);
        assert_eq!(kept(&MemoryFilter::new().exclude_agent(agent("owner"))), ["a/x", "a", "b/x", "c/y"]);
    }
}
