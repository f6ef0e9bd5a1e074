//! Which messages of a thread, by who wrote them (AKKA-4).

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::Result;
use crate::id::{AgentId, AgentRole, Thread};
use crate::limits::MESSAGE_FILTER_TERMS_MAX;
use crate::message::ChatMessage;

/// Who wrote a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageSelector {
    /// The agent of this id.
    Agent(AgentId),
    /// Any agent that plays this role.
    Role(AgentRole),
}

impl MessageSelector {
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

/// A chain of filters by author. An empty one keeps everything.
///
/// Filters of one kind are one filter: a message is included that matches any of the included, and excluded that matches
/// any of the excluded. The kinds apply in the order in which they first stand in the chain. A message that names no
/// author counts as written by the agent whose thread it is, in no role. Ids and roles are equal byte by byte.
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
    /// Keeps everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps what this agent wrote, beside what is included already.
    #[must_use]
    pub fn include_agent(self, agent: AgentId) -> Self {
        self.with(Kind::Include(vec![MessageSelector::Agent(agent)]))
    }

    /// Keeps what agents of this role wrote, beside what is included already.
    #[must_use]
    pub fn include_role(self, role: AgentRole) -> Self {
        self.with(Kind::Include(vec![MessageSelector::Role(role)]))
    }

    /// Drops what this agent wrote.
    #[must_use]
    pub fn exclude_agent(self, agent: AgentId) -> Self {
        self.with(Kind::Exclude(vec![MessageSelector::Agent(agent)]))
    }

    /// Drops what agents of this role wrote.
    #[must_use]
    pub fn exclude_role(self, role: AgentRole) -> Self {
        self.with(Kind::Exclude(vec![MessageSelector::Role(role)]))
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

    /// Checks how many agents and roles it names.
    ///
    /// # Errors
    /// `InvalidInput` naming `filter` where they are more than [`MESSAGE_FILTER_TERMS_MAX`].
    pub fn check(&self, operation: &'static str) -> Result<()> {
        let terms = self.kinds.iter().map(|kind| kind.selectors().len()).sum();
        check::at_most(operation, "filter", terms, MESSAGE_FILTER_TERMS_MAX)
    }

    /// The filter as a store compares it with what it keeps beside each message of the thread.
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

/// A [`MessageFilter`] for one thread, in the terms of what a store keeps beside each message: the id of its author and
/// the author's role, each an empty text where the message names none. No id is empty, so the two cannot be confused.
///
/// Made by [`MessageFilter::terms`], and the whole of what it says: the thread's agent, by which messages without an
/// author are meant too, stands in the lists together with the empty text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorTerms {
    /// Where there is one, only what it holds stays.
    pub include: Option<AuthorSet>,
    /// What it holds goes.
    pub exclude: AuthorSet,
}

/// Authors and roles. It holds a message that has one of the authors or one of the roles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorSet {
    /// Ids of authors; the empty text stands for messages that name none.
    pub agents: Vec<String>,
    /// Roles; never empty ones.
    pub roles: Vec<String>,
}

impl AuthorTerms {
    /// Whether a message of this author in this role stays.
    #[must_use]
    pub fn keeps(&self, agent: &str, role: &str) -> bool {
        self.include.as_ref().is_none_or(|set| set.holds(agent, role)) && !self.exclude.holds(agent, role)
    }

    /// The author whose messages alone stay, where the filter includes no other and no role.
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
    fn a_message_without_author_is_of_the_threads_agent() {
        assert_eq!(kept(&MessageFilter::new().include_agent(agent("owner"))), ["none"]);
        assert_eq!(kept(&MessageFilter::new().exclude_agent(agent("owner"))), ["a/x", "a", "b/x", "c/y"]);
    }

    #[test]
    fn one_author_alone_is_told_apart_and_an_empty_include_keeps_nothing() {
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
    fn a_filter_names_so_many_agents_and_roles_and_no_more() {
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
