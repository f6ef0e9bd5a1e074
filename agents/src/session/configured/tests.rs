//! Documents exactly as published, run as a whole.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use larder_kernel::{
    AgentId, AgentRole, AppendOptions, Author, ChatMessage, CollectionName, Document, DocumentId, Embedder,
    Embedding, ErrorKind, HistoryProvider, HistoryProviderExt, Metadata, PutMode, Result, Seq, SessionId,
    ToolCall, ToolResult, VectorStore,
};

use super::*;
use crate::compaction::{LongTermMemory, PipelineConfig, ShortTermMemory};
use crate::context::memory::{LimitedWindow, MemoryFilter};
use crate::session::testing::{Words, World};
use crate::session::{Inference, InferenceRequest, Memory, Persisted, Persistence, parse_config};
use crate::storage::InMemoryVectorStore;

const PRINTED: &str = r#"{ "profile": {
    "short_term_memory_strategy": [ { "memory_strategy_id": "max_tokens", "memory_max_tokens": 8000 } ],
    "long_term_memory_strategy": [ { "long_term_memory_id": "summarizer", "interaction_threshold_qty": 20,
        "cod_max_loops": 3, "interaction_keep": 2 } ] } }"#;

/// Embeds a text by its city: Oslo, Rome or neither.
#[derive(Debug)]
struct Cities;

