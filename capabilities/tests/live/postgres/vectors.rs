//! Vectors: the results of the index, its creation, and the documents that the server excludes for a filter.

use std::collections::HashSet;
use std::time::Duration;

use larder_capabilities::postgres::PostgresVectorStore;
use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, ErrorKind, Filter, Metadata, Namespace, PutMode,
    SearchHit, SearchRequest, VectorStore,
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::{open, with_database};

/// Pseudorandom numbers, the same in every run.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let high = u16::try_from(self.0 >> 48).unwrap();
        f32::from(high) / 32_768.0 - 1.0
    }

    fn point(&mut self, dimensions: usize) -> Vec<f32> {
        (0..dimensions).map(|_| self.next()).collect()
    }

    fn near(&mut self, center: &[f32], spread: f32) -> Embedding {
        Embedding::new(center.iter().map(|value| value + spread * self.next()).collect::<Vec<_>>()).unwrap()
    }
}

/// Documents in clusters, and queries near them.
fn clustered(
    documents: usize,
    dimensions: usize,
    clusters: usize,
    queries: usize,
) -> (Vec<Document>, Vec<Embedding>) {
    let mut draw = Draw(7);
    let centers: Vec<Vec<f32>> = (0..clusters).map(|_| draw.point(dimensions)).collect();
    let documents = (0..documents)
        .map(|number| {
            Document::new(DocumentId::new(format!("d{number:05}")).unwrap(), "text")
                .with_embedding(draw.near(&centers[number * 7 % clusters], 0.4))
                .with_metadata(Metadata::new().with("hundredth", number % 100).with("even", number % 2 == 0))
        })
        .collect();
    let queries = (0..queries).map(|number| draw.near(&centers[number % clusters], 0.4)).collect();
    (documents, queries)
}

async fn put_all(store: &PostgresVectorStore, space: &CollectionName, documents: &[Document]) {
    for batch in documents.chunks(1_000) {
        store.put(space, batch.to_vec(), PutMode::Upsert).await.unwrap();
    }
}

async fn store(url: &str) -> PostgresVectorStore {
    open(url).await.unwrap().vectors(Namespace::new("n").unwrap(), None).await.unwrap()
}

fn ids(hits: &[SearchHit]) -> HashSet<String> {
    hits.iter().map(|hit| hit.id.as_str().to_owned()).collect()
}

/// Runs the requests on both stores, compares the numbers of hits, and returns the recall.
async fn recall(
    approximate: &PostgresVectorStore,
    exact: &PostgresVectorStore,
    space: &CollectionName,
    requests: &[SearchRequest],
) -> f64 {
    let (mut found, mut wanted) = (0_u32, 0_u32);
    for request in requests {
        let hits = approximate.search(space, request).await.unwrap();
        let expected = exact.search(space, request).await.unwrap();
        assert_eq!(hits.len(), expected.len(), "as many hits whatever serves the search");
        assert!(hits.is_sorted_by(|left, right| {
            (right.score, left.id.as_str()) < (left.score, right.id.as_str()) || left.score > right.score
        }));
        wanted += u32::try_from(expected.len()).unwrap();
        found += u32::try_from(ids(&hits).intersection(&ids(&expected)).count()).unwrap();
    }
    f64::from(found) / f64::from(wanted)
}

async fn scalar(url: &str, sql: &'static str) -> i64 {
    let mut admin = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(sql).fetch_one(&mut admin).await.unwrap()
}

const INDEX_SCANS: &str = "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes
    WHERE indexrelname LIKE 'documents\\_hnsw%'";
const FILTER_SCANS: &str = "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes
    WHERE indexrelname LIKE 'documents\\_gin%'";
const VALID: &str = "SELECT count(*) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
    WHERE i.relname ~ '^documents_(hnsw|gin)_' AND x.indisvalid";
const INVALID: &str = "SELECT count(*) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
    WHERE i.relname ~ '^documents_(hnsw|gin)_' AND NOT x.indisvalid";

