use std::collections::HashSet;

use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, ErrorKind, Filter, PutMode, SearchRequest, VectorStore,
};

use super::*;
use crate::storage::InMemoryVectorStore;
use crate::storage::vector::query::Query;
use crate::storage::vector::search::SearchOptions;
use crate::storage::vector::search_batch::SearchBatch;
use crate::storage::vector::tests::numbers;

const DIMENSIONS: usize = 64;

/// Returns a vector near one of `centers` points, or a random one if `centers` is 0.
fn vector(seed: u64, centers: u64) -> Vec<f32> {
    let own = numbers(seed + 1, DIMENSIONS);
    if centers == 0 {
        return own;
    }
    let center = numbers(1_000_000 + seed % centers, DIMENSIONS);
    own.iter().zip(center).map(|(own, center)| center + 0.3 * own).collect()
}

fn id(number: u64) -> DocumentId {
    DocumentId::new(format!("d{number:06}")).unwrap()
}

fn document(number: u64, numbers: Vec<f32>) -> Document {
    Document::new(id(number), "text").with_embedding(Embedding::new(numbers).unwrap())
}

fn request(numbers: Vec<f32>) -> SearchRequest {
    SearchRequest::new(Embedding::new(numbers).unwrap()).with_limit(10)
}

fn notes() -> CollectionName {
    CollectionName::new("notes").unwrap()
}

/// Returns an exact store and an approximate one with the same documents.
async fn stores(count: u64, centers: u64) -> (InMemoryVectorStore, InMemoryVectorStore) {
    let exact = InMemoryVectorStore::new();
    for first in (0..count).step_by(1_000) {
        let documents = (first..count.min(first + 1_000)).map(|n| document(n, vector(n, centers))).collect();
        exact.put(&notes(), documents, PutMode::Upsert).await.unwrap();
    }
    (exact.clone(), exact.with_approximate_search())
}

async fn found(store: &InMemoryVectorStore, request: &SearchRequest) -> Vec<DocumentId> {
    store.search(&notes(), request).await.unwrap().into_iter().map(|hit| hit.id).collect()
}

/// Returns the share of the exact store's hits that the approximate store finds.
async fn recall(
    exact: &InMemoryVectorStore,
    approximate: &InMemoryVectorStore,
    centers: u64,
    limit: usize,
) -> f64 {
    let (mut hits, mut wanted) = (0, 0);
    for seed in 0..60 {
        let request = request(vector(500_000 + seed, centers)).with_limit(limit);
        let expected: HashSet<DocumentId> = found(exact, &request).await.into_iter().collect();
        let found = found(approximate, &request).await;
        assert_eq!(found.len(), limit);
        hits += u32::try_from(found.iter().filter(|id| expected.contains(id)).count()).unwrap();
        wanted += u32::try_from(expected.len()).unwrap();
    }
    f64::from(hits) / f64::from(wanted)
}

#[tokio::test]
async fn nearly_all_neighbors_are_found_in_few_cells() {
    let (exact, approximate) = stores(6_000, 100).await;
    assert!(approximate.build_index(&notes()).await.unwrap());
    // As many as a group has, and more.
    for limit in [1, 10, 30, 60, 100] {
        let found = recall(&exact, &approximate, 100, limit).await;
        assert!(found >= 0.97, "{found} of the best {limit}");
    }
}

