//! The level `faults` catches stores that fail on network faults, and passes a store that does not.
//!
//! The store sends lines of JSON to a server in this process, which keeps everything in memory and has no
//! defect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use larder_agents::{InMemoryHistoryProvider, InMemoryKeyValueStore, MemoryBackend};
use larder_conformance::{
    Effort, Harness, LevelReport, OpenOptions, Relayed, StoreSet, Verdict, faults, runner,
};
use larder_kernel::{
    AppendOptions, BucketName, HistoryProvider, IdempotencyKey, Key, KeyValueCondition, KeyValueEvent,
    KeyValuePutOptions, KeyValueStore, KeyValueWrite, Namespace, PageRequest, Result, Revision,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpListener;

use crate::wire::{ANSWER_MAX, Defect, Wire};

/// The server: the stores in memory behind lines of JSON.
async fn serve(listener: TcpListener) {
    let place = MemoryBackend::new();
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

/// Returns the options of a put that replaces a revision or creates the key.
fn options(request: &Value) -> KeyValuePutOptions {
    let condition = match read::<Option<Revision>>(request, "at") {
        Some(at) => KeyValueCondition::AtRevision(at),
        None => KeyValueCondition::Absent,
    };
    KeyValuePutOptions::default().with_condition(condition)
}

async fn answer(place: &MemoryBackend, request: &Value) -> Result<Value> {
    let namespace: Namespace = read(request, "namespace");
    let history = InMemoryHistoryProvider::open(place, namespace.clone());
    let values = InMemoryKeyValueStore::open(place, namespace);
    let place = || (read::<BucketName>(request, "bucket"), read::<Key>(request, "key"));
    Ok(match request["call"].as_str().unwrap() {
        "append" => {
            let idempotency_key: Option<IdempotencyKey> = read(request, "key");
            let options = AppendOptions::default().with_idempotency_key(idempotency_key);
            let messages = read(request, "messages");
            json!({ "appended": history.append_many(&read(request, "thread"), messages, options).await? })
        }
        "page" => {
            let (after, limit) = (read(request, "after"), read(request, "limit"));
            json!({ "page": history.page_after(&read(request, "thread"), after, limit).await? })
        }
        "write" => {
            let put = |write: &Value| {
                KeyValueWrite::put(read(write, "key"), read::<String>(write, "value"), options(write))
            };
            let writes = request["writes"].as_array().unwrap().iter().map(put).collect();
            json!({ "revisions": values.write(&read(request, "bucket"), writes).await? })
        }
        "get_many" => {
            let keys: Vec<Key> = read(request, "keys");
            json!({ "entries": values.get_many(&read(request, "bucket"), &keys).await? })
        }
        "put" => {
            let options = options(request);
            let value = read::<String>(request, "value").into();
            let (bucket, key) = place();
            json!({ "revision": values.put(&bucket, &key, value, options).await? })
        }
        "list" => {
            let page = PageRequest::default();
            json!({ "list": values.list(&read(request, "bucket"), "", page).await? })
        }
        "changes" => {
            let mut events = values.watch(&read(request, "bucket"), "", read(request, "after")).await?;
            let mut changes: Vec<KeyValueEvent> = Vec::new();
            while let Some(Some(event)) = events.next().now_or_never() {
                changes.push(event?);
            }
            json!({ "changes": changes })
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
    defect: Defect,
    server: SocketAddr,
    /// The address of the server.
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
        let defect = if self.address == self.server { Defect::None } else { self.defect };
        let history = Wire::open(defect, self.address, namespace);
        let key_value = Wire::open(defect, self.address, namespace);
        Ok(StoreSet::default().with_history(history).with_key_value(key_value))
    }

    fn servers(&self) -> Vec<String> {
        vec![self.server.to_string()]
    }

    async fn relayed(&self, relays: &[SocketAddr]) -> Result<Option<Relayed>> {
        let harness = Arc::new(Self { address: relays[0], ..*self });
        let (answer_time_max, call_time_max) = (ANSWER_MAX, Duration::from_secs(2));
        Ok(Some(Relayed::new(harness, answer_time_max, call_time_max)))
    }
}

fn press(defect: Defect, per_mille: u32) -> LevelReport {
    press_by(defect, &Effort { per_mille, ..Effort::default() })
}

fn press_by(defect: Defect, effort: &Effort) -> LevelReport {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut reports = runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        let harness: Arc<dyn Harness> = Arc::new(Served { defect, server, address: server });
        let probed = runner::probe(&*harness, effort.timeout).await.unwrap();
        faults::run(&harness, &probed, effort).await
    });
    runtime.shutdown_background();
    reports.remove(0)
}

/// Asserts that the level catches the defect. The calls that a fault hits are random: of a hundred faults, a
/// few show the defect, and sometimes none.
#[track_caller]
fn assert_caught(defect: Defect, clause: &str) {
    const TRIES: u64 = 6;
    for seed in 1..=TRIES {
        let report = press_by(defect, &Effort { per_mille: 500, seed, ..Effort::default() });
        if report.counterexamples.iter().any(|found| found.clause == clause) {
            return;
        }
        assert!(seed < TRIES, "{clause} did not notice {defect:?}: {report:#?}");
    }
}

#[test]
fn a_correct_store_is_proven() {
    let report = press(Defect::None, 1_000);
    assert_eq!(report.verdict(), Verdict::Proven, "{report:#?}");
    assert_eq!(report.executed, 200);
}

#[test]
fn a_share_of_the_faults_proves_nothing() {
    assert_eq!(press(Defect::None, 60).verdict(), Verdict::NotProven);
}

#[test]
fn an_append_sent_again_without_a_key_is_caught() {
    assert_caught(Defect::RetriesWithoutKey, "HIST-001");
}

#[test]
fn idempotency_that_ends_at_the_client_is_caught() {
    assert_caught(Defect::ForgetsKeys, "HIST-007");
}

#[test]
fn an_acknowledgement_before_the_reply_is_caught() {
    assert_caught(Defect::AcknowledgesAnyway, "STORE-002");
}

#[test]
fn a_lost_response_reported_as_not_applied_is_caught() {
    assert_caught(Defect::ClaimsNotApplied, "STORE-013");
}

#[test]
fn a_condition_that_meets_its_own_effect_is_caught() {
    assert_caught(Defect::RetriesConditions, "STORE-013");
}

#[test]
fn a_call_that_never_completes_is_caught() {
    assert_caught(Defect::WaitsForEver, "STORE-014");
}

#[test]
fn a_store_that_never_connects_again_is_caught() {
    assert_caught(Defect::NeverReconnects, "STORE-014");
}

#[test]
fn an_error_of_the_wrong_kind_is_caught() {
    assert_caught(Defect::TellsOfDamage, "STORE-014");
}

#[test]
fn a_subscription_that_skips_unread_events_is_caught() {
    assert_caught(Defect::SkipsAfterLoss, "HIST-088");
}

#[test]
fn a_subscription_that_repeats_an_event_is_caught() {
    assert_caught(Defect::RepeatsAfterLoss, "HIST-088");
}

#[test]
fn a_stream_that_waits_on_a_lost_connection_is_caught() {
    assert_caught(Defect::FallsSilent, "HIST-088");
}

#[test]
fn a_watch_that_leaves_out_a_key_is_caught() {
    assert_caught(Defect::LeavesOutAKey, "KV-042");
}
