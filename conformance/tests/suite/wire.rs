//! A store that sends lines of JSON to a server, and has one defect.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use larder_kernel::{
    AppendOptions, Appended, BucketName, Capabilities, ChatMessage, Durability, Error, ErrorKind,
    HistoryEvent, HistoryEventKind, HistoryEvents, HistoryProvider, Key, KeyRevision, KeyValueCondition,
    KeyValueEntry, KeyValueEvent, KeyValueEvents, KeyValuePutOptions, KeyValueStore, KeyValueWrite,
    KeyValueWriteKind, MessagePage, Namespace, OptionSet, Outcome, Page, PageRequest, RequestOption, Result,
    Revision, Seq, Store, StoredMessage, Thread,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// The interval at which a stream polls. It is long, because a fault that hits a poll hits no call.
const POLL: Duration = Duration::from_millis(20);
/// The time limit for a reply.
pub(crate) const ANSWER_MAX: Duration = Duration::from_millis(300);

/// The defect of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    /// Sends an append again if the reply is lost, with or without a key.
    RetriesWithoutKey,
    /// Does not send the idempotency key to the server.
    ForgetsKeys,
    /// Reports an append as done once it was sent, or could not be sent.
    AcknowledgesAnyway,
    /// Reports a write whose reply is lost as not applied.
    ClaimsNotApplied,
    /// Sends a conditional put again if the reply is lost; the put then conflicts with its own effect.
    RetriesConditions,
    /// Waits for a reply forever.
    WaitsForEver,
    /// Never reconnects after a lost connection.
    NeverReconnects,
    /// Reports a lost connection as damaged data.
    TellsOfDamage,
    /// A subscription that loses its connection skips the events that it could not read.
    SkipsAfterLoss,
    /// A subscription that restarts repeats the event before its position.
    RepeatsAfterLoss,
    /// A stream waits forever on a lost connection.
    FallsSilent,
    /// A watch omits the changes of one key.
    LeavesOutAKey,
}

#[derive(Debug)]
pub(crate) struct Wire {
    defect: Defect,
    address: SocketAddr,
    namespace: Namespace,
    /// Taken out during a call, so that a dropped call drops its connection.
    connection: Mutex<Option<BufStream<TcpStream>>>,
    lost: std::sync::atomic::AtomicBool,
    /// The last number of each thread that this store has seen.
    last: std::sync::Mutex<BTreeMap<String, i64>>,
}

impl Wire {
    pub(crate) fn open(defect: Defect, address: SocketAddr, namespace: &Namespace) -> Arc<Self> {
        Arc::new(Self {
            defect,
            address,
            namespace: namespace.clone(),
            connection: Mutex::default(),
            lost: false.into(),
            last: std::sync::Mutex::default(),
        })
    }

    /// Sends a request and returns the reply.
    async fn ask(&self, request: &Value) -> Result<Value> {
        let refused = || self.failed(ErrorKind::Unavailable).with_outcome(Outcome::NotApplied);
        let mut slot = self.connection.lock().await;
        if self.defect == Defect::NeverReconnects && self.lost.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(refused());
        }
        let mut stream = match slot.take() {
            Some(stream) => stream,
            None => {
                let connecting = tokio::time::timeout(ANSWER_MAX, TcpStream::connect(self.address)).await;
                BufStream::new(connecting.map_err(|_| refused())?.map_err(|_| refused())?)
            }
        };
        let exchange = async {
            let mut line = request.to_string();
            line.push('\n');
            stream.write_all(line.as_bytes()).await.ok()?;
            stream.flush().await.ok()?;
            let mut answer = String::new();
            stream.read_line(&mut answer).await.ok()?;
            serde_json::from_str::<Value>(answer.strip_suffix('\n')?).ok()
        };
        let limit = if self.defect == Defect::WaitsForEver { Duration::from_secs(600) } else { ANSWER_MAX };
        let answer = tokio::time::timeout(limit, exchange).await;
        match answer {
            Ok(Some(answer)) => {
                *slot = Some(stream);
                match answer["error"].as_str() {
                    None => Ok(answer),
                    Some(_) => Err(self.failed(ErrorKind::Conflict)),
                }
            }
            lost => {
                self.lost.store(true, std::sync::atomic::Ordering::SeqCst);
                let kind = if lost.is_err() { ErrorKind::Timeout } else { ErrorKind::Unavailable };
                Err(match self.defect {
                    Defect::ClaimsNotApplied => self.failed(kind).with_outcome(Outcome::NotApplied),
                    Defect::TellsOfDamage => self.failed(ErrorKind::Corrupt).with_outcome(Outcome::Unknown),
                    _ => self.failed(kind),
                })
            }
        }
    }

    fn failed(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "wire.ask", "the wire")
    }

    /// Sends a request, and sends it again if the reply is lost and the store has this defect.
    async fn ask_again(&self, defect: Defect, request: &Value) -> Result<Value> {
        match self.ask(request).await {
            Err(error) if error.outcome() == Outcome::Unknown && self.defect == defect => {
                self.ask(request).await
            }
            answer => answer,
        }
    }
}

#[async_trait]
impl Store for Wire {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::None)
    }

    fn options(&self) -> OptionSet {
        OptionSet::of(RequestOption::ALL)
    }

    async fn erase(&self) -> Result<()> {
        Ok(())
    }
}