/// Waits until the query returns the number.
async fn becomes(url: &str, sql: &'static str, number: i64) {
    for _ in 0..200 {
        if scalar(url, sql).await == number {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{sql} gives {}, not {number}", scalar(url, sql).await);
}

pub(crate) async fn an_index_finds_nearly_all_and_never_too_few() {
    with_database("recall", async |url: String| {
        let exact = store(&url).await;
        let indexed = store(&format!("{url}?vector_index=hnsw")).await;
        let space = CollectionName::new("space").unwrap();
        let (documents, queries) = clustered(6_000, 64, 60, 20);
        put_all(&exact, &space, &documents).await;
        assert_eq!(exact.build_index(&space).await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(indexed.build_index(&space).await.unwrap());
        assert_eq!(scalar(&url, VALID).await, 2);
        let search = |filter: Option<Filter>, limit: usize| -> Vec<SearchRequest> {
            let request = |query: &Embedding| {
                let request = SearchRequest::new(query.clone()).with_limit(limit);
                filter.iter().cloned().fold(request, SearchRequest::with_filter)
            };
            queries.iter().map(request).collect()
        };
        for (what, filter, limit) in [
            ("no filter", None, 10),
            ("no filter, limit 100", None, 100),
            ("1% match", Some(Filter::eq("hundredth", 7)), 10),
            ("half match", Some(Filter::eq("even", true)), 10),
            ("half match, which the server is not told", Some(!Filter::eq("even", true)), 10),
            ("1% match, limit beyond", Some(Filter::eq("hundredth", 7)), 200),
            ("with a key that few have, limit 1", Some(Filter::lt("hundredth", 3)), 1),
        ] {
            let recall = recall(&indexed, &exact, &space, &search(filter, limit)).await;
            assert!(recall >= 0.99, "{what}: recall {recall}");
        }
        for request in search(Some(Filter::eq("hundredth", "7")), 10) {
            assert!(indexed.search(&space, &request).await.unwrap().is_empty());
        }
        let batch = search(Some(Filter::eq("even", true)), 10);
        let answers = indexed.search_batch(&space, &batch).await.unwrap();
        assert_eq!(answers.iter().map(Vec::len).collect::<Vec<_>>(), vec![10; 20]);
        // The index finds documents that were written after its creation, and no replaced or deleted ones.
        let moved = Document::new(DocumentId::new("d00001").unwrap(), "moved");
        let moved = moved.with_embedding(queries[3].clone());
        let request = SearchRequest::new(queries[3].clone()).with_limit(10);
        indexed.put(&space, vec![moved.clone()], PutMode::Upsert).await.unwrap();
        let hits = indexed.search(&space, &request).await.unwrap();
        assert_eq!((hits[0].id.as_str(), &*hits[0].content), ("d00001", "moved"));
        let old = SearchRequest::new(documents[1].embedding.clone().unwrap()).with_limit(10);
        assert!(!ids(&indexed.search(&space, &old).await.unwrap()).contains("d00001"));
        indexed.delete(&space, &[moved.id]).await.unwrap();
        let hits = indexed.search(&space, &request).await.unwrap();
        assert!(hits.len() == 10 && !ids(&hits).contains("d00001"));
        // The server publishes its counts a moment after the transactions.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        drop(indexed);
        assert!(scalar(&url, INDEX_SCANS).await > 20, "hardly a search went through the index");
        assert!(scalar(&url, FILTER_SCANS).await > 20, "hardly a filter went through the index");
    })
    .await;
}

pub(crate) async fn dimensions_decide_what_kind_of_index_there_is() {
    with_database("kinds", async |url: String| {
        let exact = store(&url).await;
        let indexed = store(&format!("{url}?vector_index=hnsw")).await;
        for (dimensions, is_indexed) in [(2_000, true), (3_000, true), (4_000, true), (4_001, false)] {
            let space = CollectionName::new(format!("of-{dimensions}")).unwrap();
            let (documents, queries) = clustered(250, dimensions, 10, 4);
            put_all(&exact, &space, &documents).await;
            assert_eq!(indexed.build_index(&space).await.unwrap(), is_indexed, "{dimensions}");
            let requests: Vec<_> =
                queries.into_iter().map(|query| SearchRequest::new(query).with_limit(10)).collect();
            let recall = recall(&indexed, &exact, &space, &requests).await;
            assert!(recall >= 0.99, "{dimensions}: recall {recall}");
        }
        let absent = CollectionName::new("absent").unwrap();
        assert!(!indexed.build_index(&absent).await.unwrap());
        let query = Embedding::new(vec![1.0]).unwrap();
        assert!(indexed.search(&absent, &SearchRequest::new(query)).await.unwrap().is_empty());
    })
    .await;
}

/// More equal documents than the query requests from the index: their ids decide which of them are returned.
pub(crate) async fn ties_past_what_an_index_shows_are_cut_by_id() {
    with_database("ties", async |url: String| {
        let indexed = store(&format!("{url}?vector_index=hnsw")).await;
        let space = CollectionName::new("space").unwrap();
        let twin = Embedding::new(vec![0.6, 0.8, 0.1]).unwrap();
        let mut documents = clustered(600, 3, 5, 0).0;
        for document in documents.iter_mut().step_by(2) {
            document.embedding = Some(twin.clone());
        }
        documents.reverse();
        put_all(&indexed, &space, &documents).await;
        assert!(indexed.build_index(&space).await.unwrap());
        for limit in [1, 10, 250] {
            let request = SearchRequest::new(twin.clone()).with_limit(limit);
            let hits = indexed.search(&space, &request).await.unwrap();
            let expected: Vec<String> = (0..limit).map(|number| format!("d{:05}", number * 2)).collect();
            assert_eq!(hits.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), expected);
        }
    })
    .await;
}

pub(crate) async fn one_of_eight_handles_builds_the_index_and_a_drop_removes_it() {
    with_database("makers", async |url: String| {
        let (documents, queries) = clustered(1_500, 16, 10, 1);
        let space = CollectionName::new("it's \"a\\space\"").unwrap();
        let request = SearchRequest::new(queries[0].clone());
        let small = CollectionName::new("small").unwrap();
        let parameters = "vector_index=hnsw&vector_index_rows_min=1000";
        let mut stores = Vec::new();
        for _ in 0..8 {
            stores.push(store(&format!("{url}?{parameters}")).await);
        }
        put_all(&stores[0], &space, &documents).await;
        put_all(&stores[0], &small, &documents[..500]).await;
        let check = store(&format!("{url}?{parameters}&migrate=check")).await;
        check.search(&space, &request).await.unwrap();
        let searches = stores.iter().map(async |store| {
            store.search(&small, &request).await.unwrap();
            store.search(&space, &request).await.unwrap().len()
        });
        assert_eq!(futures_util::future::join_all(searches).await, vec![5; 8]);
        becomes(&url, VALID, 2).await;
        becomes(&url, INVALID, 0).await;
        // A process that died halfway leaves an invalid index, and the next process creates it again.
        let mut admin = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid IN
                (SELECT oid FROM pg_class WHERE relname LIKE 'documents\\_hnsw%')",
        )
        .execute(&mut admin)
        .await
        .unwrap();
        assert_eq!(stores[0].search(&space, &request).await.unwrap().len(), 5);
        assert!(stores[1].build_index(&space).await.unwrap());
        becomes(&url, VALID, 2).await;
        becomes(&url, INVALID, 0).await;
        assert!(stores[2].drop_collection(&space).await.unwrap());
        becomes(&url, VALID, 0).await;
        // A recreated collection may have another dimension.
        put_all(&stores[3], &space, &clustered(10, 5, 2, 0).0).await;
        assert!(stores[3].build_index(&space).await.unwrap());
    })
    .await;
}

fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(false),
        json!(0),
        json!(-0.0),
        json!(1),
        json!(1.0),
        json!(-2.5),
        json!(0.1),
        json!(9_007_199_254_740_992_i64),
        json!(9_007_199_254_740_993_i64),
        json!(9_007_199_254_740_992.0),
        json!(9_223_372_036_854_775_808_u64),
        json!(9_223_372_036_854_775_808.0),
        json!(u64::MAX),
        json!(1e300),
        json!(-1e300),
        json!(5e-324),
        json!(""),
        json!("1"),
        json!("true"),
        json!("Z"),
        json!("a"),
        json!("é\"\\\n\u{1}$.@"),
        json!("\u{1f980}"),
        json!("\u{ffff}"),
        json!([]),
        json!([1, "a"]),
        json!([[1]]),
        json!({}),
        json!({"a": 1}),
        json!({"0": 1}),
        json!([{"a": 1}]),
    ]
}

