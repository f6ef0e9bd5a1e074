mod laws;

use std::time::Duration;

use futures_util::StreamExt;
use larder_kernel::{HistoryEventKind, HistoryProviderExt, IdempotencyKey, Revision, Store};
use tempfile::TempDir;

use super::super::{Sqlite, SqliteConfig};
use super::*;

async fn open(folder: &TempDir) -> SqliteHistoryProvider {
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    sqlite.history(Namespace::new("test").unwrap())
}

fn thread() -> Thread {
    Thread::new("agent", "session").unwrap()
}

fn text(text: &str) -> ChatMessage {
    ChatMessage::user(text)
}

async fn texts(store: &SqliteHistoryProvider, thread: &Thread) -> Vec<(i64, String)> {
    let all = store.all_messages(thread).await.unwrap();
    all.into_iter().map(|stored| (stored.seq.get(), stored.message.text.clone())).collect()
}

async fn take(events: &mut HistoryEvents, count: usize) -> Vec<(i64, String)> {
    let taken = events.take(count).map(|event| {
        let event = event.unwrap();
        let word = match event.kind {
            HistoryEventKind::Appended { message, thread_bytes } => {
                format!("{} {thread_bytes}", message.text)
            }
            HistoryEventKind::Cleared { removed } => format!("cleared {removed}"),
            HistoryEventKind::RunCleared { run, removed } => format!("run {run} {removed}"),
            HistoryEventKind::Replaced { up_to, removed, messages, .. } => {
                format!("replaced {up_to} {removed} {}", messages.len())
            }
            _ => "?".to_owned(),
        };
        (event.seq.get(), word)
    });
    tokio::time::timeout(Duration::from_secs(5), taken.collect()).await.expect("events in time")
}

fn own(expected: &[(i64, &str)]) -> Vec<(i64, String)> {
    expected.iter().map(|(seq, word)| (*seq, (*word).to_owned())).collect()
}

#[tokio::test]
async fn messages_read_back_through_every_window() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let messages: Vec<_> = ["a", "b\0", "c", "🦀"].map(text).into();
    let appended = store.append_many(&thread(), messages.clone(), AppendOptions::default()).await.unwrap();
    assert_eq!((appended.first.get(), appended.last.get()), (1, 4));
    let all = store.get_messages(&thread(), 0, 10).await.unwrap();
    assert!(all.iter().map(|stored| &*stored.message).eq(&messages));
    let seqs = |found: Vec<StoredMessage>| -> Vec<i64> { found.iter().map(|s| s.seq.get()).collect() };
    assert_eq!(seqs(store.get_messages(&thread(), 1, 2).await.unwrap()), [2, 3]);
    assert_eq!(seqs(store.tail(&thread(), None, 2).await.unwrap()), [3, 4]);
    assert_eq!(seqs(store.tail(&thread(), Some(Seq::new(3)), 9).await.unwrap()), [1, 2]);
    assert_eq!(seqs(store.page_after(&thread(), Seq::new(2), 1).await.unwrap()), [3]);
    let info = store.thread_info(&thread()).await.unwrap();
    let bytes: usize = messages.iter().map(ChatMessage::size_bytes).sum();
    assert_eq!((info.messages, info.bytes, info.last.get()), (4, bytes as u64, 4));
    let listed = store.list_threads(None, PageRequest::first(1)).await.unwrap();
    assert_eq!((listed.items, listed.next), (vec![info], None));
}

#[tokio::test]
async fn an_idempotency_key_outlives_a_clear_and_refuses_other_messages() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("k").unwrap());
    let first = store.append_many(&thread(), vec![text("a")], options.clone()).await.unwrap();
    store.clear(&thread(), None).await.unwrap();
    assert_eq!(store.append_many(&thread(), vec![text("a")], options.clone()).await.unwrap(), first);
    let error = store.append_many(&thread(), vec![text("b")], options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(store.count_messages(&thread()).await.unwrap(), 0);
}

