//! A client of key-value state.

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::{
    BucketName, Contract, ErrorKind, Key, KeyValueCondition, KeyValueEntry, KeyValuePutOptions,
    KeyValueStoreExt, KeyValueWrite, Result, Revision,
};

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
    /// The writes of several keys with unknown outcome, while no key was written since.
    open: Vec<OpenWrite>,
    number: u64,
}

/// A write of several keys with unknown outcome: all of them have its number, or none.
#[derive(Debug)]
struct OpenWrite {
    slots: Vec<usize>,
    number: u64,
    /// True if the keys were read since.
    looked: bool,
}

impl ValueClient {
    pub(crate) fn new(era: &str, random: Random) -> Self {
        Self { era: era.to_owned(), random, keys: Vec::new(), open: Vec::new(), number: 0 }
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
        let entry = values.get(&bucket, &key).await?;
        Ok(self.held(slot, entry).map_or(Answer::Torn, Answer::Found))
    }

    /// Returns the state of a key; `None` for bytes that no client wrote.
    fn held(&self, slot: usize, entry: Option<KeyValueEntry>) -> Option<Held> {
        let Some(entry) = entry else { return Some(Held::default()) };
        let text = std::str::from_utf8(&entry.value).unwrap_or_default();
        let number = text.strip_prefix(&self.era).and_then(|rest| rest.split(' ').nth(2)?.parse().ok());
        let number = number.filter(|number| entry.value == self.value(slot, *number))?;
        Some(Held { number: Some(number), version: Some(entry.revision.get()), mark: 0 })
    }

    /// Reads several keys at one instant.
    async fn read_all(&self, slots: &[usize], stores: &StoreSet) -> Result<Vec<Option<Held>>> {
        let bucket = BucketName::new(&self.era)?;
        let keys = slots.iter().map(|slot| Ok(self.place(*slot)?.1)).collect::<Result<Vec<Key>>>()?;
        let found = stores.key_value()?.get_many(&bucket, &keys).await?.items;
        Ok(slots.iter().zip(found).map(|(slot, entry)| self.held(*slot, entry)).collect())
    }

    /// Writes several keys in one call.
    async fn write_all(
        &self,
        slots: &[usize],
        number: u64,
        ats: &[Option<u64>],
        stores: &StoreSet,
    ) -> Result<Answer> {
        let mut writes = Vec::new();
        for (slot, at) in slots.iter().zip(ats) {
            let condition = match at {
                Some(at) => KeyValueCondition::AtRevision(Revision::new(*at)),
                None => KeyValueCondition::Absent,
            };
            let options = KeyValuePutOptions::default().with_condition(condition);
            writes.push(KeyValueWrite::put(self.place(*slot)?.1, self.value(*slot, number), options));
        }
        let given = stores.key_value()?.write(&BucketName::new(&self.era)?, writes).await?;
        Ok(Answer::Numbers(given.into_iter().flatten().map(Revision::get).collect()))
    }

    /// Returns the defect of a write of which some keys have the value and others do not.
    fn torn(open: &OpenWrite, found: &[Option<Held>]) -> Option<Defect> {
        let has = |held: &&Option<Held>| held.is_some_and(|held| held.number == Some(open.number));
        let count = found.iter().filter(has).count();
        (count > 0 && count < found.len()).then(|| {
            let finding =
                format!("{count} of {} keys have the value of the write {}", found.len(), open.number);
            Defect::new("KV-059", finding)
        })
    }

    /// Begins the write of a key.
    fn begin(&mut self, slot: usize, number: Option<u64>) {
        self.keys[slot].begin(Held { number, ..Held::default() });
        self.open.retain(|open| !open.slots.contains(&slot));
    }

