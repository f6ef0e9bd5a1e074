//! A client of key-value state.

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::{BucketName, Contract, ErrorKind, Key, KeyValueStoreExt, Result, Revision};

use super::cell::Cell;
use super::{Answer, Defect, Ended, Held, Op, OracleClient, Random, filler, other_contract, unexplained};
use crate::harness::StoreSet;

/// The number of keys that the client uses concurrently.
const KEYS: usize = 3;

#[derive(Debug)]
pub(crate) struct ValueClient {
    era: String,
    random: Random,
    keys: Vec<Cell>,
    number: u64,
}

impl ValueClient {
    pub(crate) fn new(era: &str, random: Random) -> Self {
        Self { era: era.to_owned(), random, keys: Vec::new(), number: 0 }
    }

    fn place(&self, slot: usize) -> Result<(BucketName, Key)> {
        Ok((BucketName::new(&self.era)?, Key::new(format!("key {slot}"))?))
    }

    fn value(&self, slot: usize, number: u64) -> Bytes {
        format!("{} {slot} {number} {}", self.era, filler(number)).into()
    }

    async fn read(&self, slot: usize, stores: &StoreSet) -> Result<Answer> {
        let values = stores.key_value()?;
        let (bucket, key) = self.place(slot)?;
        let Some(entry) = values.get(&bucket, &key).await? else { return Ok(Answer::Found(Held::default())) };
        let text = std::str::from_utf8(&entry.value).unwrap_or_default();
        let number = text.strip_prefix(&self.era).and_then(|rest| rest.split(' ').nth(2)?.parse().ok());
        match number.filter(|number| entry.value == self.value(slot, *number)) {
            None => Ok(Answer::Torn),
            number => Ok(Answer::Found(Held { number, version: Some(entry.revision.get()), mark: 0 })),
        }
    }

    fn choose(&mut self) -> usize {
        let live: Vec<usize> = (0..self.keys.len()).filter(|slot| !self.keys[*slot].retired).collect();
        if live.len() < KEYS {
            self.keys.push(Cell::new());
            return self.keys.len() - 1;
        }
        live[self.random.index(live.len())]
    }

    fn settle_write(&mut self, op: &Op, slot: usize, to: Held, ended: Ended) -> Option<Defect> {
        let key = &mut self.keys[slot];
        match ended {
            Ended::Done(Answer::Numbers(numbers)) => {
                let before = key.base.version;
                let version = to.number.and(numbers.first().copied());
                key.done(Held { version, ..to });
                let grown = version.is_none() || before.is_none() || version > before;
                (!grown).then(|| {
                    Defect::new("KV-002", format!("{op:?} got revision {version:?} after {before:?}"))
                })
            }
            Ended::Done(_) => None,
            Ended::Refused(error) => {
                key.refused();
                if error.kind() != ErrorKind::Conflict {
                    return unexplained(Some(&error), op);
                }
                // An earlier write of unknown outcome may have happened in between.
                key.looked = false;
                key.is_certain().then(|| {
                    let finding = format!(
                        "{op:?} is refused ({error}), though nobody else writes: it met its own effect, or \
                         that of a write reported as not applied"
                    );
                    Defect::new("STORE-013", finding)
                })
            }
            Ended::Open(error) => {
                key.unknown();
                // A late deletion could remove the next write.
                key.retired = to.number.is_none();
                unexplained(error.as_ref(), op)
            }
        }
    }
}

#[async_trait]
impl OracleClient for ValueClient {
    fn contract(&self) -> Contract {
        Contract::KeyValue
    }

    fn next(&mut self) -> Op {
        let slot = self.choose();
        let draw = self.random.below(8);
        let key = &mut self.keys[slot];
        if !key.looked || (draw < 2 && key.base.number.is_some()) {
            return Op::Get { slot };
        }
        if let (2, true, false, Some(at)) = (draw, key.is_certain(), key.keep, key.base.version) {
            key.begin(Held::default());
            return Op::Delete { slot, at };
        }
        self.number += 1;
        key.begin(Held { number: Some(self.number), ..Held::default() });
        Op::Put { slot, number: self.number, at: key.base.version }
    }

    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer> {
        let values = stores.key_value()?;
        match *op {
            Op::Put { slot, number, at } => {
                let ((bucket, key), value) = (self.place(slot)?, self.value(slot, number));
                let revision = match at {
                    Some(at) => values.put_at(&bucket, &key, value, Revision::new(at)).await?,
                    None => values.create(&bucket, &key, value).await?,
                };
                Ok(Answer::Numbers(vec![revision.get()]))
            }
            Op::Delete { slot, at } => {
                let (bucket, key) = self.place(slot)?;
                let there = values.delete(&bucket, &key, Some(Revision::new(at))).await?;
                Ok(Answer::Numbers(vec![u64::from(there)]))
            }
            Op::Get { slot } => self.read(slot, stores).await,
            _ => Err(other_contract()),
        }
    }

    fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect> {
        match (op, ended) {
            (Op::Put { slot, number, .. }, ended) => {
                let to = Held { number: Some(*number), ..Held::default() };
                self.settle_write(op, *slot, to, ended)
            }
            (Op::Delete { slot, .. }, ended) => self.settle_write(op, *slot, Held::default(), ended),
            (Op::Get { slot }, Ended::Done(Answer::Found(held))) => {
                self.keys[*slot].read(&format!("key {slot}"), held, "STORE-002")
            }
            (_, Ended::Done(Answer::Torn)) => {
                Some(Defect::new("KV-001", format!("{op:?} read bytes that no client wrote")))
            }
            (_, Ended::Refused(error) | Ended::Open(Some(error))) => unexplained(Some(&error), op),
            _ => None,
        }
    }

    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>> {
        let mut defects = Vec::new();
        for (slot, key) in self.keys.iter().enumerate() {
            match self.read(slot, stores).await? {
                Answer::Found(held) => defects.extend(key.verify(&format!("key {slot}"), held, lost)),
                _ => defects
                    .push(Defect::new("KV-001", format!("key {slot} contains bytes that no client wrote"))),
            }
        }
        Ok(defects)
    }
}
