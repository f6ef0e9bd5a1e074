//! Blobs of encrypted pieces.
//!
//! An encrypted blob is a header (version, key, nonce) followed by pieces of 64 KiB, each with its tag. The
//! last piece, which may be empty, is marked. A range can therefore be read without the rest, and the plain
//! size follows from the encrypted size.

use std::ops::Range;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::check::size;
use larder_kernel::storage::blob::{check_get, check_presign, check_put};
use larder_kernel::{
    BlobBody, BlobBytes, BlobEntries, BlobEntry, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead,
    BlobStore, BlobVersion, BlobVersionId, BlobVersions, ByteRange, Capabilities, Capability, Error,
    ErrorKind, Namespace, Outcome, PresignRequest, PresignedUrl, RenameMode, Result, Store,
};

use super::ring::{KeyRing, PIECE_SEAL_BYTES, PIECES_HEADER_BYTES, Place, corrupt};
use super::{Sealed, shared};

shared!(
    BlobStore,
    [BlobContentType, BlobMetadata, BlobRange, PresignContentType],
    BlobPresignGet,
    BlobPresignPut,
    BlobRename
);

const GET: &str = "blobs.get";
const PUT: &str = "blobs.put";
const PIECE: usize = 64 * 1024;
const SEALED_PIECE: usize = PIECE + PIECE_SEAL_BYTES;
/// The largest number of attempts of a read, if the blob changes between two requests.
const ATTEMPTS: usize = 8;

/// Returns the plain size of an encrypted blob, or `None` if no encrypted blob has that size.
fn clear_size(sealed: u64) -> Option<u64> {
    let body = sealed.checked_sub(size(PIECES_HEADER_BYTES))?;
    let pieces = body.div_ceil(size(SEALED_PIECE));
    let last = body.checked_sub(pieces.checked_sub(1)? * size(SEALED_PIECE))?;
    (last >= size(PIECE_SEAL_BYTES)).then(|| body - pieces * size(PIECE_SEAL_BYTES))
}

/// Returns the number of pieces of a blob. An empty blob has one.
fn pieces_of(clear: u64) -> u64 {
    clear.div_ceil(size(PIECE)).max(1)
}

fn cleared(operation: &'static str, mut info: BlobInfo) -> Result<BlobInfo> {
    info.size = clear_size(info.size).ok_or_else(|| corrupt(operation))?;
    Ok(info)
}

/// Encrypts a body piece by piece. Only the end of the body shows which piece is the last, so a full piece is
/// held back until then.
struct Sealing {
    ring: KeyRing,
    place: Place,
    header: Vec<u8>,
    held: BytesMut,
    number: u32,
}

impl Sealing {
    fn new(ring: &KeyRing, place: Place) -> Result<Self> {
        let (header, _) = ring.begin(PUT)?;
        Ok(Self { ring: ring.clone(), place, header, held: BytesMut::new(), number: 0 })
    }

    fn one(&mut self, length: usize, last: bool, into: &mut BytesMut) -> Result<()> {
        let mut piece = self.held.split_to(length).to_vec();
        self.ring.resume(PUT, &self.header)?.seal(PUT, &self.place, self.number, last, &mut piece)?;
        into.extend_from_slice(&piece);
        self.number = self.number.checked_add(1).ok_or_else(|| {
            Error::new(ErrorKind::ResourceExhausted, PUT, "the blob is too large to encrypt; split it")
        })?;
        Ok(())
    }

    /// Adds data of the body and returns the pieces that are complete.
    fn take(&mut self, more: &[u8]) -> Result<Bytes> {
        let mut sealed = BytesMut::new();
        self.held.extend_from_slice(more);
        while self.held.len() > PIECE {
            self.one(PIECE, false, &mut sealed)?;
        }
        Ok(sealed.freeze())
    }

    /// Returns the rest of the body.
    fn end(&mut self) -> Result<Bytes> {
        let mut sealed = BytesMut::new();
        self.one(self.held.len(), true, &mut sealed)?;
        Ok(sealed.freeze())
    }
}

fn sealed_body(ring: &KeyRing, place: Place, body: BlobBody) -> Result<BlobBody> {
    let mut sealing = Sealing::new(ring, place)?;
    let header = Bytes::from(sealing.header.clone());
    match body {
        BlobBody::Bytes(bytes) => {
            let (pieces, end) = (sealing.take(&bytes)?, sealing.end()?);
            Ok(Bytes::from([&header[..], &pieces, &end].concat()).into())
        }
        body => {
            let pieces = body.into_stream();
            let sealed = futures_util::stream::try_unfold(Some((sealing, pieces)), |state| async move {
                let Some((mut sealing, mut pieces)) = state else { return Ok(None) };
                match pieces.try_next().await? {
                    Some(piece) => Ok(Some((sealing.take(&piece)?, Some((sealing, pieces))))),
                    None => Ok(Some((sealing.end()?, None))),
                }
            });
            Ok(BlobBody::stream(futures_util::stream::once(std::future::ready(Ok(header))).chain(sealed)))
        }
    }
}

