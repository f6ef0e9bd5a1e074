//! Ids chosen by callers, and numbers assigned by stores.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::{Error, Result};
use crate::limits::{ID_BYTES_MAX, NAMESPACE_BYTES_MAX};

/// The name of the default collection.
const COLLECTION_DEFAULT: &str = "default";

fn checked(field: &'static str, text: &str, bytes_max: usize) -> Result<()> {
    check::at_least("id.new", field, text.len(), 1)?;
    check::at_most("id.new", field, text.len(), bytes_max)?;
    check::no_nul("id.new", field, text)
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $field:literal, $max:expr) => {
        $(#[$doc])*
        ///
        /// Any UTF-8 text without NUL, up to the length limit. Letter case, Unicode form, `:`, `/`, `%`, `*`,
        /// braces and quotes are data: two different ids never collide on any backend. Ids are ordered by
        /// their bytes.
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and creates the id.
            ///
            /// # Errors
            /// `InvalidInput` naming the field and the limit if the text is empty, is too long or contains
            /// NUL.
            pub fn new(text: impl AsRef<str>) -> Result<Self> {
                let text = text.as_ref();
                checked($field, text, $max)?;
                Ok(Self(Arc::from(text)))
            }

            /// Returns the text exactly as given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl From<&Self> for $name {
            fn from(id: &Self) -> Self {
                id.clone()
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Error;
            fn try_from(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                checked($field, &text, $max)?;
                Ok(Self(Arc::from(text)))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }
    };
}

text_id!(
    /// The namespace in which a store is opened: the unit of tenancy, of test isolation and of deletion on
    /// request. At most 128 bytes.
    Namespace, "namespace", NAMESPACE_BYTES_MAX
);
text_id!(
    /// The agent that owns a thread or wrote a message.
    AgentId, "agent", ID_BYTES_MAX
);
text_id!(
    /// The role of an agent, by which memory filters select messages. It is not the role of a chat message.
    AgentRole, "agent_role", ID_BYTES_MAX
);
text_id!(
    /// A conversation of one agent. With the [`AgentId`] it identifies a [`Thread`].
    SessionId, "session", ID_BYTES_MAX
);
text_id!(
    /// One call of an agent, within a session.
    RunId, "run", ID_BYTES_MAX
);
text_id!(
    /// The caller's name for one append. Repeating an append with the same key has no second effect.
    IdempotencyKey, "idempotency_key", ID_BYTES_MAX
);
text_id!(
    /// A set of documents whose embeddings have the same dimension.
    CollectionName, "collection", ID_BYTES_MAX
);

impl Default for CollectionName {
    /// Returns the collection `default`, for programs that need only one.
    fn default() -> Self {
        Self(Arc::from(COLLECTION_DEFAULT))
    }
}

text_id!(
    /// A document in a collection.
    DocumentId, "document", ID_BYTES_MAX
);
text_id!(
    /// A node of the graph.
    EntityId, "entity", ID_BYTES_MAX
);
text_id!(
    /// The type of an entity: `person`, `place`.
    EntityType, "entity_type", ID_BYTES_MAX
);
text_id!(
    /// A directed edge of the graph.
    RelationshipId, "relationship", ID_BYTES_MAX
);
text_id!(
    /// The type of a relationship: `knows`, `located_in`.
    RelationshipType, "relationship_type", ID_BYTES_MAX
);
text_id!(
    /// The conversation that task boards belong to.
    ConversationId, "conversation", ID_BYTES_MAX
);
text_id!(
    /// A task on a board.
    TaskId, "task", ID_BYTES_MAX
);
text_id!(
    /// A worker that claims tasks.
    WorkerId, "worker", ID_BYTES_MAX
);
text_id!(
    /// A set of keys in the key-value store.
    BucketName, "bucket", ID_BYTES_MAX
);
text_id!(
    /// A key in a bucket.
    Key, "key", ID_BYTES_MAX
);

/// A conversation: one session of one agent.
///
/// Agents that share a session share one thread under a common agent id. Each message then names its author.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Thread {
    /// The agent that owns the session.
    pub agent: AgentId,
    /// The session.
    pub session: SessionId,
}

impl Thread {
    /// Creates the thread from its two ids.
    #[must_use]
    pub fn from_ids(agent: AgentId, session: SessionId) -> Self {
        Self { agent, session }
    }

    /// Checks both names and creates the thread.
    ///
    /// ```
    /// let thread = larder_kernel::Thread::new("assistant", "session-1")?;
    /// assert_eq!(thread.session.as_str(), "session-1");
    /// # Ok::<(), larder_kernel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` naming `agent` or `session`.
    pub fn new(agent: impl AsRef<str>, session: impl AsRef<str>) -> Result<Self> {
        Ok(Self { agent: AgentId::new(agent)?, session: SessionId::new(session)? })
    }
}

impl<A: AsRef<str>, S: AsRef<str>> TryFrom<(A, S)> for Thread {
    type Error = Error;
    fn try_from((agent, session): (A, S)) -> Result<Self> {
        Self::new(agent, session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_id_keeps_its_bytes_and_refuses_only_what_the_contract_forbids() {
        for text in ["a", "a:b", "a/b", "%", "*", "{}", "'\"`", "$$", "🦀", "e\u{301}", "é", &"x".repeat(512)]
        {
            assert_eq!(SessionId::new(text).unwrap().as_str(), text);
        }
        for (text, field) in [("", "session"), ("a\0b", "session"), (&*"x".repeat(513), "session")] {
            let error = SessionId::new(text).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some(field)));
        }
        let error = Namespace::new("n".repeat(129)).unwrap_err();
        assert_eq!((error.actual(), error.limit()), (Some(129), Some(128)));
    }

    #[test]
    fn deserialising_checks_too() {
        assert!(serde_json::from_str::<Key>("\"\"").is_err());
        assert_eq!(serde_json::from_str::<Key>("\"k\"").unwrap(), Key::new("k").unwrap());
    }
}
