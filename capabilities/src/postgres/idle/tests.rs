//! Over a server that greets, says that it is ready whenever it is asked, and counts.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicUsize;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

#[derive(Default)]
struct Server {
    port: u16,
    connections: AtomicUsize,
    open: AtomicUsize,
    questions: AtomicUsize,
    silent: AtomicBool,
    /// So many of the next connections are not greeted.
    ignored: AtomicUsize,
}

impl Server {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self { port: listener.local_addr().unwrap().port(), ..Self::default() });
        let listening = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = Arc::clone(&listening);
                tokio::spawn(async move {
                    server.connections.fetch_add(1, Ordering::SeqCst);
                    server.open.fetch_add(1, Ordering::SeqCst);
                    let _ = server.serve(client).await;
                    server.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    async fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let length = client.read_u32().await?;
        client.read_exact(&mut vec![0; usize::try_from(length - 4).unwrap()]).await?;
        let ignored = |left: usize| left.checked_sub(1);
        if self.ignored.fetch_update(Ordering::SeqCst, Ordering::SeqCst, ignored).is_ok() {
            return client.read_u8().await.map(drop);
        }
        // The login is right; a key to cancel with; ready.
        client.write_all(b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x01Z\0\0\0\x05I").await?;
        loop {
            let kind = client.read_u8().await?;
            let length = client.read_u32().await?;
            client.read_exact(&mut vec![0; usize::try_from(length - 4).unwrap()]).await?;
            match kind {
                b'X' => return Ok(()),
                _ if self.silent.load(Ordering::SeqCst) => {}
                _ => {
                    self.questions.fetch_add(1, Ordering::SeqCst);
                    client.write_all(b"Z\0\0\0\x05I").await?;
                }
            }
        }
    }

    fn idle(&self, most: u32) -> Arc<Idle> {
        self.idle_that_waits(most, Duration::from_secs(10))
    }

    fn idle_that_waits(&self, most: u32, acquire_timeout: Duration) -> Arc<Idle> {
        let connect = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port)
            .username("u")
            .ssl_mode(PgSslMode::Disable)
            .disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(acquire_timeout)
            .test_before_acquire(false)
            .connect_lazy_with(connect);
        Arc::new(Idle::new(pool))
    }

    fn counted(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.questions.load(Ordering::SeqCst))
    }

    /// Waits until the server sees so many connections open.
    async fn sees_open(&self, wanted: usize) {
        for _ in 0..400 {
            if self.open.load(Ordering::SeqCst) == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(self.open.load(Ordering::SeqCst), wanted);
    }
}

/// Makes all that rests look as if it had rested for so much longer.
fn age(idle: &Idle, by: Duration) {
    for resting in &mut idle.lock().connections {
        resting.since = resting.since.checked_sub(by).unwrap();
    }
}

#[tokio::test]
async fn what_is_kept_serves_the_next_call_without_a_question() {
    let server = Server::start().await;
    let idle = server.idle(2);
    for _ in 0..10 {
        let (held, permit) = idle.take().await.unwrap();
        idle.keep(held, permit);
    }
    assert_eq!(server.counted(), (1, 0));
    age(&idle, IDLE_MAX);
    let (held, permit) = idle.take().await.unwrap();
    assert_eq!(server.counted(), (1, 1), "one that lay idle for long is asked");
    idle.keep(held, permit);
    idle.close().await;
    server.sees_open(0).await;
}

#[tokio::test]
async fn one_that_does_not_answer_is_replaced_in_time_and_the_rest_with_it() {
    let server = Server::start().await;
    let idle = server.idle(2);
    let (one, other) = (idle.take().await.unwrap(), idle.take().await.unwrap());
    idle.keep(one.0, one.1);
    idle.keep(other.0, other.1);
    age(&idle, IDLE_MAX);
    server.silent.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let (held, permit) = idle.take().await.unwrap();
    assert!(begun.elapsed() < 2 * PING_MAX, "{:?}", begun.elapsed());
    assert_eq!(server.counted(), (3, 0));
    assert!(idle.lock().connections.is_empty());
    // Neither holds its place in the pool.
    server.sees_open(1).await;
    let second = idle.take().await.unwrap();
    idle.keep(held, permit);
    idle.keep(second.0, second.1);
}

