//! A client of blobs.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use larder_kernel::{
    BlobBody, BlobCondition, BlobKey, BlobPutOptions, BlobStoreExt, Capabilities, Capability, Contract,
    ErrorKind, RenameMode, Result,
};

use super::cell::Cell;
use super::{Answer, Defect, Ended, Held, Op, OracleClient, Random, other_contract, unexplained};
use crate::harness::StoreSet;

/// The number of blobs that the client uses concurrently.
const BLOBS: usize = 4;
/// The size of the rare large blobs: more than servers accept in one piece.
const LARGE_BYTES: usize = 9 * 1024 * 1024;
/// The size of the pieces in which the large blobs are written.
const PIECE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct BlobClient {
    era: String,
    random: Random,
    blobs: Vec<Cell>,
    number: u64,
    creates: bool,
    renames: bool,
    /// The renames of unknown outcome: from one slot to another.
    moves: Vec<(usize, usize)>,
}

impl BlobClient {
    pub(crate) fn new(era: &str, random: Random, declared: &Capabilities) -> Self {
        let creates = declared.has(Capability::BlobCreateOnly);
        let renames = declared.has(Capability::BlobRename);
        let (era, blobs, moves) = (era.to_owned(), Vec::new(), Vec::new());
        Self { era, random, blobs, number: 0, creates, renames, moves }
    }

    fn key(&self, slot: usize) -> Result<BlobKey> {
        BlobKey::new(format!("{}/{slot}", self.era))
    }

    /// Returns the bytes of a write: its names at that time, then padding that its number determines.
    fn bytes(&self, slot: usize, number: u64) -> Bytes {
        let mut random = Random::new(number, &self.era);
        let length = match random.below(48) {
            0 => LARGE_BYTES + random.index(PIECE_BYTES),
            1..=8 => 20_000 + random.index(300_000),
            _ => random.index(20_000),
        };
        let mut bytes = format!("{} {slot} {number} ", self.era).into_bytes();
        while bytes.len() < length {
            bytes.extend_from_slice(&random.draw().to_le_bytes());
        }
        bytes.into()
    }

    fn choose(&mut self) -> usize {
        // A write that was started and never settled may still be in flight.
        let free = |blob: &Cell| !blob.retired && blob.is_certain();
        let live: Vec<usize> = (0..self.blobs.len()).filter(|slot| free(&self.blobs[*slot])).collect();
        if live.len() < BLOBS {
            self.blobs.push(Cell::new());
            return self.blobs.len() - 1;
        }
        live[self.random.index(live.len())]
    }

    async fn read(&self, slot: usize, stores: &StoreSet) -> Result<Answer> {
        let blobs = stores.blobs()?;
        let bytes = match blobs.get_bytes(&self.key(slot)?).await {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Answer::Found(Held::default())),
            Err(error) => return Err(error),
        };
        let head = bytes.get(..bytes.len().min(200)).unwrap_or_default();
        let head = String::from_utf8_lossy(head);
        // A renamed blob still names the slot to which it was written.
        let names = head.strip_prefix(&self.era).and_then(|rest| {
            let mut names = rest.split(' ').skip(1);
            Some((names.next()?.parse().ok()?, names.next()?.parse().ok()?))
        });
        match names.filter(|(written, number)| bytes == self.bytes(*written, *number)) {
            None => Ok(Answer::Torn),
            Some((_, number)) => Ok(Answer::Found(Held { number: Some(number), ..Held::default() })),
        }
    }

    /// Returns `true` if the slot has a blob.
    async fn exists(&self, slot: usize, stores: &StoreSet) -> Result<bool> {
        Ok(self.read(slot, stores).await? != Answer::Found(Held::default()))
    }

    /// Checks that a blob whose rename has an unknown outcome is at exactly one of its keys.
    async fn verify_move(&self, (from, to): (usize, usize), stores: &StoreSet) -> Result<Option<Defect>> {
        // The rename can still happen between the two reads, but only once.
        for _ in 0..2 {
            if self.exists(from, stores).await? != self.exists(to, stores).await? {
                return Ok(None);
            }
        }
        let finding = format!("the rename of blob {from} to {to} left a blob at both keys or at neither");
        Ok(Some(Defect::new("BLOB-065", finding)))
    }

    fn settle_rename(
        &mut self,
        op: &Op,
        (from, to): (usize, usize),
        number: u64,
        ended: Ended,
    ) -> Option<Defect> {
        match ended {
            Ended::Done(_) => {
                self.blobs[from].done(Held::default());
                self.blobs[from].retired = true;
                self.blobs[to].done(Held { number: Some(number), ..Held::default() });
                None
            }
            Ended::Refused(error) => {
                self.blobs[from].refused();
                self.blobs[to].refused();
                unexplained(Some(&error), op)
            }
            Ended::Open(error) => {
                for slot in [from, to] {
                    self.blobs[slot].unknown();
                    self.blobs[slot].retired = true;
                }
                self.moves.push((from, to));
                unexplained(error.as_ref(), op)
            }
        }
    }

    fn settle_write(&mut self, op: &Op, slot: usize, to: Held, ended: Ended) -> Option<Defect> {
        let blob = &mut self.blobs[slot];
        match ended {
            Ended::Done(_) => {
                blob.done(to);
                None
            }
            Ended::Refused(error) => {
                blob.refused();
                if error.kind() == ErrorKind::Conflict {
                    let finding = format!(
                        "{op:?} is refused ({error}), though nobody else writes: it met its own effect"
                    );
                    return Some(Defect::new("STORE-013", finding));
                }
                unexplained(Some(&error), op)
            }
            Ended::Open(error) => {
                blob.unknown();
                blob.retired = true;
                unexplained(error.as_ref(), op)
            }
        }
    }
}

