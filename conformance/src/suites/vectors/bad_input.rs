//! Invalid calls, each of which must leave all data unchanged.

use larder_kernel::{
    CollectionName, Contract, Document, DocumentId, Embedding, Error, Filter, Metadata, PageRequest, PutMode,
    SearchRequest, VectorStore,
};
use serde_json::{Value, json};

use super::dump::{dump, populate};
use super::support::{collection, document, embedding, ids, tagged};
use crate::case::{Case, CaseResult, Level};
use crate::context::{Context, Handles};
use crate::expect;

const MARKER: &str = "kept";

enum Call {
    /// The result of a constructor; no store is called.
    Made(Result<(), Error>),
    Put(Vec<Document>),
    Get(Vec<DocumentId>),
    Search(SearchRequest),
    SearchBatch(Vec<SearchRequest>),
    Delete(Vec<DocumentId>),
    DeleteMatching(Filter),
    Count(Filter),
    List(usize),
    ListCollections(usize),
}

#[derive(Clone, Copy)]
struct Refusal {
    name: &'static str,
    field: &'static str,
    limit: Option<u64>,
    call: fn() -> CaseResult<Call>,
}

const fn refusal(
    name: &'static str,
    field: &'static str,
    limit: Option<u64>,
    call: fn() -> CaseResult<Call>,
) -> Refusal {
    Refusal { name, field, limit, call }
}

pub(super) fn cases() -> Vec<Case> {
    let tables = [values(), puts(), reads(), filters()];
    tables.into_iter().flatten().map(case).collect()
}

fn case(refusal: Refusal) -> Case {
    let Refusal { name, field, limit, call } = refusal;
    Case::new(Contract::Vectors, "STORE-010", format!("refuses_{name}"), move |context: Context| async move {
        let Handles { a, b } = context.vectors().await?;
        populate(&*a, MARKER).await?;
        let before = dump(&*b).await?;
        let refusal = expect::invalid(name, run(&*a, call()?).await?, field)?;
        if limit.is_some() {
            expect::equal("the limit named", &refusal.limit(), &limit)?;
        }
        expect::equal("everything afterwards", &dump(&*b).await?, &before)
    })
    .at_level(Level::Hostile)
}

async fn run(store: &dyn VectorStore, call: Call) -> CaseResult<Result<(), Error>> {
    let notes = collection("kept-notes")?;
    Ok(match call {
        Call::Made(result) => result,
        Call::Put(documents) => store.put(&notes, documents, PutMode::Upsert).await.map(drop),
        Call::Get(ids) => store.get(&notes, &ids).await.map(drop),
        Call::Search(request) => store.search(&notes, &request).await.map(drop),
        Call::SearchBatch(requests) => store.search_batch(&notes, &requests).await.map(drop),
        Call::Delete(ids) => store.delete(&notes, &ids).await.map(drop),
        Call::DeleteMatching(filter) => store.delete_matching(&notes, &filter).await.map(drop),
        Call::Count(filter) => store.count(&notes, Some(&filter)).await.map(drop),
        Call::List(limit) => store.list(&notes, PageRequest::first(limit)).await.map(drop),
        Call::ListCollections(limit) => store.list_collections(PageRequest::first(limit)).await.map(drop),
    })
}

fn made<T>(result: Result<T, Error>) -> CaseResult<Call> {
    Ok(Call::Made(result.map(drop)))
}

fn values() -> Vec<Refusal> {
    vec![
        refusal("an_empty_collection_name", "collection", Some(1), || made(CollectionName::new(""))),
        refusal("a_long_collection_name", "collection", Some(512), || {
            made(CollectionName::new("x".repeat(513)))
        }),
        refusal("nul_in_a_collection_name", "collection", None, || made(CollectionName::new("a\0b"))),
        refusal("an_empty_document_id", "document", Some(1), || made(DocumentId::new(""))),
        refusal("a_long_document_id", "document", Some(512), || made(DocumentId::new("é".repeat(257)))),
        refusal("nul_in_a_document_id", "document", None, || made(DocumentId::new("\0"))),
        refusal("an_embedding_without_numbers", "embedding", Some(1), || made(Embedding::new(Vec::new()))),
        refusal("an_embedding_of_16001", "embedding", Some(16_000), || {
            made(Embedding::new(vec![1.0; 16_001]))
        }),
        refusal("nan_in_an_embedding", "embedding", None, || made(Embedding::new(vec![1.0, f32::NAN]))),
        refusal("infinity_in_an_embedding", "embedding", None, || made(Embedding::new(vec![f32::INFINITY]))),
        refusal("the_zero_embedding", "embedding", None, || made(Embedding::new(vec![0.0, -0.0]))),
        refusal("a_vanishing_embedding", "embedding", None, || made(Embedding::new(vec![1.0e-20; 3]))),
        refusal("an_overflowing_embedding", "embedding", None, || made(Embedding::new(vec![2.0e19; 3]))),
    ]
}

/// Puts valid documents before and after the invalid one: neither may be stored.
fn among_good(bad: Document) -> CaseResult<Call> {
    let first = document("kept-a", &[9.0, 9.0, 9.0])?;
    Ok(Call::Put(vec![first, bad, document("new", &[1.0, 0.0, 0.0])?]))
}

fn with_metadata(metadata: Metadata) -> CaseResult<Call> {
    among_good(tagged("bad", &[1.0, 2.0, 3.0], metadata)?)
}

fn nested(levels: usize) -> Value {
    (0..levels)
        .fold(json!(1), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({"k": inner}) })
}

