//! `rig`'s memory and vector index over memory and SQLite.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]

use larder::Stores;
use larder::adapters::rig_0_44::{HistoryMemory, VectorIndex};
use larder_kernel::{
    AgentId, ChatMessage, CollectionName, ErrorKind, HistoryProviderExt, Thread, ToolCall, ToolResult,
};
use rig_core::completion::Message;
use rig_core::driver::{DynModel, Exchange, Local, Model, Opened, Opening, Step, Transport};
use rig_core::embeddings::{
    Embed, EmbedError, Embedding, EmbeddingResponse, EmbeddingsBuilder, TextEmbedder,
};
use rig_core::error::ProviderError;
use rig_core::memory::{ConversationMemory, MemoryError};
use rig_core::message::UserContent;
use rig_core::operation::Embedding as EmbeddingOp;
use rig_core::tool::PortableTool;
use rig_core::vector_store::request::{Filter, SearchFilter, VectorSearchRequest};
use rig_core::vector_store::{InsertDocuments, VectorStoreError, VectorStoreIndex};
use rig_core::wire::Capabilities;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Embeds a text: its first letter decides the direction, and its length adds a little.
#[derive(Debug, Clone)]
struct Letters;

impl Transport<Local<EmbeddingOp>> for Letters {
    fn send(&self, texts: Vec<String>, _: Exchange) -> Opening<Step<EmbeddingOp>> {
        let embeddings = texts.into_iter().map(|document| {
            let mut vec = vec![0.0; 27];
            vec[usize::from(document.as_bytes()[0].to_ascii_lowercase() - b'a')] = 10.0;
            vec[26] = f64::from(u32::try_from(document.len()).unwrap());
            Embedding { document, vec }
        });
        let step = Step::End(EmbeddingResponse::new(embeddings.collect()));
        Opening::ready(Opened::new(futures_util::stream::iter([Ok::<_, ProviderError>(step)])))
    }
}