#[async_trait]
impl OracleClient for BlobClient {
    fn contract(&self) -> Contract {
        Contract::Blobs
    }

    fn next(&mut self) -> Op {
        let slot = self.choose();
        let draw = self.random.below(10);
        let to = self.blobs.len();
        let blob = &mut self.blobs[slot];
        if let Some(number) = blob.base.number {
            match draw {
                0..=2 => return Op::ReadBlob { slot },
                3 => {
                    blob.begin(Held::default());
                    return Op::DeleteBlob { slot };
                }
                4..=5 if self.renames => {
                    blob.begin(Held::default());
                    let mut target = Cell::new();
                    target.begin(Held { number: Some(number), ..Held::default() });
                    self.blobs.push(target);
                    return Op::RenameBlob { slot, to, number };
                }
                _ => {}
            }
        }
        self.number += 1;
        let create = self.creates && blob.base.number.is_none() && draw.is_multiple_of(2);
        blob.begin(Held { number: Some(self.number), ..Held::default() });
        Op::PutBlob { slot, number: self.number, create }
    }

    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer> {
        let blobs = stores.blobs()?;
        match *op {
            Op::PutBlob { slot, number, create } => {
                let bytes = self.bytes(slot, number);
                let size = u64::try_from(bytes.len()).unwrap_or(0);
                let body = if bytes.len() < LARGE_BYTES {
                    BlobBody::Bytes(bytes)
                } else {
                    let starts = (0..bytes.len()).step_by(PIECE_BYTES);
                    let piece =
                        move |start: usize| Ok(bytes.slice(start..bytes.len().min(start + PIECE_BYTES)));
                    BlobBody::stream(stream::iter(starts.map(piece)))
                };
                let condition = if create { BlobCondition::Absent } else { BlobCondition::None };
                blobs
                    .put(&self.key(slot)?, body, BlobPutOptions::default().with_condition(condition))
                    .await?;
                Ok(Answer::Numbers(vec![size]))
            }
            Op::RenameBlob { slot, to, .. } => {
                let (source, target) = (self.key(slot)?, self.key(to)?);
                let info = blobs.rename(&source, &target, RenameMode::Refuse).await?;
                Ok(Answer::Numbers(vec![info.size]))
            }
            Op::DeleteBlob { slot } => {
                Ok(Answer::Numbers(vec![u64::from(blobs.delete(&self.key(slot)?).await?)]))
            }
            Op::ReadBlob { slot } => self.read(slot, stores).await,
            _ => Err(other_contract()),
        }
    }

    fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect> {
        match (op, ended) {
            (Op::PutBlob { slot, number, .. }, ended) => {
                let to = Held { number: Some(*number), ..Held::default() };
                self.settle_write(op, *slot, to, ended)
            }
            (Op::RenameBlob { slot, to, number }, ended) => {
                self.settle_rename(op, (*slot, *to), *number, ended)
            }
            (Op::DeleteBlob { slot }, ended) => self.settle_write(op, *slot, Held::default(), ended),
            (Op::ReadBlob { slot }, Ended::Done(Answer::Found(held))) => {
                self.blobs[*slot].read(&format!("blob {slot}"), held, "STORE-002")
            }
            (_, Ended::Done(Answer::Torn)) => {
                Some(Defect::new("BLOB-004", format!("{op:?} read bytes that no client wrote")))
            }
            (_, Ended::Refused(error) | Ended::Open(Some(error))) => unexplained(Some(&error), op),
            _ => None,
        }
    }

    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>> {
        let mut defects = Vec::new();
        for (slot, blob) in self.blobs.iter().enumerate() {
            match self.read(slot, stores).await? {
                Answer::Found(held) => defects.extend(blob.verify(&format!("blob {slot}"), held, lost)),
                _ => defects.push(Defect::new(
                    "BLOB-004",
                    format!("blob {slot} contains bytes that no client wrote"),
                )),
            }
        }
        for between in &self.moves {
            defects.extend(self.verify_move(*between, stores).await?);
        }
        Ok(defects)
    }
}
