//! Invalid calls of [`VectorStore`](larder_kernel::VectorStore).

mod updates;

use std::sync::LazyLock;

use larder_kernel::limits::{
    BATCH_DOCUMENTS_MAX, BATCH_SEARCHES_MAX, DIMENSIONS_MAX, DOCUMENT_BYTES_MAX, PAGE_ITEMS_MAX,
};
use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Filter, Metadata, PageRequest, PutMode, Result,
    SearchRequest,
};

use super::inputs::{
    Bad, BadFilter, PLACES, Rule, STANDS, Stand, TWICE, among, at_least, at_most, filters, limits, metadata,
    refused_ids, rule,
};
use super::{Refusal, Table, table};

const MODES: [PutMode; 2] = [PutMode::Upsert, PutMode::IfAbsent];

pub(super) fn tables() -> Vec<Table> {
    let mut all = filtered();
    all.extend(MODES.map(|mode| table(format!("document_put_by_{mode:?}").to_lowercase(), documents(mode))));
    all.extend([
        table("embedding", embeddings()),
        table("dimension", dimensions()),
        table("update", updates::rows()),
        table("page_that_is_too_long", pages()),
        table("search", searches()),
        table("id", ids()),
    ]);
    all
}

/// Returns a collection of three dimensions.
fn kept() -> Result<CollectionName> {
    CollectionName::new("kept-notes")
}

fn document(name: &str, values: &[f32]) -> Result<Document> {
    Ok(Document::new(DocumentId::new(name)?, "text").with_embedding(Embedding::new(values.to_vec())?))
}

fn good() -> Result<[Document; 2]> {
    Ok([document("kept-a", &[9.0, 9.0, 9.0])?, document("new", &[1.0, 0.0, 0.0])?])
}

fn request() -> Result<SearchRequest> {
    Ok(SearchRequest::new(Embedding::new(vec![1.0, 0.0, 0.0])?))
}

/// The methods that take a filter.
#[derive(Debug, Clone, Copy)]
enum Filtering {
    Search,
    SearchBatch,
    DeleteMatching,
    Count,
    ListMatching,
}

fn filtered() -> Vec<Table> {
    let ways = [
        (Filtering::Search, "search"),
        (Filtering::SearchBatch, "batch_of_searches"),
        (Filtering::DeleteMatching, "deletion"),
        (Filtering::Count, "count"),
        (Filtering::ListMatching, "listing"),
    ];
    let mut all = Vec::new();
    for (way, name) in ways {
        for (place, stand) in STANDS {
            let rows = filters().into_iter().map(|bad| filter(way, bad, stand));
            all.push(table(format!("filter_of_a_{name}_{place}"), rows));
        }
    }
    all
}

fn filter(way: Filtering, bad: BadFilter, stand: Stand) -> Refusal {
    let (what, field, limit, make, operator) = bad;
    let call = match way {
        Filtering::Search => "vectors.search",
        Filtering::SearchBatch => "vectors.search_batch",
        Filtering::DeleteMatching => "vectors.delete_matching",
        Filtering::Count => "vectors.count",
        Filtering::ListMatching => "vectors.list_matching",
    };
    Refusal::new(call, what, field, limit, move |stores| {
        let filter = stand(make(operator));
        Box::pin(async move {
            let store = stores.vectors()?;
            match way {
                Filtering::Search => store.search(&kept()?, &request()?.with_filter(filter)).await.map(drop),
                Filtering::SearchBatch => {
                    let requests = among([request()?, request()?], request()?.with_filter(filter), 1);
                    store.search_batch(&kept()?, &requests).await.map(drop)
                }
                Filtering::DeleteMatching => store.delete_matching(&kept()?, &filter).await.map(drop),
                Filtering::Count => store.count(&kept()?, Some(&filter)).await.map(drop),
                Filtering::ListMatching => {
                    store.list_matching(&kept()?, &filter, PageRequest::default()).await.map(drop)
                }
            }
        })
    })
}

fn put(
    what: String,
    field: &'static str,
    limit: Rule,
    mode: PutMode,
    documents: fn(Document, usize) -> Result<Vec<Document>>,
    bad: &'static Document,
    at: usize,
) -> Refusal {
    Refusal::new("vectors.put", what, field, limit, move |stores| {
        let bad = bad.clone();
        Box::pin(async move { stores.vectors()?.put(&kept()?, documents(bad, at)?, mode).await.map(drop) })
    })
}

