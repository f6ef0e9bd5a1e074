//! Names derived from other names.

use larder_kernel::check;
use sha2::{Digest as _, Sha256};

use larder_agents::internal::hex;

/// Returns the same 64 characters for the same texts. The length of each text is hashed before the text, so
/// different lists cannot produce the same input.
pub(crate) fn digest(texts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(check::size(text.len()).to_be_bytes());
        digest.update(text);
    }
    hex(&digest.finalize())
}
