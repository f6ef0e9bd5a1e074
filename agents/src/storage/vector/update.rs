//! Updates of metadata.

use larder_kernel::{MetadataMode, MetadataReport, MetadataUpdate, Result};

use super::matrix::Rows;
use super::row::Record;
use crate::storage::MemoryBackend;

pub(super) const OPERATION: &str = "vectors.update_metadata";

/// Applies a batch of updates. Everything that can fail comes before the first change.
pub(super) fn update_metadata(
    rows: &mut Rows,
    backend: &MemoryBackend,
    updates: &[MetadataUpdate],
    mode: MetadataMode,
) -> Result<MetadataReport> {
    let mut records = Vec::with_capacity(updates.len());
    for update in updates {
        let Some(index) = rows.index_of(&update.id) else { continue };
        let stored = rows.record(index);
        let metadata = update.apply(&stored.metadata, mode)?;
        records.push((index, Record { id: stored.id.clone(), content: stored.content.clone(), metadata }));
    }
    rows.set_records(OPERATION, backend, records)?;
    Ok(MetadataReport::of(updates, |id| rows.index_of(id).is_some()))
}
