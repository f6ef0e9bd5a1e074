//! The unit of a copy: one record for each item of a contract, with the order and the form in which two
//! backends are compared.

use std::sync::Arc;

use larder_kernel::{
    AgentId, BlobKey, BoardId, BucketName, ChatMessage, CollectionName, Contract, DocumentId, Embedding,
    Entity, Key, Metadata, Relationship, Result, Task, TaskId, TaskStatus, Thread, Timestamp, UserMetadata,
    canonical_json,
};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::encode::{base64_bytes, base64_floats};
use super::position::Position;

/// A single item of a backend. An archive stores its JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Record {
    /// A message of a thread.
    Message(MessageRecord),
    /// A collection of documents. Its documents follow it.
    Collection(CollectionRecord),
    /// A document with its embedding.
    Document(DocumentRecord),
    /// A node of the graph.
    Entity(Entity),
    /// An edge of the graph.
    Relationship(Relationship),
    /// A file, without its bytes.
    Blob(BlobRecord),
    /// A board. Its tasks follow it.
    Board(BoardRecord),
    /// A task of a board.
    Task(TaskRecord),
    /// A key of a bucket with its value.
    Value(ValueRecord),
}

/// A message and its index in the thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageRecord {
    /// The thread.
    pub thread: Thread,
    /// The number of earlier messages in the thread. The `Seq` is specific to the store, so it is not copied.
    pub index: u64,
    /// The message.
    pub message: Arc<ChatMessage>,
}

/// A collection, which may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectionRecord {
    /// The name of the collection.
    pub collection: CollectionName,
    /// The dimension of its embeddings.
    pub dimensions: usize,
}

/// A document of a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentRecord {
    /// The collection.
    pub collection: CollectionName,
    /// The id of the document in the collection.
    pub id: DocumentId,
    /// The text.
    pub content: String,
    /// The embedding. In JSON it is the 32-bit floats in little-endian order, in base64, so that every bit is
    /// preserved.
    #[serde(with = "base64_floats")]
    pub embedding: Embedding,
    /// The metadata.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

/// The properties of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobRecord {
    /// The key.
    pub key: BlobKey,
    /// The size in bytes.
    pub size: u64,
    /// The media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The user metadata.
    #[serde(default, skip_serializing_if = "UserMetadata::is_empty")]
    pub metadata: UserMetadata,
    /// The SHA-256 of the bytes, in hexadecimal, or `None` before they are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The position of the bytes in an archive.
    #[serde(skip)]
    pub(crate) body: Option<Position>,
}

/// A board without its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoardRecord {
    /// The address of the board.
    pub board: BoardId,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The parent agent of the board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<AgentId>,
}

/// A task, in a form that can be recreated in another backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRecord {
    /// The board.
    pub board: BoardId,
    /// The number of earlier tasks on the board.
    pub index: u64,
    /// The id of the task on the board.
    pub id: TaskId,
    /// The title.
    pub title: String,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The status. A task that a worker holds under a lease is recorded as planned.
    pub status: TaskStatus,
    /// The number of retries.
    pub retries: u32,
    /// The largest number of retries.
    pub retries_max: u32,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The metadata.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// `true` if a worker holds the task, so that no other caller can change it.
    #[serde(skip)]
    pub(crate) held: bool,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueRecord {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: Key,
    /// The value; base64 in JSON.
    #[serde(with = "base64_bytes")]
    pub value: bytes::Bytes,
    /// The time at which the key expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The order of a scan, which is that of the contract's own listings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey(u8, Box<str>, Box<str>, u64);

impl Record {
    /// Returns the contract of the record.
    #[must_use]
    pub fn contract(&self) -> Contract {
        match self {
            Self::Message(_) => Contract::History,
            Self::Collection(_) | Self::Document(_) => Contract::Vectors,
            Self::Entity(_) | Self::Relationship(_) => Contract::Graph,
            Self::Blob(_) => Contract::Blobs,
            Self::Board(_) | Self::Task(_) => Contract::Tasks,
            Self::Value(_) => Contract::KeyValue,
        }
    }

    pub(crate) fn sort_key(&self) -> SortKey {
        match self {
            Self::Message(message) => {
                let Thread { agent, session } = &message.thread;
                SortKey(0, agent.as_str().into(), session.as_str().into(), message.index)
            }
            Self::Collection(collection) => SortKey(0, collection.collection.as_str().into(), "".into(), 0),
            Self::Document(document) => {
                SortKey(0, document.collection.as_str().into(), document.id.as_str().into(), 1)
            }
            Self::Entity(entity) => SortKey(0, entity.id.as_str().into(), "".into(), 0),
            Self::Relationship(relationship) => SortKey(1, relationship.id.as_str().into(), "".into(), 0),
            Self::Blob(blob) => SortKey(0, blob.key.as_str().into(), "".into(), 0),
            Self::Board(BoardRecord { board, .. }) => {
                SortKey(0, board.conversation.as_str().into(), board.agent.as_str().into(), 0)
            }
            Self::Task(TaskRecord { board, index, .. }) => {
                let place = index.saturating_add(1);
                SortKey(0, board.conversation.as_str().into(), board.agent.as_str().into(), place)
            }
            Self::Value(value) => SortKey(0, value.bucket.as_str().into(), value.key.as_str().into(), 0),
        }
    }

    /// Returns `true` if both records belong to one thread, collection, board or kind, so that one call may
    /// write them.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let (one, two) = (self.sort_key(), other.sort_key());
        match self.contract() {
            Contract::History | Contract::Tasks => (one.1, one.2) == (two.1, two.2),
            Contract::Vectors => one.1 == two.1,
            Contract::Graph => one.0 == two.0,
            Contract::Blobs | Contract::KeyValue => true,
        }
    }

    /// Returns the approximate size in bytes, for batches and for progress.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Message(message) => message.message.size_bytes(),
            Self::Document(document) => {
                document.content.len() + 4 * document.embedding.dimensions() + document.metadata.size_bytes()
            }
            Self::Entity(entity) => entity.id.as_str().len() + entity.properties.size_bytes(),
            Self::Relationship(relationship) => {
                relationship.id.as_str().len() + relationship.properties.size_bytes()
            }
            Self::Blob(blob) => return blob.size,
            Self::Task(task) => {
                let texts = [&task.description, &task.result];
                let texts: usize = texts.into_iter().flatten().map(String::len).sum();
                task.title.len() + texts + task.metadata.size_bytes()
            }
            Self::Value(value) => value.key.as_str().len() + value.value.len(),
            Self::Collection(_) | Self::Board(_) => 0,
        };
        larder_kernel::check::size(bytes)
    }

    /// Returns the text that is compared between backends: JSON with sorted keys, each number in a canonical
    /// form, and only the presence of an expiry.
    pub(crate) fn canonical(&self) -> Result<String> {
        let unwritable = |_| {
            let kind = larder_kernel::ErrorKind::Unexpected;
            larder_kernel::Error::new(kind, "transfer.canonical", "the record cannot be written as JSON")
        };
        let mut value = serde_json::to_value(self).map_err(unwritable)?;
        if let Some(Value::Object(fields)) = value.get_mut("value")
            && fields.remove("expires_at").is_some()
        {
            fields.insert("expires".to_owned(), Value::Bool(true));
        }
        normalize(&mut value);
        canonical_json(&value)
    }

    /// Returns `true` if the record is a key that has expired by `at`.
    pub(crate) fn expired_by(&self, at: Timestamp) -> bool {
        matches!(self, Self::Value(value) if value.expires_at.is_some_and(|expires_at| expires_at <= at))
    }
}