fn model() -> DynModel<EmbeddingOp> {
    Model::new(Local::new("letters").with_capabilities(Capabilities::embedding(8, 27)), Letters).into()
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Note {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    year: u32,
    texts: Vec<String>,
}

impl Note {
    fn new(id: Option<&str>, year: u32, texts: &[&str]) -> Self {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        Self { id: id.map(str::to_owned), year, texts }
    }
}

impl Embed for Note {
    fn embed(&self, embedder: &mut TextEmbedder) -> Result<(), EmbedError> {
        self.texts.iter().for_each(|text| embedder.embed(text.clone()));
        Ok(())
    }
}

/// The stores and their folder.
async fn places() -> Vec<(Stores, tempfile::TempDir)> {
    let mut places = Vec::new();
    for embedded in ["memory:", "sqlite:"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("larder.db");
        let url =
            if embedded == "memory:" { embedded.to_owned() } else { format!("sqlite:{}", path.display()) };
        places.push((larder::open(&url).await.unwrap(), folder));
    }
    places
}

fn collection() -> CollectionName {
    CollectionName::new("notes").unwrap()
}

async fn insert(index: &VectorIndex, notes: Vec<Note>) -> Result<(), VectorStoreError> {
    let embedded = EmbeddingsBuilder::new(model()).documents(notes).unwrap().build().await.unwrap();
    index.insert_documents(embedded).await
}

async fn ids(index: &VectorIndex, query: &str, samples: u64) -> Vec<String> {
    let request = VectorSearchRequest::builder().query(query).samples(samples).build();
    index.top_n_ids(request).await.unwrap().into_iter().map(|found| found.id).collect()
}

fn kind(error: &VectorStoreError) -> Option<ErrorKind> {
    let VectorStoreError::DatastoreError(source) = error else { return None };
    source.downcast_ref::<larder_kernel::Error>().map(larder_kernel::Error::kind)
}

#[tokio::test]
async fn a_conversation_is_the_thread_of_an_agent() {
    for (stores, _folder) in places().await {
        let history = stores.set().history().unwrap();
        let memory = HistoryMemory::new(history.clone(), AgentId::new("a").unwrap());
        let (one, other) = ("one".into(), "other".into());
        assert!(memory.load(&one).await.unwrap().is_empty());
        let turn = vec![Message::user("Hi"), Message::assistant("Hello")];
        memory.append(&one, turn.clone()).await.unwrap();
        memory.append(&one, Vec::new()).await.unwrap();
        memory.append(&other, vec![Message::user("Else")]).await.unwrap();
        assert_eq!(memory.load(&one).await.unwrap(), turn);
        let thread = Thread::new("a", "one").unwrap();
        assert_eq!(history.count_messages(&thread).await.unwrap(), 2);
        memory.clear(&one).await.unwrap();
        assert!(memory.load(&one).await.unwrap().is_empty());
        assert_eq!(memory.load(&other).await.unwrap().len(), 1);
        let error = memory.append(&"".into(), turn).await.unwrap_err();
        let MemoryError::Backend(source) = error else { panic!("{error}") };
        let source = source.downcast_ref::<larder_kernel::Error>().unwrap();
        assert_eq!(source.kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn messages_of_others_keep_their_tool_calls_and_results() {
    for (stores, _folder) in places().await {
        let history = stores.set().history().unwrap();
        let thread = Thread::new("a", "one").unwrap();
        let call = ToolCall::new("c1", "weather", r#"{"city":"Oslo"}"#);
        for message in [
            ChatMessage::user("Weather?"),
            ChatMessage::assistant("").with_tool_call(call),
            ChatMessage::tool([ToolResult::new("c1", "Snow")]),
            ChatMessage::assistant("Snow."),
        ] {
            history.append(&thread, message).await.unwrap();
        }
        let memory = HistoryMemory::new(history, AgentId::new("a").unwrap());
        let loaded = memory.load(&"one".into()).await.unwrap();
        let Message::User { content } = &loaded[2] else { panic!("{loaded:?}") };
        let UserContent::ToolResult(result) = &content[0] else { panic!("{content:?}") };
        assert_eq!((result.name.as_str(), result.call.wire().as_ref()), ("weather", "c1"));
        let window = memory.clone().with_newest(2).load(&"one".into()).await.unwrap();
        assert_eq!(window, loaded[3..]);
        let window = memory.with_newest(3).load(&"one".into()).await.unwrap();
        assert_eq!(window, loaded[1..]);
    }
}

#[tokio::test]
async fn documents_are_found_by_their_nearest_text_once() {
    for (stores, _folder) in places().await {
        let index = VectorIndex::new(stores.set().vectors().unwrap(), collection(), model());
        let many: Vec<_> = (0..40).map(|number| format!("a{}", "x".repeat(number))).collect();
        let many = Note { texts: many, ..Note::new(Some("many"), 2020, &[]) };
        let notes = vec![
            many.clone(),
            Note::new(Some("pear"), 2021, &["pear", "banana"]),
            Note::new(
                Some("apple"),
                2022,
                &["apple as such and with more words than the others have by far, so far"],
            ),
        ];
        insert(&index, notes.clone()).await.unwrap();
        assert_eq!(ids(&index, "axx", 2).await, ["many", "apple"]);
        assert_eq!(ids(&index, "bxxxxx", 1).await, ["pear"]);
        assert_eq!(ids(&index, "a", 10).await.len(), 3);
        assert!(ids(&index, "a", 0).await.is_empty());
        let filter = Filter::gt("year", json!(2020)).and(Filter::lt("year", json!(2022.0)));
        let request = VectorSearchRequest::builder().query("axx").samples(3).filter(filter).build();
        let found = index.top_n::<Note>(request).await.unwrap();
        assert_eq!((found.len(), &found[0].document), (1, &notes[1]));
        let request = VectorSearchRequest::builder().query("axx").samples(3).threshold(0.99).build();
        let found = index.top_n::<Note>(request).await.unwrap();
        assert_eq!((found.len(), found[0].score > 0.99), (1, true));

        // Fewer texts than before: the index must drop the others.
        insert(&index, vec![Note::new(Some("many"), 2023, &["zebra"])]).await.unwrap();
        assert_eq!(ids(&index, "axx", 1).await, ["apple"]);
        assert_eq!(stores.set().vectors().unwrap().count(&collection(), None).await.unwrap(), 4);
    }
}

#[tokio::test]
async fn a_document_without_an_id_is_inserted_once_and_the_index_is_a_tool() {
    for (stores, _folder) in places().await {
        let index = VectorIndex::new(stores.set().vectors().unwrap(), collection(), model());
        let note = Note::new(None, 2020, &["pear"]);
        for _ in 0..2 {
            insert(&index, vec![note.clone()]).await.unwrap();
        }
        let text =
            EmbeddingsBuilder::new(model()).document("quince".to_owned()).unwrap().build().await.unwrap();
        index.insert_documents(text).await.unwrap();
        assert_eq!(stores.set().vectors().unwrap().count(&collection(), None).await.unwrap(), 2);
        let request = VectorSearchRequest::builder().query("quince").samples(1).build();
        let found = index.call(request).await.unwrap();
        assert_eq!((found[0].document.clone(), found[0].id.len()), (json!("quince"), 64));
    }
}

#[tokio::test]
async fn invalid_input_is_refused_completely_and_named() {
    for (stores, _folder) in places().await {
        let vectors = stores.set().vectors().unwrap();
        let index = VectorIndex::new(vectors.clone(), collection(), model());
        let embedded = |vec: Vec<f64>| vec![Embedding { document: "d".to_owned(), vec }];
        let good = || Note::new(Some("good"), 1, &["good"]);
        let bad = [
            (Note::new(Some("none"), 1, &[]), Vec::new()),
            (Note::new(Some("zero"), 1, &[]), embedded(vec![0.0; 27])),
            (Note::new(Some("huge"), 1, &[]), embedded(vec![1e300; 27])),
            (Note::new(Some("nan"), 1, &[]), embedded(vec![f64::NAN; 27])),
            (Note::new(Some("short"), 1, &[]), embedded(vec![1.0; 3])),
            (Note::new(Some("a\u{1f}1"), 1, &[]), embedded(vec![1.0; 27])),
            (Note::new(Some(""), 1, &[]), embedded(vec![1.0; 27])),
            (Note::new(Some("nul\0"), 1, &[]), embedded(vec![1.0; 27])),
            (Note::new(Some("large"), 1, &["x".repeat(70_000).as_str()]), embedded(vec![1.0; 27])),
        ];
        for (note, embeddings) in bad {
            let error =
                index.insert_documents(vec![(good(), embedded(vec![1.0; 27])), (note, embeddings)]).await;
            assert_eq!(kind(&error.unwrap_err()), Some(ErrorKind::InvalidInput));
        }
        assert_eq!(vectors.count(&collection(), None).await.unwrap(), 0);
        let request = VectorSearchRequest::builder().query("a").samples(10_001).build();
        let error = index.top_n_ids(request).await.unwrap_err();
        assert!(matches!(error, VectorStoreError::SamplesOutOfRange { requested: 10_001, max: 10_000 }));
        insert(&index, vec![good()]).await.unwrap();
        let request = VectorSearchRequest::builder().query("good").samples(1).build();
        let error = index.top_n::<Vec<Value>>(request).await.unwrap_err();
        assert!(matches!(error, VectorStoreError::JsonError(_)));
    }
}
