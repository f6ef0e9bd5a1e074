//! Cells that are written in batches and without conditions: the records of the document and graph clients.
//!
//! An unconditional write that takes effect after its error would undo a later write. So a cell with an open
//! write is read and never written again.

use std::collections::{BTreeMap, BTreeSet};

use super::cell::Cell;
use super::{Answer, Defect, Ended, Held, Op, Random, unexplained};

/// The number of cells that a client uses concurrently.
const PLACES: usize = 5;
/// The largest number of cells that one call writes.
const BATCH_MAX: usize = 3;

/// The clauses that a store breaks by each defect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clauses {
    /// The store returns other data than was written.
    pub(super) equal: &'static str,
    /// The store keeps a part of a batch.
    pub(super) whole: &'static str,
}

#[derive(Debug)]
pub(super) struct Cells {
    name: &'static str,
    clauses: Clauses,
    random: Random,
    places: Vec<Cell>,
    /// The batches with unknown outcome: their number, and their cells.
    open: BTreeMap<u64, Vec<usize>>,
    number: u64,
}

impl Cells {
    pub(super) fn new(name: &'static str, clauses: Clauses, random: Random) -> Self {
        Self { name, clauses, random, places: Vec::new(), open: BTreeMap::new(), number: 0 }
    }

    /// Returns all cells that were ever written.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.places.len()).collect()
    }

    /// Decides the next operation. `fresh` is true if the store can be asked not to overwrite existing data.
    pub(super) fn next(&mut self, fresh: bool) -> Op {
        // A write that was started and never settled may still be in flight. A batch can be judged as
        // complete only while its cells are not written again.
        let open: BTreeSet<usize> = self.open.values().flatten().copied().collect();
        let free = |at: &usize| {
            let place = &self.places[*at];
            !place.retired && place.is_certain() && !open.contains(at)
        };
        let mut free: Vec<usize> = (0..self.places.len()).filter(free).collect();
        let draw = self.random.below(10);
        if !free.is_empty() && draw < 3 {
            // Open cells are read, too.
            let (first, count) = (self.random.index(self.places.len()), 1 + self.random.index(BATCH_MAX));
            return Op::Look { places: (first..self.places.len().min(first + count)).collect() };
        }
        if let (3, Some(at)) = (draw, free.iter().copied().find(|at| self.places[*at].base.number.is_some()))
        {
            self.places[at].begin(Held::default());
            return Op::Remove { place: at };
        }
        while free.len() < PLACES {
            free.push(self.places.len());
            self.places.push(Cell::new());
        }
        let mut places = Vec::new();
        for _ in 0..=self.random.index(BATCH_MAX) {
            places.push(free.swap_remove(self.random.index(free.len())));
        }
        self.number += 1;
        let held = Held { number: Some(self.number), ..Held::default() };
        let absent = places.iter().all(|at| self.places[*at].base.number.is_none());
        places.iter().for_each(|at| self.places[*at].begin(held));
        self.open.insert(self.number, places.clone());
        Op::WriteCells { places, number: self.number, fresh: fresh && absent && draw.is_multiple_of(2) }
    }

    pub(super) fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect> {
        match (op, ended) {
            (Op::WriteCells { places, number, fresh }, ended) => {
                let to = Held { number: Some(*number), ..Held::default() };
                if !matches!(ended, Ended::Open(_)) {
                    self.open.remove(number);
                }
                let met =
                    matches!(&ended, Ended::Done(Answer::Numbers(left)) if left.iter().any(|left| *left > 0));
                let found = self.settle_write(op, places, to, ended);
                let own = || {
                    format!(
                        "{op:?} ignored an existing id without another writer: the call met its own effect"
                    )
                };
                found.or_else(|| (*fresh && met).then(|| Defect::new("STORE-013", own())))
            }
            (Op::Remove { place }, ended) => self.settle_write(op, &[*place], Held::default(), ended),
            (Op::Look { places }, Ended::Done(Answer::Several(found))) => {
                let mut defects = places.iter().zip(found).map(|(at, held)| self.read(*at, held));
                defects.find_map(|defect| defect)
            }
            (_, Ended::Refused(error) | Ended::Open(Some(error))) => unexplained(Some(&error), op),
            _ => None,
        }
    }

    fn settle_write(&mut self, op: &Op, places: &[usize], to: Held, ended: Ended) -> Option<Defect> {
        let mut each = |act: &dyn Fn(&mut Cell)| places.iter().for_each(|at| act(&mut self.places[*at]));
        match ended {
            Ended::Done(_) => {
                each(&|place| place.done(to));
                None
            }
            Ended::Refused(error) => {
                each(&Cell::refused);
                unexplained(Some(&error), op)
            }
            Ended::Open(error) => {
                each(&|place| {
                    place.unknown();
                    place.retired = true;
                });
                unexplained(error.as_ref(), op)
            }
        }
    }

    fn read(&mut self, at: usize, held: Option<Held>) -> Option<Defect> {
        let name = format!("{} {at}", self.name);
        match held {
            Some(held) => self.places[at].read(&name, held, "STORE-002"),
            None => Some(self.torn(&name)),
        }
    }

    fn torn(&self, name: &str) -> Defect {
        Defect::new(self.clauses.equal, format!("{name} contains bytes that no client wrote"))
    }

    /// Compares the state of all cells with the expected states.
    pub(super) fn verify(&self, found: &[Option<Held>], lost: &'static str) -> Vec<Defect> {
        let mut defects = Vec::new();
        for (at, (place, held)) in self.places.iter().zip(found).enumerate() {
            let name = format!("{} {at}", self.name);
            match held {
                Some(held) => defects.extend(place.verify(&name, *held, lost)),
                None => defects.push(self.torn(&name)),
            }
        }
        for (number, places) in &self.open {
            let written = |at: &&usize| {
                found.get(**at).copied().flatten().and_then(|held| held.number) == Some(*number)
            };
            let there = places.iter().filter(written).count();
            if there > 0 && there < places.len() {
                let finding = format!(
                    "of the batch {number}, whose outcome is unknown, {there} of {} are there",
                    places.len()
                );
                defects.push(Defect::new(self.clauses.whole, finding));
            }
        }
        defects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uncertain_batch_is_checked_and_never_repeated() {
        let clauses = Clauses { equal: "VEC-001", whole: "VEC-004" };
        let mut cells = Cells::new("document", clauses, Random::new(1, "cells"));
        let unsettled = loop {
            if let Op::WriteCells { places, .. } = cells.next(false) {
                break places;
            }
        };
        for _ in 0..200 {
            let op = cells.next(false);
            let held = |at: &usize| {
                let place = &cells.places[*at];
                Some(place.open.last().copied().unwrap_or(place.base))
            };
            let answer = match &op {
                Op::Look { places } => Answer::Several(places.iter().map(held).collect()),
                Op::WriteCells { places, .. } => {
                    assert!(!places.iter().any(|at| unsettled.contains(at)), "{op:?}");
                    Answer::Numbers(vec![0])
                }
                _ => Answer::Numbers(vec![1]),
            };
            assert_eq!(cells.settle(&op, Ended::Done(answer)), None);
        }
        let found: Vec<_> = cells.places.iter().map(|place| Some(place.base)).collect();
        assert!(unsettled.iter().all(|at| cells.places[*at].is_certain()), "they were looked at");
        assert_eq!(cells.verify(&found, "STORE-005"), []);
    }
}