impl SortKey {
    /// Returns `true` if no record is missing between the last one and this one, for contracts that count. A
    /// thread begins with its first message, a board comes before its first task, and a collection before its
    /// first document.
    pub(crate) fn comes_after(&self, last: Option<&Self>, contract: Contract) -> bool {
        match contract {
            Contract::History | Contract::Tasks => {
                let last = last.filter(|last| (&last.1, &last.2) == (&self.1, &self.2));
                self.3 == last.map_or(0, |last| last.3.saturating_add(1))
            }
            Contract::Vectors => self.3 == 0 || last.is_some_and(|last| last.1 == self.1),
            Contract::Graph | Contract::Blobs | Contract::KeyValue => true,
        }
    }
}

impl TaskRecord {
    pub(crate) fn of(board: BoardId, index: u64, task: Task) -> Self {
        let held = task.lease.is_some();
        Self {
            board,
            index,
            id: task.id,
            title: task.title,
            description: task.description,
            status: if held { TaskStatus::Planned } else { task.status },
            retries: task.retries,
            retries_max: task.retries_max,
            result: task.result,
            metadata: task.metadata,
            held,
        }
    }

    /// Returns `true` if the task matches `goal` in everything that never changes, and its status can still
    /// lead to the goal.
    pub(crate) fn is_on_the_way_to(&self, goal: &Self) -> bool {
        let open = matches!(self.status, TaskStatus::Planned | TaskStatus::InProgress | TaskStatus::Blocked);
        let result = self.result.is_none() || self.result == goal.result;
        let same = (&self.id, &self.title, &self.description, self.retries_max, &self.metadata)
            == (&goal.id, &goal.title, &goal.description, goal.retries_max, &goal.metadata);
        same && open && result && !self.held && self.retries <= goal.retries
    }
}

/// Writes each number that equals a 64-bit integer as that integer: `1.0` as `1`, `-0.0` as `0`. Stores
/// return numbers by value, not by spelling.
fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = whole(number) {
                *number = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(fields) => fields.values_mut().for_each(normalize),
        _ => {}
    }
}

fn whole(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e20)?;
    let digits = format!("{float:.0}");
    let signed = digits.parse::<i64>().map(Number::from);
    signed.or_else(|_| digits.parse::<u64>().map(Number::from)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_of_one_value_have_one_form() {
        let pairs = [
            (json!(1.0), "1"),
            (json!(-0.0), "0"),
            (json!(1e16), "10000000000000000"),
            (json!(9_007_199_254_740_993_i64), "9007199254740993"),
            (json!(9_223_372_036_854_775_808.0), "9223372036854775808"),
            (json!(18_446_744_073_709_551_616.0), "1.8446744073709552e+19"),
            (json!([{"a": 2.5, "b": 2.0}]), r#"[{"a":2.5,"b":2}]"#),
        ];
        for (mut value, text) in pairs {
            normalize(&mut value);
            assert_eq!(canonical_json(&value).unwrap(), text);
        }
    }
}
