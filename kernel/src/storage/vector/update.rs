//! Changes of metadata that leave texts and embeddings alone.

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::Result;
use crate::id::DocumentId;
use crate::limits::BATCH_DOCUMENTS_MAX;
use crate::metadata::Metadata;

const OPERATION: &str = "vectors.update_metadata";

/// The effect of an update on the metadata of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MetadataMode {
    /// The given metadata replaces all metadata.
    Replace,
    /// The given keys replace the ones of the same name at the top level, and the others are kept.
    Merge,
}

/// The new metadata of a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MetadataUpdate {
    /// The document.
    pub id: DocumentId,
    /// The metadata to merge, or to replace all metadata with.
    pub metadata: Metadata,
}

impl MetadataUpdate {
    /// Creates an update.
    #[must_use]
    pub fn new(id: DocumentId, metadata: Metadata) -> Self {
        Self { id, metadata }
    }

    /// Returns the metadata to store. Every backend calls this function inside the step that writes, so that
    /// all decide the same way.
    ///
    /// # Errors
    /// `InvalidInput` if the merged metadata exceeds a limit.
    pub fn apply(&self, stored: &Metadata, mode: MetadataMode) -> Result<Metadata> {
        match mode {
            MetadataMode::Replace => Ok(self.metadata.clone()),
            MetadataMode::Merge => {
                let mut merged = stored.clone();
                for (name, value) in self.metadata.iter() {
                    merged.insert(name, value.clone());
                }
                merged.check(OPERATION, "document.metadata")?;
                Ok(merged)
            }
        }
    }
}

/// The result of an update of metadata, in the order of the updates given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MetadataReport {
    /// The ids of the updated documents.
    pub updated: Vec<DocumentId>,
    /// The ids that have no document.
    pub missing: Vec<DocumentId>,
}

impl MetadataReport {
    /// Creates the result of an update.
    #[must_use]
    pub fn new(updated: Vec<DocumentId>, missing: Vec<DocumentId>) -> Self {
        Self { updated, missing }
    }

    /// Creates the result of updates; `exists` returns `true` for the ids of existing documents.
    #[must_use]
    pub fn of(updates: &[MetadataUpdate], exists: impl Fn(&DocumentId) -> bool) -> Self {
        let ids = updates.iter().map(|update| update.id.clone());
        let (updated, missing) = ids.partition(exists);
        Self { updated, missing }
    }
}

/// Checks the arguments of [`update_metadata`](super::VectorStore::update_metadata).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_metadata_updates(updates: &[MetadataUpdate]) -> Result<()> {
    check::batch(OPERATION, "updates", updates.len(), BATCH_DOCUMENTS_MAX)?;
    check::distinct(OPERATION, "updates.id", updates.iter().map(|update| &update.id))?;
    updates.iter().try_for_each(|update| update.metadata.check(OPERATION, "document.metadata"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::limits::METADATA_BYTES_MAX;

    fn update(metadata: Metadata) -> MetadataUpdate {
        MetadataUpdate::new(DocumentId::new("a").unwrap(), metadata)
    }

    #[test]
    fn a_merge_keeps_the_keys_that_it_does_not_name() {
        let stored = Metadata::new().with("kept", 1).with("replaced", serde_json::json!({"inner": 1}));
        let given = Metadata::new().with("replaced", 2).with("new", serde_json::Value::Null);
        let merged = update(given.clone()).apply(&stored, MetadataMode::Merge).unwrap();
        assert_eq!(merged, given.clone().with("kept", 1));
        assert_eq!(update(given.clone()).apply(&stored, MetadataMode::Replace).unwrap(), given);
        let half = |name: &str| Metadata::new().with(name, "x".repeat(METADATA_BYTES_MAX * 2 / 3));
        let refused = update(half("a")).apply(&half("b"), MetadataMode::Merge).unwrap_err();
        assert_eq!((refused.kind(), refused.field()), (ErrorKind::InvalidInput, Some("document.metadata")));
    }
}
