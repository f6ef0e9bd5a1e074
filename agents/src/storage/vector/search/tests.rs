use std::sync::Arc;

use larder_kernel::{DocumentId, Embedding, Filter, Metadata, SearchRequest};

use super::*;
use crate::storage::vector::block::Block;
use crate::storage::vector::query::{COLUMN_STEPS, FILTER_STEPS};
use crate::storage::vector::row::Record;
use crate::storage::vector::row::Row;
use crate::storage::vector::tests::numbers;

/// Returns blocks of rows near `centers` points. Some rows occur more than once.
pub(in super::super) fn blocks(count: u64, dimensions: usize, centers: u64, noise: f32) -> Blocks {
    let embedding = |n: u64| {
        // Every ninth row repeats an earlier one.
        let n = if n % 9 == 8 { n / 2 } else { n };
        let own = numbers(n + 1, dimensions);
        let center = numbers(1_000_000 + n % centers.max(1), dimensions);
        let shift = if centers == 0 { 0.0 } else { 1.0 };
        own.iter().zip(center).map(|(own, center)| own * noise + center * shift).collect::<Vec<_>>()
    };
    let mut blocks = Blocks::new();
    for n in 0..count {
        let mut numbers = embedding(n);
        numbers[0] += 0.5;
        let metadata = Metadata::new().with("n", n).with("third", n % 3 == 0);
        // The ids have another order than the rows.
        let id = DocumentId::new(format!("d{:05}", n * 7_919 % 100_003)).unwrap();
        let row = Row::new(Embedding::new(numbers).unwrap(), Record { id, content: String::new(), metadata });
        if n % 150 == 0 {
            blocks.push(Arc::new(Block::new(dimensions)));
        }
        let last = Arc::get_mut(blocks.last_mut().unwrap()).unwrap();
        last.push(row.embedding.as_slice(), &row.tail, 150);
    }
    blocks
}

fn requests(blocks: &Blocks, dimensions: usize) -> Vec<SearchRequest> {
    let mut requests = Vec::new();
    for (at, limit) in [0, 1, 10, 5_000].into_iter().enumerate() {
        let seed = 77_000 + u64::try_from(at).unwrap();
        let near = blocks[at % blocks.len()].row(at * 13 % 100).to_vec();
        for numbers in [numbers(seed, dimensions), near] {
            let Ok(embedding) = Embedding::new(numbers) else { continue };
            let request = SearchRequest::new(embedding).with_limit(limit);
            requests.push(request.clone().with_score_min(0.1));
            requests.push(request.clone().with_filter(Filter::eq("third", true)));
            requests.push(request.clone().with_filter(Filter::lt("n", 20)));
            requests.push(request);
        }
    }
    requests
}

fn answers(options: SearchOptions, blocks: &Blocks, queries: &[Query]) -> Vec<Vec<SearchHit>> {
    let candidates: Vec<Candidates> = queries.iter().map(|query| Candidates::of(query, blocks)).collect();
    Search { options, blocks, queries, candidates: &candidates }.hits()
}

#[test]
fn bounds_never_exclude_a_hit() {
    for (count, dimensions, centers, noise) in [
        (400, 1, 0, 1.0),
        (500, 3, 0, 1.0),
        (500, 33, 5, 0.3),
        (450, 64, 0, 1.0),
        (450, 100, 3, 0.01),
        (350, 257, 40, 0.2),
        // The rows are nearly equal, so the bounds distinguish none.
        (350, 48, 1, 1e-4),
    ] {
        let blocks = blocks(count, dimensions, centers, noise);
        let requests = requests(&blocks, dimensions);
        let queries: Vec<Query> = requests.iter().map(Query::new).collect();
        let plain = SearchOptions { level: Level::Plain, first_pass: false, threads: 1, approximate: false };
        let expected = answers(plain, &blocks, &queries);
        for level in Level::all() {
            let options = SearchOptions { level, first_pass: true, threads: 1, approximate: false };
            assert_eq!(answers(options, &blocks, &queries), expected, "{options:?} {dimensions}");
        }
        // Single queries take other code paths than several together.
        let options =
            SearchOptions { level: Level::best(), first_pass: true, threads: 1, approximate: false };
        for (query, expected) in queries.iter().zip(&expected) {
            assert_eq!(&answers(options, &blocks, std::slice::from_ref(query))[0], expected);
        }
    }
}

