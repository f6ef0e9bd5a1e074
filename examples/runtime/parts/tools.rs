//! The tools of the agents. Each tool is idempotent, because it may run again after a crash.

use std::fmt;
use std::sync::Arc;

use larder::{
    CollectionName, Document, DocumentId, Embedder, Embedding, Entity, EntityId, EntityType, Error,
    ErrorKind, GraphStore, NeighborQuery, PutMode, Relationship, RelationshipId, RelationshipType, Result,
    SearchRequest, ToolCall, ToolResult, VectorStore,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::board::Board;

/// The maximum number of hits of a search.
const HITS_MAX: usize = 2;

const GUIDE: [(&str, &str); 2] = [
    (
        "Bryggen",
        "Bryggen is the row of wooden houses along the eastern side of the harbour. Merchants of the \
         Hanseatic League lived and traded here for four centuries; fire took the houses many times, and \
         each time they were built again on the old ground. Sixty-two of them stand today, with workshops, \
         galleries and two museums. Go early, before the ships arrive. The fish market is five minutes away \
         at the head of the harbour, and so is the lower station of the funicular to Fløyen, which takes six \
         minutes to the top. It rains on two days of three: bring an umbrella.",
    ),
    (
        "Fish market",
        "The fish market is at the head of the harbour, half of it under a roof since 2012. Stalls sell \
         salmon, shrimps and crab to take away, most of them from seven in the morning. Of the restaurants \
         inside, Fjellskål is the one that buyers go to themselves: it serves the catch of the day. Tables \
         for the evening are gone by noon, so book before.",
    ),
];

/// Returns the descriptions of the tools for the model's server.
pub(super) fn descriptions() -> Vec<Value> {
    [
        ("read_guide", "Reads the guide book's page about a place.", &["place"][..]),
        ("remember", "Keeps a note for later, under an id.", &["id", "text"]),
        ("recall", "Searches the notes by meaning.", &["about"]),
        ("relate", "Notes how two places relate, for example `near`.", &["from", "kind", "to"]),
        ("neighbors", "Lists the places that are related to a place.", &["place"]),
        ("find_room", "Asks a hotel for a room.", &["hotel"]),
        ("delegate", "Gives the scout a task, under an id.", &["id", "title"]),
    ]
    .into_iter()
    .map(|(name, description, parameters)| {
        let properties: serde_json::Map<String, Value> =
            parameters.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        let schema = json!({"type": "object", "properties": properties, "required": parameters});
        json!({
            "type": "function",
            "function": {"name": name, "description": description, "parameters": schema},
        })
    })
    .collect()
}

/// The tools, with the stores that they use.
#[derive(Clone)]
pub(super) struct Tools {
    pub(super) vectors: Arc<dyn VectorStore>,
    pub(super) notes: CollectionName,
    pub(super) graph: Arc<dyn GraphStore>,
    pub(super) embedder: Arc<dyn Embedder>,
    /// The board for delegated tasks.
    pub(super) scout: Board,
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Named {
    #[serde(alias = "hotel")]
    place: String,
}

#[derive(Deserialize)]
struct About {
    about: String,
}

#[derive(Deserialize)]
struct Note {
    id: String,
    #[serde(alias = "title")]
    text: String,
}

#[derive(Deserialize)]
struct Relation {
    from: String,
    kind: String,
    to: String,
}

impl Tools {
    /// Runs a tool call. An error in the call becomes its result for the model; an error of a store is
    /// returned.
    pub(super) async fn run(&self, call: &ToolCall) -> Result<ToolResult> {
        match self.answer(call).await {
            Ok(text) => Ok(ToolResult::new(&call.id, text)),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => {
                Ok(ToolResult::error(&call.id, error.message()))
            }
            Err(error) => Err(error),
        }
    }

    async fn answer(&self, call: &ToolCall) -> Result<String> {
        match call.name.as_str() {
            "read_guide" => {
                let Named { place } = arguments(call)?;
                let page = GUIDE.iter().find(|(name, _)| *name == place);
                page.map(|(_, text)| (*text).to_owned())
                    .ok_or_else(|| refused("place", "not in the guide book"))
            }
            "remember" => self.remember(arguments(call)?).await,
            "recall" => {
                let About { about } = arguments(call)?;
                let hits = self.search(&about).await?;
                Ok(if hits.is_empty() { "no notes".to_owned() } else { hits.join("\n") })
            }
            "relate" => self.relate(arguments(call)?).await,
            "neighbors" => self.neighbors(arguments(call)?).await,
            "find_room" => {
                let Named { place } = arguments(call)?;
                if place == "Hotel Havn" {
                    return Ok("a double room with a view of the sea is free".to_owned());
                }
                Err(refused("hotel", "no hotel of this name"))
            }
            "delegate" => {
                let Note { id, text } = arguments(call)?;
                self.scout.add(&id, &text).await?;
                Ok("the scout will see to it".to_owned())
            }
            _ => Err(refused("name", "the agent has no tool with this name")),
        }
    }

    async fn remember(&self, note: Note) -> Result<String> {
        let document = Document::new(DocumentId::new(&note.id)?, note.text.clone());
        let document = document.with_embedding(self.embed(&note.text).await?);
        self.vectors.put(&self.notes, vec![document], PutMode::Upsert).await?;
        Ok("noted".to_owned())
    }

    /// Returns the notes nearest to a text, best first.
    pub(super) async fn search(&self, text: &str) -> Result<Vec<String>> {
        let request = SearchRequest::new(self.embed(text).await?).with_limit(HITS_MAX).with_score_min(0.2);
        let hits = self.vectors.search(&self.notes, &request).await?;
        Ok(hits.into_iter().map(|hit| hit.content).collect())
    }

    async fn embed(&self, text: &str) -> Result<Embedding> {
        let unexpected =
            || Error::new(ErrorKind::Unexpected, "runtime.embed", "the embedder gave no embedding");
        self.embedder.embed(&[text]).await?.into_iter().next().ok_or_else(unexpected)
    }

    async fn relate(&self, Relation { from, kind, to }: Relation) -> Result<String> {
        let place = EntityType::new("place")?;
        let (source, target) = (EntityId::new(&from)?, EntityId::new(&to)?);
        let ends = [source.clone(), target.clone()].map(|id| Entity::new(id, place.clone()));
        self.graph.upsert_entities(ends.into()).await?;
        let id = RelationshipId::new(format!("{from}/{kind}/{to}"))?;
        let relationship = Relationship::new(id, RelationshipType::new(&kind)?, source, target);
        self.graph.upsert_relationships(vec![relationship]).await?;
        Ok("noted".to_owned())
    }

    async fn neighbors(&self, Named { place }: Named) -> Result<String> {
        let around = self.graph.neighbors(&EntityId::new(&place)?, &NeighborQuery::depth(2)).await?;
        let mut lines: Vec<String> = around
            .relationships
            .iter()
            .map(|edge| format!("{} {} {}", edge.source, edge.relationship_type, edge.target))
            .collect();
        lines.sort();
        Ok(if lines.is_empty() { "none".to_owned() } else { lines.join("; ") })
    }
}

fn refused(field: &'static str, message: &'static str) -> Error {
    Error::invalid("runtime.tool", field, message)
}

fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T> {
    serde_json::from_value(call.arguments_json()?)
        .map_err(|_| refused("arguments", "the arguments are not those of the tool"))
}
