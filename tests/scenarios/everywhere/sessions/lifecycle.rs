//! Creating, reading and deleting sessions, and their hints.

use larder_agents::session::{HINT_BYTES_MAX, HINTS_MAX, SESSION_BUCKET, SessionProfile};
use larder_kernel::{AgentId, BucketName, ChatMessage, ErrorKind, HistoryProvider, PageRequest, SessionId};

use crate::everywhere::session_support::{World, stored, texts, turn, user};
use crate::test_backend::TestBackend as Backend;

/// Proves: ATH-1, ATH-3
pub(crate) async fn a_session_is_created_read_through_another_handle_and_deleted(backend: &Backend) {
    let world = World::new(backend).await;
    let (sessions, other) = (world.sessions(), world.sessions());
    let id = sessions.create(SessionProfile::default(), "You are terse.").await.unwrap();
    sessions.add_hint(&id, "Likes tea").await.unwrap();
    turn(&sessions, &id, "Hello", "Hi").await;

    let session = other.get(&id).await.unwrap();
    assert_eq!((&session.id, &session.profile), (&id, &SessionProfile::default()));
    assert_eq!(session.system_prompt, "You are terse.");
    assert_eq!(session.hints, ["Likes tea"]);
    assert_eq!(session.summary, None);
    let texts: Vec<_> = session.messages.iter().map(|stored| stored.message.text.as_str()).collect();
    assert_eq!(texts, ["Hello", "Hi"]);

    assert!(other.delete(&id).await.unwrap());
    assert!(!sessions.delete(&id).await.unwrap(), "repeating it finds nothing");
    assert_eq!(sessions.get(&id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(sessions.begin(&id, user("Hello?")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(sessions.add_hint(&id, "x").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.probe().thread_info(&sessions.thread(&id)).await.unwrap().messages, 0);
    let bucket = BucketName::new(SESSION_BUCKET).unwrap();
    assert!(world.key_value().list(&bucket, "", PageRequest::first(10)).await.unwrap().items.is_empty());
}

/// Proves: ATH-1
pub(crate) async fn ids_are_distinct_chosen_ids_are_used_once_and_agents_are_separate(backend: &Backend) {
    let world = World::new(backend).await;
    let sessions = world.sessions();
    let first = sessions.create(SessionProfile::default(), "a").await.unwrap();
    assert_ne!(first, sessions.create(SessionProfile::default(), "a").await.unwrap());

    let id = SessionId::new("x".repeat(512)).unwrap();
    let (left, right) = (world.sessions(), world.sessions());
    let made = tokio::join!(
        left.create_as(&id, SessionProfile::default(), "left"),
        right.create_as(&id, SessionProfile::default(), "right"),
    );
    assert!(made.0.is_ok() != made.1.is_ok());
    assert_eq!(made.0.and(made.1).unwrap_err().kind(), ErrorKind::AlreadyExists);

    let critic = world.sessions().with_agent(AgentId::new("critic").unwrap());
    assert_eq!(critic.get(&id).await.unwrap_err().kind(), ErrorKind::NotFound);
    critic.create_as(&id, SessionProfile::default(), "critic").await.unwrap();
    turn(&critic, &id, "mine", "yours").await;
    assert!(stored(&sessions, &id).await.is_empty());
    assert!(sessions.delete(&id).await.unwrap());
    assert_eq!(stored(&critic, &id).await, ["mine", "yours"]);
}

/// Proves: ATH-1, ATH-3
pub(crate) async fn a_document_that_does_not_fit_is_refused_by_name(backend: &Backend) {
    let sessions = World::new(backend).await.sessions();
    let small = SessionProfile::rolling_window(3, 3).unwrap();
    let error = sessions.create(small.clone(), "one two three four").await.unwrap_err();
    assert_eq!((error.field(), error.actual(), error.limit()), (Some("max_tokens"), Some(4), Some(3)));
    let wrong = SessionProfile::RollingWindow { max_tokens: 0, summarization_threshold: 1 };
    assert_eq!(sessions.create(wrong, "").await.unwrap_err().field(), Some("max_tokens"));
    let long = "x".repeat(1024 * 1024 + 1);
    let error = sessions.create(SessionProfile::default(), long).await.unwrap_err();
    assert_eq!(error.field(), Some("system_prompt"));

    let id = sessions.create(small, "one").await.unwrap();
    for hint in ["", "  ", "a b c d", &"x".repeat(HINT_BYTES_MAX + 1)] {
        assert_eq!(sessions.add_hint(&id, hint).await.unwrap_err().field(), Some("hint"), "{}", hint.len());
    }
    assert!(sessions.get(&id).await.unwrap().hints.is_empty());
    let id = sessions.create(SessionProfile::Everything, "").await.unwrap();
    for index in 0..HINTS_MAX {
        sessions.add_hint(&id, &index.to_string()).await.unwrap();
    }
    assert_eq!(sessions.add_hint(&id, "more").await.unwrap_err().field(), Some("hint"));
}

/// Proves: ATH-6
pub(crate) async fn hints_of_two_workers_are_all_kept(backend: &Backend) {
    let world = World::new(backend).await;
    let id = world.sessions().create(SessionProfile::default(), "s").await.unwrap();
    let add = |worker: &'static str| {
        let (sessions, id) = (world.sessions(), id.clone());
        tokio::spawn(async move {
            for index in 0..50 {
                assert!(sessions.add_hint(&id, &format!("{worker} {index}")).await.unwrap());
            }
        })
    };
    let (left, right) = (add("left"), add("right"));
    left.await.unwrap();
    right.await.unwrap();
    let sessions = world.sessions();
    let hints = sessions.get(&id).await.unwrap().hints;
    assert_eq!(hints.len(), 100);
    for worker in ["left", "right"] {
        let own: Vec<_> = hints.iter().filter(|hint| hint.starts_with(worker)).collect();
        let in_order: Vec<_> = (0..50).map(|index| format!("{worker} {index}")).collect();
        assert!(own.into_iter().eq(&in_order));
    }

    assert!(!sessions.add_hint(&id, "left 3").await.unwrap(), "the hint exists");
    assert!(sessions.remove_hint(&id, "left 3").await.unwrap());
    assert!(!sessions.remove_hint(&id, "left 3").await.unwrap());
    assert_eq!(sessions.get(&id).await.unwrap().hints.len(), 99);
}

/// Proves: ATH-1
pub(crate) async fn an_inference_that_completes_after_the_deletion_stores_nothing(backend: &Backend) {
    let world = World::new(backend).await;
    let (sessions, other) = (world.sessions(), world.sessions());
    let id = sessions.create(SessionProfile::default(), "s").await.unwrap();
    let inference = sessions.begin(&id, user("Hello")).await.unwrap();
    other.delete(&id).await.unwrap();
    let error = inference.complete([ChatMessage::assistant("Hi")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(world.probe().thread_info(&sessions.thread(&id)).await.unwrap().messages, 0);
}

pub(crate) async fn debug_forms_and_errors_show_no_words(backend: &Backend) {
    let sessions = World::new(backend).await.sessions();
    let id = SessionId::new("secret-id").unwrap();
    sessions.create_as(&id, SessionProfile::default(), "secret prompt").await.unwrap();
    sessions.add_hint(&id, "secret hint").await.unwrap();
    let inference = sessions.begin(&id, user("secret question")).await.unwrap();
    let session = sessions.get(&id).await.unwrap();
    let error = sessions.get(&SessionId::new("secret").unwrap()).await.unwrap_err();
    for text in
        [format!("{sessions:?}"), format!("{inference:?}"), format!("{session:?}"), format!("{error:?}")]
    {
        assert!(!text.contains("secret"), "{text}");
    }
    assert_eq!(texts(&inference).len(), 3);
}