fn puts() -> Vec<Refusal> {
    vec![
        refusal("no_documents", "documents", Some(1), || Ok(Call::Put(Vec::new()))),
        refusal("1001_documents", "documents", Some(1_000), || {
            let one = |number: u32| document(&format!("n{number}"), &[1.0, 2.0, 3.0]);
            Ok(Call::Put((0..1_001).map(one).collect::<CaseResult<_>>()?))
        }),
        refusal("a_text_over_a_mebibyte", "document.content", Some(1_048_576), || {
            let mut bad = document("bad", &[1.0, 2.0, 3.0])?;
            bad.content = "x".repeat(1_048_577);
            among_good(bad)
        }),
        refusal("an_id_twice", "documents.id", None, || among_good(document("new", &[1.0, 2.0, 3.0])?)),
        refusal("a_document_without_embedding", "document.embedding", None, || {
            let mut bad = document("bad", &[1.0])?;
            bad.embedding = None;
            among_good(bad)
        }),
        refusal("mixed_dimensions", "embedding", None, || among_good(document("bad", &[1.0, 2.0])?)),
        refusal("another_dimension", "embedding", Some(3), || {
            Ok(Call::Put(vec![document("kept-a", &[1.0, 2.0])?, document("new", &[3.0, 4.0])?]))
        }),
        refusal("metadata_over_64_kib", "document.metadata", Some(65_536), || {
            with_metadata(Metadata::new().with("k", "x".repeat(65_536)))
        }),
        refusal("metadata_too_deep", "document.metadata", Some(32), || {
            with_metadata(Metadata::new().with("k", nested(32)))
        }),
        refusal("nul_in_a_metadata_key", "document.metadata", None, || {
            with_metadata(Metadata::new().with("a\0", 1))
        }),
        refusal("nul_in_a_nested_key", "document.metadata", None, || {
            with_metadata(Metadata::new().with("k", json!([{"\0": 1}])))
        }),
        refusal("nul_in_a_metadata_value", "document.metadata", None, || {
            with_metadata(Metadata::new().with("k", json!({"a": ["b\0"]})))
        }),
    ]
}

fn request() -> CaseResult<SearchRequest> {
    Ok(SearchRequest::new(embedding(&[1.0, 0.0, 0.0])?))
}

fn many_ids(count: usize) -> CaseResult<Vec<DocumentId>> {
    let mut all = ids(&(1..count).map(|number| format!("n{number}")).collect::<Vec<_>>())?;
    all.extend(ids(&["kept-a"])?);
    Ok(all)
}

fn reads() -> Vec<Refusal> {
    vec![
        refusal("reading_10001_ids", "ids", Some(10_000), || Ok(Call::Get(many_ids(10_001)?))),
        refusal("deleting_10001_ids", "ids", Some(10_000), || Ok(Call::Delete(many_ids(10_001)?))),
        refusal("a_search_limit_of_10001", "limit", Some(10_000), || {
            Ok(Call::Search(request()?.with_limit(10_001)))
        }),
        refusal("a_floor_that_is_no_number", "score_min", None, || {
            Ok(Call::Search(request()?.with_score_min(f32::NAN)))
        }),
        refusal("a_query_of_another_dimension", "embedding", Some(3), || {
            Ok(Call::Search(SearchRequest::new(embedding(&[1.0, 0.0])?)))
        }),
        refusal("257_searches", "requests", Some(256), || Ok(Call::SearchBatch(vec![request()?; 257]))),
        refusal("a_bad_search_among_good_ones", "limit", Some(10_000), || {
            Ok(Call::SearchBatch(vec![request()?, request()?.with_limit(usize::MAX), request()?]))
        }),
        refusal("a_page_of_10001_documents", "limit", Some(10_000), || Ok(Call::List(10_001))),
        refusal("a_page_of_10001_collections", "limit", Some(10_000), || Ok(Call::ListCollections(10_001))),
    ]
}

fn filters() -> Vec<Refusal> {
    vec![
        refusal("a_filter_of_257_conditions", "filter", Some(256), || {
            Ok(Call::DeleteMatching(Filter::any((0..256).map(|_| Filter::exists("marker")))))
        }),
        refusal("a_filter_33_deep", "filter.depth", Some(32), || {
            Ok(Call::DeleteMatching((0..32).fold(Filter::exists("marker"), |inner, _| !inner)))
        }),
        refusal("a_field_without_keys", "filter.field", Some(1), || {
            Ok(Call::DeleteMatching(!Filter::exists(Vec::<String>::new())))
        }),
        refusal("a_field_of_nine_keys", "filter.field", Some(8), || {
            Ok(Call::Count(Filter::eq(vec!["k".to_owned(); 9], 1)))
        }),
        refusal("nul_in_a_field", "filter.field", None, || Ok(Call::DeleteMatching(Filter::ne("a\0", 1)))),
        refusal("nul_in_an_operand", "filter.value", None, || {
            Ok(Call::DeleteMatching(!Filter::eq("marker", json!(["\0"]))))
        }),
        refusal("an_operand_over_64_kib", "filter.value", Some(65_536), || {
            Ok(Call::Count(Filter::eq("marker", "x".repeat(65_537))))
        }),
        refusal("10001_operands", "filter.values", Some(10_000), || {
            Ok(Call::Search(request()?.with_filter(Filter::is_in("marker", 0..10_001))))
        }),
        refusal("nul_in_a_key_asked_for", "filter.key", None, || {
            Ok(Call::DeleteMatching(!Filter::contains_key("marker", "\0")))
        }),
        refusal("an_operand_too_deep", "filter.value", Some(32), || {
            Ok(Call::Search(request()?.with_filter(Filter::ne("marker", nested(33)))))
        }),
    ]
}
