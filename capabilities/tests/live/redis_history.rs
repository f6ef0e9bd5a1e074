//! Conversations on the live Redis server that `LARDER_REDIS_URL` names, and on the live cluster that
//! `LARDER_REDIS_CLUSTER_URL` names. Without them the tests are ignored; with `LARDER_SERVICES=required` they
//! fail.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod appends;

use std::sync::Arc;
use std::time::Duration;

use larder_capabilities::redis::{Redis, RedisConfig, RedisHistoryProvider};
use larder_kernel::{
    AgentId, AppendOptions, ChatMessage, ErrorKind, HistoryProvider, HistoryProviderExt, IdempotencyKey,
    MessageFilter, Namespace, PageRequest, Removal, Replacement, RunId, Seq, Store, Thread, Ttl,
};
use libtest_mimic::Arguments;
use redis::aio::MultiplexedConnection;

use crate::trial::{plain_redis, trial, url};

const SERVER: &str = "LARDER_REDIS_URL";
const CLUSTER: &str = "LARDER_REDIS_CLUSTER_URL";
/// The greatest number that an append assigns.
const SEQ_MAX: i64 = (1 << 53) - (1 << 20);

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let trials = vec![
        trial("numbers_end_before_they_become_inexact", SERVER, numbers_end),
        trial("a_key_that_holds_something_else_is_left_alone", SERVER, a_key_of_somebody_else),
        trial("appends_are_announced_where_somebody_follows", SERVER, appends::announced_where_followed),
        trial("who_may_not_write_follows_all_the_same", SERVER, appends::followed_without_a_write),
        trial("the_shortest_append_sees_what_others_did_to_the_thread", SERVER, appends::what_others_did),
        trial("an_expired_thread_frees_its_memory_by_itself", SERVER, an_expired_thread_frees_its_memory),
        trial("no_call_returns_popped_messages_after_their_end", SERVER, popped_messages_end),
        trial("a_thread_that_holds_nothing_leaves_the_listing_and_returns", SERVER, leaves_and_returns),
        trial("a_fork_dropped_midway_is_forgotten", SERVER, a_fork_dropped_midway),
        trial("large_histories_are_stored_compressed", SERVER, || {
            large_histories_are_stored_compressed(SERVER)
        }),
        trial("large_histories_in_a_cluster_are_stored_compressed", CLUSTER, || {
            large_histories_are_stored_compressed(CLUSTER)
        }),
        trial("a_filtered_read_beside_removals_is_of_one_state", SERVER, filtered_beside_removals),
        trial("a_long_thread_keeps_its_counts_however_it_shrinks", SERVER, counts_of_a_long_thread),
        trial("writers_beside_listings_and_erasures_are_all_listed", SERVER, || all_are_listed(SERVER)),
        trial("writers_beside_listings_and_erasures_in_a_cluster", CLUSTER, || all_are_listed(CLUSTER)),
    ];
    crate::groups::run("redis_history", arguments, trials)
}

/// Returns a namespace that no other run uses, and its store.
async fn store(variable: &str, name: &str) -> (RedisHistoryProvider, String) {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let namespace = format!("test-{name}-{now}");
    let redis = Redis::open(RedisConfig::from_url(&url(variable)).unwrap()).await.unwrap();
    (redis.history(Namespace::new(&namespace).unwrap()), namespace)
}

async fn plain_connection() -> MultiplexedConnection {
    plain_redis(&url(SERVER)).await
}

fn thread(session: &str) -> Thread {
    Thread::new("agent", session).unwrap()
}

/// Returns the key of a part of the thread `agent`, `session`.
fn part(namespace: &str, session: &str, part: &str) -> String {
    format!("larder:{{thread:{namespace}:agent:{session}}}:{part}")
}

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

async fn listed(store: &RedisHistoryProvider) -> Vec<String> {
    let page = store.list_threads(None, PageRequest::first(100)).await.unwrap();
    page.items.into_iter().map(|info| info.thread.session.as_str().to_owned()).collect()
}

