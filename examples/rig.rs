//! Gives a `rig` agent a conversation and a knowledge base on any backend that provides histories and
//! vectors: `cargo run --features adapter-rig-0-44 --example rig -- sqlite:./larder.db`.
#![allow(clippy::print_stdout)]

use larder::Stores;
use larder::adapters::rig_0_44::{HistoryMemory, VectorIndex};
use larder::{AgentId, CollectionName, Namespace};
use rig_core::completion::Message;
use rig_core::driver::{DynModel, Exchange, Local, Model, Opened, Opening, Step, Transport};
use rig_core::embeddings::{
    Embed, EmbedError, Embedding, EmbeddingResponse, EmbeddingsBuilder, TextEmbedder,
};
use rig_core::error::ProviderError;
use rig_core::memory::ConversationMemory;
use rig_core::operation::Embedding as EmbeddingOp;
use rig_core::vector_store::request::{Filter, SearchFilter, VectorSearchRequest};
use rig_core::vector_store::{InsertDocuments, VectorStoreIndex};
use rig_core::wire::Capabilities;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Recipe {
    id: String,
    course: String,
    text: String,
}

impl Embed for Recipe {
    fn embed(&self, embedder: &mut TextEmbedder) -> Result<(), EmbedError> {
        embedder.embed(self.text.clone());
        Ok(())
    }
}

/// Counts letters instead of calling a model on a server, which `rig`'s clients provide.
#[derive(Debug, Clone)]
struct Letters;

impl Transport<Local<EmbeddingOp>> for Letters {
    fn send(&self, texts: Vec<String>, _: Exchange) -> Opening<Step<EmbeddingOp>> {
        let embeddings = texts.into_iter().map(|document| {
            let mut vec = vec![0.1; 26];
            for letter in document.bytes().filter(u8::is_ascii_alphabetic) {
                vec[usize::from(letter.to_ascii_lowercase() - b'a')] += 1.0;
            }
            Embedding { document, vec }
        });
        let step = Step::End(EmbeddingResponse::new(embeddings.collect()));
        Opening::ready(Opened::new(futures_util::stream::iter([Ok::<_, ProviderError>(step)])))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let urls = std::env::args().skip(1).fold(Stores::builder(), |builder, url| builder.url(url));
    let stores = urls.namespace(Namespace::new("example-rig")?).open().await?;

    let memory = HistoryMemory::new(stores.history()?, AgentId::new("cook")?);
    let session = "session-1".into();
    memory.append(&session, vec![Message::user("Something with aubergines?")]).await?;
    memory.append(&session, vec![Message::assistant("Imam bayildi.")]).await?;
    let remembered = memory.load(&session).await?;

    let wire = Local::new("letters").with_capabilities(Capabilities::embedding(16, 26));
    let model: DynModel<EmbeddingOp> = Model::new(wire, Letters).into();
    let index = VectorIndex::new(stores.vectors()?, CollectionName::new("recipes")?, model.clone());
    let recipe = |id: &str, course: &str, text: &str| Recipe {
        id: id.to_owned(),
        course: course.to_owned(),
        text: text.to_owned(),
    };
    let recipes = [
        recipe("imam", "main", "Aubergines, onions and tomatoes in oil"),
        recipe("baba", "starter", "Aubergines over fire, with tahini"),
        recipe("rice", "sweet", "Rice, milk, cinnamon"),
    ];
    index.insert_documents(EmbeddingsBuilder::new(model).documents(recipes)?.build().await?).await?;
    let main = Filter::eq("course", serde_json::json!("main"));
    let request = VectorSearchRequest::builder().query("aubergines").samples(2).filter(main).build();
    let found = index.top_n::<Recipe>(request).await?;
    let names: Vec<_> = found.iter().map(|found| found.document.id.as_str()).collect();
    println!("{} messages, found {}", remembered.len(), names.join(", "));
    stores.history()?.erase().await?;
    stores.vectors()?.erase().await?;
    stores.close().await;
    Ok(())
}
