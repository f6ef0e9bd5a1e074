//! A conversation, a claimed task, a counter and a file on any backend: `cargo run --example session -- sqlite:./larder.db`.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use larder_capabilities::Stores;
use larder_kernel::{
    BlobKey, BlobStoreExt, BoardId, BucketName, ChatMessage, HistoryProviderExt, Key, KeyValueStoreExt,
    Namespace, NewBoard, NewTask, TaskId, TaskStatus, Thread, Transition, WorkerId,
};

#[tokio::main]
async fn main() -> larder_kernel::Result<()> {
    let urls = std::env::args().skip(1).fold(Stores::builder(), |builder, url| builder.url(url));
    let stores = urls.namespace(Namespace::new("example")?).connect().await?;

    let (history, thread) = (stores.history()?, Thread::new("assistant", "session-1")?);
    history.append(&thread, ChatMessage::user("Book the 9:14 to Basel")).await?;

    let (tasks, board) = (stores.tasks()?, BoardId::new("session-1", "assistant")?);
    let book = NewTask::new(TaskId::new("book")?, "Book the train");
    tasks.create_task_list(&board, NewBoard::new(vec![book])).await?;
    if let Some(claim) = tasks.claim(&board, &WorkerId::new("worker-1")?, Duration::from_secs(30)).await? {
        let ticket = BlobKey::new("tickets/basel.txt")?;
        stores.blobs()?.put_bytes(&ticket, "Seat 61".into()).await?;
        stores.key_value()?.create(&BucketName::new("trips")?, &Key::new("basel")?, "booked".into()).await?;
        let done = Transition::to(TaskStatus::Succeeded).with_token(claim.token).with_result("Seat 61");
        tasks.update_status(&board, &claim.task.id, done).await?;
    }
    history.append(&thread, ChatMessage::assistant("Booked, seat 61")).await?;
    println!("{} messages, {:?}", history.count_messages(&thread).await?, stores.contracts());
    stores.erase().await
}
