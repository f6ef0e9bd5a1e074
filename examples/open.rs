//! Opens a history from a URL and uses it: `cargo run --example open -- sqlite:./agent.db`.
#![allow(clippy::print_stdout)]

use larder::prelude::*;

#[tokio::main]
async fn main() -> larder::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let stores = larder::open(&url).await?;
    let history = stores.history()?;
    let thread = Thread::new("assistant", "session-1")?;
    history.append(&thread, ChatMessage::user("Hello")).await?;
    for message in history.tail(&thread, 20).await? {
        println!("{}", message.text());
    }
    stores.close().await;
    Ok(())
}
