//! A relay between a store and its server that can fall silent: connections stay open, and no data passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, Default)]
struct Gate {
    silent: bool,
    /// Connections with a smaller number stay silent.
    alive_from: u64,
}

#[derive(Clone, Copy)]
enum Way {
    Up,
    Down,
}

struct Shared {
    gate: watch::Sender<Gate>,
    made: AtomicU64,
    /// Bytes that still pass in each direction before the relay falls silent.
    left: [AtomicI64; 2],
}

/// A port that leads to a server.
pub(crate) struct Relay {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl Relay {
    /// Starts a relay to a server at `host:port`.
    pub(crate) async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            gate: watch::Sender::default(),
            made: AtomicU64::new(0),
            left: [AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX)],
        });
        let listening = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, shared) = (server.clone(), Arc::clone(&listening));
                tokio::spawn(connect(client, server, shared));
            }
        });
        Self { port, shared }
    }

    /// Stops all data from now on.
    pub(crate) fn fall_silent(&self) {
        self.shared.gate.send_modify(|gate| gate.silent = true);
    }

    /// Stops all data once the server has sent this number of further bytes.
    pub(crate) fn fall_silent_after_replies(&self, bytes: i64) {
        self.shared.left[Way::Down as usize].store(bytes, Ordering::SeqCst);
    }

    /// Stops all data once the server has received this number of further bytes.
    pub(crate) fn fall_silent_after_requests(&self, bytes: i64) {
        self.shared.left[Way::Up as usize].store(bytes, Ordering::SeqCst);
    }

    /// Passes all data again, the held data first.
    pub(crate) fn speak(&self) {
        for left in &self.shared.left {
            left.store(i64::MAX, Ordering::SeqCst);
        }
        self.shared.gate.send_modify(|gate| gate.silent = false);
    }

    /// Passes data on new connections; existing connections stay silent forever.
    pub(crate) fn speak_to_new_connections(&self) {
        let made = self.shared.made.load(Ordering::SeqCst);
        self.shared.gate.send_modify(|gate| *gate = Gate { silent: false, alive_from: made });
    }
}

async fn connect(client: TcpStream, server: String, shared: Arc<Shared>) {
    let number = shared.made.fetch_add(1, Ordering::SeqCst);
    let server = TcpStream::connect(server).await.unwrap();
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::spawn(pass(from_client, to_server, Arc::clone(&shared), number, Way::Up));
    tokio::spawn(pass(from_server, to_client, shared, number, Way::Down));
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: Arc<Shared>, number: u64, way: Way) {
    let mut buffer = vec![0; 16 * 1024];
    let mut gate = shared.gate.subscribe();
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let bytes = i64::try_from(read).unwrap();
        if shared.left[way as usize].fetch_sub(bytes, Ordering::SeqCst) < bytes {
            shared.gate.send_modify(|gate| gate.silent = true);
        }
        let open = gate.wait_for(|gate| !gate.silent && gate.alive_from <= number).await.is_ok();
        if !open || read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
