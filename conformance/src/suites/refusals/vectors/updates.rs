//! Invalid updates of metadata, in each mode, in a collection that exists and in one that does not.

use larder_kernel::limits::BATCH_DOCUMENTS_MAX;
use larder_kernel::{CollectionName, DocumentId, Metadata, MetadataMode, MetadataUpdate, Result};

use super::super::Refusal;
use super::super::inputs::{PLACES, Rule, TWICE, among, at_least, at_most, metadata};

/// A function that makes a batch of metadata and a number: the position of the invalid update, or the number
/// of updates.
type Make = fn(&Metadata, usize) -> Result<Vec<MetadataUpdate>>;

/// The description, the field of the error, the rule, the batch, its metadata, and its number.
type BadUpdates = (String, &'static str, Rule, Make, Metadata, usize);

fn update(name: &str, metadata: &Metadata) -> Result<MetadataUpdate> {
    Ok(MetadataUpdate::new(DocumentId::new(name)?, metadata.clone()))
}

fn good() -> Metadata {
    Metadata::new().with("good", 1)
}

fn among_good(bad: &Metadata, at: usize) -> Result<Vec<MetadataUpdate>> {
    Ok(among([update("kept-a", &good())?, update("new", &good())?], update("kept-b", bad)?, at))
}

fn twice(metadata: &Metadata, at: usize) -> Result<Vec<MetadataUpdate>> {
    let others = [update("kept-b", metadata)?, update("kept-a", metadata)?];
    Ok(among(others, update("kept-b", metadata)?, at))
}

fn many(metadata: &Metadata, count: usize) -> Result<Vec<MetadataUpdate>> {
    (0..count).map(|number| update(&format!("n{number}"), metadata)).collect()
}

fn bad() -> Vec<BadUpdates> {
    let mut all: Vec<BadUpdates> = Vec::new();
    for (place, at) in PLACES {
        for (what, rule, metadata) in metadata() {
            let what = format!("metadata of {what}, {place}");
            all.push((what, "document.metadata", *rule, among_good, metadata.clone(), at));
        }
        all.push((format!("an id twice, {place}"), "updates.id", TWICE, twice, good(), at));
    }
    let most = BATCH_DOCUMENTS_MAX;
    all.push(("too many".to_owned(), "updates", at_most(most), many, good(), most + 1));
    all.push(("none".to_owned(), "updates", at_least(1), many, good(), 0));
    all
}

pub(super) fn rows() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, field, rule, make, metadata, number) in bad() {
        for mode in [MetadataMode::Replace, MetadataMode::Merge] {
            for collection in ["kept-notes", "absent"] {
                let (what, metadata) = (format!("{what}, {mode:?} in {collection}"), metadata.clone());
                rows.push(Refusal::new("vectors.update_metadata", what, field, rule, move |stores| {
                    let metadata = metadata.clone();
                    Box::pin(async move {
                        let (store, collection) = (stores.vectors()?, CollectionName::new(collection)?);
                        store.update_metadata(&collection, make(&metadata, number)?, mode).await.map(drop)
                    })
                }));
            }
        }
    }
    rows
}
