//! Clients that record their writes and predict the final state, for the tests that cut, kill or drop
//! something.
//!
//! An [`OracleClient`] is one client of one contract. It decides its next operation and receives the result.
//! So it records for each write that it happened, did not happen, or may have happened. Its later reads, and
//! the final reads of another handle, must match one of the states that remain possible. An acknowledged
//! write exists, in order and once. A write reported as not applied is absent. A write of unknown outcome is
//! complete or absent. Only one client writes the data that it judges, so a simple comparison is enough and
//! no search over interleavings is needed.
//!
//! A client decides by a seed and by the results that it receives. So a journal is enough to repeat the
//! decisions.
//!
//! A write of unknown outcome may take effect after its error, because the request may still be in flight. So
//! a client never follows it by an operation that the late write could undo. Puts name the revision that they
//! replace. A blob, a document or an entity with an open write is not written again.

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
use larder_kernel::{Contract, Error, ErrorKind, Outcome, Result, TaskStatus, random};

pub use calls::{Calls, Tally};
pub use cell::Held;
pub use listen::Listeners;

use crate::harness::StoreSet;

/// The contracts that have clients.
pub const CONTRACTS: [Contract; 6] = [
    Contract::History,
    Contract::KeyValue,
    Contract::Tasks,
    Contract::Blobs,
    Contract::Vectors,
    Contract::Graph,
];

/// The next operation of a client. The numbers determine the written data, so the client does not keep the
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Appends the messages of a batch, under the batch's idempotency key if it has one.
    Append { batch: usize, count: usize, keyed: bool },
    /// Removes the messages of a batch, under an idempotency key.
    RemoveBatch { batch: usize },
    /// Updates the first message of a batch, under an idempotency key.
    UpdateBatch { batch: usize },
    /// Reads the whole thread.
    ReadThread,
    /// Writes a value over the given revision, or creates it.
    Put { slot: usize, number: u64, at: Option<u64> },
    /// Deletes a value at its revision.
    Delete { slot: usize, at: u64 },
    /// Writes several values over the given revisions, or creates them: all or none.
    PutAll { slots: Vec<usize>, number: u64, ats: Vec<Option<u64>> },
    /// Reads a value.
    Get { slot: usize },
    /// Reads several values at one instant.
    GetAll { slots: Vec<usize> },
    /// Creates the board.
    MakeBoard,
    /// Adds tasks to the board.
    Add { batch: usize, count: usize },
    /// Moves a task to another status, from a revision.
    Step { slot: usize, number: u64, to: TaskStatus, at: u64 },
    /// Reads a task.
    ReadTask { slot: usize },
    /// Writes a blob, and requires that it is missing if `create` is true.
    PutBlob { slot: usize, number: u64, create: bool },
    /// Renames the blob of a slot to an unused slot.
    RenameBlob { slot: usize, to: usize, number: u64 },
    /// Deletes a blob.
    DeleteBlob { slot: usize },
    /// Reads a blob.
    ReadBlob { slot: usize },
    /// Creates the two entities that the relationships connect.
    MakeEnds,
    /// Writes documents or entities, and requires that they are missing if `fresh` is true.
    WriteCells { places: Vec<usize>, number: u64, fresh: bool },
    /// Deletes a document or an entity.
    Remove { place: usize },
    /// Reads documents or entities.
    Look { places: Vec<usize> },
    /// The same operation on relationships, or on the metadata of documents.
    Edges(Box<Op>),
}

impl Op {
    /// Returns `true` if the operation changes data.
    pub fn writes(&self) -> bool {
        match self {
            Self::Edges(op) => op.writes(),
            Self::ReadThread
            | Self::Get { .. }
            | Self::GetAll { .. }
            | Self::ReadTask { .. }
            | Self::ReadBlob { .. }
            | Self::Look { .. } => false,
            _ => true,
        }
    }
}

/// The result of a store call, reduced to the parts that a client compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The numbers that the store assigned to a write.
    Numbers(Vec<u64>),
    /// The stored state.
    Found(Held),
    /// The stored states of several cells; `None` for a state that no client wrote.
    Several(Vec<Option<Held>>),
    /// The messages of a thread.
    Thread(Vec<history::Line>),
    /// Bytes that no client wrote.
    Torn,
}

