//! A client of a thread.

mod update;

use std::collections::BTreeMap;

use async_trait::async_trait;
use larder_kernel::{
    AppendOptions, ChatMessage, Contract, ErrorKind, HistoryProviderExt, IdempotencyKey, Removal,
    RequestOption, Result, Seq, Thread,
};

use super::{Answer, Defect, Ended, Op, OracleClient, Random, filler, is_outage, unexplained};
use crate::harness::StoreSet;

/// The number of attempts for a batch with a key. After that the client gives it up.
const TRIES_MAX: u32 = 12;

/// A message as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Its batch and its index in the batch; `None` if no client wrote it.
    written: Option<(usize, usize)>,
    seq: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The batch may exist.
    Open,
    /// The batch exists, at these positions.
    There(u64, u64),
    /// The batch was at these positions, and may have been removed.
    Leaving(u64, u64),
    /// The batch was removed, by the event with this number.
    Gone(u64),
    /// The batch does not exist.
    Absent,
}

#[derive(Debug, Clone)]
struct Batch {
    count: usize,
    keyed: bool,
    tries: u32,
    state: State,
    /// The version of the first message: the one that was acknowledged, and the one that may exist.
    versions: (u32, u32),
    /// The number of the last acknowledged update.
    updated: u64,
}

#[derive(Debug)]
pub(crate) struct HistoryClient {
    era: String,
    random: Random,
    batches: Vec<Batch>,
    /// The batch to send again.
    again: Option<usize>,
    /// The batch whose removal to send, and the number of attempts.
    leaving: Option<(usize, u32)>,
    /// The batch whose update to send, and the number of attempts.
    updating: Option<(usize, u32)>,
}

impl HistoryClient {
    pub(crate) fn new(era: &str, random: Random) -> Self {
        Self { era: era.to_owned(), random, batches: Vec::new(), again: None, leaving: None, updating: None }
    }

    fn thread(&self) -> Result<Thread> {
        Thread::new("client", &self.era)
    }

    fn text(&self, batch: usize, index: usize) -> String {
        let number = u64::try_from(batch * 8 + index).unwrap_or(0);
        format!("{} {batch} {index} {}", self.era, filler(number))
    }

    /// Returns the text of a version of the first message of a batch.
    fn version(&self, batch: usize, version: u32) -> String {
        let first = self.text(batch, 0);
        if version == 0 { first } else { format!("{first} version {version}") }
    }

    /// Returns `true` if the message of a batch may have this text.
    fn may_be(&self, batch: usize, index: usize, text: &str) -> bool {
        let Some(of) = self.batches.get(batch).filter(|of| index < of.count) else { return false };
        let (least, most) = if index == 0 { of.versions } else { (0, 0) };
        text == self.text(batch, index) && least == 0
            || index == 0 && (least.max(1)..=most).any(|version| text == self.version(batch, version))
    }

    /// Returns the thread's last number before a batch, if the outcome of every earlier batch is known: no
    /// other client writes the thread, so an append on that condition never conflicts.
    fn last_before(&self, batch: usize) -> Option<Seq> {
        let mut last = 0;
        for of in &self.batches[..batch] {
            match of.state {
                State::Open | State::Leaving(..) => return None,
                _ if of.versions.0 != of.versions.1 => return None,
                State::There(_, end) | State::Gone(end) => last = last.max(end).max(of.updated),
                State::Absent => {}
            }
        }
        i64::try_from(last).ok().map(Seq::new)
    }

    async fn read(&self, stores: &StoreSet) -> Result<Vec<Line>> {
        let history = stores.history()?;
        let messages = history.all_messages(&self.thread()?).await?;
        let line = |stored: larder_kernel::StoredMessage| {
            let mut words = stored.message.text.split(' ').skip(1).map(|word| word.parse().ok());
            let written = words.next().flatten().zip(words.next().flatten());
            let intact = |(batch, index): &(usize, usize)| self.may_be(*batch, *index, &stored.message.text);
            Line { written: written.filter(intact), seq: u64::try_from(stored.seq.get()).unwrap_or(0) }
        };
        Ok(messages.into_iter().map(line).collect())
    }

