//! Fields × values: every field of a document reads back exactly, by every method that returns documents.

use larder_kernel::{Document, PageRequest, PutMode, SearchRequest};

use super::support::{collection, document, embedding, put_all, same_document};
use crate::case::{CaseResult, implemented};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::values::{TEXTS, metadata, same};

/// Returns a document for each field and each value, in the order of their ids.
fn written() -> CaseResult<Vec<Document>> {
    let mut written = Vec::new();
    for text in TEXTS {
        let mut one = document(&format!("{:04}", written.len()), &[1.0, 0.25])?;
        (*text).clone_into(&mut one.content);
        written.push(one);
    }
    for metadata in metadata() {
        let one = document(&format!("{:04}", written.len()), &[0.5, -0.25])?;
        written.push(one.with_metadata(metadata));
    }
    Ok(written)
}

pub(super) async fn every_field_reads_back_by_every_method(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let (fields, written) = (collection("fields")?, written()?);
    put_all(&*a, &fields, &written).await?;
    let ids: Vec<_> = written.iter().map(|document| document.id.clone()).collect();
    let found: Vec<_> = b.get(&fields, &ids).await?.into_iter().flatten().collect();
    same("get", &found, &written)?;
    if let Some(page) = implemented(b.list(&fields, PageRequest::first(written.len())).await)? {
        same("list", &page.items, &written)?;
    }
    // Written once more, so that values that were read are written back.
    for batch in found.chunks(500) {
        a.put(&fields, batch.to_vec(), PutMode::Upsert).await?;
    }
    let again: Vec<_> = b.get(&fields, &ids).await?.into_iter().flatten().collect();
    expect::equal("the number of documents", &again.len(), &written.len())?;
    again.iter().zip(&written).try_for_each(|(found, expected)| same_document("again", found, expected))
}

pub(super) async fn hits_carry_every_field(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let (fields, written) = (collection("fields")?, written()?);
    put_all(&*a, &fields, &written).await?;
    let request = SearchRequest::new(embedding(&[1.0, 0.0])?).with_limit(written.len());
    let mut hits = b.search(&fields, &request).await?;
    hits.sort_by(|left, right| left.id.cmp(&right.id));
    let hits: Vec<_> = hits.into_iter().map(|hit| (hit.id, hit.content, hit.metadata)).collect();
    let expected: Vec<_> = written.into_iter().map(|one| (one.id, one.content, one.metadata)).collect();
    same("the hits", &hits, &expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::values::fields_of;

    #[test]
    fn every_field_of_a_document_has_values() {
        let full = written().unwrap().pop().unwrap();
        let fields: Vec<_> = fields_of(&full).into_iter().collect();
        assert_eq!(fields, ["content", "embedding", "id", "metadata"]);
    }
}
