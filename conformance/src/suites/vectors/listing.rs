//! Reads by ids, listings, deletions, and the collections.

use larder_kernel::{
    CollectionInfo, CollectionName, Filter, PageRequest, PutMode, SearchRequest, VectorStore,
};

use super::support::{
    collection, document, embedding, id, ids, list_all, put_all, random_documents, read, same_document,
    same_documents, sorted,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn reads_return_documents_in_the_order_of_ids(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    put_all(&*a, &notes, &[document("a", &[1.0])?, document("b", &[2.0])?, document("c", &[3.0])?]).await?;
    let asked = ["c", "missing", "a", "C", "b", "a", "a ", "c"];
    let found = b.get(&notes, &ids(&asked)?).await?;
    expect::equal("places", &found.len(), &asked.len())?;
    for (asked, found) in asked.iter().zip(&found) {
        let there = ["a", "b", "c"].contains(asked);
        let got = found.as_ref().map(|one| one.id.as_str().to_owned());
        expect::equal(&format!("the position of {asked:?}"), &got, &there.then(|| (*asked).to_owned()))?;
    }
    expect::equal("the result for an empty list of ids", &b.get(&notes, &[]).await?.len(), &0)?;
    let nowhere = b.get(&collection("not there")?, &ids(&["a", "b"])?).await?;
    expect::equal("positions in a missing collection", &nowhere, &vec![None, None])?;
    let many: Vec<_> = (0..10_000)
        .map(|number| if number == 9_999 { "b".to_owned() } else { format!("n{number}") })
        .collect();
    let found = b.get(&notes, &ids(&many)?).await?;
    let there: Vec<_> =
        found.iter().enumerate().filter(|(_, one)| one.is_some()).map(|(place, _)| place).collect();
    expect::equal("places of 10,000", &found.len(), &10_000)?;
    expect::equal("positions of existing ids", &there, &vec![9_999])
}

pub(super) async fn deletions_count_each_document_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let documents = sorted(random_documents(&context, 20, 2)?);
    put_all(&*a, &notes, &documents).await?;
    let (first, second) = (documents[3].id.clone(), documents[17].id.clone());
    let asked = [first.clone(), id("missing")?, second.clone(), first.clone(), second, first.clone()];
    expect::equal("deleted", &a.delete(&notes, &asked).await?, &2)?;
    let left: Vec<_> = documents.iter().filter(|one| !asked.contains(&one.id)).cloned().collect();
    same_documents("left", &list_all(&*b, &notes, 7).await?, &left)?;
    expect::equal("deleted again", &b.delete(&notes, &asked).await?, &0)?;
    expect::equal("no ids", &b.delete(&notes, &[]).await?, &0)?;
    let mut all: Vec<_> = (0..9_980).map(|number| format!("n{number}")).collect();
    all.extend(documents.iter().map(|one| one.id.as_str().to_owned()));
    expect::equal("deleted among 10,000 ids", &b.delete(&notes, &ids(&all)?).await?, &18)?;
    expect::equal("left in the end", &a.count(&notes, None).await?, &0)
}

pub(super) async fn deleting_missing_documents_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let absent = ids(&["x", "y"])?;
    expect::equal("deleted from a missing collection", &a.delete(&notes, &absent).await?, &0)?;
    let listed = b.list_collections(PageRequest::default()).await?.items;
    expect::equal("collections that a deletion made", &listed, &Vec::new())?;
    let kept = document("X", &[1.0])?;
    put_all(&*a, &notes, std::slice::from_ref(&kept)).await?;
    expect::equal("deleted from a missing collection", &a.delete(&notes, &absent).await?, &0)?;
    same_document("the stored data", &read(&*b, &notes, &kept.id).await?, &kept)
}

pub(super) async fn pages_of_any_size_return_each_document_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    put_all(&*a, &collection("notes2")?, &[document("0", &[1.0])?]).await?;
    let documents = sorted(random_documents(&context, 37, 2)?);
    put_all(&*a, &notes, &documents).await?;
    for limit in [1, 2, 3, 7, 36, 37, 38, 10_000] {
        same_documents(&format!("pages of {limit}"), &list_all(&*b, &notes, limit).await?, &documents)?;
    }
    let exact = b.list(&notes, PageRequest::first(37)).await?;
    expect::equal("what follows the page that holds all", &exact.next, &None)?;
    expect::equal("a limit of 0", &b.list(&notes, PageRequest::first(0)).await?.items, &Vec::new())?;
    let between = id(&format!("{}!", documents[4].id))?;
    let page = b.list(&notes, PageRequest::after(between, 3)).await?;
    same_documents("after a missing id", &page.items, &documents[5..8])?;
    let past = b.list(&notes, PageRequest::after(documents[36].id.clone(), 3)).await?;
    expect::equal("after the last", &past.items.len(), &0)?;
    let nowhere = b.list(&collection("not there")?, PageRequest::default()).await?;
    expect::equal("in a missing collection", &(nowhere.items, nowhere.next), &(Vec::new(), None))
}

