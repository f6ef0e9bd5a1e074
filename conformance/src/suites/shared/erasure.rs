//! Erasure of a namespace.

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{
    AppendOptions, BlobBody, BlobCondition, BlobKey, BlobPutOptions, BoardId, BucketName, ChatMessage,
    CollectionName, Contract, Document, DocumentId, Embedding, Entity, EntityId, EntityType,
    HistoryEventKind, HistoryProvider, HistoryProviderExt, IdempotencyKey, Key, KeyValueEventKind,
    KeyValueStoreExt, NewBoard, PutMode, Removal, RequestOption, Revision, Seq, Thread, UpsertReport,
};

use super::probe::{dump, populate, store};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;
use crate::harness::{OpenOptions, StoreSet};

pub(super) async fn empties(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    let empty = dump(&b, contract).await?;
    populate(&a, contract, "first").await?;
    populate(&b, contract, "second").await?;
    store(&a, contract)?.erase().await?;
    expect::equal("the data read by the erasing handle", &dump(&a, contract).await?, &empty)?;
    expect::equal("the data read by the other handle", &dump(&b, contract).await?, &empty)
}

pub(super) async fn stays_within(context: Context, contract: Contract) -> CaseResult {
    let own = context.open().await?;
    populate(&own, contract, "same").await?;
    let mut kept = Vec::new();
    for suffix in ["x", "%", "/", "_"] {
        let other = context.open_with(&context.sibling(suffix)?, &OpenOptions::default()).await?;
        populate(&other, contract, "same").await?;
        kept.push((dump(&other, contract).await?, other));
    }
    store(&own, contract)?.erase().await?;
    for (before, other) in kept {
        expect::equal("a namespace whose name shares a prefix", &dump(&other, contract).await?, &before)?;
    }
    Ok(())
}

pub(super) async fn of_nothing(context: Context, contract: Contract) -> CaseResult {
    let stores = context.open().await?;
    let empty = dump(&stores, contract).await?;
    store(&stores, contract)?.erase().await?;
    store(&stores, contract)?.erase().await?;
    expect::equal("the data of the namespace", &dump(&stores, contract).await?, &empty)
}

pub(super) async fn then_use(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    populate(&a, contract, "old").await?;
    store(&b, contract)?.erase().await?;
    populate(&a, contract, "new").await?;
    let text = dump(&b, contract).await?.to_string();
    expect::that(text.contains("new"), "the data written after the erasure", "nothing of it")?;
    expect::that(!text.contains("old"), "none of the erased data", "some of it")
}

/// State that no dump shows is erased, too: used idempotency keys, fixed dimensions, remembered deletions.
pub(super) async fn remembers_nothing(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    live(&a, contract, "before").await?;
    store(&b, contract)?.erase().await?;
    live(&a, contract, "afterwards").await?;
    store(&a, contract)?.erase().await?;
    live(&b, contract, "once more").await
}

/// Runs a few operations that succeed only in a new namespace.
async fn live(stores: &StoreSet, contract: Contract, text: &str) -> CaseResult {
    match contract {
        Contract::History => talk(stores, text).await,
        Contract::Vectors => {
            let (store, collection) = (&*stores.vectors()?, CollectionName::new("c")?);
            // The text's length in bytes is the number of dimensions.
            let embedding = Embedding::new(vec![1.0; text.len()])?;
            let document = Document::new(DocumentId::new("d")?, text).with_embedding(embedding);
            let report = store.put(&collection, vec![document], PutMode::IfAbsent).await?;
            expect::equal("documents written", &report.written.len(), &1)
        }
        Contract::Graph => {
            let entity = Entity::new(EntityId::new("e")?, EntityType::new(text)?);
            let report = stores.graph()?.upsert_entities(vec![entity]).await?;
            expect::equal("the entity", &report, &UpsertReport::new(1, 0))
        }
        Contract::Blobs => {
            let store = &*stores.blobs()?;
            let (gone, key) = (BlobKey::new("gone")?, BlobKey::new("a/b")?);
            store.put(&gone, BlobBody::from("1"), BlobPutOptions::default()).await?;
            store.delete(&gone).await?;
            let absent = BlobPutOptions::default().with_condition(BlobCondition::Absent);
            let declared = store.capabilities().has(larder_kernel::Capability::BlobCreateOnly);
            let options = if declared { absent } else { BlobPutOptions::default() };
            store.put(&key, BlobBody::from("2"), options).await?;
            let listed = store.list("", None).await?.count().await;
            expect::equal("blobs listed", &listed, &1)
        }
        Contract::Tasks => {
            let (store, board) = (&*stores.tasks()?, BoardId::new("talk", "agent")?);
            let made = store.create_task_list(&board, NewBoard::default().with_label(text)).await?;
            expect::equal("tasks of the new board", &made.tasks.total(), &0)?;
            store.delete_board(&board).await?;
            store.create_task_list(&board, NewBoard::default()).await?;
            Ok(())
        }
        Contract::KeyValue => watch(stores, text).await,
    }
}

async fn talk(stores: &StoreSet, text: &str) -> CaseResult {
    let (store, thread) = (&*stores.history()?, Thread::new("agent", "session")?);
    let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("once")?);
    store.append_many(&thread, vec![ChatMessage::user(text)], options).await?;
    let mut events = store.subscribe(&thread, Seq::ZERO).await?;
    let first = expect::some("an event of the message", events.next().await)??;
    let said = match first.kind {
        HistoryEventKind::Appended { message, .. } => message.text.clone(),
        other => format!("{other:?}"),
    };
    expect::equal("the first event of the thread", &said, &text.to_owned())?;
    store.clear(&thread, None).await?;
    pop(store, text).await
}

/// Pops the only message of a thread with a key. A store that remembers the key or its messages returns
/// others.
async fn pop(store: &dyn HistoryProvider, text: &str) -> CaseResult {
    if !store.options().has(RequestOption::RemoveIdempotencyKey) {
        return Ok(());
    }
    let thread = Thread::new("agent", "second")?;
    store.append(&thread, ChatMessage::user(text)).await?;
    let pop = Removal::newest(1).with_idempotency_key(IdempotencyKey::new("popped")?);
    for what in ["the popped messages", "the messages of the repeated pop"] {
        let popped = store.remove(&thread, pop.clone()).await?.messages;
        let texts: Vec<&str> = popped.iter().map(|stored| &*stored.message.text).collect();
        expect::equal(what, &texts, &vec![text])?;
    }
    Ok(())
}

async fn watch(stores: &StoreSet, text: &str) -> CaseResult {
    let (store, bucket) = (&*stores.key_value()?, BucketName::new("b")?);
    store.set(&bucket, &Key::new(text)?, Bytes::from_static(b"1")).await?;
    store.delete(&bucket, &Key::new(text)?, None).await?;
    store.create(&bucket, &Key::new("kept")?, Bytes::copy_from_slice(text.as_bytes())).await?;
    let mut events = store.watch(&bucket, "", Revision::ZERO).await?;
    loop {
        let event = expect::some("an event of the key", events.next().await)??;
        if event.key.as_str() == "kept" {
            return Ok(());
        }
        // The stream may report the deletion, but no deletion from before the erasure.
        expect::equal("the key of the event", &event.key.as_str(), &text)?;
        expect::equal("the delivered event", &event.kind, &KeyValueEventKind::Deleted)?;
    }
}
