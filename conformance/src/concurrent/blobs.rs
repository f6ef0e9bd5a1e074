//! Blobs: three keys, one a prefix of another, each a register with its `ETag`.
//!
//! The specification models a deletion as two steps, a look and then the removal, because the contract
//! promises no more (BLOB-043).

mod spec;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobBody, BlobCondition, BlobGetOptions, BlobKey, BlobPutOptions, BlobStore, Capabilities, Capability,
    Contract, ETag, Error, ErrorKind, RenameMode, Result,
};

use self::spec::{Answer, Op, State, When, times};
use super::check::{Record, Refusal, Reply};
use super::rng::Rng;
use super::subject::{Subject, Turn, number_in};
use crate::harness::StoreSet;

pub(crate) use self::spec::Blobs;

const KEYS: [&str; 3] = ["a", "a/b", "c"];

fn bytes_of(value: u32) -> Bytes {
    Bytes::from(format!("b{value:07}").repeat(usize::try_from(times(value)).unwrap_or(1)))
}

/// Returns the value with these bytes; `u32::MAX`, which no call writes, for a part or a mixture.
fn value_of(bytes: &[u8]) -> u32 {
    let value = bytes.get(..8).and_then(|first| std::str::from_utf8(first).ok());
    let value = value.map_or(u32::MAX, |first| number_in(first, "b"));
    if value != u32::MAX && bytes_of(value) == bytes { value } else { u32::MAX }
}

fn key(number: u8) -> Result<BlobKey> {
    BlobKey::new(name(number))
}

fn name(key: u8) -> &'static str {
    KEYS.get(usize::from(key)).copied().unwrap_or("z")
}

impl Subject for Blobs {
    const CONTRACT: Contract = Contract::Blobs;
    type Store = dyn BlobStore;
    /// The last seen tag of each key.
    type Memory = BTreeMap<u8, String>;

    fn store(stores: &StoreSet) -> Result<Arc<Self::Store>> {
        stores.blobs()
    }

    fn initial() -> State {
        State::default()
    }

    fn choose(seen: &Self::Memory, rng: &mut Rng, turn: Turn, can: &Capabilities) -> Op {
        let key = rng.below(3);
        let value = turn.value();
        let put = |when| Op::Put { key, value, when };
        match (rng.below(100), seen.get(&key)) {
            (0..22, _) => put(When::Always),
            (22..38, _) if can.has(Capability::BlobCreateOnly) => put(When::Absent),
            (38..60, Some(etag)) if can.has(Capability::BlobIfMatch) => put(When::Matches(etag.clone())),
            (60..66, _) => Op::Delete { key },
            (66..76, _) if can.has(Capability::BlobRename) => {
                let source = 1 + rng.below(2);
                Op::Rename { source, target: 3 - source, replace: rng.below(2) == 1 }
            }
            (66..70, _) => Op::Delete { key },
            (70..82, _) => Op::Head { key },
            _ => Op::Get { key },
        }
    }

    async fn call(store: &Self::Store, op: &Op) -> Result<Answer> {
        match op {
            Op::Put { key, value, when } => {
                let condition = match when {
                    When::Always => BlobCondition::None,
                    When::Absent => BlobCondition::Absent,
                    When::Matches(etag) => BlobCondition::Matches(ETag::new(etag)?),
                };
                let options = BlobPutOptions::default().with_condition(condition);
                let info = store.put(&self::key(*key)?, BlobBody::Bytes(bytes_of(*value)), options).await?;
                Ok(Answer::Known { etag: info.etag.to_string(), size: info.size })
            }
            Op::Get { key } => {
                let read = store.get(&self::key(*key)?, BlobGetOptions::default()).await?;
                let etag = read.info.etag.to_string();
                let pieces: Vec<Bytes> = read.bytes.try_collect().await?;
                Ok(Answer::Read { value: value_of(&pieces.concat()), etag })
            }
            Op::Head { key } => {
                let info = store.head(&self::key(*key)?).await?;
                Ok(Answer::Known { etag: info.etag.to_string(), size: info.size })
            }
            Op::Rename { source, target, replace } => {
                let mode = if *replace { RenameMode::Replace } else { RenameMode::Refuse };
                let info = store.rename(&key(*source)?, &key(*target)?, mode).await?;
                Ok(Answer::Known { etag: info.etag.to_string(), size: info.size })
            }
            Op::Delete { key } => Ok(Answer::Deleted(store.delete(&self::key(*key)?).await?)),
            Op::Look { .. } | Op::Remove { .. } => {
                Err(Error::new(ErrorKind::Unexpected, "concurrent.call", "a step of a call is not a call"))
            }
        }
    }

    fn learn(seen: &mut Self::Memory, op: &Op, answer: &Answer) {
        if let (
            Op::Put { key, .. } | Op::Get { key } | Op::Head { key } | Op::Rename { target: key, .. },
            Answer::Known { etag, .. } | Answer::Read { etag, .. },
        ) = (op, answer)
        {
            seen.insert(*key, etag.clone());
        }
    }

    fn expand(record: Record<Op, Answer>) -> Vec<Record<Op, Answer>> {
        let (Op::Delete { key }, client) = (&record.op, record.client) else { return vec![record] };
        let key = *key;
        match record.reply {
            Reply::Answered(_) => {
                let look = Record { op: Op::Look { key, client }, ..record.clone() };
                let op = Op::Remove { key, client: Some(client) };
                vec![look, Record { op, reply: Reply::Answered(Answer::Removed), ..record }]
            }
            Reply::Unknown => vec![Record { op: Op::Remove { key, client: None }, ..record }],
            Reply::Refused(_) => vec![record],
        }
    }

