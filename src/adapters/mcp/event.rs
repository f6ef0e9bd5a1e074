//! The events of rmcp's streams in a key-value store.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use super::digest::digest;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use larder_kernel::{
    BucketName, Error, ErrorKind, Key, KeyValueEvent, KeyValueEventKind, KeyValueEvents, KeyValuePutOptions,
    KeyValueStore, Result, Revision,
};
use rmcp::model::{JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::{
    EventId, EventStore, EventStoreError, EventStream, ServerSseMessage,
};
use serde::{Deserialize, Serialize};

const BUCKET: &str = "larder.mcp.events";
const REPLAY: &str = "mcp.events.replay";
/// The time for which an event can be replayed.
const TTL: Duration = Duration::from_secs(3600);

/// rmcp's [`EventStore`] over a [`KeyValueStore`]: the messages of a stream, for clients that lost their
/// connection.
///
/// Events are stored in the bucket `larder.mcp.events`, for one hour by default (see
/// [`with_ttl`](Self::with_ttl)). The revision of the write orders the events, so the events of all instances
/// have one order. A resumed stream continues with events of any instance and ends with the response to its
/// request. The id of an event cannot be guessed and belongs to one stream.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use std::time::Duration;
/// use larder::Stores;
/// use larder::adapters::mcp::KeyValueEventStore;
/// use rmcp::transport::streamable_http_server::session::{EventStore, ServerSseMessage};
///
/// let events = KeyValueEventStore::new(larder::open("memory:").await?.key_value()?);
/// let id = events.store_event("stream", &ServerSseMessage::retry(Duration::from_secs(3))).await?;
/// assert!(events.replay_events_after(&id).await.is_ok());
/// assert!(events.replay_events_after("another").await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KeyValueEventStore {
    store: Arc<dyn KeyValueStore>,
    ttl: Duration,
}

/// A stored event.
#[derive(Serialize, Deserialize)]
struct Kept {
    message: Option<ServerJsonRpcMessage>,
    retry_ms: Option<u64>,
}

impl KeyValueEventStore {
    /// Creates an event store over a key-value store.
    #[must_use]
    pub fn new(store: impl Into<Arc<dyn KeyValueStore>>) -> Self {
        Self { store: store.into(), ttl: TTL }
    }

    /// Sets the time for which an event can be replayed, to the millisecond. A time below 1 ms or above 100
    /// years is refused with `InvalidInput` when an event is stored.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    async fn keep(&self, stream: &str, event: &ServerSseMessage) -> Result<EventId> {
        let key = Key::new(format!("{}{}", prefix(stream), uuid::Uuid::new_v4().simple()))?;
        let kept = Kept {
            message: event.message.as_deref().cloned(),
            retry_ms: event.retry.map(|retry| u64::try_from(retry.as_millis()).unwrap_or(u64::MAX)),
        };
        let json = serde_json::to_vec(&kept).map_err(|_| {
            Error::new(ErrorKind::Unexpected, "mcp.events.store", "the event cannot be written as JSON")
        })?;
        let options = KeyValuePutOptions::default().with_ttl(self.ttl);
        let revision = self.store.put(&BucketName::new(BUCKET)?, &key, Bytes::from(json), options).await?;
        Ok(event_id(&key, revision))
    }

    async fn after(&self, event_id: &str) -> Result<EventStream> {
        let unknown = || {
            Error::new(
                ErrorKind::NotFound,
                REPLAY,
                "the event does not exist or is no longer stored; read the resource again",
            )
        };
        // The name of a key is hexadecimal, so the first separator ends it.
        let (key, revision) = event_id.split_once('@').ok_or_else(unknown)?;
        let revision: Revision = revision.parse().map_err(|_| unknown())?;
        let (bucket, key) = (BucketName::new(BUCKET)?, Key::new(key).map_err(|_| unknown())?);
        let entry = self.store.get(&bucket, &key).await?.filter(|entry| revision.names(entry.revision));
        if ends_its_stream(&read(&entry.ok_or_else(unknown)?.value)?) {
            return Ok(Box::pin(stream::empty()));
        }
        let (stream, _) = key.as_str().split_once('/').ok_or_else(unknown)?;
        let events = self.store.watch(&bucket, &format!("{stream}/"), revision).await?;
        Ok(Box::pin(Replay { events: Some(Mutex::new(events)) }))
    }
}

/// Returns the key prefix of a stream's events. It is a digest, because the stream's id contains the
/// session's id, which is a secret of its client.
fn prefix(stream: &str) -> String {
    format!("{}/", digest(&[stream]))
}

fn event_id(key: &Key, revision: Revision) -> EventId {
    format!("{key}@{}", revision.to_text())
}

fn read(value: &[u8]) -> Result<Kept> {
    serde_json::from_slice(value)
        .map_err(|_| Error::new(ErrorKind::Corrupt, REPLAY, "the stored event is corrupt; delete it"))
}

/// Returns whether nothing follows: the response to a request is the last event of the request's stream.
fn ends_its_stream(kept: &Kept) -> bool {
    matches!(kept.message, Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)))
}

/// The changes of a stream's keys as events. rmcp requires a stream that is `Sync`, and `KeyValueEvents` is
/// not. The mutex makes it `Sync` and is never locked.
struct Replay {
    events: Option<Mutex<KeyValueEvents>>,
}

impl Stream for Replay {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(events) = self.events.as_mut() else {
                return Poll::Ready(None);
            };
            let Ok(events) = events.get_mut() else {
                return Poll::Ready(None);
            };
            let change = std::task::ready!(events.poll_next_unpin(context));
            match change.map(|change| change.map(message)) {
                Some(Ok(Some((event, last)))) => {
                    if last {
                        self.events = None;
                    }
                    return Poll::Ready(Some(event));
                }
                // Skips a deleted key and an unreadable value: neither is an event for the client.
                Some(Ok(None)) => {}
                // The client reconnects with its last event and receives the error then.
                Some(Err(_)) | None => {
                    self.events = None;
                    return Poll::Ready(None);
                }
            }
        }
    }
}

/// Returns the event of a change, and whether it is the last of its stream.
fn message(change: KeyValueEvent) -> Option<(ServerSseMessage, bool)> {
    let KeyValueEventKind::Put { value, .. } = change.kind else {
        return None;
    };
    let kept = read(&value).ok()?;
    let last = ends_its_stream(&kept);
    let mut event = ServerSseMessage::default();
    event.event_id = Some(event_id(&change.key, change.revision));
    event.message = kept.message.map(Arc::new);
    event.retry = kept.retry_ms.map(Duration::from_millis);
    Some((event, last))
}

impl fmt::Debug for KeyValueEventStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueEventStore").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl EventStore for KeyValueEventStore {
    async fn store_event(
        &self,
        stream_id: &str,
        event: &ServerSseMessage,
    ) -> std::result::Result<EventId, EventStoreError> {
        Ok(self.keep(stream_id, event).await?)
    }

    async fn replay_events_after(
        &self,
        last_event_id: &str,
    ) -> std::result::Result<EventStream, EventStoreError> {
        Ok(self.after(last_event_id).await?)
    }
}
