//! A target with other content is refused and stays unchanged, unless an option allows it.

use larder::Stores;
use larder::transfer::{Existing, Source, Watch, copy};
use larder_kernel::{
    BlobKey, BlobStoreExt, BoardId, BucketName, ChatMessage, CollectionName, Contract, Document, DocumentId,
    Embedding, Entity, EntityId, EntityType, ErrorKind, HistoryProviderExt, Key, KeyValueStoreExt, NewBoard,
    NewTask, PageRequest, PutMode, TaskId, TaskStatus, Thread, Transition,
};
use libtest_mimic::Trial;

use super::fill::fill;
use super::pairs::copied;
use super::place::{Backend, Place};
use super::read::{assert_same, everything};
use super::trial;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for backend in [Backend::Memory, Backend::Sqlite] {
        let name = |what: &str| format!("{what}_{}", backend.name());
        trials.extend([
            trial(name("other_data_is_refused_and_left"), move || other_data(backend)),
            trial(name("different_data_is_refused_or_overwritten"), move || different_data(backend)),
            trial(name("a_copy_in_part_goes_on"), move || in_part(backend)),
            trial(name("a_thread_cleared_in_the_target_is_filled_again"), move || cleared(backend)),
        ]);
    }
    trials
}

/// Adds an item that no seed makes.
async fn add_other(stores: &Stores, contract: Contract) {
    let id = "secret-other";
    match contract {
        Contract::History => {
            let thread = Thread::new(id, id).unwrap();
            stores.set().history().unwrap().append(&thread, ChatMessage::user(id)).await.unwrap();
        }
        Contract::Vectors => {
            let embedding = Embedding::new(vec![1.0, 2.0]).unwrap();
            let document = Document::new(DocumentId::new(id).unwrap(), id).with_embedding(embedding);
            let collection = CollectionName::new(id).unwrap();
            stores.set().vectors().unwrap().put(&collection, vec![document], PutMode::Upsert).await.unwrap();
        }
        Contract::Graph => {
            let entity = Entity::new(EntityId::new(id).unwrap(), EntityType::new(id).unwrap());
            stores.set().graph().unwrap().upsert_entities(vec![entity]).await.unwrap();
        }
        Contract::Blobs => {
            stores.set().blobs().unwrap().put_bytes(&BlobKey::new(id).unwrap(), id.into()).await.unwrap();
        }
        Contract::Tasks => {
            let board = BoardId::new(id, id).unwrap();
            let new = NewBoard::new(vec![NewTask::new(TaskId::new(id).unwrap(), id)]);
            stores.set().tasks().unwrap().create_task_list(&board, new).await.unwrap();
        }
        Contract::KeyValue => {
            let (bucket, key) = (BucketName::new(id).unwrap(), Key::new(id).unwrap());
            stores.set().key_value().unwrap().set(&bucket, &key, id.into()).await.unwrap();
        }
    }
}