    /// Returns the next write of several keys, if the state of at least two is certain.
    fn next_of_several(&mut self) -> Option<Op> {
        let certain = |slot: &usize| {
            let key = &self.keys[*slot];
            key.looked && key.is_certain() && !key.retired
        };
        let slots: Vec<usize> = (0..self.keys.len()).filter(certain).collect();
        if slots.len() < 2 {
            return None;
        }
        self.number += 1;
        let (number, ats) = (self.number, slots.iter().map(|slot| self.keys[*slot].base.version).collect());
        for slot in &slots {
            self.begin(*slot, Some(number));
        }
        Some(Op::PutAll { slots, number, ats })
    }

    fn settle_several(&mut self, op: &Op, slots: &[usize], number: u64, ended: Ended) -> Option<Defect> {
        match ended {
            Ended::Done(Answer::Numbers(numbers)) => {
                let before = slots.iter().filter_map(|slot| self.keys[*slot].base.version).max();
                let grown = numbers.len() == slots.len()
                    && numbers.is_sorted_by(|left, right| left < right)
                    && numbers.first() > before.as_ref();
                for (slot, version) in slots.iter().zip(&numbers) {
                    self.keys[*slot].done(Held { number: Some(number), version: Some(*version), mark: 0 });
                }
                (!grown).then(|| {
                    Defect::new("KV-058", format!("{op:?} got revisions {numbers:?} after {before:?}"))
                })
            }
            Ended::Done(_) => None,
            Ended::Refused(error) => {
                slots.iter().for_each(|slot| self.keys[*slot].refused());
                if error.kind() != ErrorKind::Conflict {
                    return unexplained(Some(&error), op);
                }
                let finding = format!("{op:?} is refused ({error}), though nobody else writes");
                Some(Defect::new("STORE-013", finding))
            }
            Ended::Open(error) => {
                slots.iter().for_each(|slot| self.keys[*slot].unknown());
                self.open.push(OpenWrite { slots: slots.to_vec(), number, looked: false });
                unexplained(error.as_ref(), op)
            }
        }
    }

    fn settle_read_of_several(&mut self, op: &Op, slots: &[usize], found: &[Option<Held>]) -> Option<Defect> {
        let torn =
            self.open.iter().filter(|open| open.slots == slots).find_map(|open| Self::torn(open, found));
        let reads = slots.iter().zip(found).map(|(slot, held)| match held {
            Some(held) => self.keys[*slot].read(&format!("key {slot}"), *held, "STORE-002"),
            None => Some(Defect::new("KV-001", format!("{op:?} read bytes that no client wrote"))),
        });
        let wrong: Vec<Defect> = reads.flatten().collect();
        torn.or_else(|| wrong.into_iter().next())
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
        if let Some(open) = self.open.iter_mut().find(|open| !open.looked) {
            open.looked = true;
            return Op::GetAll { slots: open.slots.clone() };
        }
        let slot = self.choose();
        let draw = self.random.below(10);
        if draw >= 8
            && let Some(op) = self.next_of_several()
        {
            return op;
        }
        let key = &self.keys[slot];
        if !key.looked || (draw < 2 && key.base.number.is_some()) {
            return Op::Get { slot };
        }
        if let (2, true, false, Some(at)) = (draw, key.is_certain(), key.keep, key.base.version) {
            self.begin(slot, None);
            return Op::Delete { slot, at };
        }
        let at = key.base.version;
        self.number += 1;
        self.begin(slot, Some(self.number));
        Op::Put { slot, number: self.number, at }
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
            Op::GetAll { ref slots } => Ok(Answer::Several(self.read_all(slots, stores).await?)),
            Op::PutAll { ref slots, number, ref ats } => self.write_all(slots, number, ats, stores).await,
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
            (Op::PutAll { slots, number, .. }, ended) => self.settle_several(op, slots, *number, ended),
            (Op::GetAll { slots }, Ended::Done(Answer::Several(found))) => {
                self.settle_read_of_several(op, slots, &found)
            }
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
        for open in &self.open {
            defects.extend(Self::torn(open, &self.read_all(&open.slots, stores).await?));
        }
        Ok(defects)
    }
}