pub(super) async fn paging_continues_during_changes(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let mut stable = Vec::new();
    for number in 0..20 {
        stable.push(document(&format!("m{number:02}"), &[1.0])?);
        put_all(&*a, &notes, &[stable[number].clone(), document(&format!("m{number:02}-gone"), &[1.0])?])
            .await?;
    }
    let mut seen = Vec::new();
    let mut request = PageRequest::first(3);
    for step in 0..100 {
        let page = b.list(&notes, request).await?;
        seen.extend(page.items.into_iter().map(|one| one.id));
        let Some(next) = page.next else { break };
        // The last document of the page is deleted, and others are written before and after it.
        a.delete(&notes, &ids(&[format!("m{:02}-gone", step % 20)])?).await?;
        let fresh =
            vec![document(&format!("a{step}"), &[1.0])?, document(&format!("{next}~{step}"), &[1.0])?];
        a.put(&notes, fresh, PutMode::Upsert).await?;
        request = PageRequest::after(next, 3);
        expect::that(step < 99, "an end of the pages", "100 pages")?;
    }
    for one in &stable {
        let times = seen.iter().filter(|id| **id == one.id).count();
        expect::equal(&format!("visits of {}", one.id), &times, &1)?;
    }
    let ascending = seen.windows(2).all(|pair| pair[0] < pair[1]);
    expect::that(ascending, "documents in byte order", &seen)
}

async fn collections(store: &dyn VectorStore, limit: usize) -> CaseResult<Vec<CollectionInfo>> {
    let mut all: Vec<CollectionInfo> = Vec::new();
    let mut request = PageRequest::first(limit);
    loop {
        let page = store.list_collections(request.clone()).await?;
        expect::that(page.items.len() <= limit, format!("a page of at most {limit}"), page.items.len())?;
        all.extend(page.items);
        let Some(next) = page.next else { return Ok(all) };
        let moved = request.after.as_ref().is_none_or(|before| *before < next);
        expect::that(moved, "a next page after this one", &next)?;
        request = PageRequest::after(next, limit);
    }
}

fn info(name: &str, dimensions: usize, documents: u64) -> CaseResult<CollectionInfo> {
    Ok(CollectionInfo::new(CollectionName::new(name)?, dimensions, documents))
}

pub(super) async fn collections_are_listed_with_dimension_and_count(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    expect::equal("at first", &collections(&*b, 10).await?, &Vec::new())?;
    let names = ["é", "b", "B", "a/b", "a", "10", "9"];
    let mut expected = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let values = vec![1.0; number + 1];
        for document_number in 0..=number {
            put_all(&*a, &collection(name)?, &[document(&format!("d{document_number}"), &values)?]).await?;
        }
        let documents = u64::try_from(number + 1).unwrap_or_default();
        expected.push(info(name, number + 1, documents)?);
    }
    expected.sort_by(|left, right| left.collection.cmp(&right.collection));
    for limit in [1, 2, 3, 7, 10_000] {
        expect::equal(&format!("pages of {limit}"), &collections(&*b, limit).await?, &expected)?;
    }
    let exact = b.list_collections(PageRequest::first(7)).await?;
    expect::equal("what follows the page that holds all", &exact.next, &None)?;
    expect::equal("a limit of 0", &b.list_collections(PageRequest::first(0)).await?.items, &Vec::new())?;
    let after = b.list_collections(PageRequest::after(collection("A")?, 2)).await?.items;
    expect::equal("after a missing name", &after, &expected[2..4].to_vec())
}