#[tokio::test]
async fn an_attempt_to_connect_that_nobody_answers_is_followed_by_another() {
    const WAITS: Duration = Duration::from_millis(1_400);
    let server = Server::start().await;
    let idle = server.idle_that_waits(1, WAITS);
    server.ignored.store(2, Ordering::SeqCst);
    let (held, permit) = idle.take().await.unwrap();
    assert_eq!(server.counted(), (3, 0));
    idle.keep(held, permit);
    idle.doubt();
    server.ignored.store(10, Ordering::SeqCst);
    let begun = Instant::now();
    assert!(matches!(idle.take().await, Err(sqlx::Error::PoolTimedOut)));
    assert!(begun.elapsed() < 3 * WAITS, "{:?}", begun.elapsed());
    server.ignored.store(0, Ordering::SeqCst);
    // None of them holds its place in the pool.
    let (held, permit) = idle.take().await.unwrap();
    idle.keep(held, permit);
}

#[tokio::test]
async fn behind_those_that_nobody_answers_the_server_is_missing_and_not_a_place() {
    let server = Server::start().await;
    let idle = server.idle_that_waits(1, Duration::from_millis(700));
    let (held, permit) = idle.take().await.unwrap();
    idle.keep(held, permit);
    assert!(!idle.is_unanswered());
    idle.doubt();
    server.ignored.store(1_000, Ordering::SeqCst);
    // One tries to connect; of those behind it, one gets its place, and then the last waits for a place in vain.
    let calls = [0, 100, 200].map(|millis| {
        let idle = Arc::clone(&idle);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            let taken = idle.take().await.map(drop);
            (taken, idle.is_unanswered())
        })
    });
    for call in calls {
        let (taken, unanswered) = call.await.unwrap();
        assert!(matches!(taken, Err(sqlx::Error::PoolTimedOut)), "{taken:?}");
        assert!(unanswered);
    }
    server.ignored.store(0, Ordering::SeqCst);
    let (held, permit) = idle.take().await.unwrap();
    assert!(!idle.is_unanswered());
    idle.keep(held, permit);
}

#[tokio::test]
async fn a_call_given_up_at_any_point_gives_its_place_back() {
    let server = Server::start().await;
    let idle = server.idle(1);
    let (held, permit) = idle.take().await.unwrap();
    idle.keep(held, permit);
    // While the question is on its way.
    age(&idle, IDLE_MAX);
    server.silent.store(true, Ordering::SeqCst);
    assert!(tokio::time::timeout(Duration::from_millis(50), idle.take()).await.is_err());
    server.silent.store(false, Ordering::SeqCst);
    server.sees_open(0).await;
    // While it is connecting, at several points.
    for micros in (0..2_000).step_by(100) {
        let taken = tokio::time::timeout(Duration::from_micros(micros), idle.take()).await;
        if let Ok(Ok((held, _permit))) = taken {
            held.end();
        }
    }
    let (held, _permit) = idle.take().await.unwrap();
    // While it waits for the only place.
    assert!(tokio::time::timeout(Duration::from_millis(50), idle.take()).await.is_err());
    held.end();
    drop(_permit);
    let (held, permit) = idle.take().await.unwrap();
    idle.keep(held, permit);
    server.sees_open(1).await;
}

#[tokio::test]
async fn at_its_size_a_call_waits_for_a_place_and_not_for_ever() {
    const WAITS: Duration = Duration::from_secs(1);
    let server = Server::start().await;
    let idle = server.idle_that_waits(1, WAITS);
    let (held, permit) = idle.take().await.unwrap();
    assert!(!idle.is_unanswered());
    let begun = Instant::now();
    assert!(matches!(idle.take().await, Err(sqlx::Error::PoolTimedOut)));
    assert!((WAITS * 9 / 10..WAITS * 4).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let waiting = {
        let idle = Arc::clone(&idle);
        tokio::spawn(async move { idle.take().await.map(drop) })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    idle.keep(held, permit);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn closing_tells_who_waits_and_ends_what_is_brought_back_later() {
    let server = Server::start().await;
    let idle = server.idle(1);
    let (held, permit) = idle.take().await.unwrap();
    let waiting = {
        let idle = Arc::clone(&idle);
        tokio::spawn(async move { idle.take().await.map(drop) })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    let closing = {
        let idle = Arc::clone(&idle);
        tokio::spawn(async move { idle.close().await })
    };
    assert!(matches!(waiting.await.unwrap(), Err(sqlx::Error::PoolClosed)));
    assert!(!closing.is_finished(), "a connection is in use");
    idle.keep(held, permit);
    tokio::time::timeout(Duration::from_secs(5), closing).await.unwrap().unwrap();
    assert!(matches!(idle.take().await, Err(sqlx::Error::PoolClosed)));
    assert!(idle.lock().connections.is_empty());
    server.sees_open(0).await;
}

#[test]
fn it_may_be_dropped_after_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let idle = runtime.block_on(async {
        let server = Server::start().await;
        let idle = server.idle(1);
        let (held, permit) = idle.take().await.unwrap();
        idle.keep(held, permit);
        idle
    });
    drop(runtime);
    drop(idle);
}