async fn other_data(backend: Backend) {
    let source = Place::new(backend).await;
    fill(&source.stores, 7).await;
    let from = Source::from(source.stores.set().clone());
    for &contract in Contract::ALL {
        let target = Place::new(backend).await;
        add_other(&target.stores, contract).await;
        let before = everything(&target.stores, Contract::ALL).await;
        let to = target.stores.set().clone();
        let refused = copy(&from, &to, Contract::ALL, Existing::Refuse, &Watch::nobody()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
        let said = format!("{refused:?}");
        assert!(said.contains(contract.as_str()) && !said.contains("secret"), "{said}");
        assert_same(before, everything(&target.stores, Contract::ALL).await);
        for copied in copy(&from, &to, Contract::ALL, Existing::Keep, &Watch::nobody()).await.unwrap() {
            assert!(copied.is_equal(), "{copied:?}");
        }
        // The earlier content remains.
        let all = everything(&target.stores, Contract::ALL).await;
        let debug = format!("{all:?}");
        assert!(debug.contains("secret-other"));
    }
}

/// Changes one item that a seed made.
async fn change(stores: &Stores, contract: Contract) {
    let held = everything(stores, &[contract]).await;
    match contract {
        Contract::History => {
            let history = stores.set().history().unwrap();
            let thread = held.messages[0].0.clone();
            history.clear(&thread, None).await.unwrap();
            history.append(&thread, ChatMessage::user("other")).await.unwrap();
        }
        Contract::Vectors => {
            let (collection, mut document, _) = held.documents.into_iter().next().unwrap();
            document.content = "other".to_owned();
            stores.set().vectors().unwrap().put(&collection, vec![document], PutMode::Upsert).await.unwrap();
        }
        Contract::Graph => {
            let mut entity = held.entities[0].clone();
            entity.entity_type = EntityType::new("other").unwrap();
            stores.set().graph().unwrap().upsert_entities(vec![entity]).await.unwrap();
        }
        Contract::Blobs => {
            stores.set().blobs().unwrap().put_bytes(&held.blobs[0].0, "other".into()).await.unwrap();
        }
        Contract::Tasks => {
            // Ended otherwise than in the source.
            let blocked = |(_, task): &&(BoardId, larder_kernel::Task)| task.status == TaskStatus::Blocked;
            let (board, task) = held.tasks.iter().find(blocked).unwrap();
            let step = Transition::to(TaskStatus::Abandoned);
            stores.set().tasks().unwrap().update_status(board, &task.id, step).await.unwrap();
        }
        Contract::KeyValue => {
            let (bucket, key, ..) = &held.values[0];
            stores.set().key_value().unwrap().set(bucket, key, "other".into()).await.unwrap();
        }
    }
}

async fn different_data(backend: Backend) {
    let source = Place::new(backend).await;
    fill(&source.stores, 8).await;
    let from = Source::from(source.stores.set().clone());
    let target = Place::new(backend).await;
    copied(&source.stores, &target.stores, Contract::ALL).await;
    for &contract in Contract::ALL {
        change(&target.stores, contract).await;
        let before = everything(&target.stores, Contract::ALL).await;
        let to = target.stores.set().clone();
        for existing in [Existing::Refuse, Existing::Keep] {
            let refused = copy(&from, &to, Contract::ALL, existing, &Watch::nobody()).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
            assert!(refused.to_string().contains(contract.as_str()), "{refused}");
        }
        assert_same(before, everything(&target.stores, Contract::ALL).await);
        for copied in copy(&from, &to, Contract::ALL, Existing::Overwrite, &Watch::nobody()).await.unwrap() {
            assert!(copied.is_equal(), "{copied:?}");
        }
        let left = everything(&source.stores, Contract::ALL).await;
        assert_same(left, everything(&target.stores, Contract::ALL).await);
    }
}

/// A target with the beginning of every item.
async fn in_part(backend: Backend) {
    let (source, target) = (Place::new(backend).await, Place::new(backend).await);
    fill(&source.stores, 9).await;
    let held = everything(&source.stores, Contract::ALL).await;
    let to = &target.stores;
    let (thread, _) = held.messages[0].clone();
    let begun: Vec<_> = held.messages.iter().filter(|(of, _)| *of == thread).take(1).collect();
    to.set().history().unwrap().append(&thread, begun[0].1.clone()).await.unwrap();
    let (collection, document, _) = held.documents[1].clone();
    to.set().vectors().unwrap().put(&collection, vec![document], PutMode::Upsert).await.unwrap();
    // A copy of an empty collection was killed between the two steps that make it.
    let (empty, dimensions) =
        held.collections.iter().find(|(name, _)| held.documents.iter().all(|(of, ..)| of != name)).unwrap();
    let placeholder = DocumentId::new("larder-copy-1:placeholder").unwrap();
    let document =
        Document::new(placeholder, "").with_embedding(Embedding::new(vec![1.0; *dimensions]).unwrap());
    to.set().vectors().unwrap().put(empty, vec![document], PutMode::Upsert).await.unwrap();
    to.set().graph().unwrap().upsert_entities(held.entities[3..5].to_vec()).await.unwrap();
    // A board whose first task has not reached its status in the source.
    let board = held.boards[0].clone();
    let mut new = NewBoard::default().with_parent(board.parent);
    new.label = board.label;
    to.set().tasks().unwrap().create_task_list(&board.id, new).await.unwrap();
    if let Some((_, task)) = held.tasks.iter().find(|(of, _)| *of == board.id) {
        let mut new = NewTask::new(task.id.clone(), task.title.clone()).with_retries_max(task.retries_max);
        (new.description, new.metadata) = (task.description.clone(), task.metadata.clone());
        to.set().tasks().unwrap().add_tasks(&board.id, vec![new]).await.unwrap();
        let step = Transition::to(TaskStatus::InProgress);
        to.set().tasks().unwrap().update_status(&board.id, &task.id, step).await.unwrap();
    }
    let (bucket, key, value, _) = held.values.iter().find(|value| value.3.is_none()).unwrap().clone();
    to.set().key_value().unwrap().set(&bucket, &key, value).await.unwrap();
    copied(&source.stores, to, Contract::ALL).await;
    assert_same(held, everything(to, Contract::ALL).await);
}

async fn cleared(backend: Backend) {
    let (source, target) = (Place::new(backend).await, Place::new(backend).await);
    fill(&source.stores, 10).await;
    copied(&source.stores, &target.stores, &[Contract::History]).await;
    let history = target.stores.set().history().unwrap();
    for info in history.list_threads(None, PageRequest::default()).await.unwrap().items {
        history.clear(&info.thread, None).await.unwrap();
    }
    copied(&source.stores, &target.stores, &[Contract::History]).await;
    let held = everything(&source.stores, &[Contract::History]).await;
    assert_same(held, everything(&target.stores, &[Contract::History]).await);
}
