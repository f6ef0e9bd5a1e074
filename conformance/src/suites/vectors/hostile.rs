//! Names that backends confuse must stay distinct.

use larder_kernel::{Document, Filter, Metadata, PageRequest, PutMode, SearchRequest, VectorStore};

use super::support::{
    collection, document, embedding, hit_ids, id, list_all, put_all, read, same_document, same_documents,
    sorted, tagged,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::ids;

pub(super) async fn document_ids_are_distinct(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let documents = sorted(
        ids::hostile().iter().map(|name| document(name, &[0.5, 0.25])).collect::<CaseResult<Vec<_>>>()?,
    );
    // Half in one batch, half in single writes.
    let (batch, single) = documents.split_at(documents.len() / 2);
    put_all(&*a, &notes, batch).await?;
    for one in single {
        let report = a.put(&notes, vec![one.clone()], PutMode::IfAbsent).await?;
        expect::equal(&format!("{} is new", one.id), &report.written, &vec![one.id.clone()])?;
    }
    for one in &documents {
        same_document("read by id", &read(&*b, &notes, &one.id).await?, one)?;
    }
    same_documents("listed in byte order", &list_all(&*b, &notes, 7).await?, &documents)?;
    let hits = b.search(&notes, &SearchRequest::new(embedding(&[1.0, 0.0])?).with_limit(1_000)).await?;
    let in_order: Vec<_> = documents.iter().map(|one| one.id.clone()).collect();
    expect::equal("ties in byte order", &hit_ids(&hits), &in_order)?;
    let mut left = documents.clone();
    for gone in documents.iter().step_by(2) {
        expect::equal(
            &format!("deleted {}", gone.id),
            &a.delete(&notes, std::slice::from_ref(&gone.id)).await?,
            &1,
        )?;
        left.retain(|one| one.id != gone.id);
        expect::equal("left", &usize::try_from(b.count(&notes, None).await?).ok(), &Some(left.len()))?;
    }
    same_documents("left in the end", &list_all(&*b, &notes, 100).await?, &left)
}

pub(super) async fn collection_names_are_distinct(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let mut names = ids::hostile();
    names.sort();
    for name in &names {
        let mut one = document("same", &[1.0, 2.0])?;
        one.content.clone_from(name);
        let report = a.put(&collection(name)?, vec![one], PutMode::IfAbsent).await?;
        expect::equal(&format!("written in {name:?}"), &report.written.len(), &1)?;
    }
    for name in &names {
        let found = read(&*b, &collection(name)?, &id("same")?).await?;
        expect::equal("the text under the name", &found.content, name)?;
        let hits = b.search(&collection(name)?, &SearchRequest::new(embedding(&[1.0, 0.0])?)).await?;
        expect::equal(&format!("hits in {name:?}"), &hits.len(), &1)?;
    }
    let listed = b.list_collections(PageRequest::default()).await?.items;
    let listed: Vec<_> = listed.iter().map(|info| info.collection.as_str().to_owned()).collect();
    expect::equal("collections in byte order", &listed, &names)?;
    for name in names.iter().step_by(2) {
        expect::equal(&format!("dropped {name:?}"), &a.drop_collection(&collection(name)?).await?, &true)?;
    }
    for (number, name) in names.iter().enumerate() {
        let expected = u64::from(number % 2 == 1);
        expect::equal(&format!("left in {name:?}"), &b.count(&collection(name)?, None).await?, &expected)?;
    }
    Ok(())
}

pub(super) async fn collection_and_document_do_not_merge(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let pairs = ids::hostile_pairs();
    for (number, (name, document_id)) in pairs.iter().enumerate() {
        let mut one = document(document_id, &[1.0])?;
        one.content = format!("{number}");
        let report = a.put(&collection(name)?, vec![one], PutMode::IfAbsent).await?;
        expect::equal(&format!("{name:?} and {document_id:?} are new"), &report.written.len(), &1)?;
    }
    for gone in [false, true] {
        for (number, (name, document_id)) in pairs.iter().enumerate() {
            let found = b.get(&collection(name)?, &[id(document_id)?]).await?;
            let text = found.into_iter().flatten().next().map(|one| one.content);
            let expected = (!gone || number % 2 == 1).then(|| format!("{number}"));
            expect::equal(&format!("the text under {name:?} and {document_id:?}"), &text, &expected)?;
        }
        for (name, document_id) in pairs.iter().step_by(2) {
            let deleted = a.delete(&collection(name)?, &[id(document_id)?]).await?;
            expect::equal("deleted the first time only", &deleted, &u64::from(!gone))?;
        }
    }
    Ok(())
}

pub(super) async fn metadata_keys_are_distinct(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let tag = |(number, name): (usize, &String)| -> CaseResult<Document> {
        tagged(&format!("{number:03}"), &[1.0], Metadata::new().with(name.clone(), name.clone()))
    };
    let names = ids::hostile();
    let documents = names.iter().enumerate().map(tag).collect::<CaseResult<Vec<_>>>()?;
    put_all(&*a, &notes, &documents).await?;
    for (name, own) in names.iter().zip(&documents) {
        let request = SearchRequest::new(embedding(&[1.0])?).with_limit(100);
        for filter in [Filter::exists(name.clone()), Filter::eq(name.clone(), name.clone())] {
            let hits = b.search(&notes, &request.clone().with_filter(filter)).await?;
            expect::equal(&format!("found by {name:?}"), &hit_ids(&hits), &vec![own.id.clone()])?;
        }
    }
    let one = Filter::exists("%");
    expect::equal("deleted by the key %", &VectorStore::delete_matching(&*a, &notes, &one).await?, &1)
}
