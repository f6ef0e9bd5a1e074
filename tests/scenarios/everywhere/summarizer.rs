//! The summarizer: its triggers, and the passes that make a summary denser.

use std::sync::Arc;
use std::time::Duration;

use crate::everywhere::summaries::maker;
use crate::everywhere::support::{Bench, ScriptedModel, marks_of, seqs, settings, summary_text};
use crate::test_backend::TestBackend as Backend;
use larder_agents::compaction::{
    KnowledgeBase, KnowledgeBaseConfig, SearchMode, Summarizer, SummarizerConfig,
};
use larder_agents::storage::InMemoryVectorStore;
use larder_kernel::{
    ChatMessage, CollectionName, CompactionStrategy, Embedder, Embedding, Error, ErrorKind,
    HistoryProviderExt, LanguageModelRequest, PageRequest, Result, ToolCall, ToolResult, VectorStore,
};

#[derive(Debug)]
struct Lengths;

#[async_trait::async_trait]
impl Embedder for Lengths {
    fn dimensions(&self) -> usize {
        2
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>> {
        texts.iter().map(|text| Embedding::new(vec![1.0, text.len() as f32])).collect()
    }
}

/// Proves: ALQ-3, ALQ-4
pub(crate) async fn the_summarizer_waits_for_its_threshold_and_makes_its_summary_denser(backend: &Backend) {
    let bench = Bench::new(backend).await;
    let model = ScriptedModel::new(Duration::ZERO, |call, request| {
        Ok(ChatMessage::assistant(format!("pass{call},{}", marks_of(request))))
    });
    let in_memory = || Arc::new(InMemoryVectorStore::new().with_embedder(Arc::new(Lengths)));
    let room = backend.room_with(Some(Arc::new(Lengths))).await;
    let vectors: Arc<dyn VectorStore> = room.vectors().unwrap_or_else(|| in_memory());
    let collection = CollectionName::new("session-summaries").unwrap();
    let maker = maker(&bench, &model, settings())
        .with_knowledge_base(KnowledgeBase::new(vectors.clone(), collection.clone()));
    let knowledge_base = Some(KnowledgeBaseConfig::new(collection.clone(), SearchMode::Always));
    let config = SummarizerConfig::default().with_interaction_keep(3).with_knowledge_base(knowledge_base);
    let strategy = Summarizer::new(maker, config).unwrap();

    bench.turns(0..20).await;
    let window = strategy.compact(bench.window().await).await.unwrap();
    assert_eq!((window, model.calls()), (bench.raw_window().await, 0), "20 interactions do not exceed 20");

    bench.turns(20..21).await;
    let window = strategy.compact(bench.window().await).await.unwrap();
    assert_eq!((seqs(&window), model.calls()), (vec![37, 38, 39, 40, 41, 42], 5));
    assert!(summary_text(&window).unwrap().contains("pass4,"));
    let stored = vectors.list(&collection, PageRequest::first(10)).await.unwrap().items;
    assert_eq!(stored.len(), 1);
    assert!(stored[0].content.starts_with("pass4,m0,m1,"));
    assert_eq!(stored[0].metadata.get("up_to"), Some(&36.into()));
}

/// Proves: ALQ-4
pub(crate) async fn a_failed_pass_ends_the_passes_and_an_open_question_stays(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..3).await;
    bench.history.append(&bench.thread, ChatMessage::user("m6 what now")).await.unwrap();
    let model = ScriptedModel::new(Duration::ZERO, |call, request| match call {
        0 | 1 => Ok(ChatMessage::assistant(format!("pass{call},{}", marks_of(request)))),
        _ => Err(Error::new(ErrorKind::Unavailable, "model", "away")),
    });
    let config = SummarizerConfig::default().with_interaction_threshold_qty(3);
    let strategy = Summarizer::new(maker(&bench, &model, settings()), config).unwrap();
    let window = strategy.compact(bench.window().await).await.unwrap();
    assert_eq!((seqs(&window), model.calls()), (vec![7], 3));
    assert!(summary_text(&window).unwrap().contains("pass1,"));
}

/// Proves: ALQ-4
pub(crate) async fn a_process_that_ends_between_passes_leaves_their_replies_to_the_next(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..4).await;
    let config = SummarizerConfig::default().with_interaction_threshold_qty(3).with_cod_max_loops(4);
    let reply = |number: usize| {
        move |call: usize, request: &LanguageModelRequest| {
            Ok(ChatMessage::assistant(format!("process{number},pass{call},{}", marks_of(request))))
        }
    };
    let slow = ScriptedModel::new(Duration::from_millis(200), reply(1));
    let ended = Summarizer::new(maker(&bench, &slow, settings()), config.clone()).unwrap();
    tokio::select! {
        _ = ended.compact(bench.window().await) => unreachable!("the third pass has not ended"),
        () = slow.asked(3) => {}
    }

    let model = ScriptedModel::new(Duration::ZERO, reply(2));
    let next = Summarizer::new(maker(&bench, &model, settings()), config).unwrap();
    let window = next.compact(bench.window().await).await.unwrap();
    assert_eq!(model.calls(), 2, "two of four passes have a reply");
    assert!(summary_text(&window).unwrap().contains("process2,pass1,"));
    assert!(model.requests.lock().unwrap()[0].messages.last().unwrap().text.contains("process1,pass1,"));
}

/// Proves: ALQ-3
pub(crate) async fn tools_that_end_as_named_start_the_summarizer(backend: &Backend) {
    for (result, success, error, fires) in [
        (ToolResult::new("c", "ok"), "book", "", true),
        (ToolResult::new("c", "ok"), "", "book", false),
        (ToolResult::error("c", "no"), "", "book", true),
        (ToolResult::error("c", "no"), "book", "", false),
        (ToolResult::new("c", "ok"), "cancel", "cancel", false),
    ] {
        let (bench, model) = (Bench::new(backend).await, ScriptedModel::marks());
        bench.turns(0..4).await;
        for message in [
            ChatMessage::user("m8 book"),
            ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "book", "{}")),
            ChatMessage::tool([result]),
            ChatMessage::assistant("m9 done"),
        ] {
            bench.history.append(&bench.thread, message).await.unwrap();
        }
        let named = |name: &str| if name.is_empty() { vec![] } else { vec![name.to_owned()] };
        let config = SummarizerConfig::default()
            .with_on_tools_success_threshold(named(success))
            .with_on_tools_error_threshold(named(error))
            .with_interaction_keep(1)
            .with_cod_max_loops(1);
        let strategy = Summarizer::new(maker(&bench, &model, settings()), config).unwrap();
        let window = strategy.compact(bench.window().await).await.unwrap();
        assert_eq!(seqs(&window) == [9, 10, 11, 12], fires);
        strategy.compact(bench.window().await).await.unwrap();
        assert_eq!(model.calls(), usize::from(fires), "a kept result does not start it again");
    }
}
