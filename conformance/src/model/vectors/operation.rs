//! The operations on documents: their random generation, and their Rust form.

use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Filter, MetadataMode, MetadataUpdate, PageRequest,
    PutMode, SearchRequest,
};

use crate::model::recorder::{json, json_text, owned_id, owned_text, with};
use crate::model::rng::{Rng, valid};
use crate::model::shared::{filter, limit, metadata, request};

#[derive(Debug, Clone)]
pub(in crate::model) enum Operation {
    Put { collection: CollectionName, documents: Vec<Document>, mode: PutMode },
    UpdateMetadata { collection: CollectionName, updates: Vec<MetadataUpdate>, mode: MetadataMode },
    Get { collection: CollectionName, ids: Vec<DocumentId> },
    Search { collection: CollectionName, request: SearchRequest },
    SearchBatch { collection: CollectionName, requests: Vec<SearchRequest> },
    Delete { collection: CollectionName, ids: Vec<DocumentId> },
    DeleteMatching { collection: CollectionName, filter: Filter },
    Count { collection: CollectionName, filter: Option<Filter> },
    List { collection: CollectionName, page: PageRequest<DocumentId> },
    ListMatching { collection: CollectionName, filter: Filter, page: PageRequest<DocumentId> },
    Collections { page: PageRequest<CollectionName> },
    Drop { collection: CollectionName },
    Erase,
}

pub(super) fn draw(rng: &mut Rng<'_>) -> Operation {
    match rng.weighted(&[12, 3, 10, 3, 3, 3, 3, 3, 2, 1, 1, 4, 3]) {
        1 => Operation::Get { collection: few(rng), ids: ids(rng) },
        2 => Operation::Search { collection: few(rng), request: search(rng) },
        3 => {
            let count = rng.of(&[1_usize, 2, 0]);
            Operation::SearchBatch {
                collection: few(rng),
                requests: (0..count).map(|_| search(rng)).collect(),
            }
        }
        4 => Operation::Delete { collection: few(rng), ids: ids(rng) },
        5 => Operation::DeleteMatching { collection: few(rng), filter: filter(rng) },
        6 => Operation::Count { collection: few(rng), filter: (rng.below(2) == 1).then(|| filter(rng)) },
        7 => Operation::List { collection: few(rng), page: request(rng, document) },
        8 => Operation::Collections { page: request(rng, |rng| valid(CollectionName::new(rng.id()))) },
        9 => Operation::Drop { collection: few(rng) },
        10 if rng.one_in(4) => Operation::Erase,
        11 => Operation::UpdateMetadata {
            collection: few(rng),
            updates: updates(rng),
            mode: rng.of(&[MetadataMode::Replace, MetadataMode::Merge]),
        },
        12 => Operation::ListMatching {
            collection: few(rng),
            filter: filter(rng),
            page: request(rng, document),
        },
        _ => Operation::Put {
            collection: few(rng),
            mode: rng.of(&[PutMode::Upsert, PutMode::IfAbsent]),
            documents: documents(rng),
        },
    }
}

/// Draws from few collections, so that documents share them.
fn few(rng: &mut Rng<'_>) -> CollectionName {
    let index = rng.of(&[0_usize, 0, 0, 0, 1, 2]);
    valid(CollectionName::new(&rng.ids.0[index]))
}

fn document(rng: &mut Rng<'_>) -> DocumentId {
    valid(DocumentId::new(rng.id()))
}

fn ids(rng: &mut Rng<'_>) -> Vec<DocumentId> {
    let count = rng.of(&[1_usize, 2, 3, 0]);
    (0..count).map(|_| document(rng)).collect()
}

/// Directions whose scores all differ clearly, or that are equal at another length.
const PLANE: [[f32; 2]; 10] = [
    [1.0, 0.0],
    [0.0, 1.0],
    [-1.0, 0.0],
    [0.6, 0.8],
    [2.0, 0.0],
    [-0.0, 1.0],
    [1e-10, 1e-10],
    [1e15, -1e15],
    [0.1, 0.7],
    [-0.8, 0.6],
];

