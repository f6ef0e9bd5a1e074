//! The level `faults` catches stores that a network breaks, and lets one pass that it does not.
//!
//! The store speaks lines of JSON to a server in this process, which keeps everything in memory and makes no mistakes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod lossy;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::{InMemoryHistoryProvider, InMemoryKeyValueStore, MemoryPlace};
use larder_conformance::{
    Effort, Harness, LevelReport, OpenOptions, Relayed, StoreSet, Verdict, faults, runner,
};
use larder_kernel::{
    AppendOptions, Appended, BucketInfo, BucketName, Capabilities, ChatMessage, Durability, Error, ErrorKind,
    HistoryProvider, IdempotencyKey, Key, KeyRevision, KeyValueStore, KvCondition, KvEntry, KvEvents,
    KvPutOptions, Namespace, Outcome, Page, PageRequest, Result, Revision, Seq, Store, StoredMessage, Thread,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// How long the store waits for an answer.
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// What the store does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sin {
    None,
    /// An append whose answer is lost is sent again, whether it has a key or not.
    RetriesWithoutKey,
    /// The idempotency key never reaches the server.
    ForgetsKeys,
    /// An append counts as done once it was sent, or could not be.
    AcknowledgesAnyway,
    /// A write whose answer is lost is reported as not applied.
    ClaimsNotApplied,
    /// A conditional put whose answer is lost is sent again and meets its own effect.
    RetriesConditions,
    /// It waits for an answer for ever.
    WaitsForEver,
    /// A connection that is lost is never made again.
    NeverReconnects,
    /// A lost connection is told as damaged data.
    TellsOfDamage,
}

#[derive(Debug)]
struct Wire {
    sin: Sin,
    address: SocketAddr,
    namespace: Namespace,
    /// Taken out while a call is under way, so that a call which is dropped takes its connection along.
    connection: Mutex<Option<BufStream<TcpStream>>>,
    lost: std::sync::atomic::AtomicBool,
    /// The last number that each thread gave, as far as this store knows.
    last: std::sync::Mutex<BTreeMap<String, i64>>,
}

impl Wire {
    fn open(sin: Sin, address: SocketAddr, namespace: &Namespace) -> Arc<Self> {
        Arc::new(Self {
            sin,
            address,
            namespace: namespace.clone(),
            connection: Mutex::default(),
            lost: false.into(),
            last: std::sync::Mutex::default(),
        })
    }

    /// Sends a request and gives the answer.
    async fn ask(&self, request: &Value) -> Result<Value> {
        let refused = || self.failed(ErrorKind::Unavailable).with_outcome(Outcome::NotApplied);
        let mut slot = self.connection.lock().await;
        if self.sin == Sin::NeverReconnects && self.lost.load(std::sync::atomic::Ordering::SeqCst) {
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
        let limit = if self.sin == Sin::WaitsForEver { Duration::from_secs(600) } else { ANSWER_MAX };
        let answer = tokio::time::timeout(limit, exchange).await;
        match answer {
            Ok(Some(answer)) => {
                *slot = Some(stream);
                match answer["error"].as_str() {
                    None => Ok(answer),
                    Some("AlreadyExists") => Err(self.failed(ErrorKind::AlreadyExists)),
                    Some(_) => Err(self.failed(ErrorKind::Conflict)),
                }
            }
            lost => {
                self.lost.store(true, std::sync::atomic::Ordering::SeqCst);
                let kind = if lost.is_err() { ErrorKind::Timeout } else { ErrorKind::Unavailable };
                Err(match self.sin {
                    Sin::ClaimsNotApplied => self.failed(kind).with_outcome(Outcome::NotApplied),
                    Sin::TellsOfDamage => self.failed(ErrorKind::Corrupt).with_outcome(Outcome::Unknown),
                    _ => self.failed(kind),
                })
            }
        }
    }

    fn failed(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "wire.ask", "the wire")
    }

