//! Tests with a server that greets, replies to every ping, and counts connections and pings.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use larder_kernel::ErrorKind;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::postgres::engine::probe::Prober;

#[derive(Default)]
struct Server {
    port: u16,
    connections: AtomicUsize,
    open: AtomicUsize,
    pings: AtomicUsize,
    silent: AtomicBool,
    /// The number of connections that the server grants at the same time, if it has a limit.
    granted: AtomicUsize,
    refused: AtomicUsize,
    /// The number of next connections that get no greeting.
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
        let granted = self.granted.load(Ordering::SeqCst);
        if granted > 0 && self.open.load(Ordering::SeqCst) > granted {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return client.write_all(b"E\0\0\0\x1cSFATAL\0VFATAL\0C53300\0Mx\0\0").await;
        }
        // Login accepted; cancellation key; ready.
        client.write_all(b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x01Z\0\0\0\x05I").await?;
        loop {
            let kind = client.read_u8().await?;
            let length = client.read_u32().await?;
            client.read_exact(&mut vec![0; usize::try_from(length - 4).unwrap()]).await?;
            match kind {
                b'X' => return Ok(()),
                _ if self.silent.load(Ordering::SeqCst) => {}
                _ => {
                    self.pings.fetch_add(1, Ordering::SeqCst);
                    client.write_all(b"Z\0\0\0\x05I").await?;
                }
            }
        }
    }

    fn pool(&self, size: u32) -> Arc<IdlePool> {
        self.pool_with_timeout(size, Duration::from_secs(10))
    }

    fn pool_with_timeout(&self, size: u32, acquire_timeout: Duration) -> Arc<IdlePool> {
        let connect = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port)
            .username("u")
            .ssl_mode(PgSslMode::Disable)
            .disable_statement_logging();
        Arc::new(IdlePool::new(connect, size, acquire_timeout))
    }

    fn counts(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.pings.load(Ordering::SeqCst))
    }

    /// Waits until the server sees this many open connections.
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

/// Makes idle connections look as if they had been idle for this much longer.
fn age(pool: &IdlePool, by: Duration) {
    for idle in &mut pool.lock().idle {
        idle.since = idle.since.checked_sub(by).unwrap();
    }
}

#[tokio::test]
async fn a_released_connection_serves_the_next_call_without_a_ping() {
    let server = Server::start().await;
    let pool = server.pool(2);
    for _ in 0..10 {
        let (connection, permit) = pool.acquire().await.unwrap();
        pool.release(connection, permit);
    }
    assert_eq!(server.counts(), (1, 0));
    age(&pool, PING_AFTER);
    let (connection, permit) = pool.acquire().await.unwrap();
    assert_eq!(server.counts(), (1, 1), "a connection that was idle for long is pinged");
    pool.release(connection, permit);
    pool.close().await;
    server.sees_open(0).await;
}

#[tokio::test]
async fn a_silent_connection_is_replaced_in_time_with_all_idle_ones() {
    let server = Server::start().await;
    let pool = server.pool(2);
    let (one, other) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    pool.release(one.0, one.1);
    pool.release(other.0, other.1);
    age(&pool, PING_AFTER);
    server.silent.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let (connection, permit) = pool.acquire().await.unwrap();
    assert!(begun.elapsed() < 2 * PING_TIMEOUT, "{:?}", begun.elapsed());
    assert_eq!(server.counts(), (3, 0));
    assert!(pool.lock().idle.is_empty());
    // Neither keeps its permit.
    server.sees_open(1).await;
    let second = pool.acquire().await.unwrap();
    pool.release(connection, permit);
    pool.release(second.0, second.1);
}

#[tokio::test]
async fn a_connection_attempt_without_a_reply_is_followed_by_another() {
    const WAITS: Duration = Duration::from_millis(1_400);
    let server = Server::start().await;
    let pool = server.pool_with_timeout(1, WAITS);
    server.ignored.store(2, Ordering::SeqCst);
    let (connection, permit) = pool.acquire().await.unwrap();
    assert_eq!(server.counts(), (3, 0));
    pool.release(connection, permit);
    pool.close_idle();
    server.ignored.store(10, Ordering::SeqCst);
    let begun = Instant::now();
    assert!(matches!(pool.acquire().await, Err(NoConnection::Silent)));
    assert!(begun.elapsed() < 3 * WAITS, "{:?}", begun.elapsed());
    server.ignored.store(0, Ordering::SeqCst);
    // None of them keeps its permit.
    let (connection, permit) = pool.acquire().await.unwrap();
    pool.release(connection, permit);
}

#[tokio::test]
async fn a_call_that_waits_behind_unanswered_attempts_reports_an_unreachable_server() {
    let server = Server::start().await;
    let pool = server.pool_with_timeout(1, Duration::from_millis(700));
    let (connection, permit) = pool.acquire().await.unwrap();
    pool.release(connection, permit);
    let prober = Prober::new(pool.connect.clone());
    let busy = || Error::new(ErrorKind::ResourceExhausted, "x", "busy");
    assert_eq!(prober.judge("x", busy()).await.kind(), ErrorKind::ResourceExhausted);
    pool.close_idle();
    server.ignored.store(1_000, Ordering::SeqCst);
    // One tries to connect. Of those behind it, one gets its permit, and then the last waits in vain.
    let calls = [0, 100, 200].map(|millis| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            pool.acquire().await.map(drop)
        })
    });
    for call in calls {
        let acquired = call.await.unwrap();
        assert!(matches!(acquired, Err(NoConnection::Silent | NoConnection::Busy)), "{acquired:?}");
    }
    let error = prober.judge("x", busy()).await;
    assert!(error.is_retryable() && error.kind() == ErrorKind::Unavailable, "{error}");
    server.ignored.store(0, Ordering::SeqCst);
    let (connection, permit) = pool.acquire().await.unwrap();
    pool.release(connection, permit);
}

