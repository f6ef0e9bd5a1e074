//! The same basic operations for any of the six contracts.

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_kernel::{
    AppendOptions, BlobBody, BlobKey, BlobPutOptions, BlobStoreExt, BoardId, BucketName, ChatMessage,
    CollectionName, Contract, Document, DocumentId, Embedding, Entity, EntityId, EntityQuery, EntityType,
    Error, ErrorKind, HistoryProviderExt, Key, KeyValueStoreExt, Metadata, NewBoard, NewTask, PageRequest,
    PutMode, Relationship, RelationshipId, RelationshipType, Replacement, Revision, SearchRequest, Seq,
    Store, TaskId, TaskStatus, Thread, Transition,
};
use serde_json::Value;

use crate::case::{CaseResult, Failure, implemented};
use crate::harness::StoreSet;
use crate::suites;

/// The number of records that [`write_batch`] writes in one call.
pub(super) const BATCH: usize = 50;

/// Returns the store of a contract as the trait that all stores share.
pub(super) fn store(stores: &StoreSet, contract: Contract) -> CaseResult<&dyn Store> {
    let unserved = || Failure::Engine("the backend does not serve the contract".to_owned());
    stores.store(contract).ok_or_else(unserved)
}

/// Returns all data of the namespace that the public API shows.
pub(crate) fn dump(stores: &StoreSet, contract: Contract) -> BoxFuture<'_, CaseResult<Value>> {
    async move {
        match contract {
            Contract::History => suites::history::dump::dump(&*stores.history()?).await,
            Contract::Vectors => suites::vectors::dump::dump(&*stores.vectors()?).await,
            Contract::Graph => suites::graph::dump::dump(&*stores.graph()?).await,
            Contract::Blobs => suites::blobs::dump::dump(&*stores.blobs()?).await,
            Contract::Tasks => suites::tasks::dump::dump(&*stores.tasks()?).await,
            Contract::KeyValue => suites::key_value::dump::dump(&*stores.key_value()?).await,
        }
    }
    .boxed()
}

/// Writes a few records whose text and ids contain the marker.
pub(crate) fn populate<'a>(
    stores: &'a StoreSet,
    contract: Contract,
    marker: &'a str,
) -> BoxFuture<'a, CaseResult> {
    async move {
        match contract {
            Contract::History => suites::history::dump::populate(&*stores.history()?, marker).await,
            Contract::Vectors => suites::vectors::dump::populate(&*stores.vectors()?, marker).await,
            Contract::Graph => suites::graph::dump::populate(&*stores.graph()?, marker).await,
            Contract::Blobs => suites::blobs::dump::populate(&*stores.blobs()?, marker).await,
            Contract::Tasks => suites::tasks::dump::populate(&*stores.tasks()?, marker).await,
            Contract::KeyValue => suites::key_value::dump::populate(&*stores.key_value()?, marker).await,
        }
    }
    .boxed()
}

/// Writes [`BATCH`] records in one call that must be atomic. Their names contain the marker.
pub(super) async fn write_batch(stores: &StoreSet, contract: Contract, marker: &str) -> CaseResult {
    let numbers = 0..BATCH;
    match contract {
        Contract::History => {
            let messages = numbers.map(|n| ChatMessage::user(format!("message {n}"))).collect();
            let thread = Thread::new("batch", marker)?;
            stores.history()?.append_many(&thread, messages, AppendOptions::default()).await?;
        }
        Contract::Vectors => {
            let document = |n: usize| {
                let embedding = Embedding::new(vec![1.0, f32::from(u8::try_from(n).unwrap_or(u8::MAX))])?;
                Ok(Document::new(DocumentId::new(format!("d{n}"))?, "text").with_embedding(embedding))
            };
            let documents = numbers.map(document).collect::<Result<_, Error>>()?;
            let collection = CollectionName::new(marker)?;
            stores.vectors()?.put(&collection, documents, PutMode::Upsert).await?;
        }
        Contract::Graph => {
            let entity =
                |n| Ok(Entity::new(EntityId::new(format!("{marker}-{n}"))?, EntityType::new(marker)?));
            let entities = numbers.map(entity).collect::<Result<_, Error>>()?;
            stores.graph()?.upsert_entities(entities).await?;
        }
        Contract::Blobs => {
            let pieces: Vec<_> = numbers.map(|_| Ok(Bytes::from(vec![7; 4_096]))).collect();
            let body = BlobBody::stream(futures_util::stream::iter(pieces));
            stores.blobs()?.put(&BlobKey::new(marker)?, body, BlobPutOptions::default()).await?;
        }
        Contract::Tasks => {
            let task = |n| Ok(NewTask::new(TaskId::new(format!("t{n}"))?, "title"));
            let tasks = numbers.map(task).collect::<Result<_, Error>>()?;
            let board = BoardId::new("batch", marker)?;
            stores.tasks()?.create_task_list(&board, NewBoard::new(tasks)).await?;
        }
        Contract::KeyValue => {
            let value = Bytes::from(vec![7; BATCH]);
            stores.key_value()?.set(&BucketName::new("batch")?, &Key::new(marker)?, value).await?;
        }
    }
    Ok(())
}

