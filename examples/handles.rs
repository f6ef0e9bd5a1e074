//! One program for each handle, on any backend that has its contract: `cargo run --example handles -- tasks
//! sqlite:./agent.db`.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use larder::prelude::*;

async fn history(url: &str) -> larder::Result<()> {
    let stores = larder::open(url).await?;
    let history = stores.history()?;
    let thread = Thread::new("assistant", "session-1")?;
    history.append(&thread, ChatMessage::user("Hello")).await?;
    for message in history.tail(&thread, 20).await? {
        println!("{}", message.text());
    }
    stores.close().await;
    Ok(())
}

async fn vectors(url: &str) -> larder::Result<()> {
    let stores = larder::open(url).await?;
    let vectors = stores.vectors()?;
    vectors.put("notes", "tea", "Green tea, no sugar", [1.0, 0.1]).await?;
    vectors.put("notes", "train", "The 9:14 to Basel", [0.0, 1.0]).await?;
    for hit in vectors.search("notes", [1.0, 0.0], 1).await? {
        println!("{}", hit.content);
    }
    stores.close().await;
    Ok(())
}

async fn graph(url: &str) -> larder::Result<()> {
    let stores = larder::open(url).await?;
    let graph = stores.graph()?;
    graph.put("ada", "person").await?;
    graph.put("larder", "project").await?;
    graph.relate("ada-larder", "ada", "maintains", "larder").await?;
    for reached in graph.neighbors("ada", 1).await?.entities {
        println!("{} at {}", reached.entity.id, reached.hops);
    }
    stores.close().await;
    Ok(())
}

async fn blobs(url: &str) -> larder::Result<()> {
    let stores = larder::open(url).await?;
    let blobs = stores.blobs()?;
    blobs.put("tickets/basel.txt", "Seat 61").await?;
    for blob in blobs.list("tickets/").await? {
        println!("{}: {:?}", blob.key, blobs.get(blob.key.clone()).await?);
    }
    stores.close().await;
    Ok(())
}

async fn tasks(url: &str) -> larder::Result<()> {
    let stores = larder::open(url).await?;
    let tasks = stores.tasks()?;
    let board = BoardId::new("session-1", "assistant")?;
    if tasks.ensure_board(&board).await? {
        tasks.add(&board, "book", "Book the train").await?;
    }
    while let Some(claim) = tasks.claim(&board, "worker-1", Duration::from_secs(30)).await? {
        println!("{}", tasks.succeed(&board, &claim, "Seat 61").await?.title);
    }
    stores.close().await;
    Ok(())
}

async fn key_value(url: &str) -> larder::Result<()> {
    let stores = larder::open(url).await?;
    let key_value = stores.key_value()?;
    key_value.set("trips", "basel", "booked").await?;
    if let Some(value) = key_value.get("trips", "basel").await? {
        println!("{value:?}");
    }
    stores.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> larder::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let handle = arguments.next().unwrap_or_else(|| "history".to_owned());
    let url = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    match handle.as_str() {
        "vectors" => vectors(&url).await,
        "graph" => graph(&url).await,
        "blobs" => blobs(&url).await,
        "tasks" => tasks(&url).await,
        "key_value" => key_value(&url).await,
        _ => history(&url).await,
    }
}
