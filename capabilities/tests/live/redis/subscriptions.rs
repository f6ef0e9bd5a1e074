//! Subscriptions that nothing happens to. The store reaches the server through a relay that counts requests.
#![allow(clippy::print_stderr, clippy::large_futures)]

use std::time::Instant;

use futures_util::StreamExt;
use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Seq, Thread};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::*;

/// The time over which requests are counted.
const WHILE: Duration = Duration::from_secs(8);

/// The pause between two requests on a connection.
const PART_PAUSE: Duration = Duration::from_millis(5);

/// Starts a relay to the server, and returns its port and the number of requests that clients sent through
/// it.
async fn relay() -> (u16, Arc<AtomicUsize>) {
    let (server, count) = (hosts(&url(SERVER)), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (port, counted) = (listener.local_addr().unwrap().port(), Arc::clone(&count));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, counted) = (TcpStream::connect(&server).await.unwrap(), Arc::clone(&counted));
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 20];
                let mut last: Option<Instant> = None;
                while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                    // A large request arrives in several parts.
                    if last.is_none_or(|last| last.elapsed() > PART_PAUSE) {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                    last = Some(Instant::now());
                    if to_server.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, count)
}

async fn rate(count: &AtomicUsize) -> f64 {
    let before = count.load(Ordering::SeqCst);
    tokio::time::sleep(WHILE).await;
    let made = u32::try_from(count.load(Ordering::SeqCst) - before).unwrap();
    f64::from(made) / WHILE.as_secs_f64()
}

struct Followers {
    redis: Redis,
    wakes: tokio::sync::mpsc::UnboundedReceiver<()>,
    tasks: JoinSet<()>,
}

impl Followers {
    /// Drops the subscriptions, which would poll a closed handle, and closes it.
    async fn end(mut self) {
        self.tasks.shutdown().await;
        self.redis.close().await;
    }
}

/// Subscribes to this many threads and buckets, through the relay.
async fn follow(login: &str, port: u16, namespace: &Namespace, count: usize) -> Followers {
    let url = format!("redis://{login}127.0.0.1:{port}/0");
    let redis = Redis::open(RedisConfig::from_url(&url).unwrap()).await.unwrap();
    let (mut following, turns) = (JoinSet::new(), Arc::new(Semaphore::new(64)));
    for number in 0..count {
        let (history, values) = (redis.history(namespace.clone()), redis.key_value(namespace.clone()));
        let turns = Arc::clone(&turns);
        following.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            if number % 2 == 0 {
                let thread = Thread::new("a", format!("{number}")).unwrap();
                history.append(&thread, ChatMessage::user("first")).await.unwrap();
                let mut events = history.subscribe(&thread, Seq::ZERO).await.unwrap();
                events.next().await.unwrap().unwrap();
                events.map(|event| event.map(drop)).boxed()
            } else {
                let bucket = BucketName::new(format!("{number}")).unwrap();
                values.set(&bucket, &key("k"), "v".into()).await.unwrap();
                let mut changes = values.watch(&bucket, "", Revision::ZERO).await.unwrap();
                changes.next().await.unwrap().unwrap();
                changes.map(|change| change.map(drop)).boxed()
            }
        });
    }
    let (woken, wakes) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for mut events in following.join_all().await {
        let woken = woken.clone();
        tasks.spawn(async move {
            while let Some(event) = events.next().await {
                event.unwrap();
                let _ = woken.send(());
            }
        });
    }
    // The first look.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Followers { redis, wakes, tasks }
}

/// Returns how long a change of a thread and a bucket takes to arrive.
async fn change(writer: &Redis, namespace: &Namespace, followers: &mut Followers) -> Duration {
    let began = Instant::now();
    let thread = Thread::new("a", "0").unwrap();
    writer.history(namespace.clone()).append(&thread, ChatMessage::user("more")).await.unwrap();
    followers.wakes.recv().await.unwrap();
    let bucket = BucketName::new("1").unwrap();
    writer.key_value(namespace.clone()).set(&bucket, &key("k"), "w".into()).await.unwrap();
    followers.wakes.recv().await.unwrap();
    began.elapsed()
}

/// Once, each subscription ran about one script a second: 1,000 cost 1,725.
pub(crate) async fn idle_subscriptions_cost_a_few_requests_a_second() {
    let count: usize =
        std::env::var("LARDER_SUBSCRIPTIONS").map_or(600, |count| count.parse().expect("a number"));
    let (port, requests) = relay().await;
    let server = url(SERVER);
    let login = server.split_once("://").unwrap().1.rsplit_once('@').map_or("", |(login, _)| login);
    let login = if login.is_empty() { String::new() } else { format!("{login}@") };
    let writer = open(SERVER).await;
    let space = namespace("idle");
    let mut followers = follow(&login, port, &space, count).await;
    let alive = rate(&requests).await;
    assert!(alive <= 10.0, "{alive} requests a second while the channel is alive");
    let notified = change(&writer, &space, &mut followers).await;
    assert!(notified < Duration::from_secs(1), "{notified:?}");
    let mut admin = plain_connection().await;
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).query_async::<()>(&mut admin).await.unwrap();
    let lost = change(&writer, &space, &mut followers).await;
    assert!(lost < Duration::from_secs(3), "{lost:?}");
    let restored = rate(&requests).await;
    assert!(restored <= 10.0, "{restored} requests a second after it was restored");
    followers.end().await;

    // A user who may not subscribe never has a channel, so looks are all that finds changes.
    let user = format!("larder-test-{}", std::process::id());
    let rules = ["on", ">c4nary", "~*", "&*", "+@all", "-subscribe", "-psubscribe", "-ssubscribe"];
    redis::cmd("ACL").arg("SETUSER").arg(&user).arg(&rules).query_async::<()>(&mut admin).await.unwrap();
    let space_without = namespace("idle-without");
    let mut followers = follow(&format!("{user}:c4nary@"), port, &space_without, count).await;
    let dead = rate(&requests).await;
    assert!(dead <= 10.0, "{dead} requests a second without a channel");
    let looked = change(&writer, &space_without, &mut followers).await;
    assert!(looked < Duration::from_secs(4), "{looked:?}");
    eprintln!("{count} subscriptions: {alive:.1}, {restored:.1} and {dead:.1} requests a second");
    eprintln!("woken in {notified:?}, {lost:?} after the channel was lost and {looked:?} without one");
    followers.end().await;
    redis::cmd("ACL").arg("DELUSER").arg(&user).query_async::<()>(&mut admin).await.unwrap();
    for space in [space, space_without] {
        writer.history(space.clone()).erase().await.unwrap();
        writer.key_value(space).erase().await.unwrap();
    }
}
