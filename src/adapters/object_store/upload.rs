//! Multipart uploads: one write whose bytes arrive part by part.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use ::object_store::path::Path;
use ::object_store::{
    Error as ObjectError, MultipartUpload, PutPayload, PutResult, Result as ObjectResult, UploadPart,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use futures_util::stream;
use larder_kernel::{BlobBody, BlobInfo, BlobKey, BlobPutOptions, BlobStore, Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::{generic, of_kind, put_result};

/// The result of the write, shared by every part that waits for it.
type Written = Shared<BoxFuture<'static, Result<BlobInfo, Arc<Error>>>>;

enum Piece {
    /// A part, and the channel that confirms that the store has taken it.
    Part(PutPayload, oneshot::Sender<()>),
    /// The end of the parts.
    End,
}

/// An upload. The store takes the parts in the order in which they were given, regardless of the order in
/// which their futures are awaited. A part's future completes when the store has taken the part.
pub(super) struct Upload {
    location: Path,
    /// `None` after the end.
    pieces: Option<mpsc::UnboundedSender<Piece>>,
    written: Written,
}

/// Starts the write in a separate task.
pub(super) fn start(
    blobs: Arc<dyn BlobStore>,
    location: Path,
    key: BlobKey,
    options: BlobPutOptions,
) -> ObjectResult<Upload> {
    let runtime = Handle::try_current().map_err(generic)?;
    let (pieces, arriving) = mpsc::unbounded_channel();
    let write = runtime.spawn(async move { blobs.put(&key, body(arriving), options).await });
    let written = async move {
        let gone = |_| {
            Error::new(
                ErrorKind::Unavailable,
                "blobs.put",
                "the runtime ended during the upload; start it again",
            )
        };
        write.await.map_err(gone).flatten().map_err(Arc::new)
    };
    Ok(Upload { location, pieces: Some(pieces), written: written.boxed().shared() })
}

/// Returns the parts as one body. It succeeds only after an explicit end, because a dropped upload must not
/// look complete.
fn body(arriving: mpsc::UnboundedReceiver<Piece>) -> BlobBody {
    let begin = (arriving, VecDeque::new());
    BlobBody::stream(stream::try_unfold(begin, async |(mut arriving, mut chunks): (_, VecDeque<Bytes>)| {
        loop {
            if let Some(chunk) = chunks.pop_front() {
                return Ok(Some((chunk, (arriving, chunks))));
            }
            match mpsc::UnboundedReceiver::recv(&mut arriving).await {
                Some(Piece::Part(part, taken)) => {
                    chunks.extend(part);
                    // The sender of the part may be gone.
                    let _ = taken.send(());
                }
                Some(Piece::End) => return Ok(None),
                None => {
                    return Err(Error::invalid(
                        "blobs.put",
                        "body",
                        "the upload was abandoned before it completed; start it again",
                    ));
                }
            }
        }
    }))
}

async fn outcome(location: &Path, written: Written) -> ObjectResult<BlobInfo> {
    written.await.map_err(|error| of_kind(location, error.kind(), Box::new(error)))
}

fn ended() -> ObjectError {
    generic("the upload has ended")
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (taken, told) = oneshot::channel();
        let sent = self.pieces.as_ref().map(|pieces| pieces.send(Piece::Part(data, taken)).is_ok());
        let (location, written) = (self.location.clone(), self.written.clone());
        async move {
            match sent {
                None => Err(ended()),
                Some(true) if told.await.is_ok() => Ok(()),
                // The write failed, and its result contains the reason.
                Some(_) => outcome(&location, written).await.and(Err(ended())),
            }
        }
        .boxed()
    }

    async fn complete(&mut self) -> ObjectResult<PutResult> {
        let pieces = self.pieces.take().ok_or_else(ended)?;
        // The send fails if the write has failed; the result of the write contains the reason.
        let _ = pieces.send(Piece::End);
        drop(pieces);
        Ok(put_result(&outcome(&self.location, self.written.clone()).await?))
    }

    async fn abort(&mut self) -> ObjectResult<()> {
        if self.pieces.take().is_some() {
            // Completes when the store has removed the parts. Its error is the one that ended the parts.
            let _ = self.written.clone().await;
        }
        Ok(())
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").finish_non_exhaustive()
    }
}
