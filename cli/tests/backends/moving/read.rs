//! The whole content of a backend, as the contracts return it.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder::Stores;
use larder_kernel::{
    BlobKey, BlobStoreExt, Board, BoardId, BucketName, ChatMessage, CollectionName, Contract, Document,
    Entity, EntityQuery, HistoryProviderExt, Key, PageRequest, Relationship, RelationshipQuery, Task,
    TaskPosition, TaskQuery, TaskStatus, Thread, Timestamp, UserMetadata,
};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Everything {
    pub(crate) messages: Vec<(Thread, ChatMessage)>,
    pub(crate) collections: Vec<(CollectionName, usize)>,
    pub(crate) documents: Vec<(CollectionName, Document, Vec<u32>)>,
    pub(crate) entities: Vec<Entity>,
    pub(crate) relationships: Vec<Relationship>,
    pub(crate) blobs: Vec<(BlobKey, Option<String>, UserMetadata, Bytes)>,
    pub(crate) boards: Vec<Board>,
    pub(crate) tasks: Vec<(BoardId, Task)>,
    pub(crate) values: Vec<(BucketName, Key, Bytes, Option<Timestamp>)>,
}

/// Reads the contracts, without values that each store assigns: positions, revisions, leases.
pub(crate) async fn everything(stores: &Stores, contracts: &[Contract]) -> Everything {
    let mut all = Everything::default();
    for contract in contracts {
        match contract {
            Contract::History => history(stores, &mut all).await,
            Contract::Vectors => vectors(stores, &mut all).await,
            Contract::Graph => graph(stores, &mut all).await,
            Contract::Blobs => blobs(stores, &mut all).await,
            Contract::Tasks => tasks(stores, &mut all).await,
            Contract::KeyValue => key_value(stores, &mut all).await,
        }
    }
    all
}

async fn history(stores: &Stores, all: &mut Everything) {
    let history = stores.set().history().unwrap();
    for info in history.list_threads(None, PageRequest::default()).await.unwrap().items {
        for stored in history.all_messages(&info.thread).await.unwrap() {
            all.messages.push((info.thread.clone(), (*stored.message).clone()));
        }
    }
}

async fn vectors(stores: &Stores, all: &mut Everything) {
    let vectors = stores.set().vectors().unwrap();
    for info in vectors.list_collections(PageRequest::default()).await.unwrap().items {
        for document in vectors.list(&info.collection, PageRequest::default()).await.unwrap().items {
            let bits =
                document.embedding.as_ref().unwrap().as_slice().iter().map(|float| float.to_bits()).collect();
            all.documents.push((info.collection.clone(), document, bits));
        }
        all.collections.push((info.collection, info.dimensions));
    }
}

async fn graph(stores: &Stores, all: &mut Everything) {
    let graph = stores.set().graph().unwrap();
    all.entities = graph.find_entities(&EntityQuery::default(), PageRequest::default()).await.unwrap().items;
    let query = RelationshipQuery::default();
    all.relationships = graph.find_relationships(&query, PageRequest::default()).await.unwrap().items;
}

async fn blobs(stores: &Stores, all: &mut Everything) {
    let blobs = stores.set().blobs().unwrap();
    let entries: Vec<_> = blobs.list("", None).await.unwrap().try_collect().await.unwrap();
    for entry in entries {
        let info = blobs.head(&entry.key).await.unwrap();
        let bytes = blobs.get_bytes(&entry.key).await.unwrap();
        all.blobs.push((entry.key, info.content_type, info.metadata, bytes));
    }
}

async fn tasks(stores: &Stores, all: &mut Everything) {
    let tasks = stores.set().tasks().unwrap();
    for mut board in tasks.list_boards(None, PageRequest::default()).await.unwrap().items {
        let listed =
            tasks.list_tasks(&board.id, &TaskQuery::default(), PageRequest::default()).await.unwrap();
        for mut task in listed.items {
            if task.lease.take().is_some() {
                task.status = TaskStatus::Planned;
            }
            (task.position, task.revision) = (TaskPosition::default(), larder_kernel::Revision::ZERO);
            all.tasks.push((board.id.clone(), task));
        }
        // A lease changes them.
        board.tasks = larder_kernel::BoardStatusCounts::default();
        all.boards.push(board);
    }
}

async fn key_value(stores: &Stores, all: &mut Everything) {
    let store = stores.set().key_value().unwrap();
    for info in store.list_buckets(PageRequest::default()).await.unwrap().items {
        for item in store.list(&info.bucket, "", PageRequest::default()).await.unwrap().items {
            if let Some(entry) = store.get(&info.bucket, &item.key).await.unwrap() {
                all.values.push((info.bucket.clone(), item.key, entry.value, entry.expires_at));
            }
        }
    }
}

/// Asserts that two backends have the same content; expiry times may differ by some seconds.
pub(crate) fn assert_same(mut left: Everything, mut right: Everything) {
    for (left, right) in left.values.iter_mut().zip(&mut right.values) {
        if let (Some(one), Some(two)) = (left.3, right.3) {
            assert!((one.as_micros() - two.as_micros()).abs() < 5_000_000, "{one} {two}");
            right.3 = left.3;
        }
    }
    // Contract by contract, to keep the output of a failure short.
    assert_eq!(left.messages.len(), right.messages.len());
    for (left, right) in left.messages.iter().zip(&right.messages) {
        assert_eq!(left, right);
    }
    assert_eq!((&left.collections, &left.documents), (&right.collections, &right.documents));
    assert_eq!(left.entities, right.entities);
    assert_eq!(left.relationships, right.relationships);
    assert!(left.blobs == right.blobs, "blobs differ");
    assert_eq!(left.boards, right.boards);
    assert_eq!(left.tasks, right.tasks);
    assert_eq!(left.values, right.values);
}
