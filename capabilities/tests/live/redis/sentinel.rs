//! A primary that sentinels replace while programs write. The tests start separate servers from the
//! installation of the shared ones.
#![allow(clippy::print_stderr, clippy::large_futures)]

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use larder_capabilities::diagnose::{CheckStatus, Findings};
use larder_capabilities::driver::{BackendUrl, Driver};
use larder_capabilities::redis::RedisDriver;
use larder_kernel::{
    AppendOptions, ChatMessage, Durability, HistoryProvider, HistoryProviderExt, IdempotencyKey, Seq, Thread,
};

use super::*;

const WRITERS: usize = 8;
/// The time of load before each kill.
const LOAD: Duration = Duration::from_millis(700);
/// More than the sentinels take to replace the primary on a busy machine.
const RECOVERY_MAX: Duration = Duration::from_secs(180);

/// Runs the tests of this group. Each needs the variable of the shared server, whose installation it uses.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let trials = vec![
        trial("a_program_survives_the_loss_of_primaries", SERVER, a_program_survives_the_loss_of_primaries),
        trial(
            "no_confirmed_write_is_lost_with_the_primary",
            SERVER,
            no_confirmed_write_is_lost_with_the_primary,
        ),
        trial(
            "an_unconfirmed_write_is_not_acknowledged_when_it_is_repeated",
            SERVER,
            an_unconfirmed_write_is_not_acknowledged_when_it_is_repeated,
        ),
        trial("a_demoted_primary_is_left", SERVER, a_demoted_primary_is_left),
        trial(
            "sentinels_that_cannot_help_are_typed_errors",
            SERVER,
            sentinels_that_cannot_help_are_typed_errors,
        ),
    ];
    crate::groups::run("redis_sentinel", arguments, trials)
}

/// The servers and sentinels of one test. They are removed with their data at the end.
struct Set {
    name: &'static str,
    port: u16,
    /// The `min-replicas-to-write` of the servers.
    confirm: u32,
}

impl Set {
    fn start(name: &'static str, confirm: u32) -> Self {
        let set = Self { name, port: free_ports(), confirm };
        // An earlier run that was killed may have left one behind.
        set.tell(&["remove"]);
        set.tell(&["up"]);
        set
    }

    fn command(&self, words: &[&str]) -> Command {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/services/redis-sentinel");
        let mut command = Command::new(script);
        command.args(words).env("LARDER_SERVICES_SET", self.name);
        command.env("LARDER_REDIS_SENTINEL_PORT", self.port.to_string());
        command.env("LARDER_REDIS_SENTINEL_CONFIRM", self.confirm.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    fn tell(&self, words: &[&str]) {
        let status = tokio::task::block_in_place(|| self.command(words).status().unwrap());
        assert!(status.success(), "{words:?}");
    }

    fn url(&self) -> String {
        let answer = self.command(&["env"]).stdout(Stdio::piped()).output().unwrap();
        String::from_utf8(answer.stdout).unwrap().trim().split_once('=').unwrap().1.to_owned()
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let _ = self.command(&["remove"]).status();
    }
}

/// Returns the first of five consecutive free ports, below the range of outgoing connections.
fn free_ports() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = 11_000 + u16::try_from(std::process::id() % 300).unwrap() * 10;
    (0..100)
        .map(|_| first + 5 * u16::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap())
        .find(|port| (0..5).all(|next| free(port + next)))
        .unwrap()
}

/// The writes of a test: the acknowledged ones by thread, and the failures by kind and outcome.
#[derive(Default)]
struct Written {
    acknowledged: Mutex<Vec<(usize, String)>>,
    failed: Mutex<BTreeMap<String, usize>>,
    over: AtomicBool,
}

impl Written {
    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Waits for further acknowledged writes.
    async fn grows(&self) {
        let (before, begun) = (self.count(), Instant::now());
        while self.count() < before + 2 * WRITERS {
            assert!(begun.elapsed() < RECOVERY_MAX, "no write succeeds: {:?}", self.failed.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn thread(writer: usize) -> Thread {
    Thread::new("agent", format!("writer-{writer}")).unwrap()
}

async fn write(store: Arc<dyn HistoryProvider>, writer: usize, written: Arc<Written>) {
    for number in 0.. {
        if written.over.load(Ordering::SeqCst) {
            return;
        }
        let text = format!("{writer} {number}");
        match store.append(&thread(writer), ChatMessage::user(text.as_str())).await {
            Ok(_) => written.acknowledged.lock().unwrap().push((writer, text)),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout),
                    "{error}: {}",
                    error.message()
                );
                let what = format!("{} {:?}", error.kind(), error.outcome());
                *written.failed.lock().unwrap().entry(what).or_default() += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Returns the texts of a thread.
async fn texts(store: &dyn HistoryProvider, writer: usize) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), Seq::ZERO);
    loop {
        let page = store.page_after(&thread(writer), after, 500).await.unwrap();
        let Some(last) = page.messages.last() else { return all };
        after = last.seq;
        all.extend(page.messages.iter().map(|stored| stored.text().to_owned()));
    }
}

/// Returns the number of times that a test kills the primary.
fn kills() -> usize {
    std::env::var("LARDER_KILLS").map_or(2, |kills| kills.parse().unwrap())
}

/// Kills the primary several times while programs write, and returns the numbers of acknowledged and of lost
/// writes.
async fn failovers(set: &Set, expected: Durability) -> (usize, usize) {
    let redis = Redis::open(RedisConfig::from_url(&set.url()).unwrap()).await.unwrap();
    assert_eq!(redis.capabilities().durability, expected);
    let store: Arc<dyn HistoryProvider> = Arc::new(redis.history(namespace("failover")));
    let written = Arc::new(Written::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(Arc::clone(&store), writer, Arc::clone(&written))))
        .collect();
    let kills = kills();
    for _ in 0..kills {
        written.grows().await;
        tokio::time::sleep(LOAD).await;
        set.tell(&["kill", "primary"]);
        // Reads come back with the successor. Writes do too, unless they need a replica.
        let begun = Instant::now();
        while let Err(error) = store.tail(&thread(0), None, 1).await {
            assert!(begun.elapsed() < RECOVERY_MAX, "{error}");
        }
        if set.confirm == 0 {
            written.grows().await;
        }
        eprintln!("the successor answered after {:?}", begun.elapsed());
        set.tell(&["up"]);
    }
    written.grows().await;
    written.over.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    let mut stored = Vec::new();
    for writer in 0..WRITERS {
        let mut texts = texts(&*store, writer).await;
        let count = texts.len();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), count, "a write was sent again");
        stored.push(texts);
    }
    let acknowledged = written.acknowledged.lock().unwrap();
    let is_lost = |(writer, text): &&(usize, String)| stored[*writer].binary_search(text).is_err();
    let lost = acknowledged.iter().filter(is_lost).count();
    eprintln!(
        "{kills} primaries killed, min-replicas-to-write {}: {lost} of {} acknowledged writes lost; \
         failed: {:?}",
        set.confirm,
        acknowledged.len(),
        written.failed.lock().unwrap()
    );
    (acknowledged.len(), lost)
}

