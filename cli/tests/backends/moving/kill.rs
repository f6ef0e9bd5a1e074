//! A killed copy continues when it runs again, and makes no duplicates.

use std::time::{Duration, Instant};

use larder::Stores;
use larder_kernel::{
    AppendOptions, BoardId, BucketName, ChatMessage, CollectionName, Contract, Document, DocumentId,
    Embedding, Key, KeyValueStoreExt, NewBoard, NewTask, PageRequest, PutMode, TaskId, TaskStatus, Thread,
    Transition,
};
use libtest_mimic::Trial;

use super::command::larder;
use super::pairs::shared;
use super::place::{Backend, POSTGRES, Place};
use super::read::{assert_same, everything};
use super::{live, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let postgres = POSTGRES.variable().unwrap();
    vec![
        trial("a_copy_killed_midway_goes_on_from_sqlite_to_sqlite", || killed(Backend::Sqlite)),
        live("a_copy_killed_midway_goes_on_from_sqlite_to_postgres", &[postgres], || killed(POSTGRES)),
    ]
}

const THREADS: usize = 30;
const MESSAGES: usize = 100;

/// Enough data that a kill can interrupt it, in every contract that copies with many calls.
async fn fill(stores: &Stores) {
    for at in 0..THREADS {
        let thread = Thread::new("agent", format!("session {at}")).unwrap();
        let messages = (0..MESSAGES).map(|at| ChatMessage::user(format!("message {at}"))).collect();
        stores
            .set()
            .history()
            .unwrap()
            .append_many(&thread, messages, AppendOptions::default())
            .await
            .unwrap();
    }
    for at in 0..20 {
        let document = |id: usize| {
            let embedding = Embedding::new(vec![1.0, 2.0, 3.0]).unwrap();
            Document::new(DocumentId::new(id.to_string()).unwrap(), "text").with_embedding(embedding)
        };
        let collection = CollectionName::new(format!("collection {at}")).unwrap();
        let documents = (0..20).map(document).collect();
        stores.set().vectors().unwrap().put(&collection, documents, PutMode::Upsert).await.unwrap();
    }
    let tasks = stores.set().tasks().unwrap();
    for at in 0..10 {
        let board = BoardId::new("conversation", format!("agent {at}")).unwrap();
        let ids: Vec<TaskId> = (0..20).map(|at| TaskId::new(at.to_string()).unwrap()).collect();
        let new = ids.iter().map(|id| NewTask::new(id.clone(), "title")).collect();
        tasks.create_task_list(&board, NewBoard::new(new)).await.unwrap();
        for id in &ids {
            let begun = Transition::to(TaskStatus::InProgress);
            tasks.update_status(&board, id, begun.clone()).await.unwrap();
            tasks.increment_retry(&board, id, None).await.unwrap();
            tasks.update_status(&board, id, begun).await.unwrap();
            let done = Transition::to(TaskStatus::Succeeded).with_result("done");
            tasks.update_status(&board, id, done).await.unwrap();
        }
    }
    let bucket = BucketName::new("bucket").unwrap();
    for at in 0..400 {
        let key = Key::new(format!("key {at}")).unwrap();
        stores.set().key_value().unwrap().set(&bucket, &key, "value".into()).await.unwrap();
    }
}

/// Returns the progress of a copy: units of all contracts, by their counts.
async fn held(stores: &Stores) -> u64 {
    let threads =
        stores.set().history().unwrap().list_threads(None, PageRequest::default()).await.unwrap().items;
    let collections =
        stores.set().vectors().unwrap().list_collections(PageRequest::default()).await.unwrap().items;
    let boards = stores.set().tasks().unwrap().list_boards(None, PageRequest::default()).await.unwrap().items;
    let buckets = stores.set().key_value().unwrap().list_buckets(PageRequest::default()).await.unwrap().items;
    threads.iter().map(|thread| thread.messages).sum::<u64>()
        + collections.iter().map(|collection| collection.documents).sum::<u64>()
        + boards.iter().map(|board| board.tasks.total() + board.tasks.succeeded).sum::<u64>()
        + buckets.iter().map(|bucket| bucket.keys).sum::<u64>()
}

async fn killed(to: Backend) {
    let (source, target) = (Place::new(Backend::Sqlite).await, Place::new(to).await);
    fill(&source.stores).await;
    let contracts = [Contract::History, Contract::Vectors, Contract::Tasks, Contract::KeyValue];
    let whole = held(&source.stores).await;
    let command = || {
        let (from, into) = (source.namespace.as_str(), target.namespace.as_str());
        let mut command =
            larder(&["copy", &source.url, &target.url, "--namespace", from, "--to-namespace", into]);
        for contract in contracts {
            command.args(["--contract", contract.as_str()]);
        }
        command
    };
    let (mut before, mut midway) = (0, 0);
    // Each kill lets the copy progress a little further than the last.
    for part in 1..8 {
        let mut child = command().spawn().unwrap();
        let begun = Instant::now();
        while held(&target.stores).await < whole * part / 8 && child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(120), "the copy does not come on");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // Waits for requests that the server still processes.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = held(&target.stores).await;
        assert!(now >= before && now <= whole, "{before} {now} {whole}");
        midway += u32::from(ended.is_none() && now > before && now < whole);
        before = now;
    }
    assert!(midway >= 2, "only {midway} kills met a copy midway");
    let output = command().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let contracts: Vec<Contract> =
        shared(&source.stores, &target.stores).into_iter().filter(|c| contracts.contains(c)).collect();
    let original = everything(&source.stores, &contracts).await;
    assert_eq!(original.messages.len(), THREADS * MESSAGES);
    assert_same(original, everything(&target.stores, &contracts).await);
    let output = command().output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().matches(" 0 written").count(), 4);
    target.remove().await;
}
