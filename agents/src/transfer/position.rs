//! A position in an archive, and the checksum of the file up to it.

use sha2::{Digest as _, Sha256};

use crate::internal::hex;

/// The start of a line, and the checksum of everything before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    pub(super) offset: u64,
    pub(super) line: u64,
    pub(super) chain: Chain,
}

/// The checksum of a file up to a line: the SHA-256 of the previous checksum and the line's JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain([u8; 32]);

impl Chain {
    /// Returns the checksum before the first line, which is the same in every version.
    pub(super) fn start() -> Self {
        Self(Sha256::digest(b"larder archive").into())
    }

    pub(super) fn then(&self, json: &[u8]) -> Self {
        let mut digest = Sha256::new();
        digest.update(self.0);
        digest.update(json);
        Self(digest.finalize().into())
    }

    pub(super) fn text(&self) -> String {
        hex(&self.0)
    }
}