    /// The same, sent again where the answer is lost and the sin is this one.
    async fn ask_again(&self, sin: Sin, request: &Value) -> Result<Value> {
        match self.ask(request).await {
            Err(error) if error.outcome() == Outcome::Unknown && self.sin == sin => self.ask(request).await,
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

    async fn erase(&self) -> Result<()> {
        Ok(())
    }
}

lossy::history_of!(Wire);

impl Wire {
    async fn append(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        let key = options.idempotency_key.filter(|_| self.sin != Sin::ForgetsKeys);
        let count = i64::try_from(messages.len()).unwrap();
        let request = json!({
            "namespace": self.namespace, "call": "append", "thread": thread, "messages": messages, "key": key,
        });
        let session = thread.session.to_string();
        let appended: Appended = match self.ask_again(Sin::RetriesWithoutKey, &request).await {
            Ok(answer) => serde_json::from_value(answer["appended"].clone()).unwrap(),
            Err(_) if self.sin == Sin::AcknowledgesAnyway => {
                let last = self.last.lock().unwrap().get(&session).copied().unwrap_or(0);
                Appended { first: Seq::new(last + 1), last: Seq::new(last + count) }
            }
            Err(error) => return Err(error),
        };
        self.last.lock().unwrap().insert(session, appended.last.get());
        Ok(appended)
    }

    async fn page(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
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
        options: KvPutOptions,
    ) -> Result<Revision> {
        let at = match options.condition {
            KvCondition::AtRevision(at) => Some(at),
            _ => None,
        };
        let value = String::from_utf8(value.to_vec()).unwrap();
        let request = json!({
            "namespace": self.namespace, "call": "put", "bucket": bucket, "key": key, "value": value, "at": at,
        });
        let answer = self.ask_again(Sin::RetriesConditions, &request).await?;
        Ok(serde_json::from_value(answer["revision"].clone()).unwrap())
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KvEntry>> {
        let request = json!({ "namespace": self.namespace, "call": "get", "bucket": bucket, "key": key });
        let answer = self.ask(&request).await?;
        Ok(serde_json::from_value(answer["entry"].clone()).unwrap())
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        let request = json!({
            "namespace": self.namespace, "call": "delete", "bucket": bucket, "key": key, "at": at,
        });
        Ok(self.ask_again(Sin::RetriesConditions, &request).await?["there"] == true)
    }

    async fn list(&self, _: &BucketName, _: &str, _: PageRequest<Key>) -> Result<Page<KeyRevision, Key>> {
        Err(lossy::never())
    }

    async fn list_buckets(&self, _: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        Err(lossy::never())
    }

    async fn watch(&self, _: &BucketName, _: &str, _: Revision) -> Result<KvEvents> {
        Err(lossy::never())
    }
}

/// The server: the stores in memory behind lines of JSON.
async fn serve(listener: TcpListener) {
    let place = MemoryPlace::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let place = place.clone();
        tokio::spawn(async move {
            let mut stream = BufStream::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.is_ok_and(|_| line.ends_with('\n')) {
                let mut answer = match answer(&place, &serde_json::from_str(&line).unwrap()).await {
                    Ok(answer) => answer.to_string(),
                    Err(error) => json!({ "error": error.kind().as_str() }).to_string(),
                };
                answer.push('\n');
                if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
}

fn read<T: serde::de::DeserializeOwned>(request: &Value, name: &str) -> T {
    serde_json::from_value(request[name].clone()).unwrap()
}

async fn answer(place: &MemoryPlace, request: &Value) -> Result<Value> {
    let namespace: Namespace = read(request, "namespace");
    let history = InMemoryHistoryProvider::open(place, namespace.clone());
    let values = InMemoryKeyValueStore::open(place, namespace);
    let place = || (read::<BucketName>(request, "bucket"), read::<Key>(request, "key"));
    Ok(match request["call"].as_str().unwrap() {
        "append" => {
            let idempotency_key: Option<IdempotencyKey> = read(request, "key");
            let options = AppendOptions { idempotency_key, ttl: None };
            let messages = read(request, "messages");
            json!({ "appended": history.append_many(&read(request, "thread"), messages, options).await? })
        }
        "page" => {
            let (after, limit) = (read(request, "after"), read(request, "limit"));
            json!({ "page": history.page_after(&read(request, "thread"), after, limit).await? })
        }
        "put" => {
            let condition = match read::<Option<Revision>>(request, "at") {
                Some(at) => KvCondition::AtRevision(at),
                None => KvCondition::Absent,
            };
            let options = KvPutOptions::default().with_condition(condition);
            let value = read::<String>(request, "value").into();
            let (bucket, key) = place();
            json!({ "revision": values.put(&bucket, &key, value, options).await? })
        }
        "get" => {
            let (bucket, key) = place();
            json!({ "entry": values.get(&bucket, &key).await? })
        }
        _ => {
            let (bucket, key) = place();
            json!({ "there": values.delete(&bucket, &key, read(request, "at")).await? })
        }
    })
}

#[derive(Debug)]
struct Served {
    sin: Sin,
    server: SocketAddr,
    /// Where the stores connect to.
    address: SocketAddr,
}

#[async_trait]
impl Harness for Served {
    fn name(&self) -> &'static str {
        "wire"
    }

    fn url(&self) -> String {
        format!("wire://{}", self.address)
    }

    async fn open(&self, namespace: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
        let sin = if self.address == self.server { Sin::None } else { self.sin };
        let history = Wire::open(sin, self.address, namespace);
        let key_value = Wire::open(sin, self.address, namespace);
        Ok(StoreSet { history: Some(history), key_value: Some(key_value), ..StoreSet::default() })
    }

    fn server(&self) -> Option<String> {
        Some(self.server.to_string())
    }

    async fn relayed(&self, address: SocketAddr) -> Result<Option<Relayed>> {
        let harness = Arc::new(Self { address, ..*self });
        let (answer_time_max, call_time_max) = (ANSWER_MAX, Duration::from_secs(2));
        Ok(Some(Relayed { harness, answer_time_max, call_time_max }))
    }
}

fn press(sin: Sin, per_mille: u32) -> LevelReport {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut reports = runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        let harness: Arc<dyn Harness> = Arc::new(Served { sin, server, address: server });
        let effort = Effort { per_mille, ..Effort::default() };
        let probed = runner::probe(&*harness, effort.timeout).await.unwrap();
        faults::run(&harness, &probed, &effort).await
    });
    runtime.shutdown_background();
    reports.remove(0)
}

#[track_caller]
fn assert_caught(sin: Sin, clause: &str) {
    let report = press(sin, 300);
    let named = report.counterexamples.iter().any(|found| found.clause == clause);
    assert!(named, "{clause} did not notice {sin:?}: {report:#?}");
}

#[test]
fn a_store_that_keeps_its_promises_is_proven() {
    let report = press(Sin::None, 1_000);
    assert_eq!(report.verdict(), Verdict::Proven, "{report:#?}");
    assert_eq!(report.executed, 200);
}

#[test]
fn a_share_of_the_faults_proves_nothing() {
    assert_eq!(press(Sin::None, 60).verdict(), Verdict::NotProven);
}

#[test]
fn an_append_sent_again_without_a_key_is_caught() {
    assert_caught(Sin::RetriesWithoutKey, "HIST-001");
}

#[test]
fn idempotency_that_does_not_reach_the_server_is_caught() {
    assert_caught(Sin::ForgetsKeys, "HIST-007");
}

#[test]
fn an_acknowledgement_of_what_was_only_sent_is_caught() {
    assert_caught(Sin::AcknowledgesAnyway, "STORE-002");
}

#[test]
fn a_lost_answer_told_as_not_applied_is_caught() {
    assert_caught(Sin::ClaimsNotApplied, "STORE-013");
}

#[test]
fn a_condition_that_meets_its_own_effect_is_caught() {
    assert_caught(Sin::RetriesConditions, "STORE-013");
}

#[test]
fn a_call_that_waits_for_ever_is_caught() {
    assert_caught(Sin::WaitsForEver, "STORE-014");
}

#[test]
fn a_store_that_never_connects_again_is_caught() {
    assert_caught(Sin::NeverReconnects, "STORE-014");
}

#[test]
fn an_error_of_the_wrong_kind_is_caught() {
    assert_caught(Sin::TellsOfDamage, "STORE-014");
}
