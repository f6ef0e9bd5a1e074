//! Content that a careless copy would change, the same for one seed.

use std::time::Duration;

use larder::Stores;
use larder_kernel::random::Random;
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, BlobBody, BlobKey, BlobPutOptions, BlobRef, BoardId, BucketName,
    ChatMessage, CollectionName, Contract, Document, DocumentId, Embedding, Entity, EntityId, EntityType,
    Key, KeyValuePutOptions, Metadata, NewBoard, NewTask, PutMode, Relationship, RelationshipId,
    RelationshipType, Replacement, Role, RunId, TaskId, TaskStatus, Thread, Timestamp, ToolCall, ToolResult,
    Transition, Ttl, WorkerId,
};
use serde_json::{Value, json};

const IDS: &[&str] = &[
    "a", "A", "a/b", "a:b", "é", "e\u{301}", "%", "_", "*", "{a}", "'\"`", "$$", "\\", "..", " ", "a ", "🦀",
    "\u{1}", "\u{7f}", "a%2Fb", "~", "-", "0", "ß", "null", "\u{ffff}", "a\nb",
];

/// Random records from a seed.
pub(crate) struct Dice(Random);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn some<T>(&mut self, value: T) -> Option<T> {
        (self.below(2) == 0).then_some(value)
    }

    /// Returns `count` different ids.
    fn ids(&mut self, count: usize) -> Vec<String> {
        let first = self.below(IDS.len());
        let id = |at: usize| match (first + at) % (IDS.len() + 1) {
            at if at == IDS.len() => "x".repeat(300),
            at => IDS[at].to_owned(),
        };
        (0..count.min(IDS.len())).map(id).collect()
    }

    fn text(&mut self) -> String {
        let pieces =
            ["", "plain", "NUL \0 in it", "\u{2028}", "\"quoted\" \\ {json}", "e\u{301}é🦀", "\r\n\t"];
        let long = "long ".repeat(self.below(400));
        format!("{}{}{long}", pieces[self.below(pieces.len())], pieces[self.below(pieces.len())])
    }

    fn metadata(&mut self) -> Metadata {
        let numbers = [
            json!(1.0),
            json!(-0.0),
            json!(1e16),
            json!(0.1),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e-7),
            json!(9_007_199_254_740_993_i64),
            json!(1.797_693_134_862_315_7e308),
        ];
        let mut deep = json!({"": [null, true]});
        for _ in 0..self.below(27) {
            deep = if self.below(2) == 0 { json!([deep]) } else { json!({"k": deep}) };
        }
        let mut metadata = Metadata::new().with("number", numbers[self.below(numbers.len())].clone());
        if self.below(2) == 0 {
            metadata = metadata.with("deep", deep).with("ключ \"'$.[0]", Value::Null);
        }
        if self.below(4) == 0 { Metadata::new() } else { metadata }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }
}

/// Fills every available store.
pub(crate) async fn fill(stores: &Stores, seed: u64) {
    for contract in stores.contracts() {
        let mut dice = Dice::new(seed);
        match contract {
            Contract::History => history(stores, &mut dice).await,
            Contract::Vectors => vectors(stores, &mut dice).await,
            Contract::Graph => graph(stores, &mut dice).await,
            Contract::Blobs => blobs(stores, &mut dice).await,
            Contract::Tasks => tasks(stores, &mut dice).await,
            Contract::KeyValue => key_value(stores, &mut dice).await,
        }
    }
}

fn message(dice: &mut Dice) -> ChatMessage {
    let role = [Role::System, Role::User, Role::Assistant, Role::Tool][dice.below(4)];
    let mut message = ChatMessage::new(role, dice.text()).with_metadata(dice.metadata());
    for at in 0..dice.below(3) {
        message.tool_calls.push(ToolCall::new(format!("c{at}"), "f 🦀", dice.text()));
        message.tool_results.push(ToolResult::error(format!("c{at}"), dice.text()));
    }
    if dice.below(3) == 0 {
        let mut blob = BlobRef::new(BlobKey::new("a/ b/é").unwrap());
        (blob.size_bytes, blob.content_type) = (dice.some(7), dice.some("image/png".to_owned()));
        message.blobs.push(blob);
        let role = dice.some(AgentRole::new("'role").unwrap());
        message = message.with_author(AgentId::new("%author").unwrap(), role).with_token_count(7);
    }
    message.run = dice.some(RunId::new("run\\1").unwrap());
    let micros = i64::try_from(dice.below(1 << 50)).unwrap() - (1 << 49);
    message.with_created_at(Timestamp::from_micros(micros).unwrap())
}

