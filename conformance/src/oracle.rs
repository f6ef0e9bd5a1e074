//! Clients that know what they wrote: the work done while something is cut, killed or dropped, and what must be there
//! afterwards.
//!
//! A [`OracleClient`] is one client of one contract. It decides its next operation, is told how that ended, and so knows of each
//! write whether it happened, did not, or may have. What it reads later, and what another handle reads in the end, must be
//! one of the states that this leaves: an acknowledged write is there, in its order and once; one reported as not applied
//! is absent; one whose outcome is unknown is whole or absent. Each client alone writes what it judges, so plain comparison
//! is enough and no search over interleavings is needed.
//!
//! Clients decide by a seed and by what they are told, so the same decisions can be made again from a journal alone.
//!
//! A write of unknown outcome may take place later than the answer about it: what was sent may still be on its way. So no
//! client does anything after such a write that the late one could undo: puts name the revision that they replace, and a
//! blob, a document or an entity whose write is open is not written again.

mod blobs;
mod calls;
mod cell;
mod cells;
mod graph;
mod history;
mod listen;
mod tasks;
mod values;
mod vectors;

use async_trait::async_trait;
use larder_kernel::{Contract, Error, ErrorKind, Outcome, Result, TaskStatus};

pub use calls::{Calls, Tally};
pub use cell::Held;
pub use listen::Listeners;

use crate::harness::StoreSet;

/// The contracts for which there are clients.
pub const CONTRACTS: [Contract; 6] = [
    Contract::History,
    Contract::KeyValue,
    Contract::Tasks,
    Contract::Blobs,
    Contract::Vectors,
    Contract::Graph,
];

/// What a client does next. The numbers tell what is written, so that nothing need be kept of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Appends the messages of a batch, under the batch's idempotency key if it has one.
    Append { batch: usize, count: usize, keyed: bool },
    /// Reads the whole thread.
    ReadThread,
    /// Writes a value over the revision, or where there is none.
    Put { slot: usize, number: u64, at: Option<u64> },
    /// Deletes a value at its revision.
    Delete { slot: usize, at: u64 },
    /// Reads a value.
    Get { slot: usize },
    /// Makes the board.
    MakeBoard,
    /// Adds tasks to the board.
    Add { batch: usize, count: usize },
    /// Moves a task on, from a revision.
    Step { slot: usize, number: u64, to: TaskStatus, at: u64 },
    /// Reads a task.
    ReadTask { slot: usize },
    /// Writes a blob, only where there is none if `create` says so.
    PutBlob { slot: usize, number: u64, create: bool },
    /// Deletes a blob.
    DeleteBlob { slot: usize },
    /// Reads a blob.
    ReadBlob { slot: usize },
    /// Makes the two entities that relationships are between.
    MakeEnds,
    /// Writes documents or entities, only where there are none if `fresh` says so.
    WriteCells { places: Vec<usize>, number: u64, fresh: bool },
    /// Deletes a document or an entity.
    Remove { place: usize },
    /// Reads documents or entities.
    Look { places: Vec<usize> },
    /// The same of relationships.
    Edges(Box<Op>),
}

impl Op {
    /// Whether it changes anything.
    pub fn writes(&self) -> bool {
        match self {
            Self::Edges(op) => op.writes(),
            Self::ReadThread
            | Self::Get { .. }
            | Self::ReadTask { .. }
            | Self::ReadBlob { .. }
            | Self::Look { .. } => false,
            _ => true,
        }
    }
}

/// What a store answered, as far as a client looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The numbers that a write was given.
    Numbers(Vec<u64>),
    /// What is there.
    Found(Held),
    /// What is there in several places; `None` where nobody wrote it so.
    Several(Vec<Option<Held>>),
    /// The messages of a thread.
    Thread(Vec<history::Line>),
    /// Bytes that nobody wrote.
    Torn,
}

/// How a call ended.
#[derive(Debug)]
pub enum Ended {
    /// With an answer.
    Done(Answer),
    /// With an error that says that nothing was done.
    Refused(Error),
    /// In the open: what was asked for may have been done.
    Open(Option<Error>),
}

impl From<Result<Answer>> for Ended {
    fn from(result: Result<Answer>) -> Self {
        match result {
            Ok(answer) => Self::Done(answer),
            Err(error) if error.outcome() == Outcome::NotApplied => Self::Refused(error),
            Err(error) => Self::Open(Some(error)),
        }
    }
}

/// Something that contradicts the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// The clause.
    pub clause: &'static str,
    /// What was expected and what came.
    pub finding: String,
}

impl Defect {
    pub fn new(clause: &'static str, finding: impl Into<String>) -> Self {
        Self { clause, finding: finding.into() }
    }
}

