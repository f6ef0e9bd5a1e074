use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use larder_kernel::{
    BlobKey, BlobRef, HistoryEvent, HistoryEventKind, HistoryProviderExt, IdempotencyKey, Revision,
};

use super::*;

fn thread(session: &str) -> Thread {
    Thread::new("agent", session).unwrap()
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::user(text)
}

async fn texts(history: &InMemoryHistoryProvider, thread: &Thread) -> Vec<(i64, String)> {
    let all = history.all_messages(thread).await.unwrap();
    all.into_iter().map(|stored| (stored.seq.get(), stored.message.text.clone())).collect()
}

async fn events(history: &InMemoryHistoryProvider, thread: &Thread, count: usize) -> Vec<HistoryEvent> {
    let stream = history.subscribe(thread, Seq::MIN).await.unwrap();
    stream.take(count).map(std::result::Result::unwrap).collect().await
}

#[tokio::test]
async fn a_longer_replacement_reaches_below_zero_and_keeps_later_messages() {
    let history = InMemoryHistoryProvider::new();
    let thread = thread("s");
    for text in ["a", "b", "c"] {
        history.append(&thread, user(text)).await.unwrap();
    }
    let new = ["w", "x", "y", "z"].map(user).to_vec();
    let replaced = history.replace(&thread, Replacement::new(Seq::new(2), new.clone())).await.unwrap();
    assert_eq!((replaced.removed, replaced.seq.get()), (2, 4));
    let expected =
        [(-1, "w"), (0, "x"), (1, "y"), (2, "z"), (3, "c")].map(|(seq, text)| (seq, text.to_owned()));
    assert_eq!(texts(&history, &thread).await, expected);
    assert_eq!(history.thread_info(&thread).await.unwrap().last.get(), 4);

    let stale = history.replace(&thread, Replacement::new(Seq::new(3), new)).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Conflict);

    // A second replacement that keeps part of the first shrinks the first one's event to the remaining part.
    let second = Replacement::new(Seq::new(0), vec![user("v")]).with_seen(Seq::new(4));
    history.replace(&thread, second).await.unwrap();
    let log = events(&history, &thread, 6).await;
    let seqs: Vec<i64> = log.iter().map(|event| event.seq.get()).collect();
    assert_eq!(seqs, [0, 1, 2, 3, 4, 5]);
    let HistoryEventKind::Replaced { messages, .. } = &log[4].kind else { panic!("not a replacement") };
    assert_eq!(messages.iter().map(|stored| stored.seq.get()).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn an_expiry_is_a_clear_before_the_next_event_and_seq_continues() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    let thread = thread("s");
    let options = AppendOptions::default().with_ttl(Ttl::fixed(Duration::from_millis(20)));
    history.append_many(&thread, vec![user("a"), user("b")], options).await.unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert!(history.tail(&thread, None, 10).await.unwrap().is_empty());
    assert_eq!(history.set_ttl(&thread, None, None).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(history.list_threads(None, PageRequest::default()).await.unwrap().items.is_empty());
    assert_eq!(history.clear(&thread, None).await.unwrap(), 0);

    assert_eq!(history.append(&thread, user("c")).await.unwrap().get(), 4);
    let log = events(&history, &thread, 2).await;
    assert!(matches!(log[0].kind, HistoryEventKind::Cleared { removed: 2 }));
    assert_eq!(log.iter().map(|event| event.seq.get()).collect::<Vec<_>>(), [3, 4]);

    history.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
    assert_eq!(history.append(&thread, user("d")).await.unwrap().get(), 1);
}

#[tokio::test]
async fn an_idempotency_key_outlives_a_clear_and_refuses_other_messages() {
    let history = InMemoryHistoryProvider::new();
    let thread = thread("s");
    let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("k").unwrap());
    let first = history.append_many(&thread, vec![user("a")], options.clone()).await.unwrap();
    history.clear(&thread, None).await.unwrap();
    assert_eq!(history.append_many(&thread, vec![user("a")], options.clone()).await.unwrap(), first);
    assert!(texts(&history, &thread).await.is_empty());
    let error = history.append_many(&thread, vec![user("b")], options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn the_digest_of_a_long_message_is_computed_off_the_runtime() {
    let history = InMemoryHistoryProvider::new();
    let append = |name: &str, length: usize| {
        let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new(name).unwrap());
        let (history, thread) = (history.clone(), thread("s"));
        async move { history.append_many(&thread, vec![user(&"x".repeat(length))], options).await }
    };
    assert!(append("short", 1_000).now_or_never().is_some());
    assert!(append("dropped", 1_000_000).now_or_never().is_none());
    append("long", 1_000_000).await.unwrap();
    let lengths: Vec<_> =
        texts(&history, &thread("s")).await.into_iter().map(|(_, text)| text.len()).collect();
    assert_eq!(lengths, [1_000, 1_000_000]);
}

#[tokio::test]
async fn a_subscriber_receives_backlog_and_live_events_of_concurrent_writers_once_each() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    let thread = thread("s");
    let stream = history.subscribe(&thread, Seq::ZERO).await.unwrap();
    for _ in 0..4 {
        let (other, thread) = (InMemoryHistoryProvider::open(&backend, default_namespace()), thread.clone());
        tokio::spawn(async move {
            for _ in 0..100 {
                other.append(&thread, user("m")).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
    }
    let seqs: Vec<i64> = stream.take(400).map(|event| event.unwrap().seq.get()).collect().await;
    assert_eq!(seqs, (1..=400).collect::<Vec<_>>());
}

#[tokio::test]
async fn threads_are_listed_by_agent_in_byte_order_across_pages() {
    let history = InMemoryHistoryProvider::new();
    for (agent, session) in [("ab", "x"), ("a", "2"), ("a", "1"), ("b", "y")] {
        history.append(&Thread::new(agent, session).unwrap(), user("m")).await.unwrap();
    }
    let agent = AgentId::new("a").unwrap();
    let page = history.list_threads(Some(&agent), PageRequest::first(1)).await.unwrap();
    assert_eq!(page.items[0].thread.session.as_str(), "1");
    let next = PageRequest::after(page.next.unwrap(), 5);
    let page = history.list_threads(Some(&agent), next).await.unwrap();
    assert_eq!((page.items.len(), page.next), (1, None));
    assert_eq!(history.list_threads(None, PageRequest::default()).await.unwrap().items.len(), 4);
}

#[tokio::test]
async fn a_fork_is_complete_independent_and_needs_an_empty_target() {
    let history = InMemoryHistoryProvider::new();
    let [source, target, unused] = ["source", "target", "unused"].map(thread);
    for text in ["a", "b", "c"] {
        history.append(&source, user(text)).await.unwrap();
    }
    let missing = history.fork(&unused, &target, None, None).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let forked = history.fork(&source, &target, Some(Seq::new(2)), None).await.unwrap();
    assert_eq!((forked.messages, forked.last.get()), (2, 2));
    history.clear(&source, None).await.unwrap();
    assert_eq!(texts(&history, &target).await, [(1, "a".to_owned()), (2, "b".to_owned())]);
    for from in [&unused, &target] {
        let error = history.fork(from, &target, None, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    }
}

#[tokio::test]
async fn reading_messages_extends_a_sliding_time_to_live_and_counts_do_not() {
    let history = InMemoryHistoryProvider::new();
    let [read, counted] = ["read", "counted"].map(thread);
    for thread in [&read, &counted] {
        let options = AppendOptions::default().with_ttl(Ttl::sliding(Duration::from_millis(800)));
        history.append_many(thread, vec![user("a")], options).await.unwrap();
    }
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        history.page_after(&read, Seq::ZERO, 1).await.unwrap();
        history.thread_info(&counted).await.unwrap();
    }
    assert_eq!(history.count_messages(&read).await.unwrap(), 1);
    assert_eq!(history.count_messages(&counted).await.unwrap(), 0);
}

#[tokio::test]
async fn a_refused_write_leaves_no_thread() {
    let backend = MemoryBackend::with_bytes_max(4_096);
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    for session in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        let thread = thread(session);
        let refused = history.append(&thread, user(&"x".repeat(10_000))).await.unwrap_err();
        assert_eq!((refused.kind(), backend.bytes()), (ErrorKind::ResourceExhausted, 0));
        let unread = Replacement::new(Seq::new(1), vec![user("y")]).with_seen(Seq::new(5));
        let refused = history.replace(&thread, unread).await.unwrap_err();
        assert_eq!((refused.kind(), backend.bytes()), (ErrorKind::Conflict, 0));
    }
    let (source, target) = (thread("source"), thread("target"));
    history.append(&source, user("gone")).await.unwrap();
    history.clear(&source, None).await.unwrap();
    let held = backend.bytes();
    let refused = history.fork(&source, &target, None, None).await.unwrap_err();
    assert_eq!((refused.kind(), backend.bytes()), (ErrorKind::NotFound, held));
    // A follower keeps the thread, even if another caller's call fails.
    let mut events = history.subscribe(&target, Seq::ZERO).await.unwrap();
    history.append(&target, user(&"x".repeat(10_000))).await.unwrap_err();
    history.append(&target, user("here")).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(1));
}

#[tokio::test]
async fn a_thread_without_events_is_dropped_with_its_last_follower() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    let (waited, written) = (thread("waited for"), thread("written"));
    let one = history.subscribe(&waited, Seq::ZERO).await.unwrap();
    let mut other = history.subscribe(&waited, Seq::ZERO).await.unwrap();
    assert!(other.next().now_or_never().is_none());
    let followed = backend.bytes();
    drop(one);
    assert_eq!(backend.bytes(), followed);
    drop(other);
    assert_eq!(backend.bytes(), 0);
    let events = history.subscribe(&written, Seq::ZERO).await.unwrap();
    history.append(&written, user("here")).await.unwrap();
    history.clear(&written, None).await.unwrap();
    drop(events);
    assert_eq!(history.append(&written, user("again")).await.unwrap(), Seq::new(3));
}

