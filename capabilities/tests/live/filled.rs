//! A backend with data in every contract that it has, and its verification.
#![allow(clippy::large_futures)]

use std::time::Duration;

use larder_capabilities::driver::{BackendUrl, Driver, StoresRequest};
use larder_capabilities::verify::{FaultKind, Faults, Verified};
use larder_kernel::{
    AgentId, AppendOptions, BlobKey, BlobPutOptions, BoardId, BucketName, ChatMessage, CollectionName,
    Document, DocumentId, Embedding, Entity, EntityId, EntityType, IdempotencyKey, Key, KeyValuePutOptions,
    MessageUpdate, Metadata, Namespace, NewBoard, NewTask, PutMode, Relationship, RelationshipId,
    RelationshipType, Removal, Replacement, RunId, Seq, StoreSet, TaskId, Thread, Ttl, WorkerId,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// A corruption: what plants it, and the kind and a part of the place of the expected fault.
pub(crate) type Planted<P> = (P, FaultKind, &'static str);

/// Returns what a verification of the URL finds.
pub(crate) async fn found(driver: &dyn Driver, url: &str) -> Verified {
    let faults = Faults::default();
    driver.read(&BackendUrl::parse(url).unwrap()).unwrap().verify(&faults).await.unwrap();
    faults.take()
}

/// Asserts that a fault of the kind and place was found.
pub(crate) fn assert_found(verified: &Verified, kind: FaultKind, place: &str, planted: &str) {
    let named = verified.faults.iter().any(|fault| fault.kind == kind && fault.place.contains(place));
    assert!(named, "{planted}: {:#?}", verified.faults);
}

/// Fills every contract of the backend.
pub(crate) async fn fill(driver: &dyn Driver, url: &str, namespace: &str) {
    let connection = driver.read(&BackendUrl::parse(url).unwrap()).unwrap().open().await.unwrap();
    let stores = connection.stores(&StoresRequest::new(Namespace::new(namespace).unwrap())).await;
    if stores.history().is_ok() {
        fill_history(&stores).await;
        fill_key_value(&stores).await;
        fill_tasks(&stores).await;
    }
    if stores.vectors().is_ok() {
        fill_vectors(&stores).await;
    }
    if stores.blobs().is_ok() {
        fill_blobs(&stores).await;
    }
    if stores.graph().is_ok() {
        fill_graph(&stores).await;
    }
    connection.close().await;
}

async fn fill_history(stores: &StoreSet) {
    let (history, thread) = (stores.history().unwrap(), Thread::new("a", "s").unwrap());
    let say = |text: &str| {
        ChatMessage::user(text)
            .with_run(RunId::new("run").unwrap())
            .with_author(AgentId::new("writer").unwrap(), None)
    };
    let key = IdempotencyKey::new("once").unwrap();
    let options = AppendOptions::default().with_idempotency_key(key);
    let long = "a long text ".repeat(500);
    history.append_many(&thread, vec![say("one"), say("two"), say(&long)], options).await.unwrap();
    let append = async |session: &str| {
        let thread = Thread::new("a", session).unwrap();
        history.append_many(&thread, vec![say("x"), say("y")], AppendOptions::default()).await.unwrap();
        thread
    };
    let (cleared, replaced, ending) =
        (append("cleared").await, append("replaced").await, append("ending").await);
    history.clear(&cleared, None).await.unwrap();
    let summary = Replacement::new(Seq::new(1), vec![ChatMessage::user("summary")]).with_seen(Seq::new(2));
    history.replace(&replaced, summary).await.unwrap();
    history.set_ttl(&ending, Some(Ttl::fixed(HOUR)), None).await.unwrap();
    // The popped message is kept.
    let pop = Removal::newest(1).with_idempotency_key(IdempotencyKey::new("pop").unwrap());
    let by_number = Removal::numbers([Seq::new(1)]);
    for (session, removal) in
        [("popped", pop), ("removed", by_number), ("rewound", Removal::after(Seq::new(1)))]
    {
        history.remove(&append(session).await, removal).await.unwrap();
    }
    // The event of the second message stays, and its message goes.
    let updated = append("updated").await;
    for number in [1, 2] {
        let update = MessageUpdate::appended(Seq::new(number), ChatMessage::user("new"));
        let update = update.with_idempotency_key(IdempotencyKey::new(format!("u{number}")).unwrap());
        history.update(&updated, update).await.unwrap();
    }
    history.remove(&updated, Removal::newest(1)).await.unwrap();
}

async fn fill_key_value(stores: &StoreSet) {
    let (key_value, bucket) = (stores.key_value().unwrap(), BucketName::new("b").unwrap());
    let put = async |bucket: &BucketName, key: &str, options: KeyValuePutOptions| {
        key_value.put(bucket, &Key::new(key).unwrap(), "v".into(), options).await.unwrap();
    };
    for key in ["k1", "k2", "gone"] {
        put(&bucket, key, KeyValuePutOptions::default()).await;
    }
    key_value.delete(&bucket, &Key::new("gone").unwrap(), None).await.unwrap();
    put(&bucket, "ending", KeyValuePutOptions::default().with_ttl(HOUR)).await;
    put(&BucketName::new("all").unwrap(), "ending", KeyValuePutOptions::default().with_ttl(HOUR)).await;
}

async fn fill_tasks(stores: &StoreSet) {
    let (tasks, board) = (stores.tasks().unwrap(), BoardId::new("conv", "a").unwrap());
    let task = |id: &str| NewTask::new(TaskId::new(id).unwrap(), "title");
    tasks.create_task_list(&board, NewBoard::new(vec![task("t1"), task("t2"), task("t3")])).await.unwrap();
    tasks.claim(&board, &WorkerId::new("w").unwrap(), HOUR).await.unwrap().unwrap();
}

async fn fill_vectors(stores: &StoreSet) {
    let document = |id: &str| {
        Document::new(DocumentId::new(id).unwrap(), "text")
            .with_embedding(Embedding::new(vec![1.0, 2.0]).unwrap())
            .with_metadata(Metadata::new().with("a", 1))
    };
    let (vectors, collection) = (stores.vectors().unwrap(), CollectionName::new("c").unwrap());
    vectors.put(&collection, vec![document("d1"), document("d2")], PutMode::Upsert).await.unwrap();
}

/// More than two chunks of Postgres.
const LARGE: usize = 700_000;

async fn fill_blobs(stores: &StoreSet) {
    let (blobs, key) = (stores.blobs().unwrap(), |text: &str| BlobKey::new(text).unwrap());
    let options = BlobPutOptions::default().with_content_type("text/plain").with_metadata("a", "1");
    blobs.put(&key("small"), "small".into(), options.clone()).await.unwrap();
    blobs.put(&key("large"), vec![7; LARGE].into(), options).await.unwrap();
    blobs.copy(&key("large"), &key("copy")).await.unwrap();
}

async fn fill_graph(stores: &StoreSet) {
    let entity = |id: &str| Entity::new(EntityId::new(id).unwrap(), EntityType::new("t").unwrap());
    let graph = stores.graph().unwrap();
    graph.upsert_entities(vec![entity("e1"), entity("e2")]).await.unwrap();
    let (id, kind) = (RelationshipId::new("r").unwrap(), RelationshipType::new("knows").unwrap());
    let ends = (EntityId::new("e1").unwrap(), EntityId::new("e2").unwrap());
    graph.upsert_relationships(vec![Relationship::new(id, kind, ends.0, ends.1)]).await.unwrap();
}
