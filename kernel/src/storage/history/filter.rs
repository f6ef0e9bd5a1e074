//! Selection of a thread's messages by author.

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::Result;
use crate::id::{AgentId, AgentRole, Thread};
use crate::limits::MESSAGE_FILTER_TERMS_MAX;
use crate::message::ChatMessage;

/// A selector of messages by author.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageSelector {
    /// The agent with this id.
    Agent(AgentId),
    /// Any agent with this role.
    Role(AgentRole),
}

impl MessageSelector {
    fn matches(&self, thread: &Thread, message: &ChatMessage) -> bool {
        match (self, &message.author) {
            (Self::Agent(agent), Some(author)) => author.agent == *agent,
            // Messages name their author if several agents share the thread; other messages belong to its
            // agent.
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
    Include(Vec<MessageSelector>),
    Exclude(Vec<MessageSelector>),
}

impl Kind {
    fn selectors(&self) -> &[MessageSelector] {
        match self {
            Self::Include(selectors) | Self::Exclude(selectors) => selectors,
        }
    }

    fn keeps(&self, thread: &Thread, message: &ChatMessage) -> bool {
        match self {
            Self::Include(selectors) => selectors.iter().any(|selector| selector.matches(thread, message)),
            Self::Exclude(selectors) => !selectors.iter().any(|selector| selector.matches(thread, message)),
        }
    }
}

/// A chain of filters by author. An empty filter keeps every message.
///
/// Filters of the same kind are merged: the include filter keeps a message that matches any of its selectors,
/// and the exclude filter drops a message that matches any of its selectors. The two kinds apply in the order
/// in which they first appear in the chain. A message without an author counts as written by the thread's
/// agent, without a role. Ids and roles match if they are equal byte by byte.
///
/// ```
/// use larder_kernel::{AgentId, AgentRole, ChatMessage, MessageFilter, Thread};
///
/// let filter = MessageFilter::new()
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
pub struct MessageFilter {
    kinds: Vec<Kind>,
}

impl MessageFilter {
    /// Creates a filter that keeps every message.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the messages of this agent, in addition to those already included.
    #[must_use]
    pub fn include_agent(self, agent: AgentId) -> Self {
        self.with(Kind::Include(vec![MessageSelector::Agent(agent)]))
    }

    /// Keeps the messages of agents with this role, in addition to those already included.
    #[must_use]
    pub fn include_role(self, role: AgentRole) -> Self {
        self.with(Kind::Include(vec![MessageSelector::Role(role)]))
    }

    /// Drops the messages of this agent.
    #[must_use]
    pub fn exclude_agent(self, agent: AgentId) -> Self {
        self.with(Kind::Exclude(vec![MessageSelector::Agent(agent)]))
    }

    /// Drops the messages of agents with this role.
    #[must_use]
    pub fn exclude_role(self, role: AgentRole) -> Self {
        self.with(Kind::Exclude(vec![MessageSelector::Role(role)]))
    }

    /// Appends another chain to this one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        other.kinds.into_iter().fold(self, Self::with)
    }

    /// Returns `true` if the filter keeps every message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns `true` if the filter keeps a message of this thread.
    #[must_use]
    pub fn keeps(&self, thread: &Thread, message: &ChatMessage) -> bool {
        self.kinds.iter().all(|kind| kind.keeps(thread, message))
    }

    /// Checks the number of agents and roles in the filter.
    ///
    /// # Errors
    /// `InvalidInput` naming `filter` if the number is greater than [`MESSAGE_FILTER_TERMS_MAX`].
    pub fn check(&self, operation: &'static str) -> Result<()> {
        let terms = self.kinds.iter().map(|kind| kind.selectors().len()).sum();
        check::at_most(operation, "filter", terms, MESSAGE_FILTER_TERMS_MAX)
    }

    /// Returns the filter in terms of the author columns that a store keeps for each message of the thread.
    #[must_use]
    pub fn terms(&self, thread: &Thread) -> AuthorTerms {
        let mut terms = AuthorTerms::default();
        for kind in &self.kinds {
            let set = match kind {
                Kind::Include(_) => terms.include.get_or_insert_default(),
                Kind::Exclude(_) => &mut terms.exclude,
            };
            for selector in kind.selectors() {
                set.add(thread, selector);
            }
        }
        terms
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

/// A [`MessageFilter`] for one thread, in terms of two columns that a store keeps for each message: the
/// author's id and the author's role. Each is an empty text if the message has none. Ids and roles are never
/// empty, so an empty text is unambiguous.
///
/// [`MessageFilter::terms`] creates a value that is equivalent to the whole filter. If the lists name the
/// thread's agent, they also contain the empty text, because messages without an author belong to that agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorTerms {
    /// If set, only messages that match this set are kept.
    pub include: Option<AuthorSet>,
    /// Messages that match this set are dropped.
    pub exclude: AuthorSet,
}

/// A set of authors and roles. A message matches if it has one of the authors or one of the roles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorSet {
    /// The ids of authors. The empty text matches messages without an author.
    pub agents: Vec<String>,
    /// The roles. None of them is empty.
    pub roles: Vec<String>,
}

impl AuthorTerms {
    /// Returns `true` if a message of this author in this role is kept.
    #[must_use]
    pub fn keeps(&self, agent: &str, role: &str) -> bool {
        self.include.as_ref().is_none_or(|set| set.holds(agent, role)) && !self.exclude.holds(agent, role)
    }

