//! Keys that backends are known to confuse.

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::future::{join_all, try_join_all};
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
    // The grammar of keys rejects some of the ids; the cases of invalid input cover those.
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

/// The number of concurrent calls: sequential calls would exceed a case's time limit on a slow server.
const AT_ONCE: usize = 8;

/// Writes a blob under each key, and checks that no key affects another.
pub(super) async fn are_different(
    Handles { a, b }: &Handles<dyn BlobStore>,
    mut keys: Vec<BlobKey>,
) -> CaseResult {
    keys.sort_unstable();
    keys.dedup();
    let bytes = |key: &BlobKey| Bytes::from(key.as_str().to_owned());
    for keys in keys.chunks(AT_ONCE) {
        try_join_all(keys.iter().map(|key| a.put_bytes(key, bytes(key)))).await?;
    }
    for keys in keys.chunks(AT_ONCE) {
        let found = try_join_all(keys.iter().map(|key| b.get_bytes(key))).await?;
        for (key, found) in keys.iter().zip(found) {
            expect::equal("the blob's own bytes", &found, &bytes(key))?;
        }
    }
    let listed: Vec<BlobEntry> = b.list("", None).await?.try_collect().await?;
    let listed: Vec<BlobKey> = listed.into_iter().map(|entry| entry.key).collect();
    expect::equal("all keys, in byte order", &listed, &keys)?;
    let (go, stay): (Vec<_>, Vec<_>) = keys.iter().enumerate().partition(|(index, _)| index % 2 == 0);
    for keys in go.chunks(AT_ONCE) {
        let deleted = try_join_all(keys.iter().map(|(_, key)| b.delete(key))).await?;
        expect::equal("the reported existence of each", &deleted, &vec![true; keys.len()])?;
    }
    for (keys, there) in [(go, false), (stay, true)] {
        for keys in keys.chunks(AT_ONCE) {
            let found = join_all(keys.iter().map(|(_, key)| a.head(key))).await;
            for found in found {
                expect::equal("the existence of a blob after others were deleted", &found.is_ok(), &there)?;
            }
        }
    }
    Ok(())
}