/// One client of one contract, which remembers what it wrote.
#[async_trait]
pub trait OracleClient: Send + Sync {
    /// The contract.
    fn contract(&self) -> Contract;

    /// Decides what to do next. Until it is settled, a write that was decided counts as one that may have happened.
    fn next(&mut self) -> Op;

    /// Does it.
    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer>;

    /// Takes note of how it ended.
    fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect>;

    /// Compares what a handle shows with what must be there. `lost` is the clause that an acknowledged write broke which
    /// is gone.
    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>>;
}

/// A client for each contract that is served, all on things of their own under the name `era`.
pub fn clients(stores: &StoreSet, era: &str, seed: u64) -> Vec<Box<dyn OracleClient>> {
    CONTRACTS
        .into_iter()
        .filter(|contract| stores.store(*contract).is_some())
        .map(|contract| client(contract, stores, era, seed))
        .collect()
}

/// A client for one contract.
pub fn client(contract: Contract, stores: &StoreSet, era: &str, seed: u64) -> Box<dyn OracleClient> {
    let random = Random::new(seed, contract.as_str());
    match contract {
        Contract::History => Box::new(history::HistoryClient::new(era, random)),
        Contract::Vectors => Box::new(vectors::VectorClient::new(era, random)),
        Contract::Graph => Box::new(graph::GraphClient::new(era, random)),
        Contract::Tasks => Box::new(tasks::TaskClient::new(era, random)),
        Contract::Blobs => {
            let declared = stores.capabilities(contract).unwrap_or_default();
            Box::new(blobs::BlobClient::new(era, random, &declared))
        }
        Contract::KeyValue => Box::new(values::ValueClient::new(era, random)),
    }
}

/// Whether an error is one that a place out of reach explains.
pub fn is_outage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::ResourceExhausted)
}

/// The defect of an error that nothing explains, where it is one.
pub fn unexplained(error: Option<&Error>, op: &Op) -> Option<Defect> {
    let error = error.filter(|error| !is_outage(error) && error.missing_method().is_none())?;
    Some(Defect::new("STORE-014", format!("{op:?} ended with an error that nothing explains: {error}")))
}

/// Chance from a seed: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Chance that belongs to a name.
    pub fn new(seed: u64, name: &str) -> Self {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, fold))
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// An index below `limit`, which is not 0.
    pub fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(u64::try_from(limit).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    /// Whether what happens once in `times` happens now.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// The seed of one trial of a run.
pub fn trial_seed(seed: u64, what: &str, trial: u64) -> u64 {
    Random::new(seed.wrapping_add(trial.wrapping_mul(0x9E37_79B9_7F4A_7C15)), what).draw()
}

/// Text that fills up a record, the same for the same number: mostly little, sometimes some tens of kilobytes.
pub fn filler(number: u64) -> String {
    let mut random = Random::new(number, "filler");
    let length = if random.once_in(12) { random.index(40_000) } else { random.index(300) };
    let start = random.index(26);
    let letter = |index: usize| char::from(b"abcdefghijklmnopqrstuvwxyz"[(start + index * 7) % 26]);
    (0..length).map(letter).collect()
}

/// How a step of a client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// A write was acknowledged.
    Wrote,
    /// Something was read.
    Read,
    /// The call failed.
    Failed,
}

/// Does one step of a client.
pub async fn step(
    client: &mut dyn OracleClient,
    stores: &StoreSet,
    calls: &Calls,
    defects: &mut Vec<Defect>,
) -> Stepped {
    let op = client.next();
    let (ended, late) = calls.call(&op, client.perform(&op, stores)).await;
    let stepped = match ended {
        Ended::Done(_) if op.writes() => Stepped::Wrote,
        Ended::Done(_) => Stepped::Read,
        _ => Stepped::Failed,
    };
    defects.extend(late);
    defects.extend(client.settle(&op, ended));
    stepped
}

/// How many steps a client has, failed or not, until a write must have succeeded: by chance many may be reads.
const STEPS_MAX: u32 = 100;

/// Has a client work until a write is acknowledged. So many of its calls may fail before; says how many did.
pub async fn recover(
    client: &mut dyn OracleClient,
    stores: &StoreSet,
    calls: &Calls,
    defects: &mut Vec<Defect>,
    failures_max: u32,
) -> u32 {
    let mut failures = 0;
    for _ in 0..STEPS_MAX {
        match step(client, stores, calls, defects).await {
            Stepped::Wrote => return failures,
            Stepped::Read => {}
            Stepped::Failed => failures += 1,
        }
        if failures > failures_max {
            break;
        }
    }
    let contract = client.contract();
    let defect =
        format!("after {failures} failures no write of {contract} succeeded, though the place is back");
    defects.push(Defect::new("STORE-014", defect));
    failures
}

#[cfg(test)]
mod tests;