    /// Returns the author if the filter includes exactly one author and no role. The result is `None` for the
    /// thread's own agent, because messages without an author match too.
    #[must_use]
    pub fn only_author(&self) -> Option<&str> {
        match self.include.as_ref().map(|set| (&set.agents[..], &set.roles[..])) {
            Some(([agent], [])) => Some(agent),
            _ => None,
        }
    }
}

impl AuthorSet {
    fn add(&mut self, thread: &Thread, selector: &MessageSelector) {
        match selector {
            MessageSelector::Agent(agent) => {
                self.agents.push(agent.as_str().to_owned());
                if *agent == thread.agent {
                    self.agents.push(String::new());
                }
            }
            MessageSelector::Role(role) => self.roles.push(role.as_str().to_owned()),
        }
    }

    fn holds(&self, agent: &str, role: &str) -> bool {
        self.agents.iter().any(|one| one == agent) || self.roles.iter().any(|one| one == role)
    }
}

impl From<Vec<Kind>> for MessageFilter {
    fn from(kinds: Vec<Kind>) -> Self {
        kinds.into_iter().fold(Self::new(), Self::with)
    }
}

impl From<MessageFilter> for Vec<Kind> {
    fn from(filter: MessageFilter) -> Self {
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

    fn kept(filter: &MessageFilter) -> Vec<&'static str> {
        let thread = Thread::new("owner", "s").unwrap();
        let authors = [("a", Some("x")), ("a", None), ("b", Some("x")), ("c", Some("y"))];
        let mut kept: Vec<&str> = Vec::new();
        for ((id, played), name) in authors.into_iter().zip(["a/x", "a", "b/x", "c/y"]) {
            let message = ChatMessage::assistant("").with_author(agent(id), played.map(role));
            let role = played.unwrap_or_default();
            assert_eq!(filter.terms(&thread).keeps(id, role), filter.keeps(&thread, &message));
            kept.extend(filter.keeps(&thread, &message).then_some(name));
        }
        assert_eq!(filter.terms(&thread).keeps("", ""), filter.keeps(&thread, &ChatMessage::user("")));
        kept.extend(filter.keeps(&thread, &ChatMessage::user("")).then_some("none"));
        kept
    }

    /// Proves: AKKA-4
    #[test]
    fn filters_of_one_kind_merge_and_the_kinds_keep_their_order() {
        let none = MessageFilter::new();
        assert_eq!(kept(&none), ["a/x", "a", "b/x", "c/y", "none"]);
        let either = none.clone().include_agent(agent("a")).include_role(role("y"));
        assert_eq!(kept(&either), ["a/x", "a", "c/y"]);
        let neither = none.clone().exclude_agent(agent("a")).exclude_role(role("y"));
        assert_eq!(kept(&neither), ["b/x", "none"]);
        let both = none.clone().include_agent(agent("a")).exclude_role(role("x")).include_agent(agent("b"));
        assert_eq!(kept(&both), ["a"]);
        let json = r#"[{"include":[{"agent":"a"},{"agent":"b"}]},{"exclude":[{"role":"x"}]}]"#;
        assert_eq!(serde_json::to_string(&both).unwrap(), json);
        assert_eq!(serde_json::from_str::<MessageFilter>(json).unwrap(), both);
        let turned = none.clone().exclude_role(role("x")).and(none.include_agent(agent("a")));
        assert_eq!(kept(&turned), ["a"]);
        assert!(serde_json::to_string(&turned).unwrap().starts_with(r#"[{"exclude""#));
        let apart = r#"[{"include":[{"agent":"a"}]},{"exclude":[{"role":"x"}]},{"include":[{"agent":"b"}]}]"#;
        assert_eq!(serde_json::from_str::<MessageFilter>(apart).unwrap(), both);
    }

    /// Proves: AKKA-1, AKKA-4
    #[test]
    fn a_message_without_an_author_belongs_to_the_threads_agent() {
        assert_eq!(kept(&MessageFilter::new().include_agent(agent("owner"))), ["none"]);
        assert_eq!(kept(&MessageFilter::new().exclude_agent(agent("owner"))), ["a/x", "a", "b/x", "c/y"]);
    }

    #[test]
    fn one_author_is_selected_and_an_empty_include_keeps_nothing() {
        let thread = Thread::new("owner", "s").unwrap();
        let only = |filter: MessageFilter| filter.terms(&thread).only_author().map(str::to_owned);
        let none = MessageFilter::new();
        assert_eq!(only(none.clone().include_agent(agent("a"))), Some("a".to_owned()));
        assert_eq!(
            only(none.clone().include_agent(agent("a")).exclude_role(role("x"))),
            Some("a".to_owned())
        );
        assert_eq!(only(none.clone().include_agent(agent("owner"))), None);
        assert_eq!(only(none.clone().include_agent(agent("a")).include_role(role("x"))), None);
        assert_eq!(only(none), None);
        let nothing: MessageFilter = serde_json::from_str(r#"[{"include":[]}]"#).unwrap();
        assert_eq!(kept(&nothing), Vec::<&str>::new());
    }

    #[test]
    fn a_filter_has_a_limit_of_agents_and_roles() {
        let names = |count: usize| {
            (0..count).fold(MessageFilter::new(), |filter, number| match number % 2 {
                0 => filter.include_agent(agent(&number.to_string())),
                _ => filter.exclude_role(role(&number.to_string())),
            })
        };
        assert!(names(MESSAGE_FILTER_TERMS_MAX).check("history.tail_matching").is_ok());
        let error = names(MESSAGE_FILTER_TERMS_MAX + 1).check("history.tail_matching").unwrap_err();
        assert_eq!((error.field(), error.actual(), error.limit()), (Some("filter"), Some(65), Some(64)));
    }
}
