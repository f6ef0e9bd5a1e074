//! Writing an archive.

use std::io::Write;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use larder_kernel::{Contract, Namespace, Result, StoreSet, canonical_json};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::format::{End, Header, Mark, PART_BYTES, VERSION, VERSION_WITH_MISSING, WRITE, failed};
use crate::internal::hex;
use crate::transfer::digest::{Digest, Digester};
use crate::transfer::missing::{Missing, Skips};
use crate::transfer::position::Chain;
use crate::transfer::progress::{Phase, Watch};
use crate::transfer::record::{BlobRecord, Record};
use crate::transfer::source::Source;

/// Writes the contents of a namespace under some contracts to `to`, and returns the digest of each.
///
/// The writer is flushed but not synced: the caller that opened the file must sync it. A reader recognizes
/// the output of a failed call as truncated.
///
/// # Errors
/// `Unsupported` for a contract that the side does not have. The errors of the stores. `Unavailable`,
/// `PermissionDenied` or `ResourceExhausted` if the file cannot be written.
pub async fn dump(
    side: &StoreSet,
    namespace: &Namespace,
    contracts: &[Contract],
    to: &mut (dyn Write + Send),
    watch: &Watch<'_>,
) -> Result<Vec<(Contract, Digest)>> {
    write(side, namespace, contracts, to, watch, &Skips::default()).await
}

/// As [`dump`], but leaves out data that is damaged, and lists it in the last line of the archive and in the
/// result. If the place of a damaged record in a listing is unknown, the records after it are left out too.
///
/// # Errors
/// As [`dump`], except `Corrupt` of the stores.
pub async fn dump_undamaged(
    side: &StoreSet,
    namespace: &Namespace,
    contracts: &[Contract],
    to: &mut (dyn Write + Send),
    watch: &Watch<'_>,
) -> Result<(Vec<(Contract, Digest)>, Vec<Missing>)> {
    let skips = Skips::collecting();
    let digests = write(side, namespace, contracts, to, watch, &skips).await?;
    Ok((digests, skips.listed()))
}

async fn write(
    side: &StoreSet,
    namespace: &Namespace,
    contracts: &[Contract],
    to: &mut (dyn Write + Send),
    watch: &Watch<'_>,
    skips: &Skips,
) -> Result<Vec<(Contract, Digest)>> {
    let source = Source::Stores(side.clone());
    let mut lines = Lines { to, chain: Chain::start() };
    let (namespace, contracts) = (namespace.clone(), contracts.to_vec());
    let larder_archive = if skips.is_collecting() { VERSION_WITH_MISSING } else { VERSION };
    lines.write(&Header { larder_archive, namespace, contracts: contracts.clone() })?;
    let mut digests = Vec::with_capacity(contracts.len());
    for contract in contracts {
        let mut scan = source.scan_skipping(contract, skips).await?;
        let mut digester = Digester::default();
        while let Some(mut record) = scan.next().await? {
            if let Record::Blob(blob) = &mut record {
                if skips.is_collecting() && !is_whole(&source, blob, skips).await? {
                    continue;
                }
                parts(&source, blob, &mut lines).await?;
            }
            digester.add(&record)?;
            lines.write(&record)?;
            watch.see(Phase::Write, &record);
        }
        digests.push((contract, digester.finish()));
    }
    let records = digests.iter().map(|(_, digest)| digest.records).sum();
    let missing = skips.listed();
    lines.write(&Mark::End(End { records, digests: digests.clone(), missing }))?;
    lines.to.flush().map_err(|error| failed(WRITE, error))?;
    Ok(digests)
}

/// Reads the bytes of a blob, before any of them is written. Returns false if they are damaged.
async fn is_whole(source: &Source, blob: &BlobRecord, skips: &Skips) -> Result<bool> {
    let read = async {
        let mut bytes = source.body(blob).await?;
        while bytes.try_next().await?.is_some() {}
        Ok(())
    };
    match read.await {
        Ok(()) => Ok(true),
        Err(error) => skips.skip(Contract::Blobs, || format!("the blob {}", blob.key), error).map(|()| false),
    }
}

/// Writes the bytes of a blob before its record, in parts of equal length except the last. Then completes the
/// record with their size and hash.
async fn parts(source: &Source, blob: &mut BlobRecord, lines: &mut Lines<'_>) -> Result<()> {
    let (mut bytes, mut digest) = (source.body(blob).await?, Sha256::new());
    let mut waiting = BytesMut::with_capacity(PART_BYTES);
    blob.size = 0;
    while let Some(mut piece) = bytes.try_next().await? {
        digest.update(&piece);
        blob.size += larder_kernel::check::size(piece.len());
        while !piece.is_empty() {
            let room = PART_BYTES - waiting.len();
            waiting.extend_from_slice(&piece.split_to(room.min(Bytes::len(&piece))));
            if waiting.len() == PART_BYTES {
                lines.write(&Mark::Part(waiting.split().freeze()))?;
            }
        }
    }
    if !waiting.is_empty() {
        lines.write(&Mark::Part(waiting.freeze()))?;
    }
    let sha256: [u8; 32] = digest.finalize().into();
    blob.sha256 = Some(hex(&sha256));
    Ok(())
}

struct Lines<'a> {
    to: &'a mut (dyn Write + Send),
    chain: Chain,
}

impl Lines<'_> {
    fn write<T: Serialize>(&mut self, line: &T) -> Result<()> {
        let json = canonical_json(line)?;
        self.chain = self.chain.then(json.as_bytes());
        writeln!(self.to, "{} {json}", self.chain.text()).map_err(|error| failed(WRITE, error))
    }
}
