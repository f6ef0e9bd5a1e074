//! What one place holds, as far as its only writer can know.

use super::Defect;

/// What is there: a value by its number, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// The number of the write that put it; `None` where nothing is there, or what was there from the start.
    pub number: Option<u64>,
    /// The revision, where it is known.
    pub version: Option<u64>,
    /// What else distinguishes it, such as a task's status.
    pub mark: u8,
}

impl Held {
    /// Whether something that was read is this.
    fn is(self, read: Self) -> bool {
        let same_version = self.version.is_none() || self.version == read.version;
        self.number == read.number && self.mark == read.mark && same_version
    }
}

/// One place with what it held last for certain, and what it may hold since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    /// What it held last for certain.
    pub(crate) base: Held,
    /// What it may hold because of writes with unknown outcome.
    pub(crate) open: Vec<Held>,
    /// The writes that were reported as not applied.
    refused: Vec<u64>,
    /// Whether it was read since the last write with unknown outcome.
    pub(crate) looked: bool,
    /// Whether a late write could take it for new once it is deleted.
    pub(crate) keep: bool,
    /// Whether nothing more may be done to it.
    pub(crate) retired: bool,
}

impl Cell {
    /// A place where nothing was ever written.
    pub(crate) fn new() -> Self {
        Self { looked: true, ..Self::default() }
    }

    /// Notes a write that is about to be sent: from now on it may have happened.
    pub(crate) fn begin(&mut self, to: Held) {
        self.open.push(to);
    }

    /// Notes that the write begun last happened.
    pub(crate) fn done(&mut self, to: Held) {
        self.base = to;
        self.open.clear();
        self.looked = true;
    }

    /// Notes that the write begun last did not happen.
    pub(crate) fn refused(&mut self) {
        if let Some(number) = self.open.pop().and_then(|held| held.number) {
            self.refused.push(number);
        }
    }

    /// Notes that nobody knows whether the write begun last happened.
    pub(crate) fn unknown(&mut self) {
        self.looked = false;
        self.keep = true;
    }

    /// Whether what it holds is certain.
    pub(crate) fn is_certain(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes note of what was read from it.
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

    /// Compares what was read from it with what it may hold.
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
