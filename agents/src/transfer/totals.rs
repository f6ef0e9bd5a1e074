//! The digest and the number of a source's records.

use larder_kernel::{Contract, Result};

use super::digest::{Digest, Digester};
use super::progress::{Phase, Watch};
use super::source::Source;

/// Scans all records of the source under the contract and returns their digest.
///
/// # Errors
/// The errors of the store or of the archive.
pub async fn digest(source: &Source, contract: Contract, watch: &Watch<'_>) -> Result<Digest> {
    let mut scan = source.scan(contract).await?;
    let mut digester = Digester::default();
    while let Some(record) = scan.next().await? {
        let record = source.sealed(record).await?;
        digester.add(&record)?;
        watch.see(Phase::Verify, &record);
    }
    Ok(digester.finish())
}

/// Counts the records of the source under the contract.
///
/// # Errors
/// The errors of the store or of the archive.
pub async fn count(source: &Source, contract: Contract) -> Result<u64> {
    let mut scan = source.scan(contract).await?;
    let mut records = 0;
    while scan.next().await?.is_some() {
        records += 1;
    }
    Ok(records)
}