    fn clause(op: &Op, reply: &Reply<Answer>) -> &'static str {
        match (op, reply) {
            (Op::Get { .. }, Reply::Answered(Answer::Read { value: u32::MAX, .. })) => "BLOB-004",
            (Op::Get { .. } | Op::Head { .. }, _) => "STORE-002",
            (Op::Put { when: When::Always, .. }, _) => "BLOB-015",
            (Op::Put { when: When::Absent, .. }, Reply::Answered(_)) => "BLOB-008",
            (Op::Put { when: When::Absent, .. }, _) => "BLOB-007",
            (Op::Put { when: When::Matches(_), .. }, Reply::Answered(_)) => "BLOB-011",
            (Op::Put { when: When::Matches(_), .. }, _) => "BLOB-009",
            (Op::Rename { .. }, Reply::Answered(_)) => "BLOB-065",
            (Op::Rename { .. }, Reply::Refused(Refusal::Conflict)) => "BLOB-062",
            (Op::Rename { .. }, _) => "BLOB-064",
            (Op::Look { .. }, Reply::Answered(Answer::Deleted(true))) => "BLOB-040",
            (Op::Delete { .. } | Op::Look { .. } | Op::Remove { .. }, _) => "BLOB-041",
        }
    }

    /// Bytes or a size with the tag of another write are a mixture.
    fn broken(history: &[Record<Op, Answer>], call: &Record<Op, Answer>) -> &'static str {
        let mixed = history.iter().any(|record| {
            let (Op::Put { value: put, .. }, Reply::Answered(Answer::Known { etag: tag, size: of_put })) =
                (&record.op, &record.reply)
            else {
                return false;
            };
            match (&call.op, &call.reply) {
                (Op::Get { .. }, Reply::Answered(Answer::Read { value, etag })) => {
                    (put == value) != (tag == etag)
                }
                (Op::Head { .. }, Reply::Answered(Answer::Known { size, etag })) => {
                    tag == etag && of_put != size
                }
                _ => false,
            }
        });
        if mixed { "BLOB-004" } else { Self::clause(&call.op, &call.reply) }
    }

    fn show_op(op: &Op) -> String {
        match op {
            Op::Put { key, value, when } => {
                let when = match when {
                    When::Always => String::new(),
                    When::Absent => " if absent".to_owned(),
                    When::Matches(etag) => format!(" over etag {etag}"),
                };
                format!("put {} := b{value}{when}", name(*key))
            }
            Op::Get { key } => format!("get {}", name(*key)),
            Op::Head { key } => format!("head {}", name(*key)),
            Op::Rename { source, target, replace } => {
                let over = if *replace { ", replacing" } else { "" };
                format!("rename {} to {}{over}", name(*source), name(*target))
            }
            Op::Delete { key } => format!("delete {}", name(*key)),
            Op::Look { key, .. } => format!("delete {}, its look", name(*key)),
            Op::Remove { key, .. } => format!("delete {}, its removal", name(*key)),
        }
    }

    fn show_answer(_: &Op, answer: &Answer) -> String {
        match answer {
            Answer::Known { etag, size } => format!("{size} bytes, etag {etag}"),
            Answer::Read { value: u32::MAX, etag } => {
                format!("bytes that no client wrote, etag {etag}")
            }
            Answer::Read { value, etag } => format!("b{value}, etag {etag}"),
            Answer::Deleted(true) => "it existed".to_owned(),
            Answer::Deleted(false) => "it did not exist".to_owned(),
            Answer::Removed => "gone".to_owned(),
        }
    }

    fn show_state(state: &State) -> String {
        let blob = |(key, (value, etag)): (&u8, &(u32, Option<String>))| {
            let etag = etag.as_deref().unwrap_or("unknown");
            format!("{} = b{value} with etag {etag}", name(*key))
        };
        let blobs: Vec<String> = state.blobs.iter().map(blob).collect();
        if blobs.is_empty() { "no blob".to_owned() } else { blobs.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::spec::size_of;
    use super::*;

    #[test]
    fn data_of_two_writes_is_a_mixture_and_data_of_one_is_only_old() {
        let record = |op, answer| Record {
            client: 0,
            handle: 0,
            called: 0,
            answered: Some(1),
            op,
            reply: Reply::Answered(answer),
        };
        let put = |value, etag: &str| {
            let answer = Answer::Known { etag: etag.to_owned(), size: size_of(value) };
            record(Op::Put { key: 0, value, when: When::Always }, answer)
        };
        let get =
            |value, etag: &str| record(Op::Get { key: 0 }, Answer::Read { value, etag: etag.to_owned() });
        let head =
            |size, etag: &str| record(Op::Head { key: 0 }, Answer::Known { etag: etag.to_owned(), size });
        let history = [put(1, "of 1"), put(2, "of 2")];
        for (call, clause) in [
            (get(1, "of 2"), "BLOB-004"),
            (get(1, "of 1"), "STORE-002"),
            (head(size_of(1) + 1, "of 1"), "BLOB-004"),
            (head(size_of(1), "of 1"), "STORE-002"),
        ] {
            assert_eq!(Blobs::broken(&history, &call), clause);
        }
    }
}