/// The methods that the clients of the level call.
#[async_trait]
impl HistoryProvider for Wire {
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        let key = options.idempotency_key.filter(|_| self.defect != Defect::ForgetsKeys);
        let count = i64::try_from(messages.len()).unwrap();
        let request = json!({
            "namespace": self.namespace, "call": "append", "thread": thread, "messages": messages, "key": key,
        });
        let session = thread.session.to_string();
        let appended: Appended = match self.ask_again(Defect::RetriesWithoutKey, &request).await {
            Ok(answer) => serde_json::from_value(answer["appended"].clone()).unwrap(),
            Err(_) if self.defect == Defect::AcknowledgesAnyway => {
                let last = self.last.lock().unwrap().get(&session).copied().unwrap_or(0);
                Appended::new(Seq::new(last + 1), Seq::new(last + count))
            }
            Err(error) => return Err(error),
        };
        self.last.lock().unwrap().insert(session, appended.last.get());
        Ok(appended)
    }

    /// Polls repeatedly on a separate connection.
    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        let again = self.defect == Defect::RepeatsAfterLoss && after > Seq::new(1);
        let after = if again { Seq::new(after.get() - 1) } else { after };
        let wire = Self::open(self.defect, self.address, &self.namespace);
        let state = (wire, thread.clone(), after, VecDeque::<StoredMessage>::new());
        Ok(stream::unfold(state, |(wire, thread, mut after, mut page)| async move {
            loop {
                if let Some(StoredMessage { seq, message, .. }) = page.pop_front() {
                    let kind = HistoryEventKind::Appended { message, thread_bytes: 0 };
                    return Some((Ok(HistoryEvent::new(seq, kind)), (wire, thread, seq, page)));
                }
                match wire.page_after(&thread, after, 100).await {
                    Ok(next) => page = next.messages.into(),
                    Err(_) if wire.defect == Defect::SkipsAfterLoss => after = Seq::new(after.get() + 2),
                    Err(_) if wire.defect == Defect::FallsSilent => std::future::pending().await,
                    Err(error) => return Some((Err(error), (wire, thread, after, page))),
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .boxed())
    }

    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<MessagePage> {
        let request = json!({
            "namespace": self.namespace, "call": "page", "thread": thread, "after": after, "limit": limit,
        });
        let answer = self.ask(&request).await?;
        Ok(serde_json::from_value(answer["page"].clone()).unwrap())
    }
}

#[async_trait]
impl KeyValueStore for Wire {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: bytes::Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        let at = match options.condition {
            KeyValueCondition::AtRevision(at) => Some(at),
            _ => None,
        };
        let value = String::from_utf8(value.to_vec()).unwrap();
        let request = json!({
            "namespace": self.namespace, "call": "put", "bucket": bucket, "key": key, "value": value,
            "at": at,
        });
        let answer = self.ask_again(Defect::RetriesConditions, &request).await?;
        Ok(serde_json::from_value(answer["revision"].clone()).unwrap())
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        let request = json!({ "namespace": self.namespace, "call": "get", "bucket": bucket, "key": key });
        let answer = self.ask(&request).await?;
        Ok(serde_json::from_value(answer["entry"].clone()).unwrap())
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        let request =
            json!({ "namespace": self.namespace, "call": "get_many", "bucket": bucket, "keys": keys });
        let answer = self.ask(&request).await?;
        Ok(serde_json::from_value(answer["entries"].clone()).unwrap())
    }

    /// The clients write values over revisions, or create them.
    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        let write = |write: KeyValueWrite| {
            let KeyValueWriteKind::Put { value, options } = write.kind else { unreachable!("a deletion") };
            let at = match options.condition {
                KeyValueCondition::AtRevision(at) => Some(at),
                _ => None,
            };
            json!({ "key": write.key, "value": String::from_utf8(value.to_vec()).unwrap(), "at": at })
        };
        let writes: Vec<Value> = writes.into_iter().map(write).collect();
        let request = json!({
            "namespace": self.namespace, "call": "write", "bucket": bucket, "writes": writes,
        });
        let answer = self.ask_again(Defect::RetriesConditions, &request).await?;
        Ok(serde_json::from_value(answer["revisions"].clone()).unwrap())
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        let request = json!({
            "namespace": self.namespace, "call": "delete", "bucket": bucket, "key": key, "at": at,
        });
        Ok(self.ask_again(Defect::RetriesConditions, &request).await?["there"] == true)
    }

    async fn list(
        &self,
        bucket: &BucketName,
        _: &str,
        _: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        let request = json!({ "namespace": self.namespace, "call": "list", "bucket": bucket });
        let answer = self.ask(&request).await?;
        Ok(serde_json::from_value(answer["list"].clone()).unwrap())
    }

    async fn watch(&self, bucket: &BucketName, _: &str, after: Revision) -> Result<KeyValueEvents> {
        let wire = Self::open(self.defect, self.address, &self.namespace);
        let state = (wire, bucket.clone(), after, VecDeque::<KeyValueEvent>::new());
        Ok(stream::unfold(state, |(wire, bucket, after, mut changes)| async move {
            loop {
                if let Some(event) = changes.pop_front() {
                    let after = event.revision;
                    return Some((Ok(event), (wire, bucket, after, changes)));
                }
                let request = json!({
                    "namespace": wire.namespace, "call": "changes", "bucket": bucket, "after": after,
                });
                match wire.ask(&request).await {
                    Ok(answer) => changes = serde_json::from_value(answer["changes"].clone()).unwrap(),
                    Err(_) if wire.defect == Defect::FallsSilent => std::future::pending().await,
                    Err(error) => return Some((Err(error), (wire, bucket, after, changes))),
                }
                if wire.defect == Defect::LeavesOutAKey {
                    changes.retain(|event| event.key.as_str() != "key 1");
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .boxed())
    }
}
