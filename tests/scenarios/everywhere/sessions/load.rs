//! Sessions that cannot be loaded.

use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_agents::session::{
    Ephemeral, OnLoadError, Persisted, Persistence, SESSION_BUCKET, SessionProfile,
};
use larder_kernel::{
    BucketName, ChatMessage, ErrorKind, KeyValueStoreExt, PageRequest, Seq, SessionId, ToolCall, ToolResult,
};

use crate::everywhere::session_support::{Model, Reply, World, stored, texts, turn, user};
use crate::test_backend::TestBackend as Backend;

/// Proves: PK-13
pub(crate) async fn a_program_can_continue_without_the_history_and_gets_the_error(backend: &Backend) {
    let world = World::new(backend).await;
    let (probe, model) = (world.probe(), Model::new(&[Reply::Text("Summary.")]));
    let strict = world.sessions_on(probe.clone()).with_summarizer(model.clone());
    let lenient = strict.clone().with_on_load_error(OnLoadError::Empty);
    let id = strict.create(SessionProfile::rolling_window(30, 10).unwrap(), "prompt").await.unwrap();
    strict.add_hint(&id, "Likes tea").await.unwrap();
    turn(&strict, &id, "1 1 1 1", "2 2 2 2").await;
    assert!(lenient.begin(&id, user("x")).await.unwrap().load_failure().is_none());

    probe.is_away.store(true, Ordering::Relaxed);
    assert_eq!(strict.begin(&id, user("x")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let missing = SessionId::new("no such session").unwrap();
    assert_eq!(lenient.begin(&missing, user("x")).await.unwrap_err().kind(), ErrorKind::NotFound);
    let long = user(&"x ".repeat(40));
    assert_eq!(lenient.begin(&id, long).await.unwrap_err().field(), Some("messages"));
    // A result without its stored call is of no use to a model.
    let result = ChatMessage::tool([ToolResult::new("c", "found")]);
    let request = larder_agents::session::InferenceRequest::new([result.clone()]);
    assert_eq!(lenient.begin(&id, request).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let call = ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "look", "{}"));
    let request = larder_agents::session::InferenceRequest::new([call, result]);
    assert_eq!(texts(&lenient.begin(&id, request).await.unwrap()).len(), 4);

    let begin = async |persistence| {
        let turn = lenient.begin(&id, user("new").with_persistence(persistence)).await.unwrap();
        assert_eq!(texts(&turn), ["prompt", "[Important context]\n- Likes tea", "new"]);
        assert_eq!(turn.load_failure().unwrap().kind(), ErrorKind::Unavailable);
        assert!(turn.left_out()[0].contains(Seq::new(1)) && turn.summary_failure().is_none());
        turn
    };
    let answer = || [ChatMessage::assistant("newer")];
    let turns = [begin(Persistence::Incremental).await, begin(Persistence::Flush).await];
    let ephemeral = begin(Persistence::Ephemeral).await;
    assert_eq!(ephemeral.complete(answer()).await.unwrap(), Persisted::Nothing);
    let losing = lenient.clone().with_ephemeral(Ephemeral::LosesSession);
    let lost = losing.begin(&id, user("new").with_persistence(Persistence::Ephemeral)).await.unwrap();
    probe.is_away.store(false, Ordering::Relaxed);
    for turn in &turns {
        assert!(matches!(turn.complete(answer()).await.unwrap(), Persisted::Appended(_)));
        assert!(matches!(turn.complete(answer()).await.unwrap(), Persisted::Appended(_)));
    }
    assert_eq!(stored(&strict, &id).await, ["1 1 1 1", "2 2 2 2", "new", "newer", "new", "newer"]);
    assert_eq!(model.times(), 0, "a history that cannot be loaded is not summarized");
    assert_eq!(lost.complete([]).await.unwrap(), Persisted::Nothing);
    assert!(stored(&strict, &id).await.is_empty(), "the program asked for this loss");
}

/// Proves: PK-13
pub(crate) async fn a_record_that_does_not_read_back_loses_nothing(backend: &Backend) {
    let world = World::new(backend).await;
    let strict = world.sessions().with_ttl(Duration::from_secs(3600)).unwrap();
    let lenient = strict.clone().with_on_load_error(OnLoadError::Empty);
    let id = strict.create(SessionProfile::default(), "prompt").await.unwrap();
    turn(&strict, &id, "question", "answer").await;
    let (store, bucket) = (world.key_value(), BucketName::new(SESSION_BUCKET).unwrap());
    let key = store.list(&bucket, "", PageRequest::default()).await.unwrap().items.remove(0).key;
    let record = store.get(&bucket, &key).await.unwrap().unwrap().value;
    store.set(&bucket, &key, bytes::Bytes::from_static(b"{")).await.unwrap();

    assert_eq!(strict.begin(&id, user("new")).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let begun = lenient.begin(&id, user("new")).await.unwrap();
    assert_eq!(texts(&begun), ["new"], "the prompt is unknown");
    assert_eq!(begun.load_failure().unwrap().kind(), ErrorKind::Corrupt);
    // The time to live is unknown too, so nothing is stored before the record reads back.
    let error = begun.complete([ChatMessage::assistant("newer")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    store.set(&bucket, &key, record).await.unwrap();
    assert_eq!(stored(&strict, &id).await, ["question", "answer"]);
    begun.complete([ChatMessage::assistant("newer")]).await.unwrap();
    assert_eq!(stored(&strict, &id).await, ["question", "answer", "new", "newer"]);
}