#[tokio::test]
async fn a_replacement_uses_the_numbers_that_it_replaces() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    for word in ["a", "b", "c"] {
        store.append(&thread(), text(word)).await.unwrap();
    }
    let longer = Replacement::new(Seq::new(2), ["x", "y", "z"].map(text).into());
    let replaced = store.replace(&thread(), longer.clone()).await.unwrap();
    assert_eq!((replaced.removed, replaced.seq.get()), (2, 4));
    assert_eq!(texts(&store, &thread()).await, own(&[(0, "x"), (1, "y"), (2, "z"), (3, "c")]));
    assert_eq!(store.replace(&thread(), longer).await.unwrap_err().kind(), ErrorKind::Conflict);
    let beyond = Replacement::new(Seq::new(5), vec![]);
    assert_eq!(store.replace(&thread(), beyond).await.unwrap_err().kind(), ErrorKind::Conflict);

    let other = Thread::new("agent", "new").unwrap();
    store.replace(&other, Replacement::new(Seq::ZERO, vec![text("s")])).await.unwrap();
    assert_eq!(texts(&store, &other).await, own(&[(0, "s")]));
}

#[tokio::test]
async fn a_subscription_reads_the_backlog_and_then_the_writes_of_other_handles() {
    let folder = TempDir::new().unwrap();
    let (ours, theirs) = (open(&folder).await, open(&folder).await);
    let run = RunId::new("r").unwrap();
    ours.append(&thread(), text("a")).await.unwrap();
    let mut events = ours.subscribe(&thread(), Seq::ZERO).await.unwrap();
    assert_eq!(take(&mut events, 1).await, own(&[(1, "a 1")]));
    theirs
        .append_many(&thread(), vec![text("b").with_run(run.clone()), text("c")], AppendOptions::default())
        .await
        .unwrap();
    assert_eq!(take(&mut events, 2).await, own(&[(2, "b 2"), (3, "c 3")]));
    theirs.clear_run(&thread(), &run, None).await.unwrap();
    theirs.replace(&thread(), Replacement::new(Seq::new(4), vec![text("s")])).await.unwrap();
    theirs.clear(&thread(), None).await.unwrap();
    theirs.append(&thread(), text("d")).await.unwrap();
    // The clear may arrive before earlier events; after it no event is missing.
    let mut last = take(&mut events, 1).await;
    while last[0].0 < 7 {
        last = take(&mut events, 1).await;
    }
    assert_eq!(
        take(&mut ours.subscribe(&thread(), Seq::MIN).await.unwrap(), 2).await,
        own(&[(6, "cleared 1"), (7, "d 1")])
    );
}

#[tokio::test]
async fn a_late_subscriber_receives_a_replacement_after_its_messages() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    for word in ["a", "b", "c"] {
        store.append(&thread(), text(word)).await.unwrap();
    }
    store
        .replace(&thread(), Replacement::new(Seq::new(2), vec![text("s")]).with_seen(Seq::new(3)))
        .await
        .unwrap();
    let mut events = store.subscribe(&thread(), Seq::MIN).await.unwrap();
    assert_eq!(take(&mut events, 3).await, own(&[(2, "s 2"), (3, "c 3"), (4, "replaced 2 2 1")]));
    let longer = Replacement::new(Seq::new(4), ["1", "2", "3", "4", "5"].map(text).into());
    store.replace(&thread(), longer).await.unwrap();
    assert_eq!(take(&mut events, 1).await, own(&[(5, "replaced 4 2 5")]));
}

