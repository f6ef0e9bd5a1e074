//! Uses a conversation, a claimed task, a counter and a blob on any backend: `cargo run --example session --
//! sqlite:./larder.db`.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use larder::prelude::*;

#[tokio::main]
async fn main() -> larder::Result<()> {
    let urls = std::env::args().skip(1).fold(Stores::builder(), |builder, url| builder.url(url));
    let stores = urls.namespace(Namespace::new("example")?).open().await?;

    let (history, thread) = (stores.history()?, Thread::new("assistant", "session-1")?);
    history.append(&thread, ChatMessage::user("Book the 9:14 to Basel")).await?;

    let (tasks, board) = (stores.tasks()?, BoardId::new("session-1", "assistant")?);
    tasks.ensure_board(&board).await?;
    tasks.add(&board, "book", "Book the train").await?;
    if let Some(claim) = tasks.claim(&board, "worker-1", Duration::from_secs(30)).await? {
        stores.blobs()?.put("tickets/basel.txt", "Seat 61").await?;
        stores.key_value()?.set("trips", "basel", "booked").await?;
        tasks.succeed(&board, &claim, "seat 61").await?;
    }
    history.append(&thread, ChatMessage::assistant("Booked, seat 61")).await?;
    println!("{} messages, {:?}", history.count(&thread).await?, stores.contracts());
    stores.erase().await?;
    stores.close().await;
    Ok(())
}
