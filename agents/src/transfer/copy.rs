//! From a source into stores, without a journal: what the target holds says how far an earlier copy came.

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

/// What becomes of a target that holds something else than the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// It is refused, before anything is written. What an earlier copy of the same source wrote is no obstacle.
    #[default]
    Refuse,
    /// What only the target holds stays as it is. What both hold differently is refused.
    Keep,
    /// What only the target holds stays as it is. What both hold differently becomes as it is in the source; a thread, a
    /// board or a collection of another dimension is replaced whole.
    Overwrite,
}

/// What a copy came to in one contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The contract.
    pub contract: Contract,
    /// How many records this copy wrote.
    pub written: u64,
    /// The source, read again after all was written.
    pub source: Digest,
    /// The target, read at the same time; without what only it holds, where that may stay.
    pub target: Digest,
    /// What the two differ in. After a copy that ended well, only a source that changed meanwhile makes any.
    pub difference: Difference,
}

impl Copied {
    /// Whether the target holds what the source holds.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.difference.is_none() && self.source == self.target
    }
}

/// Copies contracts from a source into stores, and reads both sides again.
///
/// First the target is held against the source: everything in it must be what the source has, unless `existing` says
/// otherwise. Then what it lacks is written. A copy that ended in the middle, by `kill -9` too, goes on when it is run
/// again, and nothing is there twice.
///
/// # Errors
/// `Unsupported` for a contract that one side lacks; `AlreadyExists` with the counts where the target holds something
/// else, before anything is written; `Corrupt` for an archive that was altered; else the stores' own.
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

/// What a copy would leave out: the contracts of which the source holds something and the target has no store, each with
/// the number of records.
///
/// # Errors
/// The source's own.
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
        format!("{contract} {different} other than in the source and {extra} that it has not")
    });
    let counts = counts.collect::<Vec<_>>().join("; ");
    let message = format!("the target holds other data: {counts}; nothing was written");
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

    /// Both records with what only their bytes tell.
    async fn sealed(&self, from: Record, to: Record) -> Result<(Record, Record)> {
        Ok((self.source.sealed(from).await?, self.target.sealed(to).await?))
    }

    /// Holds the target against the source, as far as the target reaches. Besides the counts, the records that can only
    /// be written after what stands in their place was cleared away.
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

/// Whether the record is part of something that no write can change in place.
fn is_whole(record: &Record) -> bool {
    matches!(record, Record::Message(_) | Record::Collection(_) | Record::Board(_) | Record::Task(_))
}

fn changed_meanwhile(contract: Contract) -> Error {
    Error::new(ErrorKind::Conflict, OPERATION, "somebody else wrote while it was copied; run it again")
        .with_context("contract", contract.as_str())
}