#[tokio::test]
async fn a_fork_is_a_separate_thread() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let fork = Thread::new("agent", "fork").unwrap();
    assert_eq!(store.fork(&thread(), &fork, None, None).await.unwrap_err().kind(), ErrorKind::NotFound);
    for word in ["a", "bb", "c"] {
        store.append(&thread(), text(word)).await.unwrap();
    }
    let forked = store.fork(&thread(), &fork, Some(Seq::new(2)), None).await.unwrap();
    assert_eq!((forked.messages, forked.last.get()), (2, 2));
    store.clear(&thread(), None).await.unwrap();
    assert_eq!(texts(&store, &fork).await, own(&[(1, "a"), (2, "bb")]));
    let mut events = store.subscribe(&fork, Seq::ZERO).await.unwrap();
    assert_eq!(take(&mut events, 2).await, own(&[(1, "a 1"), (2, "bb 3")]));
    store.append(&thread(), text("d")).await.unwrap();
    assert_eq!(store.fork(&thread(), &fork, None, None).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[tokio::test]
async fn a_fork_in_several_steps_keeps_order_numbers_and_sizes() {
    const LONG: usize = 3 << 20;
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let long = |name: &str| text(&name.repeat(LONG));
    store.append(&thread(), long("c")).await.unwrap();
    // One message replaces three: the new messages have numbers below 1.
    let replacement = Replacement::new(Seq::new(1), vec![long("a"), long("b"), text("c")]);
    store.replace(&thread(), replacement).await.unwrap();
    for message in [text("d"), long("e"), long("f"), text("g")] {
        store.append(&thread(), message).await.unwrap();
    }
    let fork = Thread::new("agent", "fork").unwrap();
    let forked = store.fork(&thread(), &fork, None, None).await.unwrap();
    assert_eq!((forked.messages, forked.last.get()), (7, 7));
    let sizes = [LONG, LONG, 1, 1, LONG, LONG, 1];
    assert_eq!(store.thread_info(&fork).await.unwrap().bytes, sizes.iter().sum::<usize>() as u64);
    let mut events = store.subscribe(&fork, Seq::ZERO).await.unwrap();
    let told = (&mut events).take(7).map(|event| {
        let event = event.unwrap();
        let HistoryEventKind::Appended { message, thread_bytes } = event.kind else { panic!("no append") };
        (event.seq.get(), message.text[..1].to_owned(), thread_bytes)
    });
    let mut size = 0;
    let expected = (1..).zip("abcdefg".chars()).zip(sizes).map(|((seq, name), bytes)| {
        size += bytes as u64;
        (seq, name.to_string(), size)
    });
    assert_eq!(told.collect::<Vec<_>>().await, expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn an_expiry_is_a_clear_that_use_postpones() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let sliding = AppendOptions::default().with_ttl(Ttl::sliding(Duration::from_millis(900)));
    store.append_many(&thread(), vec![text("a")], sliding).await.unwrap();
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(350)).await;
        assert_eq!(store.tail(&thread(), None, 1).await.unwrap().len(), 1);
    }
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert!(store.list_threads(None, PageRequest::first(1)).await.unwrap().items.is_empty());
    assert_eq!(store.set_ttl(&thread(), None, None).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.thread_info(&thread()).await.unwrap().messages, 0);
    store.append(&thread(), text("b")).await.unwrap();
    let mut events = store.subscribe(&thread(), Seq::MIN).await.unwrap();
    assert_eq!(take(&mut events, 2).await, own(&[(2, "cleared 1"), (3, "b 1")]));
    store.erase().await.unwrap();
    assert_eq!(store.append(&thread(), text("c")).await.unwrap().get(), 1);
}

/// Otherwise each lost call would delete all messages of the thread again.
#[tokio::test]
async fn a_lost_condition_records_the_expiry() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let key = IdempotencyKey::new("k").unwrap();
    let append = |options| (Some(options), None);
    let remove = |removal| (None, Some(removal));
    let beyond = || Some(Seq::new(9));
    let calls = [
        append(AppendOptions::default().with_if_last(beyond())),
        append(AppendOptions::default().with_idempotency_key(key.clone())),
        remove(Removal::newest(1).with_if_last(beyond())),
        remove(Removal::after(Seq::new(9))),
        remove(Removal::newest(1).with_idempotency_key(key.clone())),
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let thread = Thread::new("agent", number.to_string()).unwrap();
        let brief = AppendOptions::default().with_ttl(Ttl::fixed(Duration::from_millis(1)));
        let first = AppendOptions::default().with_idempotency_key(key.clone());
        store.append_many(&thread, vec![text("a"), text("b")], first).await.unwrap();
        store.remove(&thread, Removal::newest(2).with_idempotency_key(key.clone())).await.unwrap();
        store.append_many(&thread, vec![text("c")], brief).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let error = match call {
            (Some(options), _) => store.append_many(&thread, vec![text("d")], options).await.unwrap_err(),
            (_, removal) => store.remove(&thread, removal.unwrap()).await.unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::Conflict, "{number}");
        let count = "SELECT count(*) FROM messages";
        let left =
            store.engine.read("test.count", |sql| Ok(sql.query_row(count, [], |row| row.get::<_, i64>(0))?));
        assert_eq!(left.await.unwrap(), 0, "{number}");
    }
}

#[tokio::test]
async fn a_listing_does_not_visit_threads_that_were_emptied() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let plans = |sql: &Connection| {
        let plan = super::super::tests::plan;
        Ok([plan(sql, read::THREADS)?, plan(sql, read::THREADS_OF_AGENT)?])
    };
    for plan in store.engine.read("test.plan", plans).await.unwrap() {
        assert!(plan.contains("threads_live") && !plan.contains("TEMP B-TREE"), "{plan}");
    }
}