/// The description, the field of the error, the rule, and the document.
type BadDocument = (String, &'static str, Rule, Document);

fn make_bad_documents(plain: &Document) -> Vec<BadDocument> {
    let of = |(what, limit, metadata): &Bad<Metadata>| {
        let bad = plain.clone().with_metadata(metadata.clone());
        (format!("metadata of {what}"), "document.metadata", *limit, bad)
    };
    let text = |what: &str, content: String| {
        let mut bad = plain.clone();
        bad.content = content;
        (what.to_owned(), "document.content", at_most(DOCUMENT_BYTES_MAX), bad)
    };
    let mut all: Vec<BadDocument> = metadata().iter().map(of).collect();
    all.push(text("a text too long", "x".repeat(DOCUMENT_BYTES_MAX + 1)));
    all.push(text("a text too long in bytes", "é".repeat(DOCUMENT_BYTES_MAX / 2 + 1)));
    let missing = plain.clone().with_embedding(None);
    all.push((
        "no embedding".to_owned(),
        "document.embedding",
        rule("is missing, and the store has no embedder; pass an embedding"),
        missing,
    ));
    all
}

fn documents(mode: PutMode) -> Vec<Refusal> {
    static PLAIN: LazyLock<Option<Document>> = LazyLock::new(|| document("bad", &[1.0, 2.0, 3.0]).ok());
    static BAD: LazyLock<Vec<BadDocument>> =
        LazyLock::new(|| PLAIN.as_ref().map_or_else(Vec::new, make_bad_documents));
    let Some(plain) = PLAIN.as_ref() else { return Vec::new() };
    let mut rows = Vec::new();
    for (place, at) in PLACES {
        for (what, field, limit, bad) in BAD.iter() {
            let set = |bad, at| Ok(among(good()?, bad, at));
            rows.push(put(format!("{what}, {place}"), field, *limit, mode, set, bad, at));
        }
    }
    let many = |bad: Document, count: usize| {
        let one = |number: usize| {
            let mut bad = bad.clone();
            bad.id = DocumentId::new(format!("n{number}"))?;
            Ok(bad)
        };
        (0..count).map(one).collect()
    };
    let most = BATCH_DOCUMENTS_MAX;
    rows.push(put("too many".to_owned(), "documents", at_most(most), mode, many, plain, most + 1));
    rows.push(put("none".to_owned(), "documents", at_least(1), mode, many, plain, 0));
    let twice = |bad: Document, at: usize| Ok(among([bad.clone(), good()?[0].clone()], bad, at));
    for (place, at) in PLACES {
        rows.push(put(format!("an id twice, {place}"), "documents.id", TWICE, mode, twice, plain, at));
    }
    rows
}

type Numbers = fn() -> Vec<f32>;

/// Numbers without a direction in 32 bits.
fn embeddings() -> Vec<Refusal> {
    let number = rule("contains NaN or an infinity; pass finite numbers");
    let zero = rule("has a length of 0 or close to 0; pass an embedding with a direction");
    let long = rule("has a length whose square overflows; scale the embedding down");
    let bad: [Bad<Numbers>; 14] = [
        ("no numbers", at_least(1), Vec::new),
        ("one dimension too many", at_most(DIMENSIONS_MAX), || vec![1.0; DIMENSIONS_MAX + 1]),
        ("twice too many dimensions", at_most(DIMENSIONS_MAX), || vec![1.0; DIMENSIONS_MAX * 2]),
        ("NaN alone", number, || vec![f32::NAN]),
        ("NaN at the beginning", number, || vec![f32::NAN, 1.0, 1.0]),
        ("NaN at the end", number, || vec![1.0, 1.0, f32::NAN]),
        ("infinity", number, || vec![1.0, f32::INFINITY]),
        ("negative infinity", number, || vec![f32::NEG_INFINITY, 1.0]),
        ("zero alone", zero, || vec![0.0]),
        ("zeros", zero, || vec![0.0; 3]),
        ("negative zeros", zero, || vec![-0.0; 3]),
        ("numbers that vanish when squared", zero, || vec![1.0e-20; 3]),
        ("numbers that overflow when squared", long, || vec![2.0e19; 3]),
        ("the greatest numbers", long, || vec![f32::MAX, f32::MIN]),
    ];
    let row = |(what, limit, make): Bad<Numbers>| {
        Refusal::value("embedding.new", what.to_owned(), "embedding", limit, move || {
            Embedding::new(make()).map(drop)
        })
    };
    bad.into_iter().map(row).collect()
}

/// Embeddings of another dimension than the collection's three.
fn dimensions() -> Vec<Refusal> {
    const THREE: Rule = Rule {
        limit: Some(3),
        error: "differs from the collection's dimension; pass an embedding of that dimension",
    };
    let mut rows =
        vec![Refusal::new("vectors.put", "a put of 3, 2 and 3".to_owned(), "embedding", THREE, |stores| {
            Box::pin(async move {
                let batch = among(good()?, document("bad", &[1.0, 2.0])?, 1);
                stores.vectors()?.put(&kept()?, batch, PutMode::Upsert).await.map(drop)
            })
        })];
    for count in [1_usize, 2, 4, 6, 300, DIMENSIONS_MAX] {
        for mode in MODES {
            let what = format!("a put of {count}, {mode:?}");
            rows.push(Refusal::new("vectors.put", what, "embedding", THREE, move |stores| {
                Box::pin(async move {
                    let batch =
                        vec![document("kept-a", &vec![1.0; count])?, document("new", &vec![2.0; count])?];
                    stores.vectors()?.put(&kept()?, batch, mode).await.map(drop)
                })
            }));
        }
        rows.push(Refusal::new(
            "vectors.search",
            format!("a search of {count}"),
            "embedding",
            THREE,
            move |stores| {
                Box::pin(async move {
                    let request = SearchRequest::new(Embedding::new(vec![1.0; count])?);
                    stores.vectors()?.search(&kept()?, &request).await.map(drop)
                })
            },
        ));
        rows.push(Refusal::new(
            "vectors.search_batch",
            format!("a search of {count} among others"),
            "embedding",
            THREE,
            move |stores| {
                Box::pin(async move {
                    let bad = SearchRequest::new(Embedding::new(vec![1.0; count])?);
                    let requests = among([request()?, request()?], bad, 2);
                    stores.vectors()?.search_batch(&kept()?, &requests).await.map(drop)
                })
            },
        ));
    }
    rows
}

fn pages() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, most, count) in limits() {
        for after in [None, Some("kept-a")] {
            for collection in ["kept-notes", "absent"] {
                let what = format!("documents of {collection} after {after:?}: {what}");
                rows.push(Refusal::new("vectors.list", what, "limit", most, move |stores| {
                    Box::pin(async move {
                        let after = after.map(DocumentId::new).transpose()?;
                        let page = PageRequest::first(count).with_after(after);
                        let collection = CollectionName::new(collection)?;
                        stores.vectors()?.list(&collection, page).await.map(drop)
                    })
                }));
            }
            rows.push(Refusal::new(
                "vectors.list_matching",
                format!("matching documents after {after:?}: {what}"),
                "limit",
                most,
                move |stores| {
                    Box::pin(async move {
                        let after = after.map(DocumentId::new).transpose()?;
                        let page = PageRequest::first(count).with_after(after);
                        stores.vectors()?.list_matching(&kept()?, &Filter::all([]), page).await.map(drop)
                    })
                },
            ));
            rows.push(Refusal::new(
                "vectors.list_collections",
                format!("collections after {after:?}: {what}"),
                "limit",
                most,
                move |stores| {
                    Box::pin(async move {
                        let page =
                            PageRequest::first(count).with_after(after.map(CollectionName::new).transpose()?);
                        stores.vectors()?.list_collections(page).await.map(drop)
                    })
                },
            ));
        }
    }
    for count in [PAGE_ITEMS_MAX + 1, PAGE_ITEMS_MAX * 2] {
        for deletes in [false, true] {
            let what = format!("{count} ids, deleted: {deletes}");
            let call = if deletes { "vectors.delete" } else { "vectors.get" };
            rows.push(Refusal::new(call, what, "ids", at_most(PAGE_ITEMS_MAX), move |stores| {
                Box::pin(async move {
                    let ids: Result<Vec<_>> = (0..count).map(|_| DocumentId::new("kept-a")).collect();
                    let store = stores.vectors()?;
                    match deletes {
                        true => store.delete(&kept()?, &ids?).await.map(drop),
                        false => store.get(&kept()?, &ids?).await.map(drop),
                    }
                })
            }));
        }
    }
    rows
}