    /// Compares a thread with its expected content.
    fn compare(&self, lines: &[Line], lost: &'static str) -> Vec<Defect> {
        let mut defects = Vec::new();
        let mut met: BTreeMap<usize, u64> = BTreeMap::new();
        let mut rest = lines;
        while let Some(first) = rest.first() {
            let Some((batch, 0)) = first.written else {
                let finding =
                    format!("at {} is a message that begins no batch: {:?}", first.seq, first.written);
                defects.push(Defect::new("HIST-003", finding));
                rest = &rest[1..];
                continue;
            };
            let count = self.batches[batch].count;
            let whole = (0..count).all(|index| {
                let seq = first.seq + u64::try_from(index).unwrap_or(0);
                rest.get(index) == Some(&Line { written: Some((batch, index)), seq })
            });
            if !whole {
                defects.push(Defect::new(
                    "HIST-003",
                    format!("batch {batch} of {count} is at {} in part", first.seq),
                ));
            }
            if met.insert(batch, first.seq).is_some() {
                let (clause, how) =
                    if self.batches[batch].keyed { ("HIST-007", "with") } else { ("HIST-001", "without") };
                defects.push(Defect::new(
                    clause,
                    format!("batch {batch}, {how} an idempotency key, exists twice"),
                ));
            }
            rest = &rest[if whole { count } else { 1 }..];
        }
        self.miss(&met, lost, &mut defects);
        defects
    }

    fn miss(&self, met: &BTreeMap<usize, u64>, lost: &'static str, defects: &mut Vec<Defect>) {
        let mut before = 0;
        for (batch, of) in self.batches.iter().enumerate() {
            match (of.state, met.get(&batch)) {
                (State::There(first, last), None) => {
                    defects.push(Defect::new(
                        lost,
                        format!("batch {batch}, acknowledged at {first} to {last}, is missing"),
                    ));
                }
                (State::There(first, _), Some(seq)) if first != *seq => {
                    let finding = format!("batch {batch} is at {seq}, and was acknowledged at {first}");
                    defects.push(Defect::new("HIST-002", finding));
                }
                (State::There(first, _), Some(_)) => {
                    if first <= before {
                        defects
                            .push(Defect::new("HIST-001", format!("batch {batch} precedes an earlier one")));
                    }
                    before = first;
                }
                (State::Leaving(first, _), Some(seq)) if first != *seq => {
                    let finding = format!("batch {batch} is at {seq}, and was acknowledged at {first}");
                    defects.push(Defect::new("HIST-002", finding));
                }
                (State::Gone(_), Some(seq)) => {
                    let finding = format!("batch {batch}, acknowledged as removed, is at {seq}");
                    defects.push(Defect::new(lost, finding));
                }
                (State::Absent, Some(seq)) => {
                    let finding = format!("batch {batch}, reported as not applied, is at {seq}");
                    defects.push(Defect::new("STORE-013", finding));
                }
                _ => {}
            }
        }
    }

    fn settle_append(&mut self, batch: usize, ended: Ended) -> Option<Defect> {
        self.again = None;
        let of = &mut self.batches[batch];
        match ended {
            Ended::Done(Answer::Numbers(numbers)) => {
                let count = u64::try_from(of.count).unwrap_or(0);
                let [first, last] = numbers[..] else { return None };
                of.state = State::There(first, last);
                let right = first + count == last + 1;
                (!right).then(|| {
                    Defect::new("HIST-002", format!("{count} messages were put at {first} to {last}"))
                })
            }
            Ended::Done(_) => None,
            Ended::Refused(error) => {
                // If the batch was sent before, that attempt may have succeeded.
                if of.tries == 1 {
                    of.state = State::Absent;
                } else if is_outage(&error) && of.tries < TRIES_MAX {
                    self.again = Some(batch);
                }
                let again = of.tries > 1 && matches!(error.kind(), ErrorKind::Conflict);
                let op = Op::Append { batch, count: of.count, keyed: of.keyed };
                if again {
                    let finding = format!("batch {batch}, repeated with its key, is refused: {error}");
                    return Some(Defect::new("HIST-007", finding));
                }
                unexplained(Some(&error), &op)
            }
            Ended::Open(error) => {
                of.state = State::Open;
                if of.keyed && of.tries < TRIES_MAX && (of.tries > 1 || !self.random.once_in(5)) {
                    self.again = Some(batch);
                }
                unexplained(error.as_ref(), &Op::Append { batch, count: of.count, keyed: of.keyed })
            }
        }
    }
}

impl HistoryClient {
    /// Chooses the batch whose removal to send: the last one, so that its numbers are the newest.
    fn choose_removal(&mut self) -> Option<Op> {
        let batch = self.batches.len().checked_sub(1)?;
        let State::There(first, last) = self.batches[batch].state else { return None };
        if !self.random.once_in(8) {
            return None;
        }
        // From now on: a writer that is killed may have removed the batch.
        self.batches[batch].state = State::Leaving(first, last);
        self.leaving = Some((batch, 1));
        Some(Op::RemoveBatch { batch })
    }

