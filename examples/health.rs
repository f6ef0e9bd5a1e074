//! Serves `/livez` and `/readyz` for Kubernetes probes: `cargo run --example health -- sqlite:./larder.db
//! 127.0.0.1:8080`. In your own program, add the two handlers as routes of its HTTP server.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use larder::Stores;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time limit of a readiness check for the stores. It must be shorter than the orchestrator's probe
/// timeout.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size of a request head, in bytes.
const HEAD_BYTES_MAX: usize = 8_192;

/// Returns whether the program should keep running. It does no I/O.
fn livez(stores: &Stores) -> (u16, String) {
    if stores.is_live() {
        (200, r#"{"live":true}"#.to_owned())
    } else {
        (500, r#"{"live":false}"#.to_owned())
    }
}

/// Returns whether the program should receive work. It sends a request to every store.
async fn readyz(stores: &Stores) -> (u16, String) {
    let health = stores.health(TIMEOUT).await;
    let body = serde_json::to_string(&health).unwrap_or_default();
    (if health.is_ready() { 200 } else { 503 }, body)
}

fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n")
}

/// Reads a request up to the empty line that ends its head. A server that responds earlier closes the
/// connection with unread bytes; the kernel then resets it, and the client may lose the response.
async fn head_of(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !is_whole(&head) && head.len() < HEAD_BYTES_MAX {
        let read = stream.read_buf(&mut head).await?;
        if read == 0 {
            break;
        }
    }
    Ok(head)
}

async fn serve(mut stream: TcpStream, stores: Stores) -> std::io::Result<()> {
    let (status, body) = match tokio::time::timeout(TIMEOUT, head_of(&mut stream)).await?? {
        head if !is_whole(&head) => (400, String::new()),
        head if head.starts_with(b"GET /livez ") => livez(&stores),
        head if head.starts_with(b"GET /readyz ") => readyz(&stores).await,
        _ => (404, String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// Returns when a line is read. Without a terminal, the program serves until it is killed.
async fn entered() {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    if !matches!(read.await, Ok(Ok(1..))) {
        std::future::pending::<()>().await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    let stores = larder::open(&url).await?;
    let listener = TcpListener::bind(arguments.next().as_deref().unwrap_or("127.0.0.1:8080")).await?;
    println!("serving on http://{}; Enter stops it", listener.local_addr()?);
    let mut stop = std::pin::pin!(entered());
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = &mut stop => break,
        };
        let stores = stores.clone();
        tokio::spawn(async move {
            // A client that disconnected needs no response.
            let _ = serve(stream, stores).await;
        });
    }
    stores.close().await;
    Ok(())
}
