//! Reading: one open file is one version, even during later writes.

use std::fs::File;
use std::future::ready;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use larder_kernel::{
    BlobBytes, BlobGetOptions, BlobInfo, BlobKey, BlobRead, Error, ErrorKind, Namespace, Outcome, Result,
};
use sha2::{Digest, Sha256};

use super::checksum;
use super::footer::{Checksum, Footer, corrupt};
use super::read_ahead::read_ahead;
use crate::fs::CHUNK_BYTES;
use crate::fs::buffer_pool::BufferPool;
use crate::fs::engine::{Engine, open_file};
use crate::fs::failure::failed;
use crate::fs::layout::{BlobPath, blob_path};
use larder_agents::internal::hex;

const OPERATION: &str = "blobs.get";
/// The number of pieces that are read concurrently.
const WORKERS: usize = 2;
/// The number of bytes that are read before they are hashed, so that they are still in the processor's cache.
const SLICE_BYTES: usize = 256 * 1024;

/// Opens a blob and reads its footer.
pub(crate) fn open_blob(operation: &'static str, engine: &Engine, path: &BlobPath) -> Result<(File, Footer)> {
    let file = engine
        .folder(&path.folders)
        .and_then(|folder| open_file(folder.as_fd(), &path.file))
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(operation),
            _ => failed(operation, error, Outcome::NotApplied),
        })?;
    let footer = Footer::read(operation, &file)?;
    Ok((file, footer))
}

/// Returns the error for a blob that does not exist.
pub(crate) fn missing(operation: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, operation, "the blob does not exist; check the key")
        .with_field("blob_key")
}

pub(crate) fn head(engine: &Engine, namespace: &Namespace, key: &BlobKey) -> Result<BlobInfo> {
    let (_, footer) = open_blob("blobs.head", engine, &blob_path(namespace, key))?;
    Ok(footer.into_info(key.clone()))
}

pub(crate) fn get(
    engine: &Engine,
    namespace: &Namespace,
    key: &BlobKey,
    options: BlobGetOptions,
) -> Result<BlobRead> {
    let opened = open_blob(OPERATION, engine, &blob_path(namespace, key))?;
    deliver(engine, key, opened, options)
}

/// Reads an open blob, or an open version of one.
pub(super) fn deliver(
    engine: &Engine,
    key: &BlobKey,
    (file, footer): (File, Footer),
    options: BlobGetOptions,
) -> Result<BlobRead> {
    let whole = 0..footer.size;
    let range = options.range.map_or(Ok(whole.clone()), |range| range.resolve(footer.size))?;
    let expected = (range == whole).then(|| Expected::of(&footer));
    let reader = Reader { file, buffers: Arc::clone(engine.buffers()) };
    let mut verifier = Verifier { expected, left: range.end - range.start };
    // The opening also reads the first piece, so a small blob takes one step.
    let mut pieces = pieces(range.clone());
    let first =
        pieces.next().map(|piece| verifier.admit(reader.read(piece, &verifier.hashing())?)).transpose()?;
    let rest = into_stream(reader, &pieces, verifier);
    let bytes = stream::iter(first.map(Ok)).chain(rest).boxed();
    Ok(BlobRead::new(footer.into_info(key.clone()), range, bytes))
}

/// Splits the range into pieces.
fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Clone + Send {
    let step = larder_kernel::check::size(CHUNK_BYTES);
    let starts = range.clone().step_by(CHUNK_BYTES);
    starts.map(move |start| start..range.end.min(start.saturating_add(step)))
}

/// Reads the pieces ahead of the consumer.
fn into_stream(
    reader: Reader,
    pieces: &(impl Iterator<Item = Range<u64>> + Clone + Send + 'static),
    mut verifier: Verifier,
) -> BlobBytes {
    let hashing = verifier.hashing();
    let workers = if matches!(hashing, Hashing::Running(_)) { 1 } else { WORKERS };
    let pieces = read_ahead(OPERATION, pieces, workers, move |piece| reader.read(piece, &hashing));
    // No piece follows a piece that failed verification.
    let admitted = pieces.scan(false, move |failed, piece| {
        let piece = (!*failed).then(|| piece.and_then(|piece| verifier.admit(piece)));
        *failed = piece.as_ref().is_none_or(Result::is_err);
        ready(piece)
    });
    admitted.boxed()
}

/// A hash that takes the pieces in order.
type Running = Arc<Mutex<Sha256>>;

/// The way to hash a piece right after it was read, while its bytes are in the cache.
#[derive(Clone)]
enum Hashing {
    None,
    /// A checksum of the piece.
    OfPiece,
    /// One hash over all pieces.
    Running(Running),
}

/// A piece that was read, with its checksum if one was computed.
struct Piece {
    bytes: Bytes,
    crc: u64,
}

/// The checksum that a read of the whole blob must have.
enum Expected {
    Crc {
        so_far: u64,
        expected: u64,
    },
    /// A blob that an earlier version wrote.
    Sha256(Running, String),
}

impl Expected {
    fn of(footer: &Footer) -> Self {
        match &footer.checksum {
            Checksum::Crc64Nvme(expected) => Self::Crc { so_far: 0, expected: *expected },
            Checksum::Sha256(expected) => Self::Sha256(Arc::default(), expected.clone()),
        }
    }

    fn matches(self) -> bool {
        match self {
            Self::Crc { so_far, expected } => so_far == expected,
            Self::Sha256(running, expected) => {
                let hash = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
                hex(&hash.finalize()) == expected
            }
        }
    }
}

/// Verifies the checksum of a whole blob before the last piece is returned.
struct Verifier {
    expected: Option<Expected>,
    left: u64,
}

impl Verifier {
    fn hashing(&self) -> Hashing {
        match &self.expected {
            None => Hashing::None,
            Some(Expected::Crc { .. }) => Hashing::OfPiece,
            Some(Expected::Sha256(running, _)) => Hashing::Running(Arc::clone(running)),
        }
    }

    /// Returns the piece, or an error for the last piece of a blob whose checksum is wrong.
    fn admit(&mut self, piece: Piece) -> Result<Bytes> {
        self.left = self.left.saturating_sub(larder_kernel::check::size(piece.bytes.len()));
        if let Some(Expected::Crc { so_far, .. }) = &mut self.expected {
            *so_far = checksum::join(*so_far, piece.crc, piece.bytes.len());
        }
        if self.left == 0 && self.expected.take().is_some_and(|expected| !expected.matches()) {
            return Err(corrupt(OPERATION));
        }
        Ok(piece.bytes)
    }
}

/// An open blob and the pool of its buffers.
struct Reader {
    file: File,
    buffers: Arc<BufferPool>,
}

impl Reader {
    fn read(&self, range: Range<u64>, hashing: &Hashing) -> Result<Piece> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut buffer = BufferPool::acquire(&self.buffers, length);
        let mut crc = checksum::begin();
        let mut at = range.start;
        for slice in buffer.bytes_mut().chunks_mut(SLICE_BYTES) {
            self.file.read_exact_at(slice, at).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => corrupt(OPERATION),
                _ => failed(OPERATION, error, Outcome::NotApplied),
            })?;
            at += larder_kernel::check::size(slice.len());
            match hashing {
                Hashing::None => {}
                Hashing::OfPiece => crc.update(slice),
                Hashing::Running(running) => {
                    running.lock().unwrap_or_else(PoisonError::into_inner).update(slice);
                }
            }
        }
        let crc = crc.finalize();
        Ok(Piece { bytes: Bytes::from_owner(buffer), crc })
    }
}
