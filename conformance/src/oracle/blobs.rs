//! A client of blobs.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use larder_kernel::{
    BlobBody, BlobCondition, BlobKey, BlobPutOptions, BlobStoreExt, Capabilities, Capability, Contract,
    ErrorKind, Result,
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
}

impl BlobClient {
    pub(crate) fn new(era: &str, random: Random, declared: &Capabilities) -> Self {
        let creates = declared.has(Capability::BlobCreateOnly);
        Self { era: era.to_owned(), random, blobs: Vec::new(), number: 0, creates }
    }

    fn key(&self, slot: usize) -> Result<BlobKey> {
        BlobKey::new(format!("{}/{slot}", self.era))
    }

    /// Returns the bytes of a write: its names, then padding that its number determines.
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
        let number = head.strip_prefix(&self.era).and_then(|rest| rest.split(' ').nth(2)?.parse().ok());
        match number.filter(|number| bytes == self.bytes(slot, *number)) {
            None => Ok(Answer::Torn),
            number => Ok(Answer::Found(Held { number, ..Held::default() })),
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
        let blob = &mut self.blobs[slot];
        if blob.base.number.is_some() {
            match draw {
                0..=2 => return Op::ReadBlob { slot },
                3 => {
                    blob.begin(Held::default());
                    return Op::DeleteBlob { slot };
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
        Ok(defects)
    }
}