/// Durability is declared `none`: the replica may lack the last writes. No program is restarted.
async fn a_program_survives_the_loss_of_primaries() {
    let set = Set::start("sentinel-plain", 0);
    let (acknowledged, _) = failovers(&set, Durability::None).await;
    assert!(acknowledged > 100, "{acknowledged}");
}

/// With `min-replicas-to-write`, each write waits for the replica, and none is lost.
async fn no_confirmed_write_is_lost_with_the_primary() {
    let set = Set::start("sentinel-confirmed", 1);
    let (acknowledged, lost) = failovers(&set, Durability::Process).await;
    assert!(acknowledged > 100 && lost == 0, "{lost} of {acknowledged}");
}

/// A write that no replica has is not acknowledged, and neither is its repetition, which writes nothing.
async fn an_unconfirmed_write_is_not_acknowledged_when_it_is_repeated() {
    let set = Set::start("sentinel-stopped", 1);
    let url = format!("{}?response_timeout_ms=4000", set.url());
    let redis = Redis::open(RedisConfig::from_url(&url).unwrap()).await.unwrap();
    let store = redis.history(namespace("unconfirmed"));
    let append = async || {
        let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("once").unwrap());
        store.append_many(&thread(0), vec![ChatMessage::user("x")], options).await
    };
    let (login, _) = url.split_once("://").unwrap().1.rsplit_once('@').unwrap();
    let mut replica = plain_redis(&format!("redis://{login}@127.0.0.1:{}", set.port + 1)).await;
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut replica).await.unwrap();
    let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().to_owned();
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    signal("-STOP");
    let answers = [append().await, append().await];
    signal("-CONT");
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Timeout, Outcome::Unknown), "{error}");
    }
    let begun = Instant::now();
    while let Err(error) = append().await {
        assert!(begun.elapsed() < RECOVERY_MAX, "{error}");
    }
    assert_eq!(texts(&store, 0).await, ["x"]);
}