async fn history(stores: &Stores, dice: &mut Dice) {
    let history = stores.set().history().unwrap();
    let append = |thread: Thread, messages: Vec<ChatMessage>, options: AppendOptions| {
        let history = history.clone();
        async move { history.append_many(&thread, messages, options).await.unwrap().last }
    };
    for (at, id) in dice.ids(7).into_iter().enumerate() {
        let thread = Thread::new(&id, &dice.ids(1)[0]).unwrap();
        // One thread that fills more than a page.
        let count = if at == 0 { 230 } else { 1 + dice.below(12) };
        let messages = (0..count).map(|_| message(dice)).collect();
        let last = append(thread.clone(), messages, AppendOptions::default()).await;
        match at {
            // Longer than the messages that it replaces: numbers below 1.
            1 => {
                let messages = (0..count + 3).map(|_| message(dice)).collect();
                history.replace(&thread, Replacement::new(last, messages)).await.unwrap();
                append(thread, vec![message(dice)], AppendOptions::default()).await;
            }
            2 => drop(history.clear(&thread, None).await.unwrap()),
            3 => drop(history.clear_run(&thread, &RunId::new("run\\1").unwrap(), None).await.unwrap()),
            4 => {
                let soon = AppendOptions::default().with_ttl(Ttl::fixed(Duration::from_millis(1)));
                append(thread, vec![message(dice)], soon).await;
            }
            5 => history.set_ttl(&thread, Some(Ttl::sliding(Duration::from_secs(3600))), None).await.unwrap(),
            _ => {}
        }
    }
}

async fn vectors(stores: &Stores, dice: &mut Dice) {
    let vectors = stores.set().vectors().unwrap();
    for (at, name) in dice.ids(4).into_iter().enumerate() {
        let collection = CollectionName::new(name).unwrap();
        let dimensions = [1, 3, 700, 2][at];
        let count = if at == 1 { 130 } else { 3 };
        let document = |dice: &mut Dice, id: String| {
            let mut floats: Vec<f32> =
                (0..dimensions).map(|_| f32::from(u8::try_from(dice.below(200)).unwrap()) - 99.7).collect();
            floats[0] = [0.1, 1e-15, 3.5e8][dice.below(3)];
            if let [_, other, ..] = floats.as_mut_slice() {
                *other = [-0.0, 1e-42, f32::MIN_POSITIVE][dice.below(3)];
            }
            let embedding = Embedding::new(floats).unwrap();
            Document::new(DocumentId::new(id).unwrap(), dice.text())
                .with_embedding(embedding)
                .with_metadata(dice.metadata())
        };
        let mut ids = dice.ids(3);
        ids.extend((3..count).map(|at| format!("document {at}")));
        let documents = ids.iter().map(|id| document(dice, id.clone())).collect();
        vectors.put(&collection, documents, PutMode::Upsert).await.unwrap();
        if at == 3 {
            let ids: Vec<_> = ids.into_iter().map(|id| DocumentId::new(id).unwrap()).collect();
            vectors.delete(&collection, &ids).await.unwrap();
        }
    }
}

async fn graph(stores: &Stores, dice: &mut Dice) {
    let graph = stores.set().graph().unwrap();
    let ids: Vec<_> = dice.ids(12).into_iter().map(|id| EntityId::new(id).unwrap()).collect();
    let mut entities = Vec::new();
    for id in &ids {
        let entity_type = EntityType::new(&dice.ids(1)[0]).unwrap();
        entities.push(Entity::new(id.clone(), entity_type).with_properties(dice.metadata()));
    }
    graph.upsert_entities(entities).await.unwrap();
    let mut relationships = Vec::new();
    for id in dice.ids(20) {
        let (from, to) = (ids[dice.below(12)].clone(), ids[dice.below(12)].clone());
        let kind = RelationshipType::new(&dice.ids(1)[0]).unwrap();
        let relationship = Relationship::new(RelationshipId::new(id).unwrap(), kind, from, to);
        relationships.push(relationship.with_properties(dice.metadata()));
    }
    graph.upsert_relationships(relationships).await.unwrap();
}

