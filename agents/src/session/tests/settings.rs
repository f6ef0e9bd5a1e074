//! Settings that depend on others, in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::{
    AppendOptions, BucketName, ChatMessage, CollectionName, Embedder, Embedding, Error, ErrorKind,
    HistoryProvider, KeyValueStore, LanguageModel, LanguageModelRequest, PageRequest, Result, Seq, SessionId,
    ToolCall, ToolResult, VectorStore,
};

use crate::context::memory::LimitedWindow;
use crate::session::testing::{Words, World};
use crate::session::{
    Ephemeral, Inference, InferenceRequest, OnSummaryFailure, Persistence, SESSION_BUCKET, SessionProfile,
    Sessions, SummaryPolicy,
};
use crate::storage::InMemoryVectorStore;

const SUMMARIZER: &str = r#"{"long_term_memory_strategy": [{"long_term_memory_id": "summarizer",
    "interaction_threshold_qty": 2, "cod_max_loops": 1, "interaction_keep": 1}]}"#;
const SEARCHED: &str = r#"{"long_term_memory_strategy": [{"long_term_memory_id": "summarizer",
    "interaction_threshold_qty": 2, "cod_max_loops": 1, "interaction_keep": 1,
    "knowledge_base": {"collection_id": "summaries", "search_mode": "always"}}]}"#;
const AGENT: &str = r#"{"agent": {"memory": {}}}"#;

/// A model that is away, and counts the questions.
#[derive(Debug, Default)]
struct Away(AtomicUsize);

#[async_trait]
impl LanguageModel for Away {
    fn name(&self) -> &str {
        "away"
    }

    async fn generate(&self, _: LanguageModelRequest) -> Result<ChatMessage> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(ErrorKind::Unavailable, "model", "away"))
    }
}

/// A model that sends no reply.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl LanguageModel for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    async fn generate(&self, _: LanguageModelRequest) -> Result<ChatMessage> {
        std::future::pending().await
    }
}

/// Embeds every text equally.
#[derive(Debug)]
struct Same;

#[async_trait]
impl Embedder for Same {
    fn dimensions(&self) -> usize {
        2
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>> {
        texts.iter().map(|_| Embedding::new(vec![1.0, 0.0])).collect()
    }
}

fn plain(world: &World) -> Sessions {
    Sessions::new(world.history.clone(), world.store.clone()).unwrap().with_token_counter(Arc::new(Words))
}

async fn filled(world: &World, sessions: &Sessions, interactions: usize) -> SessionId {
    let id = sessions.create(sessions.profile().clone(), "a prompt").await.unwrap();
    for mark in 0..interactions {
        let messages = vec![
            ChatMessage::user(format!("m{} and more words", 2 * mark + 1)),
            ChatMessage::assistant(format!("m{} and more words", 2 * mark + 2)),
        ];
        world.history.append_many(&sessions.thread(&id), messages, AppendOptions::default()).await.unwrap();
    }
    id
}

fn request(text: &str) -> InferenceRequest {
    InferenceRequest::new([ChatMessage::user(text)])
}

fn texts(inference: &Inference) -> Vec<&str> {
    inference.window().messages.iter().map(|message| message.message.text()).collect()
}

/// Proves: AKKA-2, AKKA-3, ALQ-7
#[test]
fn documents_that_cannot_work_together_are_refused_in_either_order() {
    let world = World::new();
    let flush = r#"{"persistence_strategy": "FLUSH"}"#;
    let profile = r#"{"type": "rolling_window", "max_tokens": 100, "summarization_threshold": 50}"#;
    for other in [flush, SUMMARIZER, profile] {
        for [first, second] in [[other, AGENT], [AGENT, other]] {
            let sessions = plain(&world).with_summarizer(world.model()).configured(first).unwrap();
            let error = sessions.configured(second).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("memory")), "{first}");
        }
    }
    // A profile and strategies work together.
    for [first, second] in [[SUMMARIZER, profile], [profile, SUMMARIZER]] {
        let sessions = plain(&world).with_summarizer(world.model()).configured(first).unwrap();
        let sessions = sessions.configured(second).unwrap();
        assert_eq!(sessions.profile().max_tokens(), Some(100), "{first}");
        assert_eq!(sessions.assembler.strategies.len(), 1);
    }
}