#[tokio::test]
async fn a_thread_is_listed_exactly_while_it_holds_messages() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let listed = async || {
        let page = store.list_threads(None, PageRequest::default()).await.unwrap();
        page.items.iter().map(|info| info.messages).sum::<u64>()
    };
    let run = RunId::new("run").unwrap();
    let brief = AppendOptions::default().with_ttl(Ttl::fixed(Duration::from_millis(1)));
    assert_eq!(listed().await, 0);
    store.append(&thread(), text("one").with_run(run.clone())).await.unwrap();
    assert_eq!(listed().await, 1);
    store.clear_run(&thread(), &run, None).await.unwrap();
    assert_eq!(listed().await, 0);
    store.append_many(&thread(), vec![text("two"), text("three")], brief).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(listed().await, 0);
    // This append first records the expiry as a clear event.
    store.append(&thread(), text("four")).await.unwrap();
    assert_eq!(listed().await, 1);
    store.clear(&thread(), None).await.unwrap();
    assert_eq!(listed().await, 0);
    let fork = Thread::new("agent", "fork").unwrap();
    store.append(&thread(), text("five")).await.unwrap();
    store.fork(&thread(), &fork, None, None).await.unwrap();
    assert_eq!(listed().await, 2);
}

#[tokio::test]
async fn a_read_of_an_expired_thread_checks_again_for_an_extended_expiry() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let options = AppendOptions::default().with_ttl(Ttl::sliding(Duration::from_millis(1_800)));
    store.append_many(&thread(), vec![text("one")], options).await.unwrap();
    // Delays the queued refreshes of the reads.
    let hold = store.engine.write("test.hold", |_| {
        std::thread::sleep(Duration::from_millis(2_400));
        Ok(())
    });
    let read_after = async |ms| {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        store.tail(&thread(), None, 10).await.unwrap().len()
    };
    let (held, before, after) = futures_util::future::join3(hold, read_after(1_300), read_after(2_100)).await;
    held.unwrap();
    assert_eq!((before, after), (1, 1), "the first read was a use, and the second came after it");
}

#[tokio::test]
async fn a_window_is_complete_for_small_large_and_many_messages() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    for (number, length) in
        [10, 200_000, 10, 60_000, 60_000, 60_000, 60_000, 60_000, 10].into_iter().enumerate()
    {
        let letter = char::from(b'a' + u8::try_from(number).unwrap());
        store.append(&thread(), text(&letter.to_string().repeat(length))).await.unwrap();
    }
    for limit in 0..=9 {
        let lengths = |found: Vec<StoredMessage>| -> Vec<(i64, usize)> {
            found.iter().map(|stored| (stored.seq.get(), stored.message.text.len())).collect()
        };
        let all = [10, 200_000, 10, 60_000, 60_000, 60_000, 60_000, 60_000, 10];
        let expected: Vec<(i64, usize)> = (1..).zip(all).collect();
        assert_eq!(lengths(store.tail(&thread(), None, limit).await.unwrap()), expected[9 - limit..]);
        assert_eq!(lengths(store.get_messages(&thread(), 0, limit).await.unwrap()), expected[..limit]);
        let after = store.page_after(&thread(), Seq::new(4), limit).await.unwrap();
        assert_eq!(lengths(after), expected[4..(4 + limit).min(9)]);
    }
}

#[tokio::test]
async fn one_author_is_read_along_the_index_and_others_back_from_the_newest() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let plans = |sql: &Connection| {
        let plan = super::super::tests::plan;
        Ok([plan(sql, read::MATCHING_ONE)?, plan(sql, read::MATCHING)?])
    };
    let [one, any] = store.engine.read("test.plan", plans).await.unwrap();
    assert!(one.contains("messages_by_author (thread=? AND author=? AND seq<?)"), "{one}");
    assert!(any.contains("sqlite_autoindex_messages_1 (thread=? AND seq<?)"), "{any}");
    assert!(!one.contains("TEMP B-TREE") && !any.contains("TEMP B-TREE"), "{one}; {any}");
}

#[tokio::test]
async fn many_updates_of_a_message_leave_one_event() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let seq = store.append(&thread(), text("first")).await.unwrap();
    let mut revision = Revision::at(seq);
    for round in 0..20 {
        let update = MessageUpdate::new(seq, revision, text(&format!("secret {round}")));
        revision = store.update(&thread(), update).await.unwrap().revision;
    }
    let count =
        |sql: &Connection| Ok(sql.query_row("SELECT count(*) FROM thread_events", [], |row| row.get(0))?);
    assert_eq!(revision.get(), 21);
    let events: i64 = store.engine.read("test.count", count).await.unwrap();
    assert_eq!(events, 1);
}