async fn blobs(stores: &Stores, dice: &mut Dice) {
    let blobs = stores.set().blobs().unwrap();
    for (at, size) in [0, 1, 255, 262_144, 262_145, 700_000].into_iter().enumerate() {
        let key = ["a", "a/b", "a b/é", "%2F", "A", "z/'\""][at];
        let mut options = BlobPutOptions::default();
        if dice.below(2) == 0 {
            options = options.with_content_type("text/plain; charset=utf-8").with_metadata("name-1", "a b=c");
        }
        let body = BlobBody::Bytes(dice.bytes(size).into());
        blobs.put(&BlobKey::new(key).unwrap(), body, options).await.unwrap();
    }
}

async fn tasks(stores: &Stores, dice: &mut Dice) {
    let store = stores.set().tasks().unwrap();
    let names = dice.ids(4);
    for (at, name) in names.iter().enumerate() {
        let board = BoardId::new(name, &names[(at + 1) % 4]).unwrap();
        let label = dice.some(dice_text(at));
        let parent = dice.some(AgentId::new("parent/é").unwrap());
        let mut new = NewBoard::default().with_parent(parent);
        new.label = label;
        store.create_task_list(&board, new).await.unwrap();
        if at == 3 {
            continue;
        }
        for retries in 0..3 {
            for &status in TaskStatus::ALL {
                task(stores, dice, &board, status, retries).await;
            }
        }
        // One leased task: the first free one.
        store.claim(&board, &WorkerId::new("w").unwrap(), Duration::from_secs(3600)).await.unwrap();
    }
}

fn dice_text(at: usize) -> String {
    format!("label \0 {at} \u{2028}")
}

/// Brings a task to a status after some retries, in another way than a copy does.
async fn task(stores: &Stores, dice: &mut Dice, board: &BoardId, status: TaskStatus, retries: u32) {
    let store = stores.set().tasks().unwrap();
    let id = TaskId::new(format!("{}-{status:?}-{retries}", dice.ids(1)[0])).unwrap();
    let mut new = NewTask::new(id.clone(), format!("t{}", dice.text()))
        .with_metadata(dice.metadata())
        .with_retries_max(2);
    let text = dice.text();
    new.description = dice.some(text);
    store.add_tasks(board, vec![new]).await.unwrap();
    let step = async |to: TaskStatus, result: Option<String>| {
        let mut step = Transition::to(to);
        step.result = result;
        store.update_status(board, &id, step).await.unwrap();
    };
    for _ in 0..retries {
        step(TaskStatus::Blocked, dice.some("interim".to_owned())).await;
        step(TaskStatus::Failed, None).await;
        store.increment_retry(board, &id, None).await.unwrap();
    }
    let text = dice.text();
    let result = dice.some(text);
    match status {
        TaskStatus::Planned => {}
        TaskStatus::Succeeded | TaskStatus::Failed => {
            step(TaskStatus::InProgress, None).await;
            step(status, result).await;
        }
        _ => step(status, result).await,
    }
}

async fn key_value(stores: &Stores, dice: &mut Dice) {
    let store = stores.set().key_value().unwrap();
    for (at, name) in dice.ids(3).into_iter().enumerate() {
        let bucket = BucketName::new(name).unwrap();
        let mut keys = dice.ids(8);
        keys.extend((0..[150, 1, 3][at]).map(|at| format!("key {at}")));
        for (place, key) in keys.into_iter().enumerate() {
            let length = [0, 1, 40, 3000][dice.below(4)];
            let options = match place {
                0 => KeyValuePutOptions::default().with_ttl(Duration::from_secs(3600)),
                1 => KeyValuePutOptions::default().with_ttl(Duration::from_millis(1)),
                _ => KeyValuePutOptions::default(),
            };
            let value = dice.bytes(length).into();
            store.put(&bucket, &Key::new(key).unwrap(), value, options).await.unwrap();
        }
    }
}
