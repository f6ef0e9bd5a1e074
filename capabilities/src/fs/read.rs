//! Reading: one open file is one version, whatever is written meanwhile.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use larder_kernel::{
    BlobBytes, BlobGetOptions, BlobInfo, BlobKey, BlobRead, Error, ErrorKind, Namespace, Outcome, Result,
};
use sha2::{Digest, Sha256};

use super::disk::{Disk, failed, open_file};
use super::footer::{Footer, corrupt, hex};
use super::layout::{BlobPath, blob_path};
use super::{CHUNK_BYTES, blocking};

const OPERATION: &str = "blobs.get";

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
    let check = (range == whole).then(|| (Sha256::new(), footer.sha256.clone()));
    let mut reader = Reader { file, left: range.clone(), check };
    // The first piece comes with the opening: for a small blob that is all of it, in one step.
    let first = reader.next()?;
    Ok(BlobRead { info: footer.into_info(key.clone()), range, bytes: reader.into_stream(first) })
}

struct Reader {
    file: File,
    left: Range<u64>,
    /// A read of the whole blob proves its checksum before it gives out the last piece.
    check: Option<(Sha256, String)>,
}

impl Reader {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let left = usize::try_from(self.left.end - self.left.start).unwrap_or(usize::MAX);
        let mut piece = vec![0; left.min(CHUNK_BYTES)];
        self.file.read_exact_at(&mut piece, self.left.start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => corrupt(OPERATION),
            _ => failed(OPERATION, error, Outcome::NotApplied),
        })?;
        self.left.start += larder_kernel::check::size(piece.len());
        if let Some((hash, _)) = &mut self.check {
            hash.update(&piece);
        }
        if self.left.is_empty()
            && let Some((hash, expected)) = self.check.take()
            && hex(&hash.finalize()) != expected
        {
            return Err(corrupt(OPERATION));
        }
        Ok((!piece.is_empty()).then(|| piece.into()))
    }

    fn into_stream(self, first: Option<Bytes>) -> BlobBytes {
        let rest = stream::try_unfold(self, async |mut reader: Self| {
            if reader.left.is_empty() {
                return Ok(None);
            }
            blocking(OPERATION, move || Ok(reader.next()?.map(|piece| (piece, reader)))).await
        });
        stream::iter(first.map(Ok)).chain(rest).boxed()
    }
}
