//! Writes of files, a few concurrently, each as a stream.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_kernel::{
    BlobBody, BlobBytes, BlobCondition, BlobPutOptions, BlobStore, Capability, Error, ErrorKind, Result,
};
use sha2::{Digest as _, Sha256};

use super::Change;
use crate::hex::hex;
use crate::transfer::record::{BlobRecord, Record};
use crate::transfer::source::Source;

const PUTS: usize = 4;

pub(super) async fn write(
    source: &Source,
    store: &Arc<dyn BlobStore>,
    batch: Vec<(Change, Record)>,
) -> Result<()> {
    let puts = batch.into_iter().filter_map(|(change, record)| match record {
        Record::Blob(blob) => Some(put(source.clone(), Arc::clone(store), change, blob)),
        _ => None,
    });
    stream::iter(puts).buffer_unordered(PUTS).try_collect().await
}

async fn put(source: Source, store: Arc<dyn BlobStore>, change: Change, blob: BlobRecord) -> Result<()> {
    let mut options = BlobPutOptions { metadata: blob.metadata.clone(), ..BlobPutOptions::default() };
    options.content_type.clone_from(&blob.content_type);
    if change == Change::New && store.capabilities().has(Capability::BlobCreateOnly) {
        options.condition = BlobCondition::Absent;
    }
    let bytes = source.body(&blob).await?;
    let body = match blob.sha256 {
        Some(expected) => BlobBody::Stream(checked(bytes, expected)),
        None => BlobBody::Stream(bytes),
    };
    store.put(&blob.key, body, options).await.map(drop)
}

/// Passes the bytes on and ends with an error if they do not match the digest, so that the write has no
/// effect.
fn checked(bytes: BlobBytes, expected: String) -> BlobBytes {
    let state = (bytes, Sha256::new(), expected);
    let pieces = stream::try_unfold(state, |(mut bytes, mut digest, expected)| async move {
        if let Some(piece) = bytes.try_next().await? {
            digest.update(&piece);
            return Ok(Some((piece, (bytes, digest, expected))));
        }
        let found: [u8; 32] = digest.finalize().into();
        if hex(&found) == expected {
            return Ok(None);
        }
        let message = "a blob changed while its digest was computed; run it again";
        Err(Error::new(ErrorKind::Corrupt, "transfer.copy", message))
    });
    pieces.boxed()
}