/// Decrypts pieces in order.
struct Opening {
    ring: KeyRing,
    place: Place,
    header: Bytes,
    pieces: BlobBytes,
    held: BytesMut,
    /// The number of the next piece, and of the blob's last one.
    number: u64,
    last: u64,
    /// The number of bytes of the next piece before the requested range, and the number of requested bytes.
    skip: usize,
    left: u64,
}

impl Opening {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.number > self.last || (self.left == 0 && self.number > 0) {
            return Ok(None);
        }
        let mut ended = false;
        while self.held.len() < SEALED_PIECE && !ended {
            match self.pieces.try_next().await? {
                Some(more) => self.held.extend_from_slice(&more),
                None => ended = true,
            }
        }
        let mut piece = self.held.split_to(self.held.len().min(SEALED_PIECE)).to_vec();
        let number = u32::try_from(self.number).map_err(|_| corrupt(GET))?;
        let opener = self.ring.resume(GET, &self.header)?;
        opener.open(GET, &self.place, number, self.number == self.last, &mut piece)?;
        self.number += 1;
        let from = std::mem::take(&mut self.skip).min(piece.len());
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(piece.len() - from);
        self.left -= size(wanted);
        Ok(Some(Bytes::from(piece).slice(from..from + wanted)))
    }

    fn stream(self) -> BlobBytes {
        let next = |mut opening: Self| async move { Ok(opening.next().await?.map(|piece| (piece, opening))) };
        futures_util::stream::try_unfold(self, next).boxed()
    }
}

impl Sealed<dyn BlobStore> {
    fn place(&self, key: &BlobKey) -> Place {
        Place::new("blobs", self.namespace().as_str()).at(key.as_str())
    }

    /// Reads the blob, or one of its versions, from the inner store.
    async fn behind(
        &self,
        key: &BlobKey,
        version: Option<&BlobVersionId>,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        match version {
            None => self.inner.get(key, options).await,
            Some(version) => self.inner.get_version(key, version, options).await,
        }
    }

    /// Reads the header of a blob and its info from the inner store.
    async fn header(&self, key: &BlobKey, version: Option<&BlobVersionId>) -> Result<(Bytes, BlobInfo)> {
        let options = BlobGetOptions::default()
            .with_range(ByteRange::Bounded { start: 0, end: size(PIECES_HEADER_BYTES) });
        let read = self.behind(key, version, options).await.map_err(|error| {
            // Only an empty inner blob has no such range, and an encrypted blob is never empty.
            if error.kind() == ErrorKind::InvalidInput { corrupt(GET) } else { error }
        })?;
        let header = read.bytes.try_fold(BytesMut::new(), |mut all, piece| {
            all.extend_from_slice(&piece);
            std::future::ready(Ok(all))
        });
        Ok((header.await?.freeze(), read.info))
    }

    fn opening(
        &self,
        key: &BlobKey,
        header: Bytes,
        pieces: BlobBytes,
        range: &Range<u64>,
        clear: u64,
    ) -> Opening {
        let number = range.start / size(PIECE);
        let skip = usize::try_from(range.start % size(PIECE)).unwrap_or(0);
        Opening {
            ring: self.ring.clone(),
            place: self.place(key),
            header,
            pieces,
            held: BytesMut::new(),
            number,
            last: pieces_of(clear) - 1,
            skip,
            left: range.end - range.start,
        }
    }

    async fn get_whole(&self, key: &BlobKey, version: Option<&BlobVersionId>) -> Result<BlobRead> {
        let read = self.behind(key, version, BlobGetOptions::default()).await?;
        let info = cleared(GET, read.info)?;
        let (mut held, mut pieces) = (BytesMut::new(), read.bytes);
        while held.len() < PIECES_HEADER_BYTES {
            held.extend_from_slice(&pieces.try_next().await?.ok_or_else(|| corrupt(GET))?);
        }
        let header = held.split_to(PIECES_HEADER_BYTES).freeze();
        // A missing key is reported here and not in the stream.
        self.ring.resume(GET, &header)?;
        let range = 0..info.size;
        let mut opening = self.opening(key, header, pieces, &range, info.size);
        opening.held = held;
        Ok(BlobRead::new(info, range, opening.stream()))
    }

