//! Conversion of the contracts' values to columns.

use larder_kernel::Metadata;

use super::failure::{Fallible, corrupt};
pub(crate) use crate::number::{integer, length, millis};

/// Returns the JSON text for a metadata column.
pub(crate) fn metadata_text(metadata: &Metadata) -> Fallible<String> {
    serde_json::to_string(metadata).map_err(|_| corrupt("postgres.read").into())
}
