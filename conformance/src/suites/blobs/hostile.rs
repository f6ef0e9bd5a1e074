//! Keys that backends are known to confuse.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::limits::BLOB_SHORT_KEY_BYTES_MAX;
use larder_kernel::{BlobEntry, BlobKey, BlobStore, BlobStoreExt, Capability};

use crate::case::{Case, CaseResult, Level, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::ids;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(Blobs, "STORE-003", keys_that_look_alike_are_different_blobs).at_level(Level::Hostile),
        case!(Blobs, "STORE-003", long_keys_that_look_alike_are_different_blobs)
            .at_level(Level::Hostile)
            .needing(Capability::BlobLongKeys),
    ]
}

async fn keys_that_look_alike_are_different_blobs(context: Context) -> CaseResult {
    // The grammar of keys refuses some of the ids; those are checked as bad input.
    let mut keys: Vec<BlobKey> = ids::hostile().iter().filter_map(|text| BlobKey::new(text).ok()).collect();
    keys.retain(|key| key.as_str().len() <= BLOB_SHORT_KEY_BYTES_MAX);
    for text in ["%2e%2e", "..%2f", "CON", "a\\b", ".hidden", "...", "a b ", "~", "a\nb", "x.tmp", ".lock"] {
        keys.push(BlobKey::new(text)?);
    }
    are_different(&context.blobs().await?, keys).await
}

async fn long_keys_that_look_alike_are_different_blobs(context: Context) -> CaseResult {
    let mut keys: Vec<BlobKey> = ids::hostile().iter().filter_map(|text| BlobKey::new(text).ok()).collect();
    keys.retain(|key| key.as_str().len() > BLOB_SHORT_KEY_BYTES_MAX);
    are_different(&context.blobs().await?, keys).await
}

/// Writes a blob under each key, and proves that each keeps to itself.
pub(super) async fn are_different(
    Handles { a, b }: &Handles<dyn BlobStore>,
    mut keys: Vec<BlobKey>,
) -> CaseResult {
    keys.sort_unstable();
    keys.dedup();
    for key in &keys {
        a.put_bytes(key, Bytes::from(key.as_str().to_owned())).await?;
    }
    for key in &keys {
        expect::equal(
            "the blob's own bytes",
            &b.get_bytes(key).await?,
            &Bytes::from(key.as_str().to_owned()),
        )?;
    }
    let listed: Vec<BlobEntry> = b.list("", None).await?.try_collect().await?;
    let listed: Vec<BlobKey> = listed.into_iter().map(|entry| entry.key).collect();
    expect::equal("all keys, in byte order", &listed, &keys)?;
    for key in keys.iter().step_by(2) {
        expect::equal("whether it was there", &b.delete(key).await?, &true)?;
    }
    for (index, key) in keys.iter().enumerate() {
        let there = a.head(key).await.is_ok();
        expect::equal("whether a blob is there after others were deleted", &there, &(index % 2 == 1))?;
    }
    Ok(())
}
