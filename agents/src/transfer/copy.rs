//! Copies from a source into stores, without a journal: the contents of the target show the progress of an
//! earlier copy.

use larder_kernel::{Contract, Error, ErrorKind, Result, StoreSet};

use super::diff::{Difference, Merge, Pair, Standing, compare, is_passing, is_placeholder};
use super::digest::{Digest, Digester};
use super::progress::{Phase, Watch};
use super::record::Record;
use super::source::Source;
use super::source::lacking;
use super::totals::count;
use super::write::{Change, Writer, clear};

const OPERATION: &str = "transfer.copy";

/// The handling of other data in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// Fails before anything is written. Records that an earlier copy of the same source wrote are allowed.
    #[default]
    Refuse,
    /// Keeps records that only the target has. Fails if a record differs between the two sides.
    Keep,
    /// Keeps records that only the target has. Overwrites a record that differs with that of the source. A
    /// thread, a board or a collection of another dimension is replaced as a whole.
    Overwrite,
}

/// The result of a copy in one contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The contract.
    pub contract: Contract,
    /// The number of records that this copy wrote.
    pub written: u64,
    /// The digest of the source, read again after all writes.
    pub source: Digest,
    /// The digest of the target, read at the same time. It excludes records that only the target has, if
    /// these may stay.
    pub target: Digest,
    /// The difference between the two sides. After a successful copy it is empty, unless the source changed
    /// during the copy.
    pub difference: Difference,
}

impl Copied {
    /// Returns `true` if the target has the same data as the source.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.difference.is_none() && self.source == self.target
    }
}

/// Copies contracts from a source into stores, and reads both sides again.
///
/// First the target is compared with the source: every record in it must match the source, unless `existing`
/// allows otherwise. Then the missing records are written. If a copy was interrupted, even by `kill -9`, run
/// it again. It continues, and no record is written twice.
///
/// # Errors
/// `Unsupported` for a contract that one side does not have. `AlreadyExists` with the counts if the target
/// has other data, before anything is written. `Corrupt` for an archive that was altered. The errors of the
/// stores.
pub async fn copy(
    source: &Source,
    target: &StoreSet,
    contracts: &[Contract],
    existing: Existing,
    watch: &Watch<'_>,
) -> Result<Vec<Copied>> {
    let sides = Sides { source, target: Source::Stores(target.clone()), existing, watch };
    let (from, to) = (source.contracts(), target.contracts());
    if let Some(absent) = contracts.iter().find(|contract| !from.contains(contract) || !to.contains(contract))
    {
        return Err(lacking(*absent).in_operation(OPERATION));
    }
    let mut refused = Vec::new();
    let mut clashes = Vec::new();
    for contract in contracts {
        let (difference, found) = sides.check(*contract).await?;
        let extra = if existing == Existing::Refuse { difference.extra } else { 0 };
        let different = if existing == Existing::Overwrite { 0 } else { difference.different };
        if extra + different > 0 {
            refused.push((*contract, Difference { different, extra, ..difference }));
        }
        clashes.extend(found);
    }
    if !refused.is_empty() {
        return Err(refusal(&refused));
    }
    for clash in &clashes {
        clear(target, clash).await?;
    }
    let mut copied = Vec::with_capacity(contracts.len());
    for contract in contracts {
        let written = sides.write(*contract, target).await?;
        copied.push(Copied { written, ..sides.verify(*contract).await? });
    }
    Ok(copied)
}

/// Returns the contracts that a copy would omit: the source has records and the target has no store. Each
/// comes with the number of records.
///
/// # Errors
/// The errors of the source.
pub async fn left_out(source: &Source, target: &[Contract]) -> Result<Vec<(Contract, u64)>> {
    let mut left = Vec::new();
    for contract in source.contracts().into_iter().filter(|contract| !target.contains(contract)) {
        let records = count(source, contract).await?;
        if records > 0 {
            left.push((contract, records));
        }
    }
    Ok(left)
}

fn refusal(refused: &[(Contract, Difference)]) -> Error {
    let counts = refused.iter().map(|(contract, difference)| {
        let Difference { different, extra, .. } = difference;
        format!("{contract} {different} different and {extra} only in the target")
    });
    let counts = counts.collect::<Vec<_>>().join("; ");
    let message = format!("the target contains other data: {counts}; nothing was written");
    Error::new(ErrorKind::AlreadyExists, OPERATION, message).with_field("target")
}

struct Sides<'a> {
    source: &'a Source,
    target: Source,
    existing: Existing,
    watch: &'a Watch<'a>,
}