/// Every operator with every value against documents with every value.
pub(crate) async fn rows_omitted_by_the_server_never_match() {
    with_database("prefilter", async |url: String| {
        let store = store(&url).await;
        let space = CollectionName::new("space").unwrap();
        let one = Embedding::new(vec![1.0]).unwrap();
        let mut documents: Vec<Document> = Vec::new();
        for key in ["k", "k.a", "\"\\k\n"] {
            for value in values() {
                for metadata in [
                    Metadata::new().with(key, value.clone()),
                    Metadata::new().with("deep", json!({ key: value })),
                ] {
                    let id = DocumentId::new(format!("d{}", documents.len())).unwrap();
                    documents.push(Document::new(id, "").with_embedding(one.clone()).with_metadata(metadata));
                }
            }
        }
        put_all(&store, &space, &documents).await;
        for filter in filters() {
            let expected = documents.iter().filter(|document| filter.matches(&document.metadata)).count();
            let counted = store.count(&space, Some(&filter)).await.unwrap();
            assert_eq!(counted, u64::try_from(expected).unwrap(), "{filter:?}");
        }
    })
    .await;
}

fn filters() -> Vec<Filter> {
    let mut filters = Vec::new();
    for value in values() {
        let field = ["deep", "k"];
        filters.extend([
            Filter::eq("k", value.clone()),
            Filter::eq("\"\\k\n", value.clone()),
            Filter::ne("k.a", value.clone()),
            Filter::eq(field, value.clone()),
            Filter::gt(field, value.clone()),
            Filter::gte("k", value.clone()),
            Filter::lt("k", value.clone()),
            Filter::lte(field, value.clone()),
            Filter::is_in("k", [value.clone(), json!("a"), json!(1)]),
            Filter::contains_any("k", [value.clone(), json!(2)]),
            Filter::contains_all(field, [value.clone(), value.clone()]),
            Filter::eq("k", value.clone()) | Filter::eq(field, value.clone()),
            Filter::exists("k") & !Filter::eq("k", value),
        ]);
    }
    filters.extend([
        Filter::eq(["k", "a"], 1),
        Filter::eq(["k", "0"], 1),
        Filter::exists(["deep", "k", "a"]),
        Filter::contains_key("k", "a"),
        Filter::contains_key("k", "0"),
        Filter::contains_any("k", (0..200).map(|number| json!(number))),
        Filter::contains_all("k", [json!(1), json!("a")]),
        Filter::contains_all("k", Vec::<Value>::new()),
        Filter::is_in("k", (0..500).map(|number| json!(number))),
        Filter::all([]),
        Filter::any([]),
        !Filter::any([]),
    ]);
    filters
}

