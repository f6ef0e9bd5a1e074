//! Summaries of sessions.

use std::sync::Arc;
use std::time::Duration;

use larder_agents::compaction::{Summary, SummaryStore};
use larder_agents::session::{
    HintOrder, InferenceRequest, OnSummaryFailure, Persistence, SessionProfile, Sessions, SummaryPolicy,
};
use larder_kernel::{ChatMessage, ErrorKind, Origin, Seq, SessionId, ToolCall, ToolResult};

use crate::everywhere::session_support::{Model, Reply, World, stored, texts, turn, user};
use crate::test_backend::TestBackend as Backend;

const KEPT: [&str; 6] = ["1 1 1 1", "2 2 2 2", "3 3 3 3", "4 4 4 4", "5 5 5 5", "6 6 6 6"];

/// A session with the six messages, just past its threshold of 20 tokens.
async fn six(sessions: &Sessions) -> SessionId {
    let profile = SessionProfile::rolling_window(40, 20).unwrap();
    let id = sessions.create(profile, "prompt").await.unwrap();
    for pair in KEPT.chunks(2) {
        turn(sessions, &id, pair[0], pair[1]).await;
    }
    id
}

/// Proves: ATH-5, ATH-6, ATH-7
pub(crate) async fn past_the_threshold_the_older_half_becomes_a_summary(backend: &Backend) {
    let world = World::new(backend).await;
    let plain = world.sessions();
    let id = six(&plain).await;
    plain.add_hint(&id, "Likes tea").await.unwrap();
    let model = Model::new(&[Reply::Text("They counted to three.")]);
    let sessions = world.sessions().with_summarizer(model.clone());
    let inference = sessions.begin(&id, user("new")).await.unwrap();
    let hints = "[Important context]\n- Likes tea";
    let tail = [KEPT[3], KEPT[4], KEPT[5], "new"];
    assert_eq!(texts(&inference)[..3], ["prompt", "They counted to three.", hints]);
    assert_eq!(texts(&inference)[3..], tail);
    assert_eq!(inference.window().messages[1].origin, Origin::Summary(Seq::new(3)));
    assert!(inference.summary_failure().is_none());
    let prompt = model.prompt(0);
    assert!(KEPT[..3].iter().all(|text| prompt.contains(text)) && !prompt.contains(KEPT[3]));
    assert!(!prompt.contains("tea"), "hints are no part of what is summarized");

    // The summary is stored with the turn. Every handle sees it, and all stored messages remain.
    assert_eq!(plain.get(&id).await.unwrap().summary, None);
    inference.complete([ChatMessage::assistant("newer")]).await.unwrap();
    let session = plain.get(&id).await.unwrap();
    assert_eq!(session.summary.as_deref(), Some("They counted to three."));
    assert_eq!(stored(&plain, &id).await[..6], KEPT);
    let before = plain.with_hint_order(HintOrder::BeforeSummary).begin(&id, user("new")).await.unwrap();
    assert_eq!(texts(&before)[..3], ["prompt", hints, "They counted to three."]);
}

/// Proves: ATH-5
pub(crate) async fn at_the_threshold_or_with_a_summary_nothing_is_summarized(backend: &Backend) {
    let world = World::new(backend).await;
    let model = Model::new(&[Reply::Text("First.")]);
    let sessions = world.sessions().with_summarizer(model.clone());
    let profile = SessionProfile::rolling_window(60, 8).unwrap();
    let id = sessions.create(profile, "prompt").await.unwrap();
    turn(&sessions, &id, KEPT[0], KEPT[1]).await;
    sessions.begin(&id, user("x")).await.unwrap();
    assert_eq!(model.times(), 0, "8 is not past 8");
    turn(&sessions, &id, "a", "b").await;
    sessions.begin(&id, user("x")).await.unwrap();
    assert_eq!(model.times(), 1);
    for _ in 0..3 {
        turn(&sessions, &id, KEPT[2], KEPT[3]).await;
    }
    sessions.begin(&id, user("x")).await.unwrap();
    assert_eq!(model.times(), 1, "there is a summary");
}

/// Proves: ATH-5
pub(crate) async fn a_rolling_policy_takes_the_last_summary_in(backend: &Backend) {
    let world = World::new(backend).await;
    let model = Model::new(&[Reply::Text("First."), Reply::Text("Second.")]);
    let sessions = world.sessions().with_summarizer(model.clone()).with_summaries(
        SummaryPolicy::Rolling,
        OnSummaryFailure::Fail,
        Duration::from_secs(1),
    );
    let id = six(&sessions).await;
    sessions.begin(&id, user("x")).await.unwrap();
    for _ in 0..2 {
        turn(&sessions, &id, "7 7 7 7", "8 8 8 8").await;
    }
    let inference = sessions.begin(&id, user("x")).await.unwrap();
    assert_eq!(texts(&inference)[1], "Second.");
    assert!(model.prompt(1).contains("First.") && model.prompt(1).contains(KEPT[3]));
    assert!(!model.prompt(1).contains(KEPT[0]));
}

