//! The explanation of a session's window: the messages that reach the model, with reasons.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_agents::compaction::{Summary, SummaryStore, ToolResultTruncation};
use larder_agents::session::{InferenceRequest, SessionProfile};
use larder_kernel::{ChatMessage, ErrorKind, Seq, SessionId, ToolCall, ToolResult, Window};

use crate::everywhere::session_support::{World, turn, user};
use crate::test_backend::TestBackend as Backend;

/// Proves: ATH-4, ATH-7
pub(crate) async fn each_step_says_what_it_dropped_and_nothing_is_written(backend: &Backend) {
    let world = World::new(backend).await;
    let probe = world.probe();
    let sessions = world
        .sessions_on(probe.clone())
        .with_strategies(vec![Arc::new(ToolResultTruncation::new(30).unwrap())]);
    let id = sessions.create(SessionProfile::rolling_window(16, 16).unwrap(), "be brief").await.unwrap();
    turn(&sessions, &id, "one two three", "four five six").await;
    let call = ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "t", "{}"));
    let inference = sessions.begin(&id, user("look")).await.unwrap();
    let result = ChatMessage::tool([ToolResult::new("c", "x".repeat(90))]);
    inference.complete([call, result, ChatMessage::assistant("found it")]).await.unwrap();
    let writes = probe.writes.load(Ordering::Relaxed);

    let new = vec![ChatMessage::user("and now")];
    let told = sessions.explain_window_with(&id, new.clone()).await.unwrap();
    let begun = sessions.begin(&id, InferenceRequest::new(new)).await.unwrap();
    let seen = |window: &Window| -> Vec<_> {
        window.messages.iter().map(|message| (message.origin, message.message.text.clone())).collect()
    };
    assert_eq!(seen(&told.window), seen(begun.window()));
    let names: Vec<_> = told.steps.iter().map(|step| step.name).collect();
    assert_eq!(names, ["tool_result_truncation", "new_messages", "rolling_window", "session"], "{told}");
    assert_eq!(told.steps[0].shortened[0].seq, Seq::new(5));
    assert_eq!(told.steps[1].injected, 1);
    assert_eq!(told.steps[2].dropped, [Seq::new(1)]);
    assert!(told.steps[2].drops);
    assert_eq!((told.steps[3].injected, told.messages_read, told.pages_read), (1, 6, 1));
    assert!(told.to_string().contains("rolling_window"), "{told}");
    for pair in told.steps.windows(2) {
        assert_eq!(pair[0].after, pair[1].before);
    }
    assert_eq!(probe.writes.load(Ordering::Relaxed), writes);
}

/// Proves: ATH-5
pub(crate) async fn an_existing_summary_is_in_front_and_its_messages_are_not_reported_as_dropped(
    backend: &Backend,
) {
    let world = World::new(backend).await;
    let sessions = world.sessions();
    let id = sessions.create(SessionProfile::default(), "").await.unwrap();
    turn(&sessions, &id, "old", "older").await;
    turn(&sessions, &id, "new", "newer").await;
    let summary = Summary {
        up_to: Seq::new(2),
        text: "before".into(),
        tokens: 1,
        messages: 2,
        strategy: "session".into(),
        covers: None,
    };
    SummaryStore::new(world.key_value()).unwrap().put(&sessions.thread(&id), None, &summary).await.unwrap();
    let told = sessions.explain_window(&id).await.unwrap();
    assert_eq!((told.began_with_summary_up_to, told.read.messages), (Some(Seq::new(2)), 3));
    assert!(told.steps.iter().all(|step| step.dropped.is_empty() && step.summarized.is_empty()), "{told}");
    assert_eq!(told.window.messages[0].message.text, "before");
    let nobody = SessionId::new("nobody").unwrap();
    assert_eq!(sessions.explain_window(&nobody).await.unwrap_err().kind(), ErrorKind::NotFound);
}
