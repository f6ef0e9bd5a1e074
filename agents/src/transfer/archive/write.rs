//! Writing an archive.

use std::io::Write;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use larder_kernel::{Contract, Namespace, Result, StoreSet, canonical_json};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::format::{End, Header, Mark, PART_BYTES, VERSION, WRITE, failed};
use crate::internal::hex;
use crate::transfer::digest::{Digest, Digester};
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
    let source = Source::Stores(side.clone());
    let mut lines = Lines { to, chain: Chain::start() };
    let (namespace, contracts) = (namespace.clone(), contracts.to_vec());
    lines.write(&Header { larder_archive: VERSION, namespace, contracts: contracts.clone() })?;
    let mut digests = Vec::with_capacity(contracts.len());
    for contract in contracts {
        let mut scan = source.scan(contract).await?;
        let mut digester = Digester::default();
        while let Some(mut record) = scan.next().await? {
            if let Record::Blob(blob) = &mut record {
                parts(&source, blob, &mut lines).await?;
            }
            digester.add(&record)?;
            lines.write(&record)?;
            watch.see(Phase::Write, &record);
        }
        digests.push((contract, digester.finish()));
    }
    let records = digests.iter().map(|(_, digest)| digest.records).sum();
    lines.write(&Mark::End(End { records, digests: digests.clone() }))?;
    lines.to.flush().map_err(|error| failed(WRITE, error))?;
    Ok(digests)
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