/// Returns the number of readable records that [`write_batch`] wrote under the marker.
pub(super) async fn count_batch(stores: &StoreSet, contract: Contract, marker: &str) -> CaseResult<usize> {
    Ok(match contract {
        Contract::History => {
            let thread = Thread::new("batch", marker)?;
            suites::history::all(&*stores.history()?, &thread).await?.len()
        }
        Contract::Vectors => {
            let (store, collection) = (&*stores.vectors()?, CollectionName::new(marker)?);
            match implemented(store.list(&collection, PageRequest::default()).await)? {
                Some(page) => page.items.len(),
                None => {
                    let ids = (0..BATCH).map(|n| DocumentId::new(format!("d{n}")));
                    let found = store.get(&collection, &ids.collect::<Result<Vec<_>, _>>()?).await?;
                    found.into_iter().flatten().count()
                }
            }
        }
        Contract::Graph => {
            let store = &*stores.graph()?;
            let query = EntityQuery::default().with_type(EntityType::new(marker)?);
            match implemented(store.find_entities(&query, PageRequest::default()).await)? {
                Some(page) => page.items.len(),
                None => {
                    let ids = (0..BATCH).map(|n| EntityId::new(format!("{marker}-{n}")));
                    let found = store.get_entities(&ids.collect::<Result<Vec<_>, _>>()?).await?;
                    found.into_iter().flatten().count()
                }
            }
        }
        Contract::Blobs => match stores.blobs()?.get_bytes(&BlobKey::new(marker)?).await {
            Ok(bytes) => bytes.len() / 4_096,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        },
        Contract::Tasks => {
            let board = BoardId::new("batch", marker)?;
            let store = &*stores.tasks()?;
            match implemented(store.list_tasks(&board, &Default::default(), PageRequest::default()).await)? {
                Some(page) => page.items.len(),
                None => {
                    let mut count = 0;
                    for n in 0..BATCH {
                        let found = store.get_task(&board, &TaskId::new(format!("t{n}"))?).await?;
                        count += usize::from(found.is_some());
                    }
                    count
                }
            }
        }
        Contract::KeyValue => {
            let entry = &*stores.key_value()?;
            let entry = entry.get(&BucketName::new("batch")?, &Key::new(marker)?).await?;
            entry.map_or(0, |entry| entry.value.len())
        }
    })
}

/// Adds the error of a call. A method that the store does not implement yet refuses nothing.
fn collect<T>(errors: &mut Vec<Error>, result: Result<T, Error>) {
    errors.extend(result.err().filter(|error| error.missing_method().is_none()));
}

/// Returns errors of several kinds, from calls whose ids and contents contain the marker.
pub(super) async fn provoke(stores: &StoreSet, contract: Contract, marker: &str) -> CaseResult<Vec<Error>> {
    lay_out(stores, contract, marker).await?;
    refusals(stores, contract, marker).await
}

/// Writes the data that the calls of [`refusals`] conflict with.
pub(super) async fn lay_out(stores: &StoreSet, contract: Contract, marker: &str) -> CaseResult {
    match contract {
        Contract::History => {
            let thread = Thread::new(marker, marker)?;
            stores.history()?.append(&thread, ChatMessage::user(marker)).await?;
        }
        Contract::Vectors => {
            let document = Document::new(DocumentId::new(marker)?, marker);
            let embedded = document.with_embedding(Embedding::new(vec![1.0, 0.0])?);
            let (store, collection) = (&*stores.vectors()?, CollectionName::new(marker)?);
            store.put(&collection, vec![embedded], PutMode::Upsert).await?;
        }
        Contract::Graph | Contract::Blobs => {}
        Contract::Tasks => {
            let (store, board) = (&*stores.tasks()?, board_of(marker)?);
            let task = NewTask::new(TaskId::new(marker)?, marker);
            store.create_task_list(&board, NewBoard::new(vec![task])).await?;
        }
        Contract::KeyValue => {
            let (bucket, key) = (BucketName::new(marker)?, Key::new(marker)?);
            stores.key_value()?.set(&bucket, &key, Bytes::from(marker.to_owned())).await?;
        }
    }
    Ok(())
}

