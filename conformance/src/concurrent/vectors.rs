//! Documents: three ids of one collection. Each is a register with two tags in its metadata. A write of the
//! document clears the tags, and a merge sets one of them.
//!
//! The specification models a search as one look at each document, all within the search's span. The contract
//! promises that each document is found in its current state (VEC-031), but not that all states are from one
//! moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_kernel::{
    Capabilities, CollectionName, Contract, Document, DocumentId, Embedding, Metadata, MetadataMode,
    MetadataUpdate, PutMode, Result, SearchRequest, VectorStore,
};
use serde::{Deserialize, Serialize};

use super::check::{Record, Reply, Spec};
use super::rng::Rng;
use super::subject::{Subject, Turn, number_in, or_nothing};
use crate::harness::StoreSet;

const DOCUMENTS: u8 = 3;
const TAGS: [&str; 2] = ["first", "second"];

/// A collection.
pub(crate) struct Collection;

/// The state of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Held {
    value: u32,
    tags: [Option<u32>; 2],
}

impl Held {
    fn new(value: u32) -> Self {
        Self { value, tags: [None; 2] }
    }

    fn show(self) -> String {
        let tags = self.tags.map(|tag| tag.map_or_else(|| "-".to_owned(), |tag| tag.to_string()));
        format!("v{} [{}]", self.value, tags.join(" "))
    }
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Upsert {
        id: u8,
        value: u32,
    },
    PutIfAbsent {
        id: u8,
        value: u32,
    },
    /// A merge of one tag into the metadata.
    Tag {
        id: u8,
        tag: bool,
        value: u32,
    },
    Get {
        id: u8,
    },
    Delete {
        id: u8,
    },
    Search,
    /// The result of a search for one document.
    Look {
        id: u8,
    },
}

/// A result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// True if the document was written.
    Written(bool),
    /// True if the document exists.
    Tagged(bool),
    Seen(Option<Held>),
    Deleted(u64),
    Found(BTreeMap<u8, Held>),
}

impl Spec for Collection {
    type State = BTreeMap<u8, Held>;
    type Op = Op;
    type Answer = Answer;

    fn step(state: &Self::State, op: &Op, reply: &Reply<Answer>) -> Option<Self::State> {
        let with = |id, value| {
            let mut next = state.clone();
            next.insert(id, Held::new(value));
            next
        };
        let without = |id| {
            let mut next = state.clone();
            next.remove(&id);
            next
        };
        let tagged = |id, tag, value| {
            let mut next = state.clone();
            next.get_mut(&id)?.tags[usize::from(tag)] = Some(value);
            Some(next)
        };
        match (*op, reply) {
            (Op::Tag { id, tag, value }, Reply::Answered(Answer::Tagged(true)) | Reply::Unknown) => {
                tagged(id, tag, value)
            }
            (Op::Tag { id, .. }, Reply::Answered(Answer::Tagged(false))) => {
                (!state.contains_key(&id)).then(|| state.clone())
            }
            (Op::Upsert { id, value }, Reply::Answered(Answer::Written(true)) | Reply::Unknown) => {
                Some(with(id, value))
            }
            (Op::PutIfAbsent { id, value }, Reply::Answered(Answer::Written(true)) | Reply::Unknown) => {
                (!state.contains_key(&id)).then(|| with(id, value))
            }
            (Op::PutIfAbsent { id, .. }, Reply::Answered(Answer::Written(false))) => {
                state.contains_key(&id).then(|| state.clone())
            }
            (Op::Get { id } | Op::Look { id }, Reply::Answered(Answer::Seen(seen))) => {
                (state.get(&id) == seen.as_ref()).then(|| state.clone())
            }
            (Op::Delete { id }, Reply::Answered(Answer::Deleted(count))) => {
                (u64::from(state.contains_key(&id)) == *count).then(|| without(id))
            }
            (Op::Delete { id }, Reply::Unknown) => Some(without(id)),
            _ => None,
        }
    }

    fn changes(op: &Op, reply: &Reply<Answer>) -> bool {
        let writes = !matches!(op, Op::Get { .. } | Op::Look { .. } | Op::Search);
        let nothing = matches!(
            reply,
            Reply::Refused(_)
                | Reply::Answered(Answer::Written(false) | Answer::Tagged(false) | Answer::Deleted(0))
        );
        writes && !nothing
    }

    fn part(op: &Op) -> Option<u8> {
        match *op {
            Op::Upsert { id, .. }
            | Op::PutIfAbsent { id, .. }
            | Op::Tag { id, .. }
            | Op::Get { id }
            | Op::Delete { id }
            | Op::Look { id } => Some(id),
            Op::Search => None,
        }
    }
}

fn collection() -> Result<CollectionName> {
    CollectionName::new("collection")
}

fn id(number: u8) -> Result<DocumentId> {
    DocumentId::new(name(number))
}

fn name(id: u8) -> String {
    format!("d{id}")
}

/// Returns an embedding that distinguishes the values.
fn embedding(value: u32) -> Result<Embedding> {
    let small = f32::from(u16::try_from(value % 1_000).unwrap_or(0));
    Embedding::new(vec![1.0, small / 1_000.0])
}

fn document(number: u8, value: u32) -> Result<Document> {
    Ok(Document::new(id(number)?, format!("v{value}")).with_embedding(embedding(value)?))
}

/// Returns the state of a document; an impossible value if text and embedding are not from one write.
fn held(document: &Document) -> Result<Held> {
    let held = state_of(&document.content, &document.metadata);
    let whole = document.embedding.as_ref() == Some(&embedding(held.value)?);
    Ok(if whole { held } else { Held::new(u32::MAX) })
}