/// The end of a call.
#[derive(Debug)]
pub enum Ended {
    /// The call succeeded.
    Done(Answer),
    /// The call failed with an error whose outcome is not applied.
    Refused(Error),
    /// The outcome is unknown: the operation may have been applied.
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

/// A contradiction of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// The id of the clause.
    pub clause: &'static str,
    /// The expected and the actual result.
    pub finding: String,
}

impl Defect {
    pub fn new(clause: &'static str, finding: impl Into<String>) -> Self {
        Self { clause, finding: finding.into() }
    }
}

/// One client of one contract, with a record of its writes.
#[async_trait]
pub trait OracleClient: Send + Sync {
    /// Returns the contract.
    fn contract(&self) -> Contract;

    /// Decides the next operation. Until it is settled, a decided write counts as one that may have happened.
    fn next(&mut self) -> Op;

    /// Performs the operation.
    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer>;

    /// Records the end of the operation.
    fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect>;

    /// Compares the data that a handle reads with the expected data. `lost` is the clause that a lost
    /// acknowledged write breaks.
    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>>;
}

/// Returns a client for each served contract, each on separate data under the name `era`.
pub fn clients(stores: &StoreSet, era: &str, seed: u64) -> Vec<Box<dyn OracleClient>> {
    CONTRACTS
        .into_iter()
        .filter(|contract| stores.store(*contract).is_some())
        .map(|contract| client(contract, stores, era, seed))
        .collect()
}

/// Returns a client for one contract.
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

/// The error for an operation of another contract, which no client draws.
fn other_contract() -> Error {
    Error::new(ErrorKind::Unsupported, "oracle.perform", "the operation is of another contract")
}

/// Returns `true` if an unreachable backend explains the error.
pub fn is_outage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::ResourceExhausted)
}

/// Returns the defect of an error, unless an outage explains the error.
pub fn unexplained(error: Option<&Error>, op: &Op) -> Option<Defect> {
    let error = error.filter(|error| !is_outage(error) && error.missing_method().is_none())?;
    Some(Defect::new("STORE-014", format!("{op:?} ended with an error that nothing explains: {error}")))
}

/// The random choices of a client.
#[derive(Debug, Clone)]
pub struct Random(random::Random);

impl Random {
    /// Creates a generator from a seed and a name.
    pub fn new(seed: u64, name: &str) -> Self {
        Self(random::Random::new(random::seed_of(seed, name.as_bytes())))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// Returns an index below `limit`, which is not 0.
    pub fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(u64::try_from(limit).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    /// Returns `true` with a probability of 1 in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Returns the seed of one trial of a run.
pub fn trial_seed(seed: u64, what: &str, trial: u64) -> u64 {
    Random::new(seed.wrapping_add(trial.wrapping_mul(0x9E37_79B9_7F4A_7C15)), what).draw()
}

/// Returns the padding text of a record, always the same for the same number: mostly short, sometimes tens of
/// kilobytes.
pub fn filler(number: u64) -> String {
    let mut random = Random::new(number, "filler");
    let length = if random.once_in(12) { random.index(40_000) } else { random.index(300) };
    let start = random.index(26);
    let letter = |index: usize| char::from(b"abcdefghijklmnopqrstuvwxyz"[(start + index * 7) % 26]);
    (0..length).map(letter).collect()
}

/// The result of a client's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// A write was acknowledged.
    Wrote,
    /// A read succeeded.
    Read,
    /// The call failed.
    Failed,
}

/// Runs one step of a client.
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

/// The number of steps, failed or not, in which a write must succeed. By chance, many of the steps can be
/// reads.
const STEPS_MAX: u32 = 100;

/// Runs a client until a write is acknowledged. A limited number of its calls may fail before; returns the
/// number of failures.
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
    let defect = format!(
        "after {failures} failures no write of {contract} succeeded, although the backend is available again"
    );
    defects.push(Defect::new("STORE-014", defect));
    failures
}

#[cfg(test)]
mod tests;