/// A planned failover demotes a primary that goes on running; no write reaches it afterwards.
async fn a_demoted_primary_is_left() {
    let set = Set::start("sentinel-demoted", 0);
    let url = set.url();
    let redis = Redis::open(RedisConfig::from_url(&url).unwrap()).await.unwrap();
    let store = redis.key_value(namespace("demoted"));
    store.set(&bucket(), &key("a"), Bytes::from_static(b"1")).await.unwrap();
    let mut events = store.watch(&bucket(), "", Revision::ZERO).await.unwrap();
    let (login, sentinels) = url.split_once("://").unwrap().1.rsplit_once('@').unwrap();
    let sentinel = format!("redis://{login}@{}", sentinels.split(',').next().unwrap());
    let mut sentinel = plain_redis(&sentinel).await;
    let named = async |sentinel: &mut redis::aio::MultiplexedConnection| {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg("larder");
        ask.query_async::<(String, u16)>(sentinel).await.unwrap()
    };
    let before = named(&mut sentinel).await;
    let mut failover = redis::cmd("SENTINEL");
    let () = failover.arg("FAILOVER").arg("larder").query_async(&mut sentinel).await.unwrap();
    let begun = Instant::now();
    let mut value = 0_u8;
    let mut left_at = None;
    // The old primary accepts writes for some seconds more. The store asks the sentinels once a second.
    while left_at.is_none_or(|at: Instant| at.elapsed() < Duration::from_secs(4)) {
        value = value.wrapping_add(1);
        let _ = store.set(&bucket(), &key("a"), vec![value].into()).await;
        if left_at.is_none() && named(&mut sentinel).await != before {
            left_at = Some(Instant::now());
        }
        assert!(begun.elapsed() < RECOVERY_MAX, "no failover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    value = value.wrapping_add(1);
    store.set(&bucket(), &key("a"), vec![value].into()).await.unwrap();
    // The write that succeeded last is on the new primary, and the subscription sees it.
    let (host, port) = named(&mut sentinel).await;
    let direct = format!("redis://{login}@{host}:{port}/0");
    let direct = Redis::open(RedisConfig::from_url(&direct).unwrap()).await.unwrap();
    let found = direct.key_value(store.namespace().clone()).get(&bucket(), &key("a")).await.unwrap().unwrap();
    assert_eq!(found.value, Bytes::from(vec![value]));
    loop {
        let event = futures_util::StreamExt::next(&mut events);
        let event = tokio::time::timeout(Duration::from_secs(20), event).await.unwrap().unwrap().unwrap();
        if event.revision.get() == found.revision.get() {
            break;
        }
    }
    // A sentinel makes the old primary a replica. A program that names it directly gets an error.
    let old = format!("redis://{login}@{}:{}/0", before.0, before.1);
    let old = Redis::open(RedisConfig::from_url(&old).unwrap()).await.unwrap().key_value(namespace("old"));
    let error = loop {
        assert!(begun.elapsed() < RECOVERY_MAX, "the old primary still accepts writes");
        match old.set(&bucket(), &key("a"), Bytes::new()).await {
            Err(error) if error.message().contains("replica") => break error,
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::NotApplied));
    assert!(error.message().contains("`redis+sentinel://`"), "{error}");
}

/// Returns the status and the text of a check of the diagnosis.
async fn diagnosed(url: &str, check: &str) -> (CheckStatus, String) {
    let findings = Findings::default();
    RedisDriver.read(&BackendUrl::parse(url).unwrap()).unwrap().diagnose(&findings).await;
    let found = findings.take().into_iter().find(|found| found.name == check).unwrap();
    (found.status, found.seen)
}

async fn sentinels_that_cannot_help_are_typed_errors() {
    let set = Set::start("sentinel-errors", 0);
    let url = set.url();
    let (status, seen) = diagnosed(&url, "sentinels").await;
    assert!(status == CheckStatus::Ok && seen.starts_with("3 of 3 respond"), "{seen}");
    let (status, seen) = diagnosed(&url, "durability").await;
    assert!(status == CheckStatus::Warn && seen.contains("1 replicas: none"), "{seen}");
    let unknown = url.replace("/larder/0", "/other");
    let error = refused(&unknown).await;
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")));
    let (login, rest) = url.split_once('@').unwrap();
    let wrong = format!("redis+sentinel://default:canary@{rest}");
    let error = refused(&wrong).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(!format!("{error:?} {error}").contains("canary"));
    // A server that is no sentinel is named as such.
    let server = format!("{login}@127.0.0.1:{}/larder", set.port);
    let error = refused(&server).await;
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("url")));
    assert!(error.message().contains("not a sentinel"), "{error}");
    // A sentinel that does not run and one that does not reply delay nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().port();
    let (_, others) = rest.split_once(',').unwrap();
    let others = format!("{login}@127.0.0.1:1,127.0.0.1:{silent},{others}?connect_timeout_ms=120000");
    let begun = Instant::now();
    let redis = Redis::open(RedisConfig::from_url(&others).unwrap()).await.unwrap();
    redis.key_value(namespace("some")).list_buckets(PageRequest::default()).await.unwrap();
    assert!(begun.elapsed() < RECOVERY_MAX, "{:?}", begun.elapsed());
    assert_eq!(
        refused("redis+sentinel://127.0.0.1:1,127.0.0.1:2/larder").await.kind(),
        ErrorKind::Unavailable
    );
}