#[tokio::test]
async fn outgrown_cells_are_built_again() {
    let (exact, approximate) = stores(2_000, 30).await;
    assert!(approximate.build_index(&notes()).await.unwrap());
    // The same documents again, so that every vector is at a new location.
    for first in [0, 1_000] {
        let moved = (first..first + 1_000).map(|number| document(number, vector(number + 77, 41))).collect();
        exact.put(&notes(), moved, PutMode::Upsert).await.unwrap();
    }
    for _ in 0..100 {
        if recall(&exact, &approximate, 41, 10).await >= 0.97 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the cells are still those of other vectors");
}

#[tokio::test]
async fn a_result_is_never_short() {
    let (exact, approximate) = stores(3_000, 30).await;
    assert!(approximate.build_index(&notes()).await.unwrap());
    let near = vector(7, 30);
    // More hits than the cells within reach contain, as many as exist, a score that few rows reach, and one
    // that others also reach.
    for (limit, least) in [(700, None), (3_000, None), (10, Some(0.98)), (300, Some(-0.05)), (300, Some(0.9))]
    {
        let request = request(near.clone()).with_limit(limit);
        let request = match least {
            Some(least) => request.with_score_min(least),
            None => request,
        };
        assert_eq!(found(&approximate, &request).await, found(&exact, &request).await, "{limit} {least:?}");
    }
}

#[tokio::test]
async fn documents_written_after_the_cells_were_built_are_found() {
    let (exact, approximate) = stores(3_000, 30).await;
    assert!(approximate.build_index(&notes()).await.unwrap());
    // Each document moves far from its row and is found at its new location. At the end there are more
    // changes than a block tolerates.
    for number in 0..80 {
        let moved = vector(900_000 + number, 30);
        exact.put(&notes(), vec![document(number, moved.clone())], PutMode::Upsert).await.unwrap();
        exact.put(&notes(), vec![document(10_000 + number, moved.clone())], PutMode::Upsert).await.unwrap();
        assert_eq!(
            found(&approximate, &request(moved.clone())).await[..2],
            [id(number), id(10_000 + number)]
        );
        assert_eq!(exact.delete(&notes(), &[id(number)]).await.unwrap(), 1);
        assert_eq!(found(&approximate, &request(moved)).await[0], id(10_000 + number));
    }
}

#[tokio::test]
async fn without_groups_searches_stay_exact() {
    let (exact, approximate) = stores(2_000, 0).await;
    assert!(!approximate.build_index(&notes()).await.unwrap());
    for seed in 0..20 {
        let request = request(vector(500_000 + seed, 0));
        assert_eq!(found(&approximate, &request).await, found(&exact, &request).await);
    }
}

#[tokio::test]
async fn an_index_needs_documents_dimensions_and_a_request() {
    let (exact, approximate) = stores(20, 2).await;
    let error = exact.build_index(&notes()).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, "vectors.build_index"));
    assert!(!approximate.build_index(&CollectionName::new("none").unwrap()).await.unwrap());
    let short = CollectionName::new("short").unwrap();
    let documents = vec![document(1, vec![1.0, 2.0])];
    exact.put(&short, documents, PutMode::Upsert).await.unwrap();
    assert!(!approximate.build_index(&short).await.unwrap());
    // Rows that are all equal, and some that point in the opposite direction, so that their sum is zero.
    let same = CollectionName::new("same").unwrap();
    let turned = |number: u64| {
        vector(1, 0).iter().map(|part| if number.is_multiple_of(2) { *part } else { -part }).collect()
    };
    let documents = (0..400).map(|number| document(number, turned(number))).collect();
    exact.put(&same, documents, PutMode::Upsert).await.unwrap();
    approximate.build_index(&same).await.unwrap();
    let request = request(vector(1, 0));
    let hits = |store: InMemoryVectorStore| {
        let (same, request) = (same.clone(), request.clone());
        async move { store.search(&same, &request).await.unwrap().len() }
    };
    assert_eq!((hits(exact).await, hits(approximate).await), (10, 10));
}

#[tokio::test]
async fn a_search_of_a_large_collection_builds_its_cells() {
    let (exact, approximate) = stores(10_000, 50).await;
    let request = request(vector(3, 50));
    let expected = found(&exact, &request).await;
    assert_eq!(found(&approximate, &request).await, expected);
    let index = approximate.state.look("test", &notes(), |rows| rows.index()).await.unwrap().unwrap();
    for _ in 0..600 {
        if index.is_made() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(index.is_made());
    assert_eq!(found(&approximate, &request).await, expected);
}

#[test]
fn an_approximate_search_reads_few_rows() {
    let blocks = Arc::new(crate::storage::vector::search::tests::blocks(3_000, DIMENSIONS, 30, 0.3));
    let ivf = Arc::new(Ivf::of(Level::best(), &blocks, DIMENSIONS));
    let options = SearchOptions { level: Level::best(), first_pass: true, threads: 1, approximate: true };
    let near = |row: usize| request(blocks[row].row(row).to_vec());
    let filtered = near(0).with_filter(Filter::eq("third", true));
    let requests = (0..20).map(near).chain([filtered, near(0).with_limit(101), near(0).with_limit(0)]);
    let queries = requests.map(|request| Query::new(&request)).collect();
    let batch = SearchBatch { options, blocks: Arc::clone(&blocks), queries, ivf: None, copy_steps: 0 };
    let candidates = batch.candidates(Some(&ivf));
    for candidates in &candidates[..20] {
        assert!(
            candidates.approximate && (10..=300).contains(&candidates.count),
            "{} of 3,000 rows",
            candidates.count
        );
    }
    assert!(candidates[20..].iter().all(|candidates| !candidates.approximate));
}

#[test]
fn a_block_is_divided_again_after_one_in_32_rows_was_written() {
    let mut blocks = crate::storage::vector::search::tests::blocks(150, DIMENSIONS, 3, 0.3);
    let ivf = Arc::new(Ivf::of(Level::best(), &blocks, DIMENSIONS));
    blocks[0].divide(Level::best(), &ivf);
    for row in 0..5 {
        assert!(blocks[0].is_divided(&ivf), "{row} rows were written");
        let (numbers, tail) = blocks[0].copy(row);
        Arc::get_mut(&mut blocks[0]).unwrap().set(row, &numbers, &tail);
        assert!(blocks[0].in_cells(Level::best(), &ivf, &[]).contains(row) || row == 4);
    }
    assert_eq!(blocks[0].in_cells(Level::best(), &ivf, &[]).len(), 0);
}

#[test]
fn every_level_makes_the_same_cells() {
    let blocks = crate::storage::vector::search::tests::blocks(900, 48, 6, 0.2);
    let plain = Ivf::of(Level::Plain, &blocks, 48);
    for level in Level::all() {
        let ivf = Ivf::of(level, &blocks, 48);
        assert_eq!(format!("{ivf:?}"), format!("{plain:?}"));
        let members =
            |level| Members::of(level, &Arc::new(Ivf::of(level, &blocks, 48)), blocks[0].codes(), 150);
        assert_eq!(members(level).rows, members(Level::Plain).rows);
    }
}