fn state_of(content: &str, metadata: &Metadata) -> Held {
    let tag = |name| Some(u32::try_from(metadata.get(name)?.as_u64()?).unwrap_or(u32::MAX));
    Held { value: number_in(content, "v"), tags: TAGS.map(tag) }
}

impl Subject for Collection {
    const CONTRACT: Contract = Contract::Vectors;
    type Store = dyn VectorStore;
    type Memory = ();

    fn store(stores: &StoreSet) -> Result<Arc<Self::Store>> {
        stores.vectors()
    }

    fn initial() -> Self::State {
        BTreeMap::new()
    }

    fn choose((): &(), rng: &mut Rng, turn: Turn, _: &Capabilities) -> Op {
        let id = rng.below(DOCUMENTS);
        let value = turn.value();
        match rng.below(100) {
            0..22 => Op::Upsert { id, value },
            22..40 => Op::PutIfAbsent { id, value },
            40..54 => Op::Delete { id },
            54..64 => Op::Search,
            64..78 => Op::Tag { id, tag: rng.below(2) == 1, value },
            _ => Op::Get { id },
        }
    }

    async fn call(store: &Self::Store, op: &Op) -> Result<Answer> {
        let collection = collection()?;
        match *op {
            Op::Upsert { id, value } => {
                let report = store.put(&collection, vec![document(id, value)?], PutMode::Upsert).await?;
                Ok(Answer::Written(report.written.len() == 1 && report.ignored.is_empty()))
            }
            Op::PutIfAbsent { id, value } => {
                let report = store.put(&collection, vec![document(id, value)?], PutMode::IfAbsent).await?;
                Ok(Answer::Written(report.ignored.is_empty()))
            }
            Op::Get { id } | Op::Look { id } => {
                let mut found = store.get(&collection, &[self::id(id)?]).await?;
                let document = found.pop().flatten();
                Ok(Answer::Seen(document.as_ref().map(held).transpose()?))
            }
            Op::Tag { id, tag, value } => {
                let metadata = Metadata::new().with(TAGS[usize::from(tag)], value);
                let update = MetadataUpdate::new(self::id(id)?, metadata);
                let report = store.update_metadata(&collection, vec![update], MetadataMode::Merge).await?;
                Ok(Answer::Tagged(report.updated.len() == 1 && report.missing.is_empty()))
            }
            Op::Delete { id } => Ok(Answer::Deleted(store.delete(&collection, &[self::id(id)?]).await?)),
            Op::Search => {
                let request = SearchRequest::new(embedding(0)?).with_limit(10);
                let hits = store.search(&collection, &request).await?;
                let number = |text: &str| u8::try_from(number_in(text, "d")).unwrap_or(u8::MAX);
                let seen =
                    hits.iter().map(|hit| (number(hit.id.as_str()), state_of(&hit.content, &hit.metadata)));
                Ok(Answer::Found(seen.collect()))
            }
        }
    }

    fn learn((): &mut (), _: &Op, _: &Answer) {}

    fn expand(record: Record<Op, Answer>) -> Vec<Record<Op, Answer>> {
        let Reply::Answered(Answer::Found(found)) = &record.reply else { return vec![record] };
        let look = |id| {
            let reply = Reply::Answered(Answer::Seen(found.get(&id).copied()));
            Record { op: Op::Look { id }, reply, ..record.clone() }
        };
        // A hit with an unknown id becomes a look, too, and then fails the check.
        let strange = found.keys().copied().filter(|id| *id >= DOCUMENTS);
        (0..DOCUMENTS).chain(strange).map(look).collect()
    }

    fn clause(op: &Op, _: &Reply<Answer>) -> &'static str {
        match op {
            Op::Upsert { .. } => "VEC-003",
            Op::PutIfAbsent { .. } => "VEC-010",
            Op::Tag { .. } => "VEC-048",
            Op::Get { .. } => "STORE-002",
            Op::Delete { .. } => "VEC-034",
            Op::Search | Op::Look { .. } => "VEC-031",
        }
    }

    fn show_op(op: &Op) -> String {
        match *op {
            Op::Upsert { id, value } => format!("upsert {} := v{value}", name(id)),
            Op::PutIfAbsent { id, value } => format!("put {} := v{value} if absent", name(id)),
            Op::Tag { id, tag, value } => {
                format!("merge {} := {value} into {}", TAGS[usize::from(tag)], name(id))
            }
            Op::Get { id } => format!("get {}", name(id)),
            Op::Delete { id } => format!("delete {}", name(id)),
            Op::Search => "search".to_owned(),
            Op::Look { id } => format!("search, as to {}", name(id)),
        }
    }

    fn show_answer(_: &Op, answer: &Answer) -> String {
        match answer {
            Answer::Written(true) => "written".to_owned(),
            Answer::Written(false) => "left alone".to_owned(),
            Answer::Tagged(true) => "merged".to_owned(),
            Answer::Tagged(false) => "no document".to_owned(),
            Answer::Seen(held) => or_nothing(*held, Held::show),
            Answer::Deleted(count) => format!("{count} deleted"),
            Answer::Found(found) => Self::show_state(found),
        }
    }

    fn show_state(state: &Self::State) -> String {
        let documents: Vec<String> =
            state.iter().map(|(id, held)| format!("{} = {}", name(*id), held.show())).collect();
        if documents.is_empty() { "no document".to_owned() } else { documents.join(", ") }
    }
}