fn board_of(marker: &str) -> Result<BoardId, Error> {
    BoardId::new(marker, format!("{marker}-own"))
}

/// Returns errors of several kinds, from calls that a store rejects.
pub(super) async fn refusals(stores: &StoreSet, contract: Contract, marker: &str) -> CaseResult<Vec<Error>> {
    let mut errors = Vec::new();
    let long = format!("{marker}{}", "x".repeat(600));
    match contract {
        Contract::History => {
            let (store, thread) = (&*stores.history()?, Thread::new(marker, marker)?);
            collect(&mut errors, Thread::new(&long, marker));
            collect(&mut errors, store.fork(&Thread::new("absent", marker)?, &thread, None, None).await);
            collect(&mut errors, store.fork(&thread, &thread, None, None).await);
            let message = ChatMessage::user(marker);
            collect(&mut errors, store.replace(&thread, Replacement::new(Seq::new(99), vec![message])).await);
        }
        Contract::Vectors => {
            let (store, collection) = (&*stores.vectors()?, CollectionName::new(marker)?);
            let document = Document::new(DocumentId::new(marker)?, marker);
            let embedded = document.clone().with_embedding(Embedding::new(vec![1.0, 0.0])?);
            collect(&mut errors, CollectionName::new(&long));
            collect(&mut errors, store.put(&collection, vec![document], PutMode::Upsert).await);
            collect(
                &mut errors,
                store.put(&collection, vec![embedded.clone(), embedded], PutMode::Upsert).await,
            );
            collect(
                &mut errors,
                store.search(&collection, &SearchRequest::new(Embedding::new(vec![1.0])?)).await,
            );
        }
        Contract::Graph => {
            let (store, id) = (&*stores.graph()?, EntityId::new(marker)?);
            let entity = Entity::new(id.clone(), EntityType::new(marker)?);
            let bad = entity.clone().with_properties(Metadata::new().with(marker, format!("{marker}\0")));
            let kind = RelationshipType::new(marker)?;
            let edge = Relationship::new(
                RelationshipId::new(marker)?,
                kind,
                id.clone(),
                EntityId::new(format!("{marker}?"))?,
            );
            collect(&mut errors, EntityId::new(&long));
            collect(&mut errors, store.upsert_entities(vec![bad]).await);
            collect(&mut errors, store.upsert_entities(vec![entity.clone(), entity]).await);
            collect(&mut errors, store.upsert_relationships(vec![edge]).await);
        }
        Contract::Blobs => {
            let (store, key) = (&*stores.blobs()?, BlobKey::new(format!("{marker}/absent"))?);
            collect(&mut errors, BlobKey::new(format!("../{marker}")));
            collect(&mut errors, store.get_bytes(&key).await);
            collect(&mut errors, store.head(&key).await);
            collect(&mut errors, store.copy(&key, &key).await);
            let options = BlobPutOptions::default().with_metadata(marker, format!("{marker}\n"));
            collect(&mut errors, store.put(&key, BlobBody::from("1"), options).await);
        }
        Contract::Tasks => provoke_tasks(stores, marker, &long, &mut errors).await?,
        Contract::KeyValue => {
            let store = &*stores.key_value()?;
            let (bucket, key) = (BucketName::new(marker)?, Key::new(marker)?);
            let value = Bytes::from(marker.to_owned());
            collect(&mut errors, Key::new(&long));
            collect(&mut errors, store.create(&bucket, &key, value.clone()).await);
            collect(&mut errors, store.put_at(&bucket, &key, value, Revision::new(999_999)).await);
            collect(&mut errors, store.delete(&bucket, &key, Some(Revision::new(999_999))).await);
        }
    }
    Ok(errors)
}

async fn provoke_tasks(stores: &StoreSet, marker: &str, long: &str, errors: &mut Vec<Error>) -> CaseResult {
    let (store, board) = (&*stores.tasks()?, board_of(marker)?);
    let task = NewTask::new(TaskId::new(marker)?, marker);
    collect(errors, TaskId::new(long));
    collect(errors, store.create_task_list(&board, NewBoard::default()).await);
    collect(errors, store.add_tasks(&board, vec![task.clone()]).await);
    let absent = TaskId::new(format!("{marker}-absent"))?;
    collect(errors, store.update_status(&board, &absent, Transition::to(TaskStatus::Blocked)).await);
    let step = Transition::to(TaskStatus::Succeeded).with_result(marker);
    collect(errors, store.update_status(&board, &task.id, step).await);
    Ok(())
}