/// Proves: ATH-5
#[tokio::test(start_paused = true)]
async fn summary_settings_apply_before_and_after_the_model_is_set() {
    let profile = SessionProfile::rolling_window(60, 10).unwrap();
    for before in [true, false] {
        let world = World::new();
        let settings = |sessions: Sessions| {
            let seconds = Duration::from_secs(1);
            sessions.with_summaries(SummaryPolicy::Rolling, OnSummaryFailure::Fail, seconds)
        };
        let sessions = match before {
            true => settings(plain(&world)).with_summarizer(Arc::new(Silent)),
            false => settings(plain(&world).with_summarizer(Arc::new(Silent))),
        };
        let id = filled(&world, &sessions, 4).await;
        let session = sessions.create(profile.clone(), "").await.unwrap();
        world.history.fork(&sessions.thread(&id), &sessions.thread(&session), None, None).await.unwrap();
        let started = tokio::time::Instant::now();
        let error = sessions.begin(&session, request("x")).await.unwrap_err();
        assert_eq!((error.kind(), started.elapsed().as_secs()), (ErrorKind::Timeout, 1), "{before}");
    }
}

/// Proves: ALQ-4
#[tokio::test(start_paused = true)]
async fn summary_settings_apply_to_the_strategies_of_a_document() {
    let pipeline = r#"{"pipeline": [
        {"type": "summarization", "recent_token_budget": 1, "min_old_tokens": 1}]}"#;
    for document in [SUMMARIZER, pipeline] {
        let world = World::new();
        let seconds = Duration::from_secs(1);
        let sessions = plain(&world)
            .with_summarizer(Arc::new(Silent))
            .with_summaries(SummaryPolicy::Once, OnSummaryFailure::Fail, seconds)
            .configured(document)
            .unwrap();
        let id = filled(&world, &sessions, 4).await;
        let started = tokio::time::Instant::now();
        let error = sessions.begin(&id, request("x")).await.unwrap_err();
        assert_eq!((error.kind(), started.elapsed().as_secs()), (ErrorKind::Timeout, 1), "{document}");
        let keeps = plain(&world).with_summarizer(Arc::new(Away::default())).configured(document).unwrap();
        let turn = keeps.begin(&id, request("x")).await.unwrap();
        assert_eq!(turn.summary_failure().unwrap().kind(), ErrorKind::Unavailable);
    }
}

/// Proves: ATH-3, ATH-5
#[test]
fn a_document_with_a_threshold_for_summaries_needs_a_model() {
    let world = World::new();
    let document = r#"{"type": "rolling_window", "max_tokens": 100, "summarization_threshold": 50}"#;
    let error = plain(&world).configured(document).unwrap_err();
    assert_eq!(error.field(), Some("summarization_threshold"));
    assert!(plain(&world).with_summarizer(world.model()).configured(document).is_ok());
    // Without a threshold, the document asks for no summary.
    assert!(plain(&world).configured(r#"{"type": "rolling_window", "max_tokens": 100}"#).is_ok());
}

fn searched(world: &World) -> (Arc<InMemoryVectorStore>, Sessions) {
    let vectors = Arc::new(InMemoryVectorStore::new().with_embedder(Arc::new(Same)));
    let sessions = plain(world)
        .with_summarizer(world.model())
        .with_knowledge(vectors.clone(), Arc::new(Same))
        .configured(SEARCHED)
        .unwrap();
    (vectors, sessions)
}

/// Proves: ALQ-9
#[tokio::test]
async fn the_summary_of_the_window_is_not_found_again() {
    for persistence in [Persistence::Incremental, Persistence::Flush] {
        let world = World::new();
        let (_, sessions) = searched(&world);
        let id = filled(&world, &sessions, 4).await;
        for mark in 100..110 {
            let turn = sessions.begin(&id, request(&format!("m{mark}")).with_persistence(persistence));
            let turn = turn.await.unwrap();
            let seen = texts(&turn).join("\n");
            for line in seen.lines().filter(|line| line.starts_with("read,")) {
                assert_eq!(seen.matches(line).count(), 1, "{persistence:?}: {seen}");
            }
            turn.complete([ChatMessage::assistant("answer")]).await.unwrap();
        }
    }
}

/// Proves: ALQ-9
#[tokio::test]
async fn summaries_are_found_while_the_model_uses_tools() {
    let world = World::new();
    let (_, sessions) = searched(&world);
    let id = filled(&world, &sessions, 4).await;
    for mark in [100, 101] {
        let turn = sessions.begin(&id, request(&format!("m{mark} words of a question"))).await.unwrap();
        turn.complete([ChatMessage::assistant("an answer")]).await.unwrap();
    }
    let is_found = |turn: &Inference| texts(turn).iter().any(|text| text.starts_with("Earlier summaries"));
    let asks = sessions.begin(&id, request("m102")).await.unwrap();
    assert!(is_found(&asks), "{:?}", texts(&asks));
    let call = ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "look", "{}"));
    asks.complete([call]).await.unwrap();
    let results = InferenceRequest::new([ChatMessage::tool([ToolResult::new("c", "42")])]);
    let answers = sessions.begin(&id, results).await.unwrap();
    assert!(is_found(&answers), "{:?}", texts(&answers));
}