pub(super) async fn the_default_collection_is_like_any_other(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let default = CollectionName::default();
    expect::equal("its name", &default.as_str(), &"default")?;
    put_all(&*a, &default, &[document("a", &[1.0, 2.0])?]).await?;
    put_all(&*a, &collection("Default")?, &[document("a", &[1.0, 2.0, 3.0])?]).await?;
    let expected = vec![info("Default", 3, 1)?, info("default", 2, 1)?];
    expect::equal("the collections", &collections(&*b, 10).await?, &expected)?;
    a.drop_collection(&default).await?;
    expect::equal("after its removal", &collections(&*b, 10).await?, &vec![info("Default", 3, 1)?])
}

pub(super) async fn emptied_collections_remain_listed(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let (one, two) = (collection("by ids")?, collection("by filter")?);
    put_all(&*a, &one, &[document("a", &[1.0, 2.0])?, document("b", &[1.0, 3.0])?]).await?;
    put_all(&*a, &two, &[document("a", &[1.0, 2.0, 3.0])?]).await?;
    a.delete(&one, &ids(&["a"])?).await?;
    let expected = vec![info("by filter", 3, 1)?, info("by ids", 2, 1)?];
    expect::equal("after one deletion", &collections(&*b, 10).await?, &expected)?;
    a.delete(&one, &ids(&["b"])?).await?;
    a.delete_matching(&two, &Filter::all([])).await?;
    let expected = vec![info("by filter", 3, 0)?, info("by ids", 2, 0)?];
    expect::equal("after all deletions", &collections(&*b, 10).await?, &expected)
}

pub(super) async fn a_dropped_collection_is_empty_and_others_remain(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let names = ["gone", "gone2", "Gone", "gon", "gone/x"];
    for name in names {
        put_all(&*a, &collection(name)?, &[document("a", &[1.0, 2.0])?, document("b", &[1.0, 0.0])?]).await?;
    }
    let gone = collection("gone")?;
    expect::equal("the reported existence", &a.drop_collection(&gone).await?, &true)?;
    expect::equal("its count", &b.count(&gone, None).await?, &0)?;
    expect::equal("its documents", &list_all(&*b, &gone, 10).await?, &Vec::new())?;
    expect::equal("its document", &b.get(&gone, &ids(&["a"])?).await?, &vec![None])?;
    let request = SearchRequest::new(embedding(&[1.0, 0.0])?);
    expect::equal("its hits", &b.search(&gone, &request).await?, &Vec::new())?;
    let listed = collections(&*b, 10).await?;
    let expected = [info("Gone", 2, 2)?, info("gon", 2, 2)?, info("gone/x", 2, 2)?, info("gone2", 2, 2)?];
    expect::equal("the collections listed", &listed, &expected.to_vec())?;
    for one in expected {
        let hits = b.search(&one.collection, &request).await?;
        expect::equal("hits in the others", &hits.len(), &2)?;
    }
    Ok(())
}

pub(super) async fn only_a_drop_releases_the_dimension(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    put_all(&*a, &notes, &[document("a", &[1.0, 2.0])?]).await?;
    a.delete(&notes, &ids(&["a"])?).await?;
    let other = || document("a", &[1.0, 2.0, 3.0]);
    let refused = b.put(&notes, vec![other()?], PutMode::IfAbsent).await;
    expect::invalid("another dimension after deleting by ids", refused, "embedding")?;
    put_all(&*a, &notes, &[document("a", &[1.0, 2.0])?]).await?;
    a.delete_matching(&notes, &Filter::all([])).await?;
    let refused = b.put(&notes, vec![other()?], PutMode::Upsert).await;
    expect::invalid("another dimension after deleting by filter", refused, "embedding")?;
    expect::equal("the reported existence", &a.drop_collection(&notes).await?, &true)?;
    put_all(&*b, &notes, &[other()?]).await?;
    expect::equal("the collection created again", &collections(&*a, 10).await?, &vec![info("notes", 3, 1)?])?;
    same_documents("its documents", &list_all(&*a, &notes, 10).await?, &[other()?])?;
    let hits = a.search(&notes, &SearchRequest::new(embedding(&[1.0, 0.0, 0.0])?)).await?;
    expect::equal("its hits", &hits.len(), &1)
}

pub(super) async fn dropping_a_missing_collection_returns_false(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    put_all(&*a, &collection("there")?, &[document("a", &[1.0])?]).await?;
    for name in ["not there", "There", "ther"] {
        expect::equal("the reported existence", &b.drop_collection(&collection(name)?).await?, &false)?;
    }
    expect::equal("the first drop", &b.drop_collection(&collection("there")?).await?, &true)?;
    expect::equal("the second drop", &a.drop_collection(&collection("there")?).await?, &false)
}
