//! Files in key order, without their bytes.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{BlobEntry, BlobInfo, BlobStore, Contract, ErrorKind, Result};

use crate::transfer::missing::{Skips, damaged_key};
use crate::transfer::record::{BlobRecord, Record};

/// The number of concurrent `head` calls. They are needed because a listing returns neither media type nor
/// metadata.
const HEADS: usize = 8;

pub(crate) struct BlobScan {
    blobs: BoxStream<'static, Result<Option<BlobInfo>>>,
}

impl BlobScan {
    pub(super) async fn open(store: &Arc<dyn BlobStore>, skips: &Skips) -> Result<Self> {
        let entries = store.list("", None).await?;
        let (store, skips) = (Arc::clone(store), skips.clone());
        let heads = entries.map(move |entry| known(Arc::clone(&store), entry, skips.clone()));
        Ok(Self { blobs: heads.buffered(HEADS).boxed() })
    }

    pub(super) async fn next(&mut self) -> Result<Option<Record>> {
        while let Some(info) = self.blobs.try_next().await? {
            let Some(BlobInfo { key, size, content_type, metadata, .. }) = info else { continue };
            return Ok(Some(Record::Blob(BlobRecord {
                key,
                size,
                content_type,
                metadata,
                sha256: None,
                body: None,
            })));
        }
        Ok(None)
    }
}

/// Returns the info of a listed blob, or `None` if it was deleted since.
async fn known(
    store: Arc<dyn BlobStore>,
    entry: Result<BlobEntry>,
    skips: Skips,
) -> Result<Option<BlobInfo>> {
    let key = match entry {
        Ok(entry) => entry.key,
        Err(error) => {
            let place = damaged_key(&error)
                .map_or("a blob without a key".to_owned(), |key| format!("the blob {key}"));
            return skips.skip(Contract::Blobs, || place, error).map(|()| None);
        }
    };
    match store.head(&key).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => skips.skip(Contract::Blobs, || format!("the blob {key}"), error).map(|()| None),
    }
}