/// Proves: ALQ-9, ALQ-10, ATH-1
#[tokio::test]
async fn a_session_that_is_lost_or_deleted_is_found_by_no_search() {
    let collection = CollectionName::new("summaries").unwrap();
    for lost in [true, false] {
        let world = World::new();
        let (vectors, sessions) = searched(&world);
        let sessions = sessions.with_ephemeral(Ephemeral::LosesSession);
        let (id, other) = (filled(&world, &sessions, 4).await, filled(&world, &sessions, 4).await);
        for session in [&id, &other] {
            let turn = sessions.begin(session, request("m100")).await.unwrap();
            turn.complete([ChatMessage::assistant("an answer")]).await.unwrap();
        }
        assert_eq!(vectors.count(&collection, None).await.unwrap(), 2);
        if lost {
            let last = request("m101").with_persistence(Persistence::Ephemeral);
            sessions.begin(&id, last).await.unwrap().complete([]).await.unwrap();
        } else {
            sessions.delete(&id).await.unwrap();
        }
        assert_eq!(vectors.count(&collection, None).await.unwrap(), 1, "{lost}");
        // A session that expires leaves its record only.
        let bucket = BucketName::new(SESSION_BUCKET).unwrap();
        for key in world.store.list(&bucket, "", PageRequest::first(9)).await.unwrap().items {
            world.store.delete(&bucket, &key.key, None).await.unwrap();
        }
        sessions.create_as(&other, SessionProfile::Everything, "anew").await.unwrap();
        assert_eq!(vectors.count(&collection, None).await.unwrap(), 0, "{lost}");
    }
}

/// Proves: AKKA-3
#[tokio::test]
async fn a_view_of_a_part_never_makes_a_summary_of_the_whole() {
    let world = World::new();
    let model = Arc::new(Away::default());
    let whole = plain(&world).with_summarizer(model.clone());
    let id = whole.create(SessionProfile::rolling_window(60, 10).unwrap(), "").await.unwrap();
    let part = whole.with_memory(LimitedWindow::new().read_last(2)).unwrap();
    let error = part.begin(&id, request("x")).await.unwrap_err();
    assert_eq!((error.field(), model.0.load(Ordering::Relaxed)), (Some("memory"), 0));
}

/// Proves: RAVI-5, RAVI-10, RAVI-11
#[tokio::test]
async fn the_limits_of_a_pipeline_include_the_summary_of_an_earlier_strategy() {
    // The limits of messages, characters and tokens, and whether the summary fits.
    let all = usize::MAX;
    for (limit, (messages, chars, tokens), told) in [
        (r#"{"type": "truncation", "max_messages": 3}"#, (3, all, all), true),
        (r#"{"type": "truncation", "max_chars": 100}"#, (all, 100, all), true),
        (r#"{"type": "truncation", "max_chars": 22}"#, (all, 22, all), false),
        (r#"{"type": "sliding_window", "max_messages": 2}"#, (2, all, all), true),
        (
            concat!(
                r#"{"type": "token_budget_composed", "token_budget": 16, "strategies": ["#,
                r#"{"type": "sliding_window", "max_messages": 2}]}"#,
            ),
            (all, all, 16),
            true,
        ),
    ] {
        let world = World::new();
        let document = format!(
            r#"{{"pipeline": [
                {{"type": "summarization", "recent_token_budget": 16, "min_old_tokens": 1}}, {limit}]}}"#
        );
        let sessions = plain(&world).with_summarizer(world.model()).configured(&document).unwrap();
        let id = filled(&world, &sessions, 6).await;
        for attempt in 0..2 {
            let turn = sessions.begin(&id, request("now")).await.unwrap();
            let texts = texts(&turn);
            // The prompt and the question are not part of the limit.
            let limited = &texts[1..texts.len() - 1];
            let seen = (
                limited.len(),
                limited.iter().map(|text| text.len()).sum::<usize>(),
                limited.iter().map(|text| text.split_whitespace().count()).sum::<usize>(),
            );
            assert!(seen.0 <= messages && seen.1 <= chars && seen.2 <= tokens, "{limit} {attempt}: {seen:?}");
            assert_eq!(texts[1].contains("read,m1"), told, "{limit} {attempt}: {texts:?}");
            let reported = turn.left_out().iter().any(|left_out| left_out.contains(Seq::new(1)));
            assert_eq!(reported, !told, "{limit} {attempt}: {:?}", turn.left_out());
            turn.complete([ChatMessage::assistant("short")]).await.unwrap();
            assert!(sessions.get(&id).await.unwrap().summary.is_some());
        }
    }
}
