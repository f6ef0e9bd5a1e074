//! Multipart uploads whose parts are stored among the blobs, as on a server without separate storage for
//! them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use larder_kernel::{BlobBody, BlobCondition, BlobInfo, BlobKey, BlobPutOptions, BlobStore, Result};

use super::{Defect, Wrong};

/// Reads all bytes of a body.
pub(super) async fn gather(body: BlobBody) -> Result<Bytes> {
    let mut whole = BytesMut::new();
    let mut pieces = body.into_stream();
    while let Some(piece) = pieces.try_next().await? {
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

impl Wrong {
    /// Writes the pieces of a body one after another.
    pub(super) async fn put_parts(
        &self,
        key: &BlobKey,
        body: BlobBody,
        options: BlobPutOptions,
    ) -> Result<BlobInfo> {
        let mut pieces = match body {
            BlobBody::Stream(pieces) if self.defect != Defect::PieceByPiece => pieces,
            body => return self.put_halves(key, gather(body).await?, options).await,
        };
        let mut whole = BytesMut::new();
        let mut parts = Vec::new();
        while let Some(piece) = self.next(&mut pieces, &parts).await? {
            if piece.is_empty() {
                continue;
            }
            whole.extend_from_slice(&piece);
            if self.defect == Defect::WrittenInPart {
                self.inner
                    .put(key, BlobBody::Bytes(whole.clone().freeze()), BlobPutOptions::default())
                    .await?;
                tokio::task::yield_now().await;
                continue;
            }
            let part = BlobKey::new(format!("{key}.part-{}", parts.len()))?;
            self.inner.put(&part, BlobBody::Bytes(piece), BlobPutOptions::default()).await?;
            parts.push(part);
        }
        let info = self.inner.put(key, BlobBody::Bytes(whole.freeze()), options).await;
        if self.defect != Defect::PartsKept {
            self.remove(&parts).await?;
        }
        info
    }

    /// Returns the next piece. If the stream fails, its parts are deleted, unless that is the defect.
    async fn next(
        &self,
        pieces: &mut (impl futures_util::Stream<Item = Result<Bytes>> + Unpin + Send),
        parts: &[BlobKey],
    ) -> Result<Option<Bytes>> {
        let next = pieces.try_next().await;
        if next.is_err() && self.defect != Defect::PartsLeft {
            self.remove(parts).await?;
        }
        next
    }

    async fn remove(&self, parts: &[BlobKey]) -> Result<()> {
        for part in parts {
            self.inner.delete(part).await?;
        }
        Ok(())
    }

    /// Writes bytes in two steps, if that is the defect.
    async fn put_halves(&self, key: &BlobKey, bytes: Bytes, options: BlobPutOptions) -> Result<BlobInfo> {
        if self.defect == Defect::PieceByPiece && options.condition == BlobCondition::None {
            let half = BlobBody::Bytes(bytes.slice(..bytes.len() / 2));
            self.inner.put(key, half, options.clone()).await?;
            // About the time that a disk takes for the rest.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.inner.put(key, BlobBody::Bytes(bytes), options).await
    }
}