/// Draws an embedding of the plane, sometimes of another dimension.
fn embedding(rng: &mut Rng<'_>) -> Embedding {
    match rng.below(14) {
        10 => valid(Embedding::new(vec![3.0])),
        11 => valid(Embedding::new(vec![0.0, 0.0, 1.0])),
        other => valid(Embedding::new(PLANE[other % PLANE.len()].to_vec())),
    }
}

const TEXTS: [&str; 5] = ["t", "", "é\0'\"\\", "e\u{301}", "\u{1f980}%_"];

/// Draws up to four documents, starting from one of the script's ids; sometimes none, the same twice, or one
/// without embedding.
fn documents(rng: &mut Rng<'_>) -> Vec<Document> {
    let (count, first) = (rng.of(&[1_usize, 2, 4, 1, 3, 2, 0]), rng.below(4));
    let (kind, first_embedding, other) = (rng.below(32), embedding(rng), rng.below(10));
    let (content, metadata) = (rng.of(&TEXTS), metadata(rng));
    (0..count)
        .map(|number| {
            let name = if kind == 30 { first } else { (first + number) % 4 };
            let id = valid(DocumentId::new(&rng.ids.0[name]));
            // Every second embedding is elsewhere, but of the same dimension unless another one is under
            // test.
            let elsewhere = number % 2 == 1 && (first_embedding.dimensions() == 2 || kind == 29);
            let embedding = if elsewhere {
                valid(Embedding::new(PLANE[other].to_vec()))
            } else {
                first_embedding.clone()
            };
            let embedding = (kind != 31 || number > 0).then_some(embedding);
            Document::new(id, content.to_owned()).with_embedding(embedding).with_metadata(metadata.clone())
        })
        .collect()
}

/// Draws up to three updates; sometimes none, or one id twice.
fn updates(rng: &mut Rng<'_>) -> Vec<MetadataUpdate> {
    let count = rng.of(&[1_usize, 2, 3, 1, 2, 0]);
    (0..count).map(|_| MetadataUpdate::new(document(rng), metadata(rng))).collect()
}

fn search(rng: &mut Rng<'_>) -> SearchRequest {
    let mut request = SearchRequest::new(embedding(rng))
        .with_limit(limit(rng))
        .with_filter((rng.below(3) == 2).then(|| filter(rng)));
    request.score_min =
        rng.of(&[None, None, None, None, Some(0.5), Some(-2.0), Some(2.0), Some(0.0), Some(f32::NAN)]);
    request
}

fn embedding_text(embedding: &Embedding) -> String {
    format!("Embedding::new(vec!{:?}).unwrap()", embedding.as_slice())
}

/// Returns documents as an expression.
pub(super) fn documents_text(documents: &[Document]) -> String {
    let document = |document: &Document| {
        format!(
            "Document::new({}, {}){}.with_metadata({})",
            owned_id(&document.id),
            owned_text(&document.content),
            with("embedding", document.embedding.as_ref(), embedding_text),
            json(&document.metadata)
        )
    };
    format!("vec![{}]", documents.iter().map(document).collect::<Vec<_>>().join(", "))
}

/// Returns updates of metadata as an expression.
pub(super) fn updates_text(updates: &[MetadataUpdate]) -> String {
    let update = |update: &MetadataUpdate| {
        format!("MetadataUpdate::new({}, {})", owned_id(&update.id), json(&update.metadata))
    };
    format!("vec![{}]", updates.iter().map(update).collect::<Vec<_>>().join(", "))
}

/// Returns a search as an expression.
pub(super) fn request_text(request: &SearchRequest) -> String {
    let floor = |floor: f32| if floor.is_nan() { "f32::NAN".to_owned() } else { format!("{floor:?}") };
    format!(
        "SearchRequest::new({}).with_limit({}){}{}",
        embedding_text(&request.embedding),
        request.limit,
        with("filter", request.filter.as_ref(), |filter| format!("of::<Filter>({})", json_text(filter))),
        with("score_min", request.score_min, floor)
    )
}
