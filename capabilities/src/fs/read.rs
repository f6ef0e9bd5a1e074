//! Reading: one open file is one version, whatever is written meanwhile.

use std::fs::File;
use std::future::ready;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use larder_kernel::{
    BlobBytes, BlobGetOptions, BlobInfo, BlobKey, BlobRead, Error, ErrorKind, Namespace, Outcome, Result,
};
use sha2::{Digest, Sha256};

use super::ahead::read_ahead;
use super::disk::{Disk, failed, open_file};
use super::footer::{Checksum, Footer, corrupt};
use super::layout::{BlobPath, blob_path};
use super::{CHUNK_BYTES, crc};
use larder_agents::hex::hex;

const OPERATION: &str = "blobs.get";
/// How many pieces are read at a time.
const LANES: usize = 2;
/// How many buffers a store keeps for the next reads: as many as one needs.
const SPARE_MAX: usize = 6;
/// Where a buffer's bytes begin: what the system copies from begins a page, and some processors take twice as long to copy
/// from there to 16 bytes behind the beginning of another page, which is where allocators begin large blocks.
const ALIGNMENT: usize = 64;
/// How much is read before it is summed up: as much as the processor still has at hand.
const SLICE_BYTES: usize = 256 * 1024;

/// Opens a blob and reads its footer.
pub(crate) fn open_blob(operation: &'static str, disk: &Disk, path: &BlobPath) -> Result<(File, Footer)> {
    let file = disk.folder(&path.folders).and_then(|folder| open_file(folder.as_fd(), &path.file)).map_err(
        |error| match error.kind() {
            io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, operation, "no blob has this key").with_field("blob_key")
            }
            _ => failed(operation, error, Outcome::NotApplied),
        },
    )?;
    let footer = Footer::read(operation, &file)?;
    Ok((file, footer))
}

pub(crate) fn head(disk: &Disk, namespace: &Namespace, key: &BlobKey) -> Result<BlobInfo> {
    let (_, footer) = open_blob("blobs.head", disk, &blob_path(namespace, key))?;
    Ok(footer.into_info(key.clone()))
}

pub(crate) fn get(
    disk: &Disk,
    namespace: &Namespace,
    key: &BlobKey,
    options: BlobGetOptions,
) -> Result<BlobRead> {
    let (file, footer) = open_blob(OPERATION, disk, &blob_path(namespace, key))?;
    let whole = 0..footer.size;
    let range = options.range.map_or(Ok(whole.clone()), |range| range.resolve(footer.size))?;
    let check = (range == whole).then(|| Check::of(&footer));
    let reader = Reader { file, buffers: Arc::clone(disk.buffers()) };
    let mut proof = Proof { check, left: range.end - range.start };
    // The first piece comes with the opening: for a small blob that is all of it, in one step.
    let mut pieces = pieces(range.clone());
    let first = pieces.next().map(|piece| proof.admit(reader.read(piece, &proof.summing())?)).transpose()?;
    let rest = into_stream(reader, &pieces, proof);
    let bytes = stream::iter(first.map(Ok)).chain(rest).boxed();
    Ok(BlobRead { info: footer.into_info(key.clone()), range, bytes })
}

/// The range in pieces.
fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> + Clone + Send {
    let step = larder_kernel::check::size(CHUNK_BYTES);
    let starts = range.clone().step_by(CHUNK_BYTES);
    starts.map(move |start| start..range.end.min(start.saturating_add(step)))
}

