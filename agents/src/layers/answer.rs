//! The size of a result, for spans and metrics.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use larder_kernel::check::size;
use larder_kernel::{
    Appended, BlobEntry, BlobInfo, BlobRead, BlobVersion, Board, BucketInfo, ChatMessage, Claim,
    CollectionInfo, DeletedEntity, Document, Entity, Forked, GraphCounts, GraphWritten, HistoryEvent,
    HistoryEventKind, KeyRevision, KeyValueEntry, KeyValueEvent, KeyValueEventKind, KeyValueItem, Lease,
    Metadata, MetadataReport, Page, PrefixDeletion, PresignedUrl, PutReport, Reached, Relationship, Removed,
    Replaced, Result, RetryOutcome, Revision, SearchHit, Seq, StoredEntity, StoredMessage,
    StoredRelationship, SubGraph, Task, ThreadInfo, Updated, UpsertReport,
};

/// The result of a store call, with its size.
pub(super) trait Answer: Send + 'static {
    /// Returns the bytes of stored data in the result, as the contracts count them.
    fn bytes(&self) -> u64 {
        0
    }

    /// Returns the number of items, if the result is a list.
    fn rows(&self) -> Option<u64> {
        None
    }
}

macro_rules! weightless {
    ($($type:ty),* $(,)?) => { $(impl Answer for $type {})* };
}

weightless!(
    (),
    u64,
    bool,
    Seq,
    Revision,
    Appended,
    Forked,
    Replaced,
    Updated,
    ThreadInfo,
    BlobInfo,
    BlobEntry,
    BlobRead,
    BlobVersion,
    PresignedUrl,
    BucketInfo,
    KeyRevision,
    PrefixDeletion,
    CollectionInfo,
    DeletedEntity,
    GraphCounts,
    UpsertReport,
    GraphWritten,
    Lease,
    PutReport,
    MetadataReport,
    Board,
);

macro_rules! weighs {
    ($($type:ty: $bytes:expr;)*) => {
        $(impl Answer for $type {
            fn bytes(&self) -> u64 {
                let bytes: fn(&Self) -> usize = $bytes;
                size(bytes(self))
            }
        })*
    };
}

fn message(stored: &StoredMessage) -> usize {
    stored.message.size_bytes()
}

fn task(task: &Task) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    task.title.len() + text(&task.description) + text(&task.result) + task.metadata.size_bytes()
}

weighs! {
    Bytes: Bytes::len;
    ChatMessage: ChatMessage::size_bytes;
    StoredMessage: message;
    HistoryEvent: |event| match &event.kind {
        HistoryEventKind::Appended { message, .. } | HistoryEventKind::Updated { message, .. } => {
            message.size_bytes()
        }
        HistoryEventKind::Replaced { messages, .. } => messages.iter().map(message).sum(),
        _ => 0,
    };
    Document: |document| document.content.len() + document.metadata.size_bytes();
    SearchHit: |hit| hit.content.len() + hit.metadata.size_bytes();
    Entity: |entity| entity.properties.size_bytes();
    StoredEntity: |stored| stored.entity.properties.size_bytes();
    Relationship: |relationship| relationship.properties.size_bytes();
    StoredRelationship: |stored| stored.relationship.properties.size_bytes();
    Reached: |reached| reached.entity.properties.size_bytes();
    Metadata: Metadata::size_bytes;
    Removed: |removed| removed.messages.iter().map(message).sum();
    Task: task;
    Claim: |claim| task(&claim.task);
    RetryOutcome: |outcome| match outcome {
        RetryOutcome::Retried(one) | RetryOutcome::Exhausted(one) => task(one),
    };
    KeyValueEntry: |entry| entry.value.len();
    KeyValueItem: |item| item.value.as_ref().map_or(0, Bytes::len);
    KeyValueEvent: |event| match &event.kind {
        KeyValueEventKind::Put { value, .. } => value.len(),
        _ => 0,
    };
}

impl<T: Answer> Answer for Vec<T> {
    fn bytes(&self) -> u64 {
        self.iter().map(Answer::bytes).sum()
    }

    fn rows(&self) -> Option<u64> {
        Some(size(self.len()))
    }
}

impl<T: Answer> Answer for Option<T> {
    fn bytes(&self) -> u64 {
        self.as_ref().map_or(0, Answer::bytes)
    }

    fn rows(&self) -> Option<u64> {
        Some(u64::from(self.is_some()))
    }
}

impl<T: Answer, K: Send + 'static> Answer for Page<T, K> {
    fn bytes(&self) -> u64 {
        self.items.bytes()
    }

    fn rows(&self) -> Option<u64> {
        self.items.rows()
    }
}

impl Answer for SubGraph {
    fn bytes(&self) -> u64 {
        self.entities.bytes() + self.relationships.bytes()
    }

    fn rows(&self) -> Option<u64> {
        Some(size(self.entities.len() + self.relationships.len()))
    }
}

/// The items of a stream are counted as they arrive.
impl<T: 'static> Answer for BoxStream<'static, Result<T>> {}