/// Once, a call whose connection was refused repeated the attempt until its time limit, and never took a
/// connection that came back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_share_the_connections_that_the_server_grants() {
    let server = Server::start().await;
    server.granted.store(2, Ordering::SeqCst);
    let pool = server.pool_with_timeout(10, Duration::from_secs(10));
    let mut calls = tokio::task::JoinSet::new();
    let begun = Instant::now();
    for caller in 0..24 {
        let pool = Arc::clone(&pool);
        calls.spawn(async move {
            let mut served = 0;
            while begun.elapsed() < Duration::from_secs(3) {
                let (connection, permit) = pool.acquire().await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
                pool.release(connection, permit);
                served += 1;
            }
            (caller, served)
        });
    }
    let served: Vec<u32> = calls.join_all().await.into_iter().map(|(_, served)| served).collect();
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    assert!(*least > 10 && most / least < 3, "unfair: {served:?}");
    let refused = server.refused.load(Ordering::SeqCst);
    assert!(refused < 24, "{refused} attempts for nothing");
    assert_eq!(server.open.load(Ordering::SeqCst), 2);
    // The server grants more again.
    server.granted.store(0, Ordering::SeqCst);
    tokio::time::sleep(GROWTH_PAUSE).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(pool.acquire().await.unwrap());
    }
    assert_eq!(server.open.load(Ordering::SeqCst), 10);
    held.into_iter().for_each(|(connection, permit)| pool.release(connection, permit));
}

#[tokio::test]
async fn a_server_without_any_free_connection_is_named_and_used_when_it_has_one() {
    const WAITS: Duration = Duration::from_millis(700);
    let server = Server::start().await;
    server.granted.store(1, Ordering::SeqCst);
    let other = server.pool(1);
    let taken = other.acquire().await.unwrap();
    let pool = server.pool_with_timeout(3, WAITS);
    let calls = [(); 6].map(|()| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pool.acquire().await.map(drop) })
    });
    let begun = Instant::now();
    for call in calls {
        let Err(NoConnection::Refused(error)) = call.await.unwrap() else { panic!("not refused") };
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert!(error.message().contains("refused a new connection"), "{error}");
    }
    assert!(begun.elapsed() < 3 * WAITS, "{:?}", begun.elapsed());
    let waiting = {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pool.acquire().await.map(drop) })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    taken.0.close();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_call_dropped_at_any_point_releases_its_permit_of_the_pool() {
    let server = Server::start().await;
    let pool = server.pool(1);
    let (connection, permit) = pool.acquire().await.unwrap();
    pool.release(connection, permit);
    // While the ping is in progress.
    age(&pool, PING_AFTER);
    server.silent.store(true, Ordering::SeqCst);
    assert!(tokio::time::timeout(Duration::from_millis(50), pool.acquire()).await.is_err());
    server.silent.store(false, Ordering::SeqCst);
    server.sees_open(0).await;
    // While it is connecting, at several points.
    for micros in (0..2_000).step_by(100) {
        let acquired = tokio::time::timeout(Duration::from_micros(micros), pool.acquire()).await;
        if let Ok(Ok((connection, _permit))) = acquired {
            connection.close();
        }
    }
    let (connection, _permit) = pool.acquire().await.unwrap();
    // While it waits for the only permit.
    assert!(tokio::time::timeout(Duration::from_millis(50), pool.acquire()).await.is_err());
    connection.close();
    drop(_permit);
    let (connection, permit) = pool.acquire().await.unwrap();
    pool.release(connection, permit);
    server.sees_open(1).await;
}

#[tokio::test]
async fn a_full_pool_makes_a_call_wait_for_a_limited_time() {
    const WAITS: Duration = Duration::from_secs(1);
    let server = Server::start().await;
    let pool = server.pool_with_timeout(1, WAITS);
    let (connection, permit) = pool.acquire().await.unwrap();
    let begun = Instant::now();
    assert!(matches!(pool.acquire().await, Err(NoConnection::Busy)));
    assert!((WAITS * 9 / 10..WAITS * 4).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let waiting = {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pool.acquire().await.map(drop) })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    pool.release(connection, permit);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn closing_fails_waiting_calls_and_closes_connections_released_later() {
    let server = Server::start().await;
    let pool = server.pool(1);
    let (connection, permit) = pool.acquire().await.unwrap();
    let waiting = {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pool.acquire().await.map(drop) })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    let closing = {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pool.close().await })
    };
    assert!(matches!(waiting.await.unwrap(), Err(NoConnection::Closed)));
    assert!(!closing.is_finished(), "a connection is in use");
    pool.release(connection, permit);
    tokio::time::timeout(Duration::from_secs(5), closing).await.unwrap().unwrap();
    assert!(matches!(pool.acquire().await, Err(NoConnection::Closed)));
    assert!(pool.lock().idle.is_empty());
    server.sees_open(0).await;
}

#[test]
fn the_pool_may_be_dropped_after_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pool = runtime.block_on(async {
        let server = Server::start().await;
        let pool = server.pool(1);
        let (connection, permit) = pool.acquire().await.unwrap();
        pool.release(connection, permit);
        pool
    });
    drop(runtime);
    drop(pool);
}
