//! Sessions that documents configure, and sessions that agents share.

use std::sync::Arc;

use async_trait::async_trait;
use larder_agents::context::memory::{LimitedWindow, MemoryFilter};
use larder_agents::session::{Persisted, SessionProfile, Sessions};
use larder_agents::storage::InMemoryVectorStore;
use larder_kernel::{
    AgentId, AgentRole, Author, ChatMessage, CollectionName, Document, DocumentId, Embedder, Embedding,
    Metadata, PutMode, Result, SessionId,
};

use crate::everywhere::session_support::{World, stored, texts, turn, user};
use crate::everywhere::support::ScriptedModel;
use crate::test_backend::TestBackend as Backend;

async fn filled(sessions: &Sessions, interactions: usize) -> SessionId {
    let id = sessions.create(SessionProfile::Everything, "").await.unwrap();
    for number in 0..interactions {
        let (question, answer) = (format!("m{} a b", 2 * number + 1), format!("m{} c d", 2 * number + 2));
        turn(sessions, &id, &question, &answer).await;
    }
    id
}

/// Proves: ALQ-6, ALQ-8
pub(crate) async fn a_document_runs_long_term_memory_first_and_short_term_memory_on_what_is_kept(
    backend: &Backend,
) {
    let world = World::new(backend).await;
    // Each interaction has 6 tokens. The summary of the three oldest has one more than its heading.
    for (budget, shown) in [(6, 1), (12, 2), (100, 2)] {
        let id = filled(&world.sessions(), 5).await;
        let document = format!(
            r#"{{"profile": {{
                "short_term_memory_strategy": [
                    {{"memory_strategy_id": "max_tokens", "memory_max_tokens": {budget}}}
                ],
                "long_term_memory_strategy": [
                    {{"long_term_memory_id": "summarizer", "interaction_threshold_qty": 4,
                      "interaction_keep": 2, "cod_max_loops": 1}}
                ],
                "persistence_strategy": "EPHEMERAL"
            }}}}"#
        );
        let model = ScriptedModel::marks();
        let sessions = world.sessions().with_summarizer(model.clone()).configured(&document).unwrap();
        let told = sessions.explain_window_asking(&id, vec![ChatMessage::user("new")]).await.unwrap();
        let asked = model.requests.lock().unwrap();
        let material = &asked[0].messages.last().unwrap().text;
        let read: Vec<bool> = (1..=8).map(|mark| material.contains(&format!("m{mark} "))).collect();
        assert_eq!(
            read,
            [true, true, true, true, true, true, false, false],
            "the summary reads all that leaves"
        );
        let texts: Vec<&str> = told.window.messages.iter().map(|message| message.message.text()).collect();
        let verbatim = texts.iter().filter(|text| text.ends_with(" b") || text.ends_with(" d")).count();
        assert_eq!(verbatim, 2 * shown, "{budget}: {texts:?}");
    }
}

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

/// Proves: ALQ-9
pub(crate) async fn summaries_that_fit_the_question_are_found_in_the_vector_store(backend: &Backend) {
    let world = World::new(backend).await;
    let room = backend.room_with(Some(Arc::new(Cities))).await;
    // A backend without vectors is combined with one that has them.
    let in_memory = || Arc::new(InMemoryVectorStore::new().with_embedder(Arc::new(Cities)));
    let vectors = room.vectors().unwrap_or_else(|| in_memory());
    let document = r#"{"long_term_memory_strategy": [{"long_term_memory_id": "summarizer",
        "interaction_threshold_qty": 3, "cod_max_loops": 1,
        "knowledge_base": {"collection_id": "session-summaries", "search_mode": "always"}}]}"#;
    let sessions = world
        .sessions()
        .with_summarizer(ScriptedModel::marks())
        .with_knowledge(vectors.clone(), Arc::new(Cities))
        .configured(document)
        .unwrap();
    let id = filled(&world.sessions(), 4).await;
    let thread = sessions.thread(&id);
    let collection = CollectionName::new("session-summaries").unwrap();
    let summary = |session: &str, number: i64, text: &str| {
        let metadata = Metadata::new()
            .with("agent", thread.agent.as_str())
            .with("session", session)
            .with("up_to", number);
        Document::new(DocumentId::new(format!("{session}/{number}")).unwrap(), text).with_metadata(metadata)
    };
    let documents = vec![
        summary(id.as_str(), 1, "They spoke of Rome."),
        summary(id.as_str(), 2, "They spoke of Oslo."),
        summary("another", 3, "Somebody else in Oslo."),
    ];
    vectors.put(&collection, documents, PutMode::Upsert).await.unwrap();
    let inference = sessions.begin(&id, user("What about Oslo?")).await.unwrap();
    let seen = texts(&inference).join("\n");
    let (oslo, rome) = (seen.find("They spoke of Oslo.").unwrap(), seen.find("Rome").unwrap());
    assert!(oslo < rome && !seen.contains("Somebody else"), "{seen}");
    inference.complete([ChatMessage::assistant("Snow.")]).await.unwrap();
    assert_eq!(vectors.count(&collection, None).await.unwrap(), 4, "the new summary is stored for searches");
}

