//! Round trips and bytes of each call. They decide the speed of a call to a distant server or on a long
//! thread, and they need no clock. Without a server, its tests are ignored; with `LARDER_SERVICES=required`
//! they fail.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use larder::Stores;
use larder_kernel::{BucketName, ChatMessage, HistoryProviderExt, Key, KeyValueStoreExt, Namespace, Thread};
use libtest_mimic::Arguments;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::trial::{trial, url};

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let trials =
        [("postgres", "LARDER_POSTGRES_URL"), ("redis", "LARDER_REDIS_URL")].map(|(name, variable)| {
            let name = format!("{name}::a_call_asks_once_however_long_the_thread");
            trial(&name, variable, move || one_each(variable))
        });
    crate::groups::run("round_trips", arguments, trials.into())
}

/// The traffic of a relay.
#[derive(Default)]
struct Traffic {
    /// Times that a client sent data after its server had.
    asked: AtomicU64,
    /// Bytes that the server sent.
    answered: AtomicU64,
}

impl Traffic {
    /// Returns the round trips of the call, and the bytes that the server sent.
    async fn of<T>(&self, call: impl Future<Output = larder_kernel::Result<T>>) -> (u64, u64) {
        let now = || (self.asked.load(Ordering::SeqCst), self.answered.load(Ordering::SeqCst));
        let before = now();
        call.await.unwrap();
        let after = now();
        (after.0 - before.0, after.1 - before.1)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Speaker {
    Client,
    Server,
}

/// Returns the port of a relay to the server at the address.
async fn relay(server: String, traffic: Arc<Traffic>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let spoke = Arc::new(Mutex::new(Speaker::Server));
            let (spoke_too, traffic_too) = (Arc::clone(&spoke), Arc::clone(&traffic));
            tokio::spawn(pass_on(Speaker::Client, from_client, to_server, spoke_too, traffic_too));
            tokio::spawn(pass_on(Speaker::Server, from_server, to_client, spoke, Arc::clone(&traffic)));
        }
    });
    port
}

async fn pass_on(
    speaker: Speaker,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    spoke: Arc<Mutex<Speaker>>,
    traffic: Arc<Traffic>,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let before = std::mem::replace(&mut *spoke.lock().unwrap(), speaker);
        match speaker {
            Speaker::Client if before == Speaker::Server => traffic.asked.fetch_add(1, Ordering::SeqCst),
            Speaker::Client => 0,
            Speaker::Server => traffic.answered.fetch_add(u64::try_from(read).unwrap(), Ordering::SeqCst),
        };
        if to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

async fn one_each(variable: &str) {
    const KIB: u64 = 1_024;
    let (url, traffic) = (url(variable), Arc::new(Traffic::default()));
    let place = url.rsplit_once('@').unwrap().1.split_once('/').unwrap().0;
    let port = relay(place.to_owned(), Arc::clone(&traffic)).await;
    let url = url.replace(place, &format!("127.0.0.1:{port}"));
    let namespace = Namespace::new(format!("round-trips-{}", std::process::id())).unwrap();
    let stores = Stores::builder().namespace(namespace);
    let stores = stores.history_url(&url).key_value_url(&url).open().await.unwrap();
    let (history, values) = (stores.set().history().unwrap(), stores.set().key_value().unwrap());
    let thread = Thread::new("a", "s").unwrap();
    let message = || ChatMessage::user("x".repeat(1_000));
    for _ in 0..20 {
        history
            .append_many(&thread, (0..100).map(|_| message()).collect(), Default::default())
            .await
            .unwrap();
    }
    let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
    // The first call of each kind may prepare a statement or load a script.
    for _ in 0..2 {
        history.append(&thread, message()).await.unwrap();
        history.tail(&thread, None, 50).await.unwrap();
        values.set(&bucket, &key, "value".into()).await.unwrap();
        values.get(&bucket, &key).await.unwrap();
    }
    // A call sometimes needs one more round trip: expired threads are swept after a write, on another
    // connection.
    let mut quiet = 0;
    for _ in 0..10 {
        let calls = [
            traffic.of(history.append(&thread, message())).await,
            traffic.of(history.tail(&thread, None, 50)).await,
            traffic.of(values.set(&bucket, &key, "value".into())).await,
            traffic.of(values.get(&bucket, &key)).await,
        ];
        let bytes_max = [KIB, 50 * 2 * KIB, KIB, KIB];
        let once = |((asked, answered), bytes_max): (&(u64, u64), &u64)| *asked == 1 && answered < bytes_max;
        quiet += u32::from(calls.iter().zip(&bytes_max).all(once));
    }
    assert!(quiet >= 8, "{quiet} of 10 rounds asked once for each call");
    stores.erase().await.unwrap();
}