    async fn remove(&self, batch: usize, stores: &StoreSet) -> Result<Answer> {
        let State::Leaving(first, last) = self.batches[batch].state else {
            return Ok(Answer::Numbers(Vec::new()));
        };
        let numbers = (first..=last).filter_map(|number| i64::try_from(number).ok().map(Seq::new));
        let key = IdempotencyKey::new(format!("remove {} {batch}", self.era))?;
        let removal = Removal::numbers(numbers).with_idempotency_key(key);
        let removed = stores.history()?.remove(&self.thread()?, removal).await?;
        Ok(Answer::Numbers(vec![removed.removed, u64::try_from(removed.last.get()).unwrap_or(0)]))
    }

    fn settle_removal(&mut self, batch: usize, ended: Ended) -> Option<Defect> {
        let op = Op::RemoveBatch { batch };
        let (_, tries) = self.leaving.take().unwrap_or((batch, 1));
        let of = &mut self.batches[batch];
        let State::Leaving(first, last) = of.state else { return None };
        match ended {
            Ended::Done(Answer::Numbers(numbers)) => {
                let [removed, end] = numbers[..] else { return None };
                of.state = State::Gone(end);
                let right = u64::try_from(of.count) == Ok(removed);
                let finding = format!("{removed} messages of batch {batch} of {} were removed", of.count);
                (!right).then(|| Defect::new("HIST-113", finding))
            }
            Ended::Done(_) => None,
            Ended::Refused(error) => {
                // An earlier attempt may have removed the batch.
                if tries == 1 {
                    of.state = State::There(first, last);
                }
                if tries > 1 && is_outage(&error) && tries < TRIES_MAX {
                    self.leaving = Some((batch, tries + 1));
                }
                unexplained(Some(&error), &op)
            }
            Ended::Open(error) => {
                if tries < TRIES_MAX {
                    self.leaving = Some((batch, tries + 1));
                }
                unexplained(error.as_ref(), &op)
            }
        }
    }
}

#[async_trait]
impl OracleClient for HistoryClient {
    fn contract(&self) -> Contract {
        Contract::History
    }

    fn next(&mut self) -> Op {
        if let Some(batch) = self.again {
            let of = &mut self.batches[batch];
            of.tries += 1;
            return Op::Append { batch, count: of.count, keyed: of.keyed };
        }
        if let Some((batch, _)) = self.leaving {
            return Op::RemoveBatch { batch };
        }
        if let Some((batch, _)) = self.updating {
            return Op::UpdateBatch { batch };
        }
        if !self.batches.is_empty() && self.random.once_in(4) {
            return Op::ReadThread;
        }
        if let Some(removal) = self.choose_removal() {
            return removal;
        }
        if let Some(update) = self.choose_update() {
            return update;
        }
        let count = 1 + self.random.index(3);
        let keyed = !self.random.once_in(4);
        let (state, versions) = (State::Open, (0, 0));
        self.batches.push(Batch { count, keyed, tries: 1, state, versions, updated: 0 });
        Op::Append { batch: self.batches.len() - 1, count, keyed }
    }

    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer> {
        let history = stores.history()?;
        let (batch, count, keyed) = match *op {
            Op::Append { batch, count, keyed } => (batch, count, keyed),
            Op::RemoveBatch { batch } => return self.remove(batch, stores).await,
            Op::UpdateBatch { batch } => return self.update(batch, stores).await,
            _ => return Ok(Answer::Thread(self.read(stores).await?)),
        };
        let messages = (0..count).map(|index| ChatMessage::user(self.text(batch, index))).collect();
        let mut options = AppendOptions::default();
        if keyed {
            options = options.with_idempotency_key(IdempotencyKey::new(format!("{} {batch}", self.era))?);
            if history.options().has(RequestOption::AppendIfLast) {
                options = options.with_if_last(self.last_before(batch));
            }
        }
        let appended = history.append_many(&self.thread()?, messages, options).await?;
        let number = |seq: Seq| u64::try_from(seq.get()).unwrap_or(0);
        Ok(Answer::Numbers(vec![number(appended.first), number(appended.last)]))
    }

    fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect> {
        match (op, ended) {
            (Op::Append { batch, .. }, ended) => self.settle_append(*batch, ended),
            (Op::RemoveBatch { batch }, ended) => self.settle_removal(*batch, ended),
            (Op::UpdateBatch { batch }, ended) => self.settle_update(*batch, ended),
            (_, Ended::Done(Answer::Thread(lines))) => self.compare(&lines, "STORE-002").into_iter().next(),
            (_, Ended::Done(_)) => None,
            (_, Ended::Refused(error) | Ended::Open(Some(error))) => unexplained(Some(&error), op),
            (_, Ended::Open(None)) => None,
        }
    }

    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>> {
        Ok(self.compare(&self.read(stores).await?, lost))
    }
}