/// The description, the field of the error, the rule, a function that makes a valid search invalid, and
/// its number.
type BadSearch = (String, &'static str, Rule, fn(SearchRequest, usize) -> SearchRequest, usize);

fn searches() -> Vec<Refusal> {
    let mut bad: Vec<BadSearch> = vec![(
        "a minimum score that is not a number".to_owned(),
        "score_min",
        rule("not a number"),
        |it, _| it.with_score_min(f32::NAN),
        0,
    )];
    for (what, most, count) in limits() {
        bad.push((format!("a limit of {what}"), "limit", most, SearchRequest::with_limit, count));
    }
    let mut rows = Vec::new();
    for (what, field, most, make, count) in bad {
        for collection in ["kept-notes", "absent"] {
            rows.push(Refusal::new(
                "vectors.search",
                format!("{what} in {collection}"),
                field,
                most,
                move |stores| {
                    Box::pin(async move {
                        let collection = CollectionName::new(collection)?;
                        let store = stores.vectors()?;
                        store.search(&collection, &make(request()?, count)).await.map(drop)
                    })
                },
            ));
            for (place, at) in PLACES {
                let what = format!("{what} among others in {collection}, {place}");
                rows.push(Refusal::new("vectors.search_batch", what, field, most, move |stores| {
                    Box::pin(async move {
                        let requests = among([request()?, request()?], make(request()?, count), at);
                        let store = stores.vectors()?;
                        store.search_batch(&CollectionName::new(collection)?, &requests).await.map(drop)
                    })
                }));
            }
        }
    }
    for count in [BATCH_SEARCHES_MAX + 1, BATCH_SEARCHES_MAX * 4] {
        rows.push(Refusal::new(
            "vectors.search_batch",
            format!("{count} searches"),
            "requests",
            at_most(BATCH_SEARCHES_MAX),
            move |stores| {
                Box::pin(async move {
                    let requests = vec![request()?; count];
                    stores.vectors()?.search_batch(&kept()?, &requests).await.map(drop)
                })
            },
        ));
    }
    rows
}

fn ids() -> Vec<Refusal> {
    [refused_ids("collection", CollectionName::new), refused_ids("document", DocumentId::new)].concat()
}
