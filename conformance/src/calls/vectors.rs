//! The methods of [`VectorStore`].

use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Filter, Metadata, MetadataMode, MetadataUpdate,
    PageRequest, PutMode, Result, SearchRequest, VectorStore,
};

use super::{World, calls};

fn notes() -> Result<CollectionName> {
    CollectionName::new("notes")
}

fn id(text: &str) -> Result<DocumentId> {
    DocumentId::new(text)
}

fn document(name: &str, text: &str, values: &[f32]) -> Result<Document> {
    let metadata = Metadata::new().with("kind", if name == "b" { "odd" } else { "even" }).with("of", text);
    Ok(Document::new(id(name)?, format!("{name} {text}"))
        .with_embedding(Embedding::new(values.to_vec())?)
        .with_metadata(metadata))
}

fn query() -> Result<SearchRequest> {
    Ok(SearchRequest::new(Embedding::new(vec![1.0, 0.25, 0.0])?))
}

fn updates() -> Result<Vec<MetadataUpdate>> {
    let metadata = Metadata::new().with("kind", "even").with("new", 1);
    let update = |name| Ok(MetadataUpdate::new(id(name)?, metadata.clone()));
    ["b", "their", "a"].into_iter().map(update).collect()
}

fn even() -> Filter {
    Filter::eq("kind", "even")
}

pub(super) async fn lay_out(store: &dyn VectorStore, world: World) -> Result<()> {
    let text = world.text();
    let mut documents = vec![
        document("a", text, &[1.0, 0.0, 0.0])?,
        document("b", text, &[0.5, 0.5, 0.0])?,
        document("c", text, &[0.0, 1.0, 0.0])?,
    ];
    if world.is_theirs() {
        documents.push(document("their", text, &[1.0, 0.25, 0.0])?);
        let wide = document("a", text, &[1.0, 2.0, 3.0, 4.0])?;
        store.put(&CollectionName::new("new")?, vec![wide.clone()], PutMode::Upsert).await?;
        store.put(&CollectionName::new("their")?, vec![wide], PutMode::Upsert).await?;
    }
    store.put(&notes()?, documents, PutMode::Upsert).await?;
    store
        .put(&CollectionName::new("plans")?, vec![document("a", text, &[1.0, 0.5])?], PutMode::Upsert)
        .await?;
    Ok(())
}

calls! { Vectors, vectors;
    "put" => |store| {
        let batch = vec![document("a", "new", &[0.0, 0.0, 1.0])?, document("d", "new", &[0.0, 2.0, 1.0])?];
        store.put(&notes()?, batch, PutMode::Upsert).await
    }
    "put/if_absent" => |store| {
        let batch =
            vec![document("a", "new", &[0.0, 0.0, 1.0])?, document("their", "new", &[0.0, 2.0, 1.0])?];
        store.put(&notes()?, batch, PutMode::IfAbsent).await
    }
    "put/into_a_new_collection" => |store| {
        let batch = vec![document("a", "new", &[0.0, 1.0])?];
        store.put(&CollectionName::new("new")?, batch, PutMode::Upsert).await
    }
    "update_metadata" => |store| {
        store.update_metadata(&notes()?, updates()?, MetadataMode::Replace).await
    }
    "update_metadata/merge" => |store| {
        store.update_metadata(&notes()?, updates()?, MetadataMode::Merge).await
    }
    "update_metadata/of_a_collection_that_is_not_there" => |store| {
        store.update_metadata(&CollectionName::new("their")?, updates()?, MetadataMode::Merge).await
    }
    "get" => |store| { store.get(&notes()?, &[id("b")?, id("their")?, id("a")?]).await }
    "search" => |store| { store.search(&notes()?, &query()?.with_limit(10)).await }
    "search/with_a_filter" => |store| {
        store.search(&notes()?, &query()?.with_limit(10).with_filter(even())).await
    }
    "search/of_a_collection_that_is_not_there" => |store| {
        store.search(&CollectionName::new("their")?, &query()?).await
    }
    "search_batch" => |store| {
        store.search_batch(&notes()?, &[query()?.with_filter(even()), query()?.with_limit(2)]).await
    }
    "delete" => |store| { store.delete(&notes()?, &[id("a")?, id("their")?]).await }
    "delete_matching" => |store| { store.delete_matching(&notes()?, &even()).await }
    "count" => |store| { store.count(&notes()?, None).await }
    "count/with_a_filter" => |store| { store.count(&notes()?, Some(&even())).await }
    "list" => |store| { store.list(&notes()?, PageRequest::default()).await }
    "list/after" => |store| { store.list(&notes()?, PageRequest::after(id("a")?, 10)).await }
    "list_matching" => |store| { store.list_matching(&notes()?, &even(), PageRequest::default()).await }
    "list_matching/after" => |store| {
        store.list_matching(&notes()?, &even(), PageRequest::after(id("a")?, 10)).await
    }
    "list_collections" => |store| { store.list_collections(PageRequest::default()).await }
    "drop_collection" => |store| { store.drop_collection(&notes()?).await }
    "drop_collection/that_is_not_there" => |store| {
        store.drop_collection(&CollectionName::new("their")?).await
    }
}
