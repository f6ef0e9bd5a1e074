//! Opens a store from a URL and uses it: `cargo run --example open -- sqlite:./larder.db`.
#![allow(clippy::print_stdout)]

use larder_capabilities::Stores;
use larder_kernel::{ChatMessage, HistoryProviderExt, Thread};

#[tokio::main]
async fn main() -> larder_kernel::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let stores = Stores::connect(&url).await?;
    let (history, thread) = (stores.history()?, Thread::new("assistant", "session-1")?);
    history.append(&thread, ChatMessage::user("What did I ask last time?")).await?;
    for stored in history.last_messages(&thread, 3).await? {
        println!("{}: {}", stored.seq, stored.message.text);
    }
    Ok(())
}