impl Sides<'_> {
    async fn merge(&self, contract: Contract) -> Result<Merge> {
        Ok(Merge::new(self.source.scan(contract).await?, self.target.scan(contract).await?))
    }

    /// Completes both records with the data that requires reading their bytes.
    async fn sealed(&self, from: Record, to: Record) -> Result<(Record, Record)> {
        Ok((self.source.sealed(from).await?, self.target.sealed(to).await?))
    }

    /// Compares the target with the source, up to the end of the target. Returns the counts, and the records
    /// that can only be written after the conflicting data is removed.
    async fn check(&self, contract: Contract) -> Result<(Difference, Vec<Record>)> {
        let mut merge = self.merge(contract).await?;
        let (mut difference, mut clashes) = (Difference::default(), Vec::<Record>::new());
        while let Some(pair) = merge.next().await? {
            match pair {
                Pair::Missing(_) => difference.missing += 1,
                Pair::Extra(record) if is_passing(&record) => {}
                Pair::Extra(record) => {
                    self.watch.see(Phase::Check, &record);
                    difference.extra += 1;
                }
                Pair::Both(both) => {
                    let (from, to) = *both;
                    self.watch.see(Phase::Check, &from);
                    let (from, to) = self.sealed(from, to).await?;
                    match compare(&from, &to)? {
                        Standing::Same => difference.same += 1,
                        Standing::OnTheWay => difference.missing += 1,
                        Standing::Different => {
                            difference.different += 1;
                            let known = clashes.last().is_some_and(|last| last.goes_with(&to));
                            if self.existing == Existing::Overwrite && is_whole(&to) && !known {
                                clashes.push(to);
                            }
                        }
                    }
                }
            }
            if merge.target_has_ended() {
                break;
            }
        }
        Ok((difference, clashes))
    }

    async fn write(&self, contract: Contract, target: &StoreSet) -> Result<u64> {
        let mut merge = self.merge(contract).await?;
        let mut writer = Writer::new(self.source, target);
        let mut written = 0;
        while let Some(pair) = merge.next().await? {
            let (change, record) = match pair {
                Pair::Missing(record) if is_placeholder(&record) => continue,
                Pair::Missing(record) => (Change::New, record),
                Pair::Extra(record) => {
                    writer.remove_if_placeholder(&record).await?;
                    continue;
                }
                Pair::Both(both) => {
                    let (from, to) = *both;
                    let (from, to) = self.sealed(from, to).await?;
                    match compare(&from, &to)? {
                        Standing::Same => {
                            self.watch.see(Phase::Write, &from);
                            continue;
                        }
                        Standing::OnTheWay => (Change::Advance, from),
                        Standing::Different if self.existing == Existing::Overwrite && !is_whole(&to) => {
                            (Change::Replace, from)
                        }
                        Standing::Different => return Err(changed_meanwhile(contract)),
                    }
                }
            };
            self.watch.see(Phase::Write, &record);
            written += 1;
            writer.put(change, record).await?;
        }
        writer.flush().await?;
        Ok(written)
    }

    async fn verify(&self, contract: Contract) -> Result<Copied> {
        let mut merge = self.merge(contract).await?;
        let (mut source, mut target) = (Digester::default(), Digester::default());
        let mut difference = Difference::default();
        while let Some(pair) = merge.next().await? {
            match pair {
                Pair::Missing(record) | Pair::Extra(record) if is_passing(&record) => {}
                Pair::Missing(record) => {
                    difference.missing += 1;
                    source.add(&self.source.sealed(record).await?)?;
                }
                Pair::Extra(record) if self.existing == Existing::Refuse => {
                    difference.extra += 1;
                    target.add(&self.target.sealed(record).await?)?;
                }
                Pair::Extra(_) => {}
                Pair::Both(both) => {
                    let (from, to) = *both;
                    self.watch.see(Phase::Verify, &from);
                    let (from, to) = self.sealed(from, to).await?;
                    match compare(&from, &to)? {
                        Standing::Same => difference.same += 1,
                        _ => difference.different += 1,
                    }
                    source.add(&from)?;
                    target.add(&to)?;
                }
            }
        }
        let (source, target) = (source.finish(), target.finish());
        Ok(Copied { contract, written: 0, source, target, difference })
    }
}

/// Returns `true` if the record is part of an item that no write can change in place.
fn is_whole(record: &Record) -> bool {
    matches!(record, Record::Message(_) | Record::Collection(_) | Record::Board(_) | Record::Task(_))
}

fn changed_meanwhile(contract: Contract) -> Error {
    Error::new(ErrorKind::Conflict, OPERATION, "another client wrote during the copy; run it again")
        .with_context("contract", contract.as_str())
}