/// Dropping pgvector drops its column; the next opening computes it from the embeddings.
pub(crate) async fn directions_are_restored_after_pgvector_was_removed() {
    with_database("removed", async |url: String| {
        let (documents, queries) = clustered(1_200, 24, 10, 1);
        let space = CollectionName::new("space").unwrap();
        let request = SearchRequest::new(queries[0].clone()).with_limit(20);
        let first = store(&url).await;
        let writer = store(&url).await;
        let filtered = store(&url).await;
        put_all(&first, &space, &documents).await;
        put_all(&writer, &space, &documents[..1]).await;
        let request_of_half = request.clone().with_filter(Filter::eq("even", true));
        let expected_of_half = filtered.search(&space, &request_of_half).await.unwrap();
        let expected = first.search(&space, &request).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("DROP EXTENSION vector CASCADE").execute(&mut admin).await.unwrap();
        let vectors = open(&format!("{url}?migrate=check")).await.unwrap();
        let error = vectors.vectors(Namespace::new("n").unwrap(), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let again = store(&url).await;
        assert_eq!(again.search(&space, &request).await.unwrap(), expected);
        assert_eq!(first.search(&space, &request).await.unwrap(), expected, "on an older connection");
        assert_eq!(filtered.search(&space, &request_of_half).await.unwrap(), expected_of_half);
        put_all(&writer, &space, &documents[..1]).await;
        assert_eq!(first.search(&space, &request).await.unwrap(), expected);
        store(&format!("{url}?migrate=check")).await;
    })
    .await;
}
