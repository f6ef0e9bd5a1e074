//! The possible states of one cell, as recorded by its only writer.

use super::Defect;

/// A state: a value by its number, or no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// The number of the write that stored the value; `None` if no value is stored, or the initial one.
    pub number: Option<u64>,
    /// The revision, if it is known.
    pub version: Option<u64>,
    /// Other state, such as a task's status.
    pub mark: u8,
}

impl Held {
    /// Returns `true` if a read matches this state.
    fn is(self, read: Self) -> bool {
        let same_version = self.version.is_none() || self.version == read.version;
        self.number == read.number && self.mark == read.mark && same_version
    }
}

/// One cell with its last certain state and the states that are possible since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    /// The last certain state.
    pub(crate) base: Held,
    /// The states that are possible because of writes with unknown outcome.
    pub(crate) open: Vec<Held>,
    /// The writes that were reported as not applied.
    refused: Vec<u64>,
    /// True if the cell was read since the last write with unknown outcome.
    pub(crate) looked: bool,
    /// True if a late write could create the value again after a deletion.
    pub(crate) keep: bool,
    /// True if the client must not write the cell any more.
    pub(crate) retired: bool,
}

impl Cell {
    /// Creates a cell that was never written.
    pub(crate) fn new() -> Self {
        Self { looked: true, ..Self::default() }
    }

    /// Records a write before it is sent: from now on it may have happened.
    pub(crate) fn begin(&mut self, to: Held) {
        self.open.push(to);
    }

    /// Records that the last started write happened.
    pub(crate) fn done(&mut self, to: Held) {
        self.base = to;
        self.open.clear();
        self.looked = true;
    }

    /// Records that the last started write did not happen.
    pub(crate) fn refused(&mut self) {
        if let Some(number) = self.open.pop().and_then(|held| held.number) {
            self.refused.push(number);
        }
    }

    /// Records that the outcome of the last started write is unknown.
    pub(crate) fn unknown(&mut self) {
        self.looked = false;
        self.keep = true;
    }

    /// Returns `true` if the state is certain.
    pub(crate) fn is_certain(&self) -> bool {
        self.open.is_empty()
    }

    /// Records a read of the cell.
    pub(crate) fn read(&mut self, name: &str, read: Held, lost: &'static str) -> Option<Defect> {
        if let Some(defect) = self.verify(name, read, lost) {
            return Some(defect);
        }
        self.looked = true;
        if !self.base.is(read) {
            self.base = read;
            self.open.clear();
        }
        None
    }

    /// Compares a read of the cell with its possible states.
    pub(crate) fn verify(&self, name: &str, read: Held, lost: &'static str) -> Option<Defect> {
        if self.base.is(read) || self.open.iter().any(|held| held.is(read)) {
            return None;
        }
        let refused = read.number.is_some_and(|number| self.refused.contains(&number));
        let clause = if refused { "STORE-013" } else { lost };
        let reported = if refused { ", which was reported as not applied" } else { "" };
        Some(Defect::new(
            clause,
            format!(
                "{name} holds {read:?}{reported}; for certain it held {:?}, and since perhaps {:?}",
                self.base, self.open
            ),
        ))
    }
}