/// Proves: ATH-5
pub(crate) async fn a_summary_that_fails_loses_nothing_and_is_reported(backend: &Backend) {
    for (reply, kind) in [
        (Reply::Fails, ErrorKind::Unavailable),
        (Reply::Hangs, ErrorKind::Timeout),
        (Reply::Text("  "), ErrorKind::Unexpected),
        (Reply::Text("0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0"), ErrorKind::Unexpected),
    ] {
        let world = World::new(backend).await;
        let model = Model::new(&[reply, Reply::Text("Better.")]);
        let sessions = world.sessions().with_summarizer(model);
        let id = six(&world.sessions()).await;
        let inference = sessions.begin(&id, user("new")).await.unwrap();
        assert_eq!(inference.summary_failure().unwrap().kind(), kind);
        assert_eq!(texts(&inference)[1..7], KEPT);
        let again = sessions.begin(&id, user("new")).await.unwrap();
        assert_eq!(texts(&again)[1], "Better.", "the next one tries again");

        let strict = world.sessions().with_summarizer(Model::new(&[reply])).with_summaries(
            SummaryPolicy::Once,
            OnSummaryFailure::Fail,
            Duration::from_secs(1),
        );
        let id = six(&world.sessions()).await;
        assert_eq!(strict.begin(&id, user("new")).await.unwrap_err().kind(), kind);
    }
}

/// Proves: ATH-5
pub(crate) async fn two_concurrent_summaries_store_one(backend: &Backend) {
    let world = World::new(backend).await;
    let id = six(&world.sessions()).await;
    let model = Model::new(&[Reply::Text("One."), Reply::Text("Two.")]);
    let (left, right) =
        (world.sessions().with_summarizer(model.clone()), world.sessions().with_summarizer(model.clone()));
    let (first, second) = tokio::join!(left.begin(&id, user("x")), right.begin(&id, user("x")));
    for inference in [first.unwrap(), second.unwrap()] {
        inference.complete([ChatMessage::assistant("y")]).await.unwrap();
    }
    // The second run may have begun after the first had its summary, and before that summary was stored.
    assert!(model.times() <= 2, "{}", model.times());
    let summary = left.get(&id).await.unwrap().summary.unwrap();
    assert!(summary == "One." || summary == "Two.", "{summary}");
}

/// Proves: ATH-5
pub(crate) async fn a_long_session_is_summarized_by_parts_without_splitting_pairs(backend: &Backend) {
    let world = World::new(backend).await;
    let plain = world.sessions();
    let id = plain.create(SessionProfile::rolling_window(40, 20).unwrap(), "").await.unwrap();
    for index in 0..20 {
        turn(&plain, &id, &format!("q{index} a b c"), "d e f g").await;
    }
    let call = ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "look", "{}"));
    let begun = plain.begin(&id, user("find")).await.unwrap();
    begun.complete([call, ChatMessage::tool([ToolResult::new("c", "z ".repeat(18))])]).await.unwrap();
    let model = Model::new(&[Reply::Text("Part."); 20]);
    let sessions = world.sessions().with_summarizer(model.clone());
    let inference = sessions.begin(&id, user("new")).await.unwrap();
    assert!(model.times() > 3);
    let asked: String = (0..model.times()).map(|index| model.prompt(index)).collect();
    for index in 0..20 {
        let kept = texts(&inference).iter().any(|text| text.starts_with(&format!("q{index} ")));
        assert_eq!(asked.matches(&format!("q{index} ")).count(), usize::from(!kept), "q{index}");
    }
    let pair: Vec<_> = inference.window().messages.iter().filter(|m| m.message.text.is_empty()).collect();
    assert_eq!(pair.len(), 2);
}

/// Proves: ATH-5, ALQ-7
pub(crate) async fn a_replaced_session_keeps_its_summary_and_refuses_late_ones(backend: &Backend) {
    let world = World::new(backend).await;
    let model = Model::new(&[Reply::Text("Counted.")]);
    let sessions = world.sessions().with_summarizer(model);
    let id = six(&world.sessions()).await;
    let flush = |text: &str| user(text).with_persistence(Persistence::Flush);
    let inference = sessions.begin(&id, flush("7")).await.unwrap();
    inference.complete([ChatMessage::assistant("8")]).await.unwrap();
    let now = [KEPT[3], KEPT[4], KEPT[5], "7", "8"];
    assert_eq!(stored(&sessions, &id).await, now);
    assert_eq!(sessions.get(&id).await.unwrap().summary.as_deref(), Some("Counted."));

    // A late writer summarized an earlier state of the session.
    let late = Summary {
        up_to: Seq::new(6),
        text: "Of what is gone.".into(),
        tokens: 4,
        messages: 6,
        strategy: "session".into(),
        covers: None,
    };
    SummaryStore::new(world.key_value()).unwrap().put(&sessions.thread(&id), None, &late).await.unwrap();
    let inference = sessions.begin(&id, flush("9")).await.unwrap();
    assert_eq!(texts(&inference)[1..], ["Counted.", now[0], now[1], now[2], "7", "8", "9"]);
    inference.complete([ChatMessage::assistant("10")]).await.unwrap();
    assert_eq!(stored(&sessions, &id).await[5..], ["9", "10"]);
    assert_eq!(sessions.get(&id).await.unwrap().summary.as_deref(), Some("Counted."));
    assert!(sessions.delete(&id).await.unwrap());
}

/// Proves: ALQ-7
pub(crate) async fn an_inference_that_stores_nothing_summarizes_nothing(backend: &Backend) {
    let world = World::new(backend).await;
    let id = six(&world.sessions()).await;
    let model = Model::new(&[]);
    let sessions = world.sessions().with_summarizer(model.clone());
    let request = InferenceRequest::new([ChatMessage::user("x")]).with_persistence(Persistence::Ephemeral);
    sessions.begin(&id, request).await.unwrap();
    assert_eq!(model.times(), 0);
    let _: Arc<Model> = model;
}
