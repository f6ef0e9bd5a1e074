//! The operations on documents: how they are drawn, and how they are written in Rust.

use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Filter, PageRequest, PutMode, SearchRequest,
};

use crate::model::dice::{Dice, valid};
use crate::model::shared::{filter, limit, metadata, request};
use crate::model::tape::{json, optional, owned_id, owned_text};

#[derive(Debug, Clone)]
pub(in crate::model) enum Operation {
    Put { collection: CollectionName, documents: Vec<Document>, mode: PutMode },
    Get { collection: CollectionName, ids: Vec<DocumentId> },
    Search { collection: CollectionName, request: SearchRequest },
    SearchBatch { collection: CollectionName, requests: Vec<SearchRequest> },
    Delete { collection: CollectionName, ids: Vec<DocumentId> },
    DeleteMatching { collection: CollectionName, filter: Filter },
    Count { collection: CollectionName, filter: Option<Filter> },
    List { collection: CollectionName, page: PageRequest<DocumentId> },
    Collections { page: PageRequest<CollectionName> },
    Drop { collection: CollectionName },
    Erase,
}

pub(super) fn draw(dice: &mut Dice<'_>) -> Operation {
    match dice.weighted(&[12, 3, 10, 3, 3, 3, 3, 3, 2, 1, 1]) {
        1 => Operation::Get { collection: few(dice), ids: ids(dice) },
        2 => Operation::Search { collection: few(dice), request: search(dice) },
        3 => {
            let count = dice.of(&[1_usize, 2, 0]);
            Operation::SearchBatch {
                collection: few(dice),
                requests: (0..count).map(|_| search(dice)).collect(),
            }
        }
        4 => Operation::Delete { collection: few(dice), ids: ids(dice) },
        5 => Operation::DeleteMatching { collection: few(dice), filter: filter(dice) },
        6 => Operation::Count { collection: few(dice), filter: (dice.below(2) == 1).then(|| filter(dice)) },
        7 => Operation::List { collection: few(dice), page: request(dice, document) },
        8 => Operation::Collections { page: request(dice, |dice| valid(CollectionName::new(dice.id()))) },
        9 => Operation::Drop { collection: few(dice) },
        10 if dice.one_in(4) => Operation::Erase,
        _ => Operation::Put {
            collection: few(dice),
            mode: dice.of(&[PutMode::Upsert, PutMode::IfAbsent]),
            documents: documents(dice),
        },
    }
}

/// Few collections, so that documents meet.
fn few(dice: &mut Dice<'_>) -> CollectionName {
    let index = dice.of(&[0_usize, 0, 0, 0, 1, 2]);
    valid(CollectionName::new(&dice.ids.0[index]))
}

fn document(dice: &mut Dice<'_>) -> DocumentId {
    valid(DocumentId::new(dice.id()))
}

fn ids(dice: &mut Dice<'_>) -> Vec<DocumentId> {
    let count = dice.of(&[1_usize, 2, 3, 0]);
    (0..count).map(|_| document(dice)).collect()
}

/// Directions far enough apart for every score to tell them from each other, or the same at another length.
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

/// One of the plane, of another dimension now and then.
fn embedding(dice: &mut Dice<'_>) -> Embedding {
    match dice.below(14) {
        10 => valid(Embedding::new(vec![3.0])),
        11 => valid(Embedding::new(vec![0.0, 0.0, 1.0])),
        other => valid(Embedding::new(PLANE[other % PLANE.len()].to_vec())),
    }
}

const TEXTS: [&str; 5] = ["t", "", "é\0'\"\\", "e\u{301}", "\u{1f980}%_"];

/// Up to four documents from one of the script's ids on; none, the same twice, and one without embedding now and then.
fn documents(dice: &mut Dice<'_>) -> Vec<Document> {
    let (count, first) = (dice.of(&[1_usize, 2, 4, 1, 3, 2, 0]), dice.below(4));
    let (kind, first_embedding, other) = (dice.below(32), embedding(dice), dice.below(10));
    let (content, metadata) = (dice.of(&TEXTS), metadata(dice));
    (0..count)
        .map(|number| {
            let name = if kind == 30 { first } else { (first + number) % 4 };
            let id = valid(DocumentId::new(&dice.ids.0[name]));
            // Every other one lies elsewhere, but of one dimension unless that is the point.
            let elsewhere = number % 2 == 1 && (first_embedding.dimensions() == 2 || kind == 29);
            let embedding = if elsewhere {
                valid(Embedding::new(PLANE[other].to_vec()))
            } else {
                first_embedding.clone()
            };
            let embedding = (kind != 31 || number > 0).then_some(embedding);
            Document { id, content: content.to_owned(), embedding, metadata: metadata.clone() }
        })
        .collect()
}

fn search(dice: &mut Dice<'_>) -> SearchRequest {
    SearchRequest {
        embedding: embedding(dice),
        limit: limit(dice),
        filter: (dice.below(3) == 2).then(|| filter(dice)),
        score_min: dice.of(&[
            None,
            None,
            None,
            None,
            Some(0.5),
            Some(-2.0),
            Some(2.0),
            Some(0.0),
            Some(f32::NAN),
        ]),
    }
}

fn embedding_text(embedding: &Embedding) -> String {
    format!("Embedding::new(vec!{:?}).unwrap()", embedding.as_slice())
}

/// Documents as a value.
pub(super) fn documents_text(documents: &[Document]) -> String {
    let document = |document: &Document| {
        format!(
            "Document {{ id: {}, content: {}, embedding: {}, metadata: {} }}",
            owned_id(&document.id),
            owned_text(&document.content),
            optional(document.embedding.as_ref(), embedding_text),
            json(&document.metadata)
        )
    };
    format!("vec![{}]", documents.iter().map(document).collect::<Vec<_>>().join(", "))
}

/// A search as a value.
pub(super) fn request_text(request: &SearchRequest) -> String {
    let floor = |floor: f32| if floor.is_nan() { "f32::NAN".to_owned() } else { format!("{floor:?}") };
    format!(
        "SearchRequest {{ embedding: {}, limit: {}, filter: {}, score_min: {} }}",
        embedding_text(&request.embedding),
        request.limit,
        optional(request.filter.as_ref(), json),
        optional(request.score_min, floor)
    )
}