#[test]
fn the_first_pass_leaves_out_most_rows() {
    let blocks = blocks(3_000, 256, 0, 1.0);
    let query = Query::new(&SearchRequest::new(Embedding::new(numbers(5, 256)).unwrap()).with_limit(10));
    let queries = [query];
    let candidates = [Candidates::of(&queries[0], &blocks)];
    let options = SearchOptions { level: Level::best(), first_pass: true, threads: 1, approximate: false };
    let search = Search { options, blocks: &blocks, queries: &queries, candidates: &candidates };
    let kept = search.prefilters(&[0]).remove(0).into_most_promising(usize::MAX).len();
    assert!((10..300).contains(&kept), "{kept} rows of 3,000");
}

#[test]
fn several_threads_return_the_results_of_one() {
    let blocks = blocks(2_000, 64, 4, 0.5);
    let queries: Vec<Query> = requests(&blocks, 64).iter().map(Query::new).collect();
    let candidates: Vec<Candidates> = queries.iter().map(|query| Candidates::of(query, &blocks)).collect();
    for first_pass in [false, true] {
        let options =
            |threads| SearchOptions { level: Level::best(), first_pass, threads, approximate: false };
        let search = |threads| Search {
            options: options(threads),
            blocks: &blocks,
            queries: &queries,
            candidates: &candidates,
        };
        let (one, three) = (search(1), search(3));
        // Enough steps for three threads would be too many for a test, so the number of threads is set
        // directly.
        let all: Vec<usize> = (0..queries.len()).filter(|query| queries[*query].limit > 0).collect();
        let hits = |best: Vec<TopK<'_>>| best.into_iter().map(TopK::into_hits).collect::<Vec<_>>();
        assert_eq!(hits(three.full(&all)), hits(one.full(&all)));
        assert_eq!(hits(three.bounded(&all)), hits(one.bounded(&all)));
    }
}

#[test]
fn the_cost_of_a_filtered_search_grows_with_the_matches() {
    for count in [600, 1_800] {
        let blocks = blocks(count, 64, 0, 1.0);
        let request = SearchRequest::new(Embedding::new(numbers(5, 64)).unwrap()).with_limit(2);
        let queries = [Query::new(&request.with_filter(Filter::lt("n", 20)))];
        // The first filter on a field examines every document; later ones use columns.
        let rows = usize::try_from(count).unwrap();
        assert_eq!(queries[0].filter_steps(&blocks), rows * FILTER_STEPS);
        let candidates = [Candidates::of(&queries[0], &blocks)];
        assert_eq!(queries[0].filter_steps(&blocks), blocks.len() * COLUMN_STEPS);
        let options =
            SearchOptions { level: Level::best(), first_pass: true, threads: 1, approximate: false };
        let search = Search { options, blocks: &blocks, queries: &queries, candidates: &candidates };
        assert!(search.sparse(0) && search.by_bounds(0));
        assert_eq!(search.listed(0, 0..blocks.len()).map(|rows| rows.len()), Some(20));
        assert_eq!(search.steps(7), 2 * 7 + 20 * 64 / NUMBERS_PER_STEP / CODES_PER_NUMBER);
        assert_eq!(search.hits()[0].len(), 2);
    }
}

#[test]
fn each_condition_of_a_filter_costs_one_lookup() {
    let blocks = blocks(1_800, 2, 0, 1.0);
    let values = Filter::is_in("n", 0..1_000);
    let filter = Filter::any([values, !Filter::lt("n", 3)]);
    let request = SearchRequest::new(Embedding::new(numbers(5, 2)).unwrap());
    let query = Query::new(&request.with_filter(filter));
    assert_eq!(query.filter_steps(&blocks), 1_800 * 1_001 * FILTER_STEPS);
    Candidates::of(&query, &blocks);
    assert_eq!(query.filter_steps(&blocks), blocks.len() * 1_001 * COLUMN_STEPS);
}
