//! The messages that are stored after an inference, and the messages that are not.

use std::sync::atomic::Ordering;

use larder_agents::session::{InferenceRequest, Persisted, Persistence, SessionProfile, Sessions};
use larder_kernel::{ChatMessage, ErrorKind, HistoryProvider, IdempotencyKey, RunId, SessionId};

use crate::everywhere::session_support::{World, stored, texts, turn, user};
use crate::test_backend::TestBackend as Backend;

async fn new(sessions: &Sessions) -> SessionId {
    sessions.create(SessionProfile::default(), "prompt").await.unwrap()
}

fn flush(text: &str) -> InferenceRequest {
    user(text).with_persistence(Persistence::Flush)
}

fn answer(text: &str) -> [ChatMessage; 1] {
    [ChatMessage::assistant(text)]
}

/// Proves: ALQ-7
pub(crate) async fn incremental_is_the_default_and_appends(backend: &Backend) {
    let world = World::new(backend).await;
    let (sessions, other) = (world.sessions(), world.sessions());
    let id = new(&sessions).await;
    let run = RunId::new("run-1").unwrap();
    let inference = sessions.begin(&id, user("a").with_run(run.clone())).await.unwrap();
    let persisted = inference.complete(answer("b")).await.unwrap();
    assert!(matches!(persisted, Persisted::Appended(at) if at.first.get() == 1 && at.last.get() == 2));
    turn(&other, &id, "c", "d").await;
    assert_eq!(stored(&sessions, &id).await, ["a", "b", "c", "d"]);
    let messages = sessions.get(&id).await.unwrap().messages;
    let runs: Vec<_> = messages.iter().map(|stored| stored.message.run.as_ref()).collect();
    assert_eq!(runs, [Some(&run), Some(&run), None, None]);
}

/// Proves: ALQ-7
pub(crate) async fn flush_replaces_the_session_with_the_conversation_in_one_step(backend: &Backend) {
    let world = World::new(backend).await;
    let probe = world.probe();
    let sessions = world.sessions_on(probe.clone());
    let id = sessions.create(SessionProfile::rolling_window(6, 6).unwrap(), "prompt").await.unwrap();
    turn(&sessions, &id, "old old old", "b b").await;
    probe.writes.store(0, Ordering::Relaxed);
    let inference = sessions.begin(&id, flush("c")).await.unwrap();
    assert_eq!(texts(&inference), ["prompt", "b b", "c"]);
    assert_eq!(inference.complete(answer("d")).await.unwrap(), Persisted::Replaced);
    assert_eq!(probe.writes.load(Ordering::Relaxed), 1);
    let messages = sessions.get(&id).await.unwrap().messages;
    assert_eq!(stored(&sessions, &id).await, ["b b", "c", "d"]);
    assert!(messages.iter().all(|stored| stored.message.metadata.is_empty()), "no mark shows");

    let empty = new(&sessions).await;
    sessions.begin(&empty, flush("x")).await.unwrap().complete(answer("y")).await.unwrap();
    assert_eq!(stored(&sessions, &empty).await, ["x", "y"]);
    sessions.begin(&empty, flush("z")).await.unwrap().complete([]).await.unwrap();
    assert_eq!(stored(&sessions, &empty).await, ["x", "y", "z"]);
}

