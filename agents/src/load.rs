//! The reaction to a conversation that cannot be loaded.

use larder_kernel::{Error, ErrorKind};

/// The reaction to stored messages that cannot be loaded, because the store fails or because they do not read
/// back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnLoadError {
    /// Returns the error.
    #[default]
    Fail,
    /// Continues as if no messages were stored, and reports the error. The stored messages are kept.
    Empty,
}

impl OnLoadError {
    /// Returns `true` if the program continues after this error. A mistake of the caller is not a load error.
    pub(crate) fn continues(self, error: &Error) -> bool {
        self == Self::Empty && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput)
    }
}