/// Reads the pieces, ahead of who takes them.
fn into_stream(
    reader: Reader,
    pieces: &(impl Iterator<Item = Range<u64>> + Clone + Send + 'static),
    mut proof: Proof,
) -> BlobBytes {
    let summing = proof.summing();
    let lanes = if matches!(summing, Summing::Running(_)) { 1 } else { LANES };
    let pieces = read_ahead(OPERATION, pieces, lanes, move |piece| reader.read(piece, &summing));
    // Nothing follows what did not read back.
    let admitted = pieces.scan(false, move |failed, piece| {
        let piece = (!*failed).then(|| piece.and_then(|piece| proof.admit(piece)));
        *failed = piece.as_ref().is_none_or(Result::is_err);
        ready(piece)
    });
    admitted.boxed()
}

/// A hash that takes the pieces one after the other.
type Running = Arc<Mutex<Sha256>>;

/// What is done with a piece where it was read, while its bytes are at hand.
#[derive(Clone)]
enum Summing {
    Nothing,
    /// The piece's own checksum is taken.
    OfPiece,
    /// One checksum goes on.
    Running(Running),
}

/// A piece that was read, with its checksum if that was taken.
struct Piece {
    bytes: Bytes,
    crc: u64,
}

/// What proves that a whole blob reads back as it was written.
enum Check {
    Crc {
        so_far: u64,
        expected: u64,
    },
    /// Blobs of earlier versions.
    Sha256(Running, String),
}

impl Check {
    fn of(footer: &Footer) -> Self {
        match &footer.checksum {
            Checksum::Crc64Nvme(expected) => Self::Crc { so_far: 0, expected: *expected },
            Checksum::Sha256(expected) => Self::Sha256(Arc::default(), expected.clone()),
        }
    }

    fn holds(self) -> bool {
        match self {
            Self::Crc { so_far, expected } => so_far == expected,
            Self::Sha256(running, expected) => {
                let hash = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
                hex(&hash.finalize()) == expected
            }
        }
    }
}

/// A read of the whole blob proves its checksum before it gives out the last piece.
struct Proof {
    check: Option<Check>,
    left: u64,
}

impl Proof {
    fn summing(&self) -> Summing {
        match &self.check {
            None => Summing::Nothing,
            Some(Check::Crc { .. }) => Summing::OfPiece,
            Some(Check::Sha256(running, _)) => Summing::Running(Arc::clone(running)),
        }
    }

    /// The piece, unless it is the last one of a blob that does not read back.
    fn admit(&mut self, piece: Piece) -> Result<Bytes> {
        self.left = self.left.saturating_sub(larder_kernel::check::size(piece.bytes.len()));
        if let Some(Check::Crc { so_far, .. }) = &mut self.check {
            *so_far = crc::join(*so_far, piece.crc, piece.bytes.len());
        }
        if self.left == 0 && self.check.take().is_some_and(|check| !check.holds()) {
            return Err(corrupt(OPERATION));
        }
        Ok(piece.bytes)
    }
}

/// An open blob, and where its buffers come from.
struct Reader {
    file: File,
    buffers: Arc<Buffers>,
}

impl Reader {
    fn read(&self, range: Range<u64>, summing: &Summing) -> Result<Piece> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut lent = Buffers::lend(&self.buffers, length);
        let mut crc = crc::begin();
        let mut at = range.start;
        for slice in lent.bytes[lent.used.clone()].chunks_mut(SLICE_BYTES) {
            self.file.read_exact_at(slice, at).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => corrupt(OPERATION),
                _ => failed(OPERATION, error, Outcome::NotApplied),
            })?;
            at += larder_kernel::check::size(slice.len());
            match summing {
                Summing::Nothing => {}
                Summing::OfPiece => crc.update(slice),
                Summing::Running(running) => {
                    running.lock().unwrap_or_else(PoisonError::into_inner).update(slice);
                }
            }
        }
        let crc = crc.finalize();
        Ok(Piece { bytes: Bytes::from_owner(lent), crc })
    }
}

/// Buffers of a whole chunk that are used again: the system makes a new one page by page, which takes as long as reading it.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn lend(buffers: &Arc<Self>, length: usize) -> Lent {
        let is_chunk = length == CHUNK_BYTES;
        let spare = if is_chunk { buffers.spare().pop() } else { None };
        let room = if is_chunk { ALIGNMENT } else { 0 };
        let bytes = spare.unwrap_or_else(|| vec![0; length + room]);
        let start = if is_chunk { bytes.as_ptr().align_offset(ALIGNMENT).min(room) } else { 0 };
        Lent { bytes, used: start..start + length, buffers: Arc::clone(buffers) }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer that goes back once nobody uses its bytes.
struct Lent {
    bytes: Vec<u8>,
    used: Range<usize>,
    buffers: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.used.clone()]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.buffers.spare();
        if self.used.len() == CHUNK_BYTES && spare.len() < SPARE_MAX {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}
