//! The mode of [`rename`](super::BlobStore::rename).

/// The effect of a rename on a blob that already has the target key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RenameMode {
    /// The rename fails with `Conflict`.
    #[default]
    Refuse,
    /// The rename replaces the blob.
    Replace,
}