#[async_trait]
impl Embedder for Cities {
    fn dimensions(&self) -> usize {
        3
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>> {
        let has = |text: &str, city: &str| if text.contains(city) { 1.0 } else { 0.0 };
        texts.iter().map(|text| Embedding::new(vec![has(text, "Oslo"), has(text, "Rome"), 0.1])).collect()
    }
}

fn sessions(world: &World) -> Sessions {
    Sessions::new(world.history.clone(), world.store.clone())
        .unwrap()
        .with_token_counter(Arc::new(Words))
        .with_summarizer(world.model())
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

async fn begin(sessions: &Sessions, id: &SessionId, text: &str) -> Inference {
    sessions.begin(id, InferenceRequest::new([ChatMessage::user(text)])).await.unwrap()
}

fn texts(inference: &Inference) -> Vec<&str> {
    inference.window().messages.iter().map(|message| message.message.text()).collect()
}

/// Proves: ALQ-4, ALQ-6, ALQ-8
#[tokio::test]
async fn a_printed_document_runs_completely() {
    let world = World::new();
    let sessions = sessions(&world).configured(PRINTED).unwrap();
    let id = filled(&world, &sessions, 20).await;
    assert_eq!(texts(&begin(&sessions, &id, "20 do not exceed 20").await).len(), 42);
    let turn = begin(&sessions, &id, "and this is the next").await;
    turn.complete([ChatMessage::assistant("m41")]).await.unwrap();
    let seen = begin(&sessions, &id, "now there are 21").await;
    // The prompt, the summary, two interactions and the question.
    assert_eq!(texts(&seen).len(), 7, "{:?}", texts(&seen));
    assert!(texts(&seen)[1].contains("m38") && !texts(&seen)[1].contains("m39"));
    let flush = PRINTED.replacen("\"short_term", "\"persistence_strategy\": \"FLUSH\", \"short_term", 1);
    let sessions = sessions.configured(&flush).unwrap();
    begin(&sessions, &id, "flush").await.complete([ChatMessage::assistant("done")]).await.unwrap();
    let session = sessions.get(&id).await.unwrap();
    assert_eq!(session.messages.len(), 6);
    assert!(session.summary.unwrap().contains("m1,"));
}

/// Proves: ALQ-8
#[tokio::test]
async fn a_document_that_cannot_work_is_refused_by_its_field() {
    let world = World::new();
    let plain = || Sessions::new(world.history.clone(), world.store.clone()).unwrap();
    let refused = |sessions: Sessions, document: &str| {
        let error = sessions.configured(document).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error
    };
    assert_eq!(refused(plain(), PRINTED).field(), Some("long_term_memory_strategy"));
    let summarized = r#"{"pipeline": [{"type": "summarization"}]}"#;
    assert_eq!(refused(plain(), summarized).field(), Some("pipeline"));
    let base = r#"{"long_term_memory_strategy": [{"long_term_memory_id": "summarizer",
        "knowledge_base": {"collection_id": "c", "search_mode": "always"}}]}"#;
    assert_eq!(refused(sessions(&world), base).field(), Some("knowledge_base"));
    let never = base.replace("always", "never");
    assert!(refused(sessions(&world), &never).message().contains("search_mode"));
    for document in [r#"{"max_tokens": 100}"#, r#"{"pipeline": [{"max_messages": 3}]}"#] {
        assert!(refused(plain(), document).message().contains("`type`"), "{document}");
    }
    let sized = plain().configured(r#"{"type": "rolling_window", "max_tokens": 20.0}"#).unwrap();
    assert_eq!(sized.profile().max_tokens(), Some(20));
    assert!(plain().configured(r#"{"type": "rolling_window", "max_tokens": 20.5}"#).is_err());
}

fn author(agent: &str, role: &str) -> Author {
    Author::new(AgentId::new(agent).unwrap()).with_role(AgentRole::new(role).unwrap())
}

/// Proves: AKKA-1, AKKA-2, AKKA-3, AKKA-4
#[tokio::test]
async fn agents_that_share_a_session_read_and_store_by_their_memory_settings() {
    let world = World::new();
    let plain = || Sessions::new(world.history.clone(), world.store.clone()).unwrap();
    let (planner, critic) =
        (plain().with_author(author("planner", "lead")), plain().with_author(author("critic", "internal")));
    let id = planner.create(SessionProfile::Everything, "").await.unwrap();
    begin(&planner, &id, "plan").await.complete([ChatMessage::assistant("planned")]).await.unwrap();
    begin(&critic, &id, "check").await.complete([ChatMessage::assistant("checked")]).await.unwrap();
    assert_eq!(texts(&begin(&planner, &id, "x").await), ["plan", "planned", "check", "checked", "x"]);

    let internal = MemoryFilter::new().exclude_role(AgentRole::new("internal").unwrap());
    let filtered = plain().with_memory(LimitedWindow::new().filtered(internal).read_only()).unwrap();
    let turn = begin(&filtered, &id, "x").await;
    assert_eq!(texts(&turn), ["plan", "planned", "x"]);
    assert!(turn.left_out()[0].contains(Seq::new(3)));
    assert_eq!(turn.complete([ChatMessage::assistant("y")]).await.unwrap(), Persisted::Nothing);
    let blind = plain().with_memory(LimitedWindow::new().write_only()).unwrap();
    let turn = begin(&blind, &id, "noted").await;
    assert_eq!(texts(&turn), ["noted"]);
    turn.complete([]).await.unwrap();
    let last = plain().with_memory(LimitedWindow::new().read_last(2)).unwrap();
    assert_eq!(texts(&begin(&last, &id, "x").await), ["checked", "noted", "x"]);
    let small = plain().with_memory(LimitedWindow::new().with_max_bytes(12)).unwrap();
    assert_eq!(texts(&begin(&small, &id, "x").await), ["checked", "noted", "x"]);

    let flush = InferenceRequest::new([]).with_persistence(Persistence::Flush);
    let error = last.begin(&id, flush).await.unwrap_err();
    assert_eq!(error.field(), Some("memory"));
    let erasing = r#"{"long_term_memory_strategy": [{"long_term_memory_id": "neuralyzer"}]}"#;
    assert_eq!(last.configured(erasing).unwrap_err().field(), Some("memory"));
}

/// Proves: AKKA-2, AKKA-9, ATH-10
#[tokio::test]
async fn a_document_sets_the_memory_of_agents() {
    let world = World::new();
    let plain = || Sessions::new(world.history.clone(), world.store.clone()).unwrap();
    let window = |sessions: &Sessions| sessions.reader.view.max_bytes();
    assert_eq!(window(&plain()), None);
    for (memory, bytes) in [
        ("{}", 156 * 1024),
        (r#"{"enabled": true, "limited-window": {}}"#, 156 * 1024),
        (r#"{"limited-window": {"max-size": "156KiB"}}"#, 156 * 1024),
        (r#"{"limited-window": {"max-size": 2000.0}}"#, 2_000),
        (r#"{"limited-window": {"max-size": "3 MB"}}"#, 3_000_000),
    ] {
        let sessions = plain().configured(&format!(r#"{{"agent": {{"memory": {memory}}}}}"#)).unwrap();
        assert_eq!(window(&sessions), Some(bytes), "{memory}");
        let nested = format!(r#"{{"akka": {{"javasdk": {{"agent": {{"memory": {memory}}}}}}}}}"#);
        assert_eq!(window(&plain().configured(&nested).unwrap()), Some(bytes), "{memory}");
        for path in ["agent.memory", "akka.javasdk.agent.memory"] {
            let flat = format!(r#"{{"{path}": {memory}}}"#);
            assert_eq!(window(&plain().configured(&flat).unwrap()), Some(bytes), "{flat}");
        }
    }
    for (document, field) in [
        (r#"{"agent": {"memory": {"limited-window": {"max-size": "much"}}}}"#, "max-size"),
        (r#"{"agent": {"memory": {"limited-window": {"max-size": 0}}}}"#, "max-size"),
        (r#"{"agent": {"memory": {"size": 1}}}"#, "size"),
        (r#"{"agent": {"memory": {}}, "other": 1}"#, "other"),
    ] {
        let error = plain().configured(document).unwrap_err();
        assert!(error.message().contains(field), "{error}");
    }
    let off = plain().configured(r#"{"agent": {"memory": {"enabled": false}}}"#).unwrap();
    let id = off.create(off.profile().clone(), "").await.unwrap();
    begin(&off, &id, "unheard").await.complete([]).await.unwrap();
    world.history.append(&off.thread(&id), ChatMessage::user("stored")).await.unwrap();
    let unheard = begin(&off, &id, "unheard").await;
    let shown = off.explain_window_with(&id, vec![ChatMessage::user("unheard")]).await.unwrap();
    let shown: Vec<_> = shown.window.messages.iter().map(|message| message.message.text()).collect();
    assert_eq!(shown, texts(&unheard));
    world.history.clear(&off.thread(&id), None).await.unwrap();
    assert!(off.get(&id).await.unwrap().messages.is_empty());
    let asked = InferenceRequest::new([ChatMessage::user("heard")]).with_memory(Memory::On);
    off.begin(&id, asked).await.unwrap().complete([]).await.unwrap();
    assert_eq!(off.get(&id).await.unwrap().messages.len(), 1);
}

/// Proves: ALQ-3, ALQ-8
#[test]
fn settings_are_read_equally_at_every_location() {
    for settings in [
        r#"{"long_term_memory_id": "summarizer", "interaction_keep": 21}"#,
        r#"{"long_term_memory_id": "summarizer", "interaction_threshold_qty": 0, "interaction_keep": 3}"#,
        r#"{"long_term_memory_id": "neuralyzer", "interaction_threshold_qty": 2.0, "interaction_keep": 5.0}"#,
        r#"{"long_term_memory_id": "summarizer", "instructions": null, "knowledge_base": null}"#,
        r#"{"long_term_memory_id": "summarizer", "cod_max_loops": 0}"#,
        r#"{"long_term_memory_id": "summarizer", "interaction_keep": -1}"#,
        r#"{"long_term_memory_id": "neuralyzer", "cod_max_loops": 2}"#,
        r#"{"long_term_memory_id": "neuralyzer", "on_tools_error_threshold": [""]}"#,
        r#"{"interaction_keep": 1}"#,
    ] {
        let alone = serde_json::from_str::<LongTermMemory>(settings);
        let whole = format!(r#"{{"long_term_memory_strategy": [{settings}]}}"#);
        let read = parse_config::<MemoryConfig>(&whole);
        assert_eq!(alone.is_ok(), read.is_ok(), "{settings}");
        if let (Ok(alone), Ok(read)) = (alone, read) {
            assert_eq!(read.long_term()[0].config().unwrap(), alone);
        }
    }
    let short = r#"{"memory_strategy_id": "max_tokens", "memory_max_tokens": 20.0}"#;
    let ShortTermMemory::MaxTokens(config) = serde_json::from_str(short).unwrap();
    assert_eq!(config.memory_max_tokens, 20);
    let pipeline = r#"{"pipeline": [{"type": "sliding_window", "max_messages": 40.0}]}"#;
    assert!(parse_config::<PipelineConfig>(pipeline).is_ok());
}

/// Proves: ALQ-9
#[tokio::test]
async fn stored_summaries_that_match_the_question_are_in_the_window() {
    let world = World::new();
    let vectors = Arc::new(InMemoryVectorStore::new().with_embedder(Arc::new(Cities)));
    let document = r#"{"long_term_memory_strategy": [{"long_term_memory_id": "summarizer",
        "interaction_threshold_qty": 3, "cod_max_loops": 1,
        "knowledge_base": {"collection_id": "session-summaries", "search_mode": "always"}}]}"#;
    let sessions =
        sessions(&world).with_knowledge(vectors.clone(), Arc::new(Cities)).configured(document).unwrap();
    let id = filled(&world, &sessions, 4).await;
    let thread = sessions.thread(&id);
    let collection = CollectionName::new("session-summaries").unwrap();
    let summary = |session: &str, number: i64, text: &str| {
        let metadata = Metadata::new()
            .with("agent", thread.agent.as_str())
            .with("session", session)
            .with("up_to", number);
        Document::new(DocumentId::new(format!("{session}/{number}")).unwrap(), text).with_metadata(metadata)
    };
    let own = thread.session.as_str();
    let documents = vec![
        summary(own, 1, "They spoke of Rome."),
        summary(own, 2, "They spoke of Oslo."),
        summary("another", 3, "Somebody else in Oslo."),
    ];
    vectors.put(&collection, documents, PutMode::Upsert).await.unwrap();

    let told = sessions.explain_window_with(&id, vec![ChatMessage::user("Oslo?")]).await.unwrap();
    assert_eq!(told.steps[0].injected, 1, "{told}");
    let turn = begin(&sessions, &id, "What about Oslo?").await;
    let seen = texts(&turn);
    assert!(seen[1].contains("read,m1"), "{seen:?}");
    let (oslo, rome) = (seen[2].find("They spoke of Oslo.").unwrap(), seen[2].find("Rome").unwrap());
    assert!(oslo < rome && !seen[2].contains("Somebody else"), "{seen:?}");
    turn.complete([ChatMessage::assistant("Snow.")]).await.unwrap();
    // The new summary is stored for search. It is not shown twice while it is in the window.
    let again = begin(&sessions, &id, "Rome?").await;
    assert_eq!(texts(&again).iter().filter(|text| text.contains("read,m1")).count(), 1);
    assert_eq!(vectors.count(&collection, None).await.unwrap(), 4);
}

/// Proves: ALQ-3
#[tokio::test]
async fn each_trigger_fires_past_its_threshold() {
    // The prompt and the hint have 8 tokens, each interaction 8, and the question 2.
    let call = |result: ToolResult| {
        vec![
            ChatMessage::user("look it up"),
            ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "book", "{}")),
            ChatMessage::tool([result]),
            ChatMessage::assistant("there it is"),
        ]
    };
    let ended = |failed: bool| if failed { ToolResult::error("c", "no") } else { ToolResult::new("c", "ok") };
    for id in ["neuralyzer", "summarizer"] {
        for (field, at, over) in [
            ("input_tokens_threshold", "42", "41"),
            ("interaction_threshold_qty", "4", "3"),
            ("interaction_threshold_tokens", "32", "31"),
        ] {
            for (threshold, fires) in [(at, false), (over, true)] {
                let world = World::new();
                let off = r#""interaction_threshold_qty": -1, "interaction_threshold_tokens": -1"#;
                let settings = format!(r#""{field}": {threshold}, "interaction_keep": 1"#);
                let off =
                    off.split(", ").filter(|other| !other.contains(field)).collect::<Vec<_>>().join(", ");
                let document = format!(
                    r#"{{"long_term_memory_strategy": [
                        {{"long_term_memory_id": "{id}", {off}, {settings}}}
                    ]}}"#
                );
                let sessions = sessions(&world).configured(&document).unwrap();
                let session = filled(&world, &sessions, 4).await;
                sessions.add_hint(&session, "be very kind").await.unwrap();
                begin(&sessions, &session, "what now").await.complete([]).await.unwrap();
                let left = world.history.count_messages(&sessions.thread(&session)).await.unwrap();
                let asked = world.shared.answers.load(Ordering::Relaxed) > 0;
                assert_eq!(left < 9 || asked, fires, "{id} {field} {threshold}: {left}");
            }
        }
        for (field, failed, fires) in [
            ("on_tools_success_threshold", false, true),
            ("on_tools_success_threshold", true, false),
            ("on_tools_error_threshold", true, true),
            ("on_tools_error_threshold", false, false),
        ] {
            let world = World::new();
            let document = format!(
                r#"{{"long_term_memory_strategy": [{{"long_term_memory_id": "{id}", "{field}": ["book"]}}]}}"#
            );
            let sessions = sessions(&world).configured(&document).unwrap();
            let session = filled(&world, &sessions, 1).await;
            let thread = sessions.thread(&session);
            world.history.append_many(&thread, call(ended(failed)), AppendOptions::default()).await.unwrap();
            begin(&sessions, &session, "what now").await.complete([]).await.unwrap();
            let left = world.history.count_messages(&thread).await.unwrap();
            let asked = world.shared.answers.load(Ordering::Relaxed) > 0;
            assert_eq!(left < 7 || asked, fires, "{id} {field} {failed}");
        }
    }
}
