use larder_kernel::{Embedding, Metadata};
use tempfile::TempDir;

use super::*;
use crate::sqlite::SqliteConfig;

fn document(id: &str, values: &[f32], tenant: u64) -> Document {
    Document::new(DocumentId::new(id).unwrap(), format!("text\0of {id}"))
        .with_embedding(Embedding::new(values.to_vec()).unwrap())
        .with_metadata(Metadata::new().with("tenant", tenant))
}

fn ids(hits: &[SearchHit]) -> Vec<&str> {
    hits.iter().map(|hit| hit.id.as_str()).collect()
}

#[tokio::test]
async fn single_and_batched_searches_agree_with_and_without_filters() {
    let folder = TempDir::new().unwrap();
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    let store = sqlite.vectors(Namespace::new("n").unwrap(), None);
    let collection = CollectionName::new("c").unwrap();
    let documents = vec![
        document("b", &[1.0, 0.0], 1),
        document("a", &[1.0, 0.0], 2),
        document("c", &[0.0, 3.0], 1),
        document("d", &[-1.0, 0.0], 1),
    ];
    store.put(&collection, documents.clone(), PutMode::Upsert).await.unwrap();
    let query = SearchRequest::new(Embedding::new(vec![2.0, 0.0]).unwrap());
    let requests = [
        query.clone(),
        query.clone().with_limit(1),
        query.clone().with_filter(Filter::eq("tenant", 1.0)),
        query.clone().with_score_min(0.0),
        query.clone().with_limit(0),
    ];
    let batch = store.search_batch(&collection, &requests).await.unwrap();
    let expected: [&[&str]; 5] = [&["a", "b", "c", "d"], &["a"], &["b", "c", "d"], &["a", "b", "c"], &[]];
    for ((request, hits), expected) in requests.iter().zip(&batch).zip(expected) {
        assert_eq!(ids(hits), expected);
        assert_eq!(&store.search(&collection, request).await.unwrap(), hits);
    }
    assert_eq!(batch[0][0].content, "text\0of a");
    assert_eq!(batch[0][0].score.to_bits(), batch[0][1].score.to_bits());
    let listed = store.list(&collection, PageRequest::first(2)).await.unwrap();
    assert_eq!(listed.items, [documents[1].clone(), documents[0].clone()]);
}

#[tokio::test]
async fn counts_and_dimensions_follow_puts_and_deletes() {
    let folder = TempDir::new().unwrap();
    let sqlite = Sqlite::open(SqliteConfig::new(folder.path().join("larder.db"))).await.unwrap();
    let store = sqlite.vectors(Namespace::new("n").unwrap(), None);
    let collection = CollectionName::new("c").unwrap();
    let put = vec![document("a", &[1.0, 0.0], 1), document("b", &[1.0, 0.0], 2)];
    store.put(&collection, put.clone(), PutMode::IfAbsent).await.unwrap();
    let report = store.put(&collection, put, PutMode::IfAbsent).await.unwrap();
    assert_eq!((report.written.len(), report.ignored.len()), (0, 2));
    let replacement = vec![document("a", &[0.0, 1.0], 3), document("c", &[1.0, 1.0], 3)];
    store.put(&collection, replacement, PutMode::Upsert).await.unwrap();
    assert_eq!(store.count(&collection, None).await.unwrap(), 3);
    assert_eq!(store.delete_matching(&collection, &Filter::eq("tenant", 3)).await.unwrap(), 2);
    let twice = [DocumentId::new("b").unwrap(), DocumentId::new("b").unwrap()];
    assert_eq!(store.delete(&collection, &twice).await.unwrap(), 1);
    let listed = store.list_collections(PageRequest::default()).await.unwrap().items;
    assert_eq!((listed[0].dimensions, listed[0].documents), (2, 0));
    let other = vec![document("a", &[1.0], 1)];
    let error = store.put(&collection, other.clone(), PutMode::Upsert).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("embedding")));
    assert!(store.drop_collection(&collection).await.unwrap());
    store.put(&collection, other, PutMode::Upsert).await.unwrap();
}
