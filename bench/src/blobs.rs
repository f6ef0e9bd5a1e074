//! Larder's side of the figures about blobs: the same calls for every backend.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use larder::Stores;
use larder_kernel::{
    BlobBody, BlobGetOptions, BlobKey, BlobPutOptions, BlobStore, BlobStoreExt as _, Namespace,
};

use super::Outcome;

/// Bytes in a mebibyte.
pub(super) const MIB: usize = 1024 * 1024;

/// The blobs of a namespace that only this run uses.
pub(super) struct Blobs {
    stores: Stores,
    blobs: Arc<dyn BlobStore>,
    key: BlobKey,
}

impl Blobs {
    pub(super) async fn open(url: &str, namespace: &str) -> Outcome<Self> {
        let stores = Stores::builder().namespace(Namespace::new(namespace)?).url(url).open().await?;
        Ok(Self { blobs: stores.set().blobs()?, stores, key: BlobKey::new("blob")? })
    }

    /// Removes the blobs of the run.
    pub(super) async fn erase(&self) -> Outcome<()> {
        Ok(self.stores.erase().await?)
    }

    /// Writes the bytes as a stream of chunks, and returns the throughput in MiB/s.
    pub(super) async fn put(&self, bytes: &Bytes) -> Outcome<f64> {
        let begun = Instant::now();
        self.put_stream(stream::iter(pieces(bytes)).map(Ok)).await?;
        Ok(rate(bytes.len(), begun))
    }

    /// Writes a stream.
    pub(super) async fn put_stream(
        &self,
        pieces: impl futures_util::Stream<Item = larder_kernel::Result<Bytes>> + Send + 'static,
    ) -> Outcome<()> {
        self.blobs.put(&self.key, BlobBody::stream(pieces), BlobPutOptions::default()).await?;
        Ok(())
    }

    /// Writes a small blob.
    pub(super) async fn put_small(&self, key: &BlobKey, bytes: &Bytes) -> Outcome<()> {
        self.blobs.put(key, bytes.clone().into(), BlobPutOptions::default()).await?;
        Ok(())
    }

    /// Reads a small blob.
    pub(super) async fn get_small(&self, key: &BlobKey, length: usize) -> Outcome<()> {
        let bytes = self.blobs.get_bytes(key).await?;
        if bytes.len() == length { Ok(()) } else { Err("a read returned too few bytes".into()) }
    }

    /// Reads the whole blob without keeping it, and returns the throughput in MiB/s.
    pub(super) async fn get(&self, length: usize) -> Outcome<f64> {
        let begun = Instant::now();
        let mut bytes = self.blobs.get(&self.key, BlobGetOptions::default()).await?.bytes;
        let mut found = 0;
        while let Some(piece) = bytes.try_next().await? {
            found += piece.len();
        }
        if found != length {
            return Err(format!("a read of {length} bytes returned {found}").into());
        }
        Ok(rate(length, begun))
    }
}

/// Splits the bytes into chunks of one mebibyte.
fn pieces(bytes: &Bytes) -> Vec<Bytes> {
    (0..bytes.len()).step_by(MIB).map(|start| bytes.slice(start..bytes.len().min(start + MIB))).collect()
}

/// Returns the throughput in MiB/s.
pub(super) fn rate(bytes: usize, begun: Instant) -> f64 {
    bytes as f64 / MIB as f64 / begun.elapsed().as_secs_f64()
}