    /// Reads a range. Returns `None` if the blob changed between the two requests.
    async fn get_range_once(
        &self,
        key: &BlobKey,
        version: Option<&BlobVersionId>,
        range: ByteRange,
    ) -> Result<Option<BlobRead>> {
        let (header, behind) = self.header(key, version).await?;
        self.ring.resume(GET, &header)?;
        let (sealed, etag) = (behind.size, behind.etag.clone());
        let info = cleared(GET, behind)?;
        let range = range.resolve(info.size)?;
        let sealed_start = size(PIECES_HEADER_BYTES) + range.start / size(PIECE) * size(SEALED_PIECE);
        let sealed_end = size(PIECES_HEADER_BYTES) + range.end.div_ceil(size(PIECE)) * size(SEALED_PIECE);
        let wanted = ByteRange::Bounded { start: sealed_start, end: sealed_end.min(sealed) };
        let read = match self.behind(key, version, BlobGetOptions::default().with_range(wanted)).await {
            Ok(read) => read,
            // The blob existed a moment ago and may be shorter now.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(None),
            Err(error) => return Err(error),
        };
        if read.info.etag != etag {
            return Ok(None);
        }
        let opening = self.opening(key, header, read.bytes, &range, info.size);
        Ok(Some(BlobRead::new(info, range, opening.stream())))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl BlobStore for Sealed<dyn BlobStore> {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        check_put(&options, &self.capabilities())?;
        let body = sealed_body(&self.ring, self.place(key), body)?;
        cleared(PUT, self.inner.put(key, body, options).await?)
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        let Some(range) = options.range else { return self.get_whole(key, None).await };
        for _ in 0..ATTEMPTS {
            if let Some(read) = self.get_range_once(key, None, range).await? {
                return Ok(read);
            }
        }
        let message = "the blob changed during every attempt to read it; try again later";
        Err(Error::new(ErrorKind::Unavailable, GET, message).with_outcome(Outcome::NotApplied))
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        cleared("blobs.head", self.inner.head(key).await?)
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        let entries = self.inner.list(prefix, after).await?;
        let open = |mut entry: BlobEntry| {
            entry.size = clear_size(entry.size).ok_or_else(|| corrupt("blobs.list"))?;
            Ok(entry)
        };
        Ok(entries.and_then(move |entry| std::future::ready(open(entry))).boxed())
    }

    /// Copies a blob by decrypting and encrypting it again, because the ciphertext is bound to its key.
    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        const COPY: &str = "blobs.copy";
        let here = |error: Error| error.in_operation(COPY);
        for _ in 0..ATTEMPTS {
            let BlobRead { info, bytes, .. } = self.get_whole(source, None).await.map_err(here)?;
            let mut options = BlobPutOptions::default().with_all_metadata(info.metadata);
            options.content_type = info.content_type;
            let copied = self.put(target, BlobBody::Stream(bytes), options).await.map_err(here)?;
            // If the source changed during the copy, it is copied again, so that the copy matches the source
            // at its end.
            let unchanged = match self.inner.head(source).await {
                Ok(now) => source == target || now.etag == info.etag,
                Err(error) => error.kind() == ErrorKind::NotFound,
            };
            if unchanged {
                return Ok(copied);
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            COPY,
            "the source changed during every attempt to copy it; try again later",
        ))
    }

    /// The bytes are bound to their key, and no single step encrypts them for another, so the capability is
    /// not declared.
    async fn rename(&self, _source: &BlobKey, _target: &BlobKey, _mode: RenameMode) -> Result<BlobInfo> {
        Err(Error::unsupported("blobs.rename", Capability::BlobRename))
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        self.inner.delete(key).await
    }

    async fn list_versions(&self, key: &BlobKey) -> Result<BlobVersions> {
        let versions = self.inner.list_versions(key).await?;
        let open = |mut version: BlobVersion| {
            version.size = clear_size(version.size).ok_or_else(|| corrupt("blobs.list_versions"))?;
            Ok(version)
        };
        Ok(versions.and_then(move |version| std::future::ready(open(version))).boxed())
    }

    async fn get_version(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        const GET_VERSION: &str = "blobs.get_version";
        check_get(&options).map_err(|error| error.in_operation(GET_VERSION))?;
        let at = Some(version);
        let read = match options.range {
            None => self.get_whole(key, at).await,
            // A version never changes, so the first attempt succeeds.
            Some(range) => {
                self.get_range_once(key, at, range).await.and_then(|read| read.ok_or_else(|| corrupt(GET)))
            }
        };
        read.map_err(|error| error.in_operation(GET_VERSION))
    }

    async fn delete_version(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        self.inner.delete_version(key, version).await
    }

    /// A reader of the URL would get ciphertext, so neither method is declared.
    async fn presign(&self, _key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.capabilities())?;
        Err(Error::unsupported("blobs.presign", Capability::BlobPresignGet))
    }
}
