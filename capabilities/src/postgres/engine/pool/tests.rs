//! Tests with a server that greets, replies to every ping, and counts connections and pings.

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
    pings: AtomicUsize,
    silent: AtomicBool,
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
        let pool = PgPoolOptions::new()
            .max_connections(size)
            .acquire_timeout(acquire_timeout)
            .test_before_acquire(false)
            .connect_lazy_with(connect);
        Arc::new(IdlePool::new(pool))
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
async fn a_connection_that_does_not_answer_is_replaced_in_time_with_all_idle_ones() {
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
async fn an_attempt_to_connect_that_gets_no_answer_is_followed_by_another() {
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
    assert!(matches!(pool.acquire().await, Err(sqlx::Error::PoolTimedOut)));
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
    assert!(!pool.is_unreachable());
    pool.close_idle();
    server.ignored.store(1_000, Ordering::SeqCst);
    // One tries to connect. Of those behind it, one gets its permit, and then the last waits in vain.
    let calls = [0, 100, 200].map(|millis| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            let acquired = pool.acquire().await.map(drop);
            (acquired, pool.is_unreachable())
        })
    });
    for call in calls {
        let (acquired, unreachable) = call.await.unwrap();
        assert!(matches!(acquired, Err(sqlx::Error::PoolTimedOut)), "{acquired:?}");
        assert!(unreachable);
    }
    server.ignored.store(0, Ordering::SeqCst);
    let (connection, permit) = pool.acquire().await.unwrap();
    assert!(!pool.is_unreachable());
    pool.release(connection, permit);
}

#[tokio::test]
async fn a_call_dropped_at_any_point_releases_its_place_in_the_pool() {
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
    assert!(!pool.is_unreachable());
    let begun = Instant::now();
    assert!(matches!(pool.acquire().await, Err(sqlx::Error::PoolTimedOut)));
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
    assert!(matches!(waiting.await.unwrap(), Err(sqlx::Error::PoolClosed)));
    assert!(!closing.is_finished(), "a connection is in use");
    pool.release(connection, permit);
    tokio::time::timeout(Duration::from_secs(5), closing).await.unwrap().unwrap();
    assert!(matches!(pool.acquire().await, Err(sqlx::Error::PoolClosed)));
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