fn author(agent: &str, role: &str) -> Author {
    Author::new(AgentId::new(agent).unwrap()).with_role(AgentRole::new(role).unwrap())
}

/// Proves: AKKA-1, AKKA-2, AKKA-3, AKKA-4
pub(crate) async fn agents_share_a_session_through_their_own_memories(backend: &Backend) {
    let world = World::new(backend).await;
    let plain = || world.sessions();
    let (planner, critic) =
        (plain().with_author(author("planner", "lead")), plain().with_author(author("critic", "internal")));
    let id = planner.create(SessionProfile::Everything, "").await.unwrap();
    turn(&planner, &id, "plan", "planned").await;
    turn(&critic, &id, "check", "checked").await;
    let seen = async |memory: LimitedWindow| {
        let sessions = plain().with_memory(memory).unwrap();
        texts(&sessions.begin(&id, user("x")).await.unwrap())
    };
    let internal = MemoryFilter::new().exclude_role(AgentRole::new("internal").unwrap());
    let agents = [AgentId::new("planner").unwrap(), AgentId::new("critic").unwrap()];
    let either = MemoryFilter::new().include_agent(agents[0].clone()).include_agent(agents[1].clone());
    assert_eq!(seen(LimitedWindow::new()).await, ["plan", "planned", "check", "checked", "x"]);
    assert_eq!(seen(LimitedWindow::new().filtered(internal.clone())).await, ["plan", "planned", "x"]);
    assert_eq!(seen(LimitedWindow::new().filtered(either.and(internal))).await, ["plan", "planned", "x"]);
    assert_eq!(seen(LimitedWindow::new().read_last(1)).await, ["checked", "x"]);
    assert_eq!(seen(LimitedWindow::new().with_max_bytes(12)).await, ["check", "checked", "x"]);
    assert_eq!(seen(LimitedWindow::new().with_max_bytes(11)).await, ["checked", "x"]);

    let reader = plain().with_memory(LimitedWindow::new().read_only()).unwrap();
    let inference = reader.begin(&id, user("unheard")).await.unwrap();
    assert_eq!(inference.complete([]).await.unwrap(), Persisted::Nothing);
    let writer = plain().with_memory(LimitedWindow::new().write_only()).unwrap();
    let inference = writer.begin(&id, user("noted")).await.unwrap();
    assert_eq!(texts(&inference), ["noted"]);
    inference.complete([]).await.unwrap();
    assert_eq!(stored(&planner, &id).await, ["plan", "planned", "check", "checked", "noted"]);
    let messages = planner.get(&id).await.unwrap().messages;
    let authors: Vec<_> = messages.iter().map(|stored| stored.message.author.clone()).collect();
    assert_eq!(authors[0], Some(author("planner", "lead")));
    assert_eq!(authors[3], Some(author("critic", "internal")));
}

/// Proves: AKKA-2, AKKA-9, ATH-10
pub(crate) async fn the_memory_of_agents_is_on_with_156_kib_unless_a_document_says_otherwise(
    backend: &Backend,
) {
    let world = World::new(backend).await;
    let configured = |memory: &str| {
        world.sessions().configured(&format!(r#"{{"agent": {{"memory": {memory}}}}}"#)).unwrap()
    };
    let (default, off) = (configured("{}"), configured(r#"{"enabled": false}"#));
    let id = default.create(default.profile().clone(), "").await.unwrap();
    turn(&off, &id, "unheard", "unheard").await;
    assert_eq!(stored(&default, &id).await, [] as [String; 0]);
    let half = "x".repeat(156 * 1024 / 2);
    turn(&default, &id, &half, &half).await;
    let seen = async |sessions: &Sessions| texts(&sessions.begin(&id, user("?")).await.unwrap()).len();
    assert_eq!(seen(&default).await, 3, "156 KiB are seen");
    turn(&default, &id, "a", "b").await;
    assert_eq!(seen(&default).await, 4, "the oldest leaves first");
    assert_eq!(seen(&configured(r#"{"limited-window": {"max-size": "2B"}}"#)).await, 3);
    assert_eq!(seen(&world.sessions()).await, 5, "without a document everything is seen");
    assert_eq!(seen(&off).await, 1);
}