async fn numbers_end() {
    let (store, namespace) = store(SERVER, "cap").await;
    let thread = thread("t");
    store.append(&thread, ChatMessage::user("first").with_run(run("r"))).await.unwrap();
    let head = part(&namespace, "t", "head");
    let mut plain = plain_connection().await;
    let near = SEQ_MAX - 2;
    redis::cmd("HSET").arg(&head).arg("s").arg(near).exec_async(&mut plain).await.unwrap();
    let two = vec![ChatMessage::user("a").with_run(run("r")), ChatMessage::user("b")];
    let appended = store.append_many(&thread, two.clone(), AppendOptions::default()).await.unwrap();
    assert_eq!((appended.first.get(), appended.last.get()), (SEQ_MAX - 1, SEQ_MAX));
    let seqs = |messages: Vec<larder_kernel::StoredMessage>| -> Vec<i64> {
        messages.iter().map(|stored| stored.seq.get()).collect()
    };
    let before = store.thread_info(&thread).await.unwrap();
    for ttl in [None, Some(Ttl::fixed(Duration::from_secs(60)))] {
        let options = AppendOptions::default().with_ttl(ttl);
        let error = store.append_many(&thread, two.clone(), options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    }
    assert_eq!(store.thread_info(&thread).await.unwrap(), before);
    assert_eq!(seqs(store.tail(&thread, Some(Seq::new(SEQ_MAX)), 1).await.unwrap().messages), [SEQ_MAX - 1]);
    assert_eq!(seqs(store.page_after(&thread, Seq::new(SEQ_MAX - 1), 9).await.unwrap().messages), [SEQ_MAX]);
    // The index of runs is exact at the maximum, too, and removals still get numbers.
    assert_eq!(store.clear_run(&thread, &run("r"), None).await.unwrap(), 2);
    assert_eq!(seqs(store.tail(&thread, None, 9).await.unwrap().messages), [SEQ_MAX]);
    assert_eq!(store.thread_info(&thread).await.unwrap().last.get(), SEQ_MAX + 1);
    store.erase().await.unwrap();
}

fn by(agent: &str, text: &str) -> ChatMessage {
    ChatMessage::user(text).with_author(AgentId::new(agent).unwrap(), None)
}

/// 300 messages of 9 KB, which repeat themselves, take at most 300 kB of the server's memory.
async fn large_histories_are_stored_compressed(variable: &str) {
    let (store, namespace) = store(variable, "compressed").await;
    let thread = thread("t");
    let text = |number: usize| format!("{number}: {}", "The weather is the same again. ".repeat(290));
    for first in (0..300).step_by(100) {
        let batch = (first..first + 100).map(|number| by("a", &text(number)));
        store.append_many(&thread, batch.collect(), AppendOptions::default()).await.unwrap();
    }
    let messages = part(&namespace, "t", "messages");
    let stored = memory_usage(variable, &messages).await
        + memory_usage(variable, &part(&namespace, "t", "head")).await;
    assert!(stored <= 300_000, "{stored} bytes");
    // A part of the thread, its filter, its size and its copy are those of the plain messages.
    assert!(store.thread_info(&thread).await.unwrap().bytes > 300 * 8_990);
    let only = MessageFilter::new().include_agent(AgentId::new("a").unwrap());
    let found = store.tail_matching(&thread, &only, None, 2).await.unwrap().messages;
    assert_eq!(found.iter().map(|stored| &*stored.message.text).collect::<Vec<_>>(), [text(298), text(299)]);
    let fork = Thread::new("agent", "fork").unwrap();
    store.fork(&thread, &fork, None, None).await.unwrap();
    assert_eq!(
        store.tail(&fork, None, 1).await.unwrap().messages[0].message,
        store.tail(&thread, None, 1).await.unwrap().messages[0].message
    );
    store.erase().await.unwrap();
}

/// Returns the bytes of a key on the server that holds it.
async fn memory_usage(variable: &str, key: &str) -> usize {
    let url = url(variable);
    let (_, rest) = url.split_once("://").unwrap();
    let (user, hosts) = rest.split('?').next().unwrap().rsplit_once('@').unwrap();
    for host in hosts.split('/').next().unwrap().split(',') {
        let mut plain = plain_redis(&format!("redis://{user}@{host}")).await;
        let usage =
            redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query_async(&mut plain).await;
        // The other servers of a cluster answer with the holder of the slot.
        if let Ok(Some(bytes)) = usage {
            return bytes;
        }
    }
    panic!("no server holds the key");
}

/// Each replacement removes the previous one, so no read may return messages of two of them.
async fn filtered_beside_removals() {
    let (store, _) = store(SERVER, "removals").await;
    let (store, thread) = (Arc::new(store), thread("t"));
    let only = MessageFilter::new().include_agent(AgentId::new("rare").unwrap());
    let generation = |number: usize| -> Vec<ChatMessage> {
        let of = |place: usize| if place.is_multiple_of(250) { "rare" } else { "often" };
        (0..1_000).map(|place| by(of(place), &number.to_string())).collect()
    };
    // Enough messages after them that the first step of the scan ends among them.
    for batch in [generation(0), vec![by("often", "between"); 1_000], vec![by("often", "between"); 500]] {
        store.append_many(&thread, batch, AppendOptions::default()).await.unwrap();
    }
    store.append(&thread, by("rare", "newest")).await.unwrap();
    let writer = {
        let (store, thread) = (Arc::clone(&store), thread.clone());
        tokio::spawn(async move {
            for number in 1..60 {
                let seen = store.thread_info(&thread).await.unwrap().last;
                let replacement = Replacement::new(Seq::new(1_000), generation(number)).with_seen(seen);
                store.replace(&thread, replacement).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    while !writer.is_finished() {
        let found = store.tail_matching(&thread, &only, None, 100).await.unwrap().messages;
        let texts: Vec<&str> = found.iter().map(|stored| stored.message.text.as_str()).collect();
        assert_eq!((texts.len(), texts[4]), (5, "newest"), "{texts:?}");
        assert!(texts[..4].iter().all(|text| *text == texts[0]), "{texts:?}");
    }
    writer.await.unwrap();
    store.erase().await.unwrap();
}

async fn a_key_of_somebody_else() {
    let (store, namespace) = store(SERVER, "foreign").await;
    let thread = thread("t");
    store.append(&thread, ChatMessage::user("mine")).await.unwrap();
    let mut plain = plain_connection().await;
    let runs = part(&namespace, "t", "runs");
    redis::cmd("SET").arg(&runs).arg("not mine").exec_async(&mut plain).await.unwrap();
    let before: Vec<String> = all_of(&mut plain, &namespace).await;
    let tagged = || ChatMessage::user("x").with_run(run("r"));
    let results = [
        store.append_many(&thread, vec![tagged()], AppendOptions::default()).await.err(),
        store.clear(&thread, None).await.err(),
        store.replace(&thread, Replacement::new(Seq::new(1), vec![tagged()])).await.err(),
    ];
    for error in results {
        let error = error.expect("the key holds something else");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(!format!("{error} {error:?}").contains("mine"));
    }
    assert_eq!(all_of(&mut plain, &namespace).await, before);
    store.erase().await.unwrap();
}

/// Returns every stored value of the thread as text.
async fn all_of(plain: &mut MultiplexedConnection, namespace: &str) -> Vec<String> {
    let mut all = Vec::new();
    let head: Vec<String> =
        redis::cmd("HGETALL").arg(part(namespace, "t", "head")).query_async(plain).await.unwrap();
    all.extend(head);
    for name in ["messages", "events", "replacements"] {
        let range =
            redis::cmd("ZRANGE").arg(part(namespace, "t", name)).arg(0).arg(-1).query_async(plain).await;
        all.extend(range.map(|range: Vec<String>| range).unwrap());
    }
    all.push(redis::cmd("GET").arg(part(namespace, "t", "runs")).query_async(plain).await.unwrap());
    all
}

async fn popped_messages_end() {
    let (store, namespace) = store(SERVER, "popped").await;
    let thread = thread("t");
    let messages = vec![ChatMessage::user("x"); 3];
    store.append_many(&thread, messages, AppendOptions::default()).await.unwrap();
    let pop = Removal::newest(2).with_idempotency_key(IdempotencyKey::new("k").unwrap());
    let first = store.remove(&thread, pop.clone()).await.unwrap();
    assert_eq!(store.remove(&thread, pop.clone()).await.unwrap(), first);
    let (mut plain, kept) = (plain_connection().await, part(&namespace, "t", "popped:6b"));
    let left_ms: i64 = redis::cmd("PTTL").arg(&kept).query_async(&mut plain).await.unwrap();
    assert!((1..=600_000).contains(&left_ms), "{left_ms}");
    // Moves the end to the next millisecond.
    redis::cmd("PEXPIRE").arg(&kept).arg(1).query_async::<()>(&mut plain).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let late = store.remove(&thread, pop).await.unwrap();
    assert_eq!((late.removed, late.seqs, late.messages.len()), (2, first.seqs, 0));
    assert_eq!(store.thread_info(&thread).await.unwrap().messages, 1);
}

async fn an_expired_thread_frees_its_memory() {
    let (store, namespace) = store(SERVER, "expired").await;
    let thread = thread("t");
    let options = AppendOptions::default().with_ttl(Ttl::sliding(Duration::from_millis(1_000)));
    let tagged = ChatMessage::user("x").with_run(run("r"));
    store.append_many(&thread, vec![tagged.clone()], options).await.unwrap();
    // Each of these calls writes the keys again, and none may leave a key without expiry.
    store.append(&thread, tagged.clone()).await.unwrap();
    let last = store.thread_info(&thread).await.unwrap().last;
    store.replace(&thread, Replacement::new(Seq::new(1), vec![tagged; 2]).with_seen(last)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let mut plain = plain_connection().await;
    for name in ["messages", "runs"] {
        let there: i64 =
            redis::cmd("EXISTS").arg(part(&namespace, "t", name)).query_async(&mut plain).await.unwrap();
        assert_eq!(there, 0, "{name}");
    }
    assert_eq!(store.thread_info(&thread).await.unwrap().messages, 0);
    store.erase().await.unwrap();
}

async fn leaves_and_returns() {
    let (store, namespace) = store(SERVER, "listing").await;
    for session in ["a", "b", "c"] {
        store.append(&thread(session), ChatMessage::user("x")).await.unwrap();
    }
    store.clear(&thread("b"), None).await.unwrap();
    assert_eq!(listed(&store).await, ["a", "c"]);
    let key = format!("larder:{{threads:{namespace}}}:listed");
    let mut plain = plain_connection().await;
    let names: i64 = redis::cmd("ZCARD").arg(&key).query_async(&mut plain).await.unwrap();
    assert_eq!(names, 2, "what the listing goes through");
    let next = store.append(&thread("b"), ChatMessage::user("again")).await.unwrap();
    assert_eq!(next, Seq::new(3));
    assert_eq!(listed(&store).await, ["a", "b", "c"]);
    // A thread whose only number belongs to an event is erased with the others.
    let replaced = store.replace(&thread("d"), Replacement::new(Seq::ZERO, Vec::new())).await.unwrap();
    assert_eq!(replaced.seq, Seq::new(1));
    store.erase().await.unwrap();
    assert_eq!(store.thread_info(&thread("d")).await.unwrap().last, Seq::ZERO);
    assert_eq!(listed(&store).await, [""; 0]);
}

async fn a_fork_dropped_midway() {
    let (store, namespace) = store(SERVER, "fork").await;
    let (source, target) = (thread("source"), thread("t"));
    for _ in 0..3 {
        let batch = vec![ChatMessage::user("x"); 1_000];
        store.append_many(&source, batch, AppendOptions::default()).await.unwrap();
    }
    let mut plain = plain_connection().await;
    for step in 1..40_u64 {
        let fork = store.fork(&source, &target, None, None);
        let forked = tokio::time::timeout(Duration::from_millis(step), fork).await;
        let count = store.count_messages(&target).await.unwrap();
        assert!(count == 0 || count == 3_000, "{count} after {step} ms");
        if forked.is_ok() || count > 0 {
            assert_eq!(count, 3_000);
            store.clear(&target, None).await.unwrap();
        }
    }
    // The temporary keys have an expiry.
    let pattern = part(&namespace, "t", "fork-*");
    let pattern = pattern.replace('[', "\\[");
    let aside: Vec<String> = redis::cmd("KEYS").arg(&pattern).query_async(&mut plain).await.unwrap();
    for key in aside {
        let left_ms: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut plain).await.unwrap();
        assert!((1..=600_000).contains(&left_ms), "{left_ms}");
    }
    store.erase().await.unwrap();
}

async fn counts_of_a_long_thread() {
    let (store, _) = store(SERVER, "long").await;
    let thread = thread("t");
    let texts = ["", "one", "twenty-two bytes of it"];
    for batch in 0..5_usize {
        let message = |at: usize| {
            let message = ChatMessage::user(texts[at % 3]);
            if at % 4 == 1 { message } else { message.with_run(run(["r0", "r1"][at / 100 % 2])) }
        };
        let messages = (batch * 1_000..(batch + 1) * 1_000).map(message).collect();
        store.append_many(&thread, messages, AppendOptions::default()).await.unwrap();
    }
    let check = async |what: &str| {
        let (info, all) =
            (store.thread_info(&thread).await.unwrap(), store.all_messages(&thread).await.unwrap());
        let bytes: usize = all.iter().map(|stored| stored.message.size_bytes()).sum();
        assert_eq!(info.messages, all.len() as u64, "{what}");
        assert_eq!(info.bytes, bytes as u64, "{what}");
        all.iter().filter(|stored| stored.message.run.as_ref() == Some(&run("r1"))).count() as u64
    };
    check("as written").await;
    let placed = vec![ChatMessage::user("placed").with_run(run("r1")); 7];
    // The removed side is the shorter one, first and after a removal. Then the kept side is shorter, and then
    // nothing is kept.
    for up_to in [1_000, 1_500, 4_500] {
        let seen = store.thread_info(&thread).await.unwrap().last;
        let replacement = Replacement::new(Seq::new(up_to), placed.clone()).with_seen(seen);
        store.replace(&thread, replacement).await.unwrap();
        check(&format!("replaced up to {up_to}")).await;
    }
    let of_run = check("before the clear of a run").await;
    assert_eq!(store.clear_run(&thread, &run("r1"), None).await.unwrap(), of_run);
    assert_eq!(check("after the clear of a run").await, 0);
    let last = store.thread_info(&thread).await.unwrap().last;
    store.replace(&thread, Replacement::new(last, placed)).await.unwrap();
    assert_eq!(check("replaced as a whole").await, 7);
    store.erase().await.unwrap();
}

async fn all_are_listed(variable: &str) {
    let store = Arc::new(store(variable, "at-once").await.0);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let writer = async |number: usize| {
        let mut step = number;
        while !stopped() {
            let thread = thread(&format!("s{}", step % 5));
            store.append(&thread, ChatMessage::user("x")).await.unwrap();
            step += 3;
            if step.is_multiple_of(2) {
                store.clear(&thread, None).await.unwrap();
            }
        }
    };
    let lister = async || {
        while !stopped() {
            listed(&store).await;
        }
    };
    let eraser = async || {
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            store.erase().await.unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(writer(0), writer(1), writer(2), writer(3), lister(), lister(), eraser());
    let listed = listed(&store).await;
    for session in ["s0", "s1", "s2", "s3", "s4"] {
        let holds = store.count_messages(&thread(session)).await.unwrap() > 0;
        assert_eq!(listed.iter().any(|name| name == session), holds, "{session}");
    }
    store.erase().await.unwrap();
    assert!(self::listed(&store).await.is_empty());
}