#[tokio::test]
async fn a_message_is_held_with_the_ids_and_types_that_it_carries() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    let blob = BlobRef::new(BlobKey::new("k").unwrap()).with_content_type("t".repeat(256));
    let message = user("").with_blobs(vec![blob; 256]);
    history.append(&thread("s"), message).await.unwrap();
    assert!(backend.bytes() > 256 * 256, "{} bytes", backend.bytes());
    history.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn what_a_pop_keeps_counts_until_a_clear() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    let thread = thread("popped");
    history.append(&thread, user("kept")).await.unwrap();
    history.append(&thread, user(&"x".repeat(10_000))).await.unwrap();
    let full = backend.bytes();
    let key = IdempotencyKey::new("k").unwrap();
    let pop = Removal::newest(1).with_idempotency_key(key);
    assert_eq!(history.remove(&thread, pop.clone()).await.unwrap().messages.len(), 1);
    assert!(backend.bytes() >= full, "{} of {full}", backend.bytes());
    history.remove(&thread, Removal::newest(1)).await.unwrap();
    assert_eq!(history.clear(&thread, None).await.unwrap(), 0);
    assert!(backend.bytes() < 10_000, "{} bytes", backend.bytes());
    let again = history.remove(&thread, pop).await.unwrap();
    assert_eq!((again.removed, again.seqs, again.messages.len()), (1, vec![Seq::new(2)], 0));
    history.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn a_removal_without_a_key_creates_no_thread() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    let removed = history.remove(&thread("never"), Removal::newest(1)).await.unwrap();
    assert_eq!((removed.removed, backend.bytes()), (0, 0));
    let lost = Removal::newest(1).with_if_last(Seq::new(1));
    history.remove(&thread("never"), lost).await.unwrap_err();
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn many_updates_of_a_message_hold_one_event_and_no_earlier_content() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    let (thread, never) = (thread("s"), thread("never"));
    let seq = history.append(&thread, user("first")).await.unwrap();
    let (mut revision, mut held) = (Revision::at(seq), 0);
    for round in 0..50 {
        let message = user(&"x".repeat(if round == 7 { 100_000 } else { 500 }));
        revision =
            history.update(&thread, MessageUpdate::new(seq, revision, message)).await.unwrap().revision;
        if round == 0 {
            held = backend.bytes();
        }
    }
    assert_eq!((backend.bytes(), revision.get()), (held, 51));
    history.update(&never, MessageUpdate::new(seq, revision, user("no"))).await.unwrap_err();
    assert_eq!(backend.bytes(), held);
    history.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
}