/// Proves: ALQ-7, PK-2
pub(crate) async fn messages_during_a_flush_stay_and_a_second_flush_of_the_state_conflicts(
    backend: &Backend,
) {
    let world = World::new(backend).await;
    let (sessions, other) = (world.sessions(), world.sessions());
    let id = new(&sessions).await;
    turn(&sessions, &id, "a", "b").await;
    let first = sessions.begin(&id, flush("c")).await.unwrap();
    let second = other.begin(&id, flush("e")).await.unwrap();
    turn(&other, &id, "between", "heard").await;
    let (left, right) = tokio::join!(first.complete(answer("d")), second.complete(answer("f")));
    assert!(left.is_ok() != right.is_ok());
    let kept = if left.is_ok() { ["c", "d"] } else { ["e", "f"] };
    assert_eq!(left.and(right).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(stored(&sessions, &id).await, ["a", "b", kept[0], kept[1], "between", "heard"]);
}

/// Proves: ALQ-7, PK-2
pub(crate) async fn messages_that_arrive_while_a_flush_reads_are_stored_once(backend: &Backend) {
    let world = World::new(backend).await;
    let probe = world.probe();
    let sessions = world.sessions_on(probe.clone());
    let id = new(&sessions).await;
    turn(&sessions, &id, "a", "b").await;
    *probe.arrives.lock().unwrap() = Some(ChatMessage::user("arrived"));
    let inference = sessions.begin(&id, flush("c")).await.unwrap();
    inference.complete(answer("d")).await.unwrap();
    assert_eq!(stored(&sessions, &id).await, ["a", "b", "c", "d", "arrived"]);
}

/// Proves: ALQ-7
pub(crate) async fn ephemeral_reads_and_writes_nothing(backend: &Backend) {
    let world = World::new(backend).await;
    let probe = world.probe();
    let sessions = world.sessions_on(probe.clone());
    let id = new(&sessions).await;
    turn(&sessions, &id, "a", "b").await;
    probe.writes.store(0, Ordering::Relaxed);
    let request = user("c").with_persistence(Persistence::Ephemeral);
    let inference = sessions.begin(&id, request).await.unwrap();
    assert_eq!(texts(&inference), ["prompt", "a", "b", "c"]);
    assert_eq!(inference.complete(answer("d")).await.unwrap(), Persisted::Nothing);
    assert_eq!(probe.writes.load(Ordering::Relaxed), 0);
    assert_eq!(stored(&sessions, &id).await, ["a", "b"]);
}

/// Proves: ATH-2
pub(crate) async fn a_cancelled_inference_does_not_change_the_session(backend: &Backend) {
    let world = World::new(backend).await;
    let sessions = world.sessions();
    let id = new(&sessions).await;
    turn(&sessions, &id, "a", "b").await;
    let before = sessions.get(&id).await.unwrap();
    for request in [user("c"), flush("c")] {
        sessions.begin(&id, request.clone()).await.unwrap().cancel();
        drop(sessions.begin(&id, request.clone()).await.unwrap());
        // A future that is dropped before it completes.
        let inference = sessions.begin(&id, request).await.unwrap();
        drop(inference.complete(answer("d")));
    }
    assert_eq!(sessions.get(&id).await.unwrap(), before);
}

/// Proves: ATH-2, ALQ-7
pub(crate) async fn a_completion_dropped_at_any_poll_stores_all_or_nothing(backend: &Backend) {
    for persistence in [Persistence::Incremental, Persistence::Flush] {
        let mut seen = Vec::new();
        for polls in 0..8 {
            let sessions = World::new(backend).await.sessions();
            let id = new(&sessions).await;
            turn(&sessions, &id, "a", "b").await;
            let request = user("c").with_persistence(persistence);
            let inference = sessions.begin(&id, request).await.unwrap();
            let mut completion = Box::pin(inference.complete(answer("d")));
            let mut left: u32 = polls;
            std::future::poll_fn(|context| {
                // Polls the future this number of times, then drops it.
                while left > 0 && completion.as_mut().poll(context).is_pending() {
                    left -= 1;
                }
                std::task::Poll::Ready(())
            })
            .await;
            drop(completion);
            let now = stored(&sessions, &id).await;
            seen.push(now.len());
            assert!(now == ["a", "b"] || now == ["a", "b", "c", "d"], "{persistence:?} {polls}: {now:?}");
            inference.complete(answer("d")).await.unwrap();
            assert_eq!(stored(&sessions, &id).await, ["a", "b", "c", "d"], "{persistence:?} {polls}");
        }
        assert!(seen.contains(&2) && seen.contains(&4));
    }
}

/// Proves: ATH-2, ALQ-7
pub(crate) async fn completing_again_after_a_lost_response_writes_once(backend: &Backend) {
    for persistence in [Persistence::Incremental, Persistence::Flush] {
        let world = World::new(backend).await;
        let probe = world.probe();
        let sessions = world.sessions_on(probe.clone());
        let id = new(&sessions).await;
        turn(&sessions, &id, "a", "b").await;
        let inference = sessions.begin(&id, user("c").with_persistence(persistence)).await.unwrap();
        probe.lost_answers.store(1, Ordering::Relaxed);
        let error = inference.complete(answer("d")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let persisted = inference.complete(answer("d")).await.unwrap();
        assert_eq!(inference.complete(answer("d")).await.unwrap(), persisted);
        assert_eq!(stored(&sessions, &id).await, ["a", "b", "c", "d"], "{persistence:?}");
        assert_eq!(inference.complete(answer("other")).await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(stored(&sessions, &id).await, ["a", "b", "c", "d"], "{persistence:?}");
    }
}

/// Proves: ATH-2, ALQ-7
pub(crate) async fn an_inference_begun_again_with_its_key_writes_once(backend: &Backend) {
    for persistence in [Persistence::Incremental, Persistence::Flush] {
        let world = World::new(backend).await;
        let id = new(&world.sessions()).await;
        let key = IdempotencyKey::new("turn-1").unwrap();
        let request = user("c").with_persistence(persistence).with_idempotency_key(key);
        for _ in 0..3 {
            let sessions = world.sessions();
            let inference = sessions.begin(&id, request.clone()).await.unwrap();
            inference.complete(answer("d")).await.unwrap();
        }
        let sessions = world.sessions();
        assert_eq!(stored(&sessions, &id).await, ["c", "d"], "{persistence:?}");
        let inference = sessions.begin(&id, request).await.unwrap();
        let error = inference.complete(answer("another")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{persistence:?}");
        assert_eq!(stored(&sessions, &id).await, ["c", "d"], "{persistence:?}");
    }
}

/// Proves: PK-2
pub(crate) async fn concurrent_inferences_on_one_session_lose_nothing(backend: &Backend) {
    let world = World::new(backend).await;
    let id = new(&world.sessions()).await;
    let worker = |name: &'static str| {
        let (sessions, id) = (world.sessions(), id.clone());
        tokio::spawn(async move {
            for index in 0..50 {
                turn(&sessions, &id, &format!("{name}{index}"), &format!("to {name}{index}")).await;
            }
        })
    };
    let (left, right) = (worker("left"), worker("right"));
    left.await.unwrap();
    right.await.unwrap();
    let sessions = world.sessions();
    let all = stored(&sessions, &id).await;
    assert_eq!(all.len(), 200);
    for pair in all.chunks(2) {
        assert_eq!(pair[1], format!("to {}", pair[0]), "a question and its answer stand together");
    }
    let info = world.probe().thread_info(&sessions.thread(&id)).await.unwrap();
    assert_eq!(info.messages, 200);
}
