//! Names made of names.

use larder_kernel::check;
use sha2::{Digest as _, Sha256};

use larder_agents::hex::hex;

/// The same 64 characters for the same texts. Lengths stand before the texts, so that no two lists of them run into one.
pub(crate) fn digest(texts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(check::size(text.len()).to_be_bytes());
        digest.update(text);
    }
    hex(&digest.finalize())
}
