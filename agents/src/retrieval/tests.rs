use larder_kernel::random::Random;
use larder_kernel::{Document, ErrorKind, Filter, Metadata, PutMode};

use super::*;
use crate::storage::InMemoryVectorStore;

fn embeddings(random: &mut Random, count: usize, dimensions: usize) -> Vec<Embedding> {
    let mut number = || f32::from(u16::try_from(random.below(2_001)).unwrap()) / 1_000.0 - 1.0 + 0.000_1;
    (0..count)
        .map(|_| Embedding::new((0..dimensions).map(|_| number()).collect::<Vec<_>>()).unwrap())
        .collect()
}

/// The definition of Carbonell and Goldstein, evaluated again for each choice.
fn defined(query: &Embedding, candidates: &[Embedding], limit: usize, lambda: f64) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    while chosen.len() < limit.min(candidates.len()) {
        let mut best: Option<(f64, usize)> = None;
        for at in (0..candidates.len()).filter(|at| !chosen.contains(at)) {
            let relevance = candidates[at].cosine(query).unwrap();
            let similar = chosen.iter().map(|other| candidates[at].cosine(&candidates[*other]).unwrap());
            let value = match similar.reduce(f64::max) {
                None => relevance,
                Some(redundancy) => lambda * relevance - (1.0 - lambda) * redundancy,
            };
            if best.is_none_or(|(greatest, _)| value > greatest) {
                best = Some((value, at));
            }
        }
        chosen.extend(best.map(|(_, at)| at));
    }
    chosen
}

#[test]
fn choices_follow_the_definition() {
    let mut random = Random::new(7);
    for round in 0..200 {
        let dimensions = 1 + round % 9;
        let query = embeddings(&mut random, 1, dimensions).remove(0);
        let mut candidates = embeddings(&mut random, round % 23, dimensions);
        // Duplicates tie.
        candidates.extend(candidates.clone().into_iter().step_by(3));
        for lambda in [0.0, 0.3, 0.5, 0.9, 1.0] {
            for limit in [0, 1, 5, 100] {
                let chosen = maximal_marginal_relevance(&query, &candidates, limit, lambda).unwrap();
                assert_eq!(chosen, defined(&query, &candidates, limit, lambda), "{round} {lambda} {limit}");
            }
        }
    }
}

#[test]
fn invalid_arguments_are_refused_by_name() {
    let query = Embedding::new([1.0, 0.0]).unwrap();
    for lambda in [-0.01, 1.01, f64::NAN, f64::INFINITY] {
        let error = maximal_marginal_relevance(&query, &[], 1, lambda).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("lambda")));
    }
    let other = [Embedding::new([1.0]).unwrap()];
    let error = maximal_marginal_relevance(&query, &other, 1, 0.5).unwrap_err();
    assert_eq!((error.field(), error.limit()), (Some("embedding"), Some(2)));
}

async fn filled() -> (InMemoryVectorStore, CollectionName) {
    let (store, notes) = (InMemoryVectorStore::new(), CollectionName::new("notes").unwrap());
    let mut documents = Vec::new();
    // Ten copies of the best document, and five others.
    for number in 0_u8..15 {
        let id = DocumentId::new(format!("d{number:02}")).unwrap();
        let values = if number < 10 { [1.0, 0.0] } else { [1.0, f32::from(number) / 20.0] };
        let metadata = Metadata::new().with("even", number % 2 == 0);
        let document = Document::new(id, format!("text {number}"));
        documents.push(document.with_embedding(Embedding::new(values).unwrap()).with_metadata(metadata));
    }
    store.put(&notes, documents, PutMode::Upsert).await.unwrap();
    (store, notes)
}

#[tokio::test]
async fn a_diverse_search_returns_one_of_many_copies_first() {
    let (store, notes) = filled().await;
    let request = SearchRequest::new(Embedding::new([1.0, 0.0]).unwrap()).with_limit(3);
    let plain = store.search(&notes, &request).await.unwrap();
    let texts = |hits: &[SearchHit]| hits.iter().map(|hit| hit.id.to_string()).collect::<Vec<_>>();
    assert_eq!(texts(&plain), ["d00", "d01", "d02"]);
    let relevant = DiverseSearch::new(request.clone()).with_lambda(1.0).search(&store, &notes).await.unwrap();
    assert_eq!(relevant, plain);
    let two = DiverseSearch::new(request.clone().with_limit(2)).with_lambda(0.3);
    let diverse = two.search(&store, &notes).await.unwrap();
    assert_eq!(texts(&diverse), ["d00", "d14"]);
    assert!(diverse.iter().all(|hit| hit.content.starts_with("text ")));

    let odd = request.clone().with_filter(Filter::eq("even", false)).with_score_min(0.9);
    let hits = DiverseSearch::new(odd).with_lambda(0.0).search(&store, &notes).await.unwrap();
    assert!(hits.len() == 3 && hits.iter().all(|hit| hit.score >= 0.9), "{hits:?}");
    assert!(hits.iter().all(|hit| hit.metadata == Metadata::new().with("even", false)), "{hits:?}");
    let none = DiverseSearch::new(request.with_limit(0)).search(&store, &notes).await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test]
async fn a_diverse_search_refuses_settings_before_it_reads() {
    let (store, notes) = filled().await;
    let request = SearchRequest::new(Embedding::new([1.0, 0.0]).unwrap()).with_limit(10);
    let search = DiverseSearch::new(request.clone());
    let bad = [
        (search.clone().with_candidates(9), "candidates"),
        (search.clone().with_candidates(CANDIDATES_MAX + 1), "candidates"),
        (search.clone().with_lambda(2.0), "lambda"),
        (DiverseSearch::new(request.with_limit(CANDIDATES_MAX + 1)), "candidates"),
    ];
    for (search, field) in bad {
        let error = search.search(&store, &notes).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some(field)));
    }
}
