//! Sessions that expire, and the calls that renew them.

use std::time::Duration;

use larder_agents::compaction::SummaryStore;
use larder_agents::session::{InferenceRequest, Persistence, SessionProfile};
use larder_kernel::{ChatMessage, ErrorKind, HistoryProvider, SessionId};

use crate::everywhere::session_support::{Model, Reply, World, turn, user};
use crate::test_backend::TestBackend as Backend;

const TTL: Duration = Duration::from_secs(4);

/// Waits on the store's clock, which is the machine's clock.
async fn pass(part: u32) {
    tokio::time::sleep(TTL * part / 10).await;
}

/// Proves: PK-3
pub(crate) async fn an_unused_session_expires_completely_and_a_used_one_remains(backend: &Backend) {
    let world = World::new(backend).await;
    let model = Model::new(&[Reply::Text("short")]);
    let sessions = world.sessions().with_ttl(TTL).unwrap().with_summarizer(model);
    let profile = SessionProfile::rolling_window(60, 8).unwrap();
    let (used, unused) = (SessionId::new("used").unwrap(), SessionId::new("unused").unwrap());
    for id in [&used, &unused] {
        sessions.create_as(id, profile.clone(), "p").await.unwrap();
    }
    turn(&sessions, &unused, "one two three", "four").await;
    turn(&sessions, &used, "one two three four five six", "seven eight nine").await;
    // A handle without an explicit time to live renews the session, too.
    let other = world.sessions();
    for round in 0..4 {
        pass(5).await;
        match round {
            0 => turn(&sessions, &used, "now", "there is a summary").await,
            1 => drop(other.get(&used).await.unwrap()),
            2 => drop(other.explain_window(&used).await.unwrap()),
            _ => drop(other.add_hint(&used, "a hint").await.unwrap()),
        }
    }
    let kept = other.get(&used).await.unwrap();
    assert_eq!((kept.messages.len(), kept.summary.as_deref()), (4, Some("short")));
    assert_eq!(other.get(&unused).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(world.probe().get_messages(&other.thread(&unused), 0, 9).await.unwrap().messages.is_empty());

    pass(11).await;
    assert_eq!(other.get(&used).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.probe().thread_info(&other.thread(&used)).await.unwrap().messages, 0);
    let summaries = SummaryStore::new(world.key_value()).unwrap();
    assert!(summaries.get(&other.thread(&used)).await.unwrap().is_none());
    for bucket in world.key_value().list_buckets(larder_kernel::PageRequest::first(9)).await.unwrap().items {
        let keys =
            world.key_value().list(&bucket.bucket, "", larder_kernel::PageRequest::first(9)).await.unwrap();
        assert!(keys.items.is_empty(), "{:?}", bucket.bucket);
    }
    // A new session with the same id finds nothing of the old session.
    sessions.create_as(&used, profile, "p").await.unwrap();
    let fresh = sessions.get(&used).await.unwrap();
    assert!(fresh.messages.is_empty() && fresh.summary.is_none() && fresh.hints.is_empty());
}

/// Proves: PK-3
pub(crate) async fn a_session_that_was_replaced_expires_too_and_one_without_a_time_stays(backend: &Backend) {
    let world = World::new(backend).await;
    let (mortal, immortal) = (world.sessions().with_ttl(TTL).unwrap(), world.sessions());
    let flushed = mortal.create(SessionProfile::default(), "p").await.unwrap();
    let stays = immortal.create(SessionProfile::default(), "p").await.unwrap();
    let request = || InferenceRequest::new([ChatMessage::user("q")]).with_persistence(Persistence::Flush);
    for id in [&flushed, &stays] {
        let inference = mortal.begin(id, request()).await.unwrap();
        inference.complete([ChatMessage::assistant("a")]).await.unwrap();
    }
    pass(11).await;
    assert!(world.probe().get_messages(&mortal.thread(&flushed), 0, 9).await.unwrap().messages.is_empty());
    assert_eq!(mortal.get(&flushed).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(mortal.get(&stays).await.unwrap().messages.len(), 2);
}

/// Proves: PK-3
pub(crate) async fn a_response_after_the_session_expired_stores_nothing(backend: &Backend) {
    let world = World::new(backend).await;
    let sessions = world.sessions().with_ttl(TTL).unwrap();
    let id = sessions.create(SessionProfile::default(), "p").await.unwrap();
    let inference = sessions.begin(&id, user("q")).await.unwrap();
    pass(11).await;
    let error = inference.complete([ChatMessage::assistant("late")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(world.probe().thread_info(&sessions.thread(&id)).await.unwrap().messages, 0);
}

/// Proves: PK-3
pub(crate) async fn a_time_to_live_is_checked_by_name(backend: &Backend) {
    let error = World::new(backend).await.sessions().with_ttl(Duration::ZERO).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("ttl")));
}
