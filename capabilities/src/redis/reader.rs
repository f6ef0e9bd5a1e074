//! Reads of keys for a verification, in parts. A key of another type is a fault, and reads as empty.

use std::collections::{BTreeMap, BTreeSet};

use larder_kernel::{Error, ErrorKind, Result};
use redis::Value;

use super::decode;
use super::engine::Engine;
use super::failure::corrupt;
use crate::verify::{Fault, FaultKind, Faults, OPERATION};

/// The number of items in one read.
const ITEMS: i64 = 256;

/// The keys with one hash tag.
pub(super) struct Place {
    /// The part of the keys up to the closing brace.
    pub(super) tag: Vec<u8>,
    pub(super) parts: BTreeSet<Vec<u8>>,
    /// The words for reports.
    pub(super) name: String,
}

impl Place {
    /// Returns the key of a part.
    pub(super) fn key(&self, part: impl AsRef<[u8]>) -> Vec<u8> {
        [&self.tag[..], b":", part.as_ref()].concat()
    }
}

/// The fields of a hash.
pub(super) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads keys, and adds faults.
pub(super) struct Reader<'e> {
    pub(super) engine: &'e Engine,
    pub(super) faults: &'e Faults,
}

/// Returns bytes as text for a report.
pub(super) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Reader<'_> {
    pub(super) fn add(&self, kind: FaultKind, place: impl Into<String>, seen: impl Into<String>) {
        self.faults.add(Fault::new(kind, place, seen));
    }

    /// Adds a fault unless the condition is true.
    pub(super) fn expect(&self, is_met: bool, kind: FaultKind, place: &str, seen: &str) {
        if !is_met {
            self.add(kind, place, seen);
        }
    }

    /// Sends a command on a key.
    pub(super) async fn ask(&self, name: &str, key: &[u8], more: &[&[u8]]) -> Result<Value> {
        let mut command = redis::cmd(name);
        command.arg(key);
        more.iter().for_each(|argument| _ = command.arg(*argument));
        self.engine.fetch(OPERATION, key, &command).await
    }

    /// Returns the default if the key has another type, which is a fault.
    fn or_fault<T: Default>(&self, key: &[u8], read: Result<T>) -> Result<T> {
        match read {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.add(FaultKind::Record, format!("key {}", text_of(key)), "it has another type");
                Ok(T::default())
            }
            read => read,
        }
    }

    /// Returns the fields of a hash.
    pub(super) async fn hash(&self, key: &[u8]) -> Result<Hash> {
        let (mut fields, mut cursor) = (Hash::new(), b"0".to_vec());
        loop {
            let scanned =
                self.ask("HSCAN", key, &[&cursor, b"COUNT", b"256"]).await.and_then(decode::tuple::<2>);
            let [next, found] = match scanned {
                Ok(scanned) => scanned,
                Err(error) => return self.or_fault(key, Err(error)),
            };
            let mut found = decode::array(found)?.into_iter();
            while let (Some(field), Some(value)) = (found.next(), found.next()) {
                fields.insert(decode::bytes(field)?, decode::bytes(value)?);
            }
            cursor = decode::bytes(next)?;
            if cursor == b"0" {
                return Ok(fields);
            }
        }
    }

    /// Returns the names of the fields of a hash.
    pub(super) async fn fields(&self, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        let fields = self.ask("HKEYS", key, &[]).await.and_then(decode::array);
        self.or_fault(key, fields)?.into_iter().map(decode::bytes).collect()
    }

    /// Returns the next members of a sorted set with their scores, from this rank on.
    pub(super) async fn page(&self, key: &[u8], from: i64) -> Result<Vec<(Vec<u8>, i64)>> {
        let (first, last) = (from.to_string(), (from + ITEMS - 1).to_string());
        let page = self.ask("ZRANGE", key, &[first.as_bytes(), last.as_bytes(), b"WITHSCORES"]).await;
        self.or_fault(key, page.and_then(scored))
    }

    /// Returns all members of a sorted set with their scores.
    pub(super) async fn sorted(&self, key: &[u8]) -> Result<Vec<(Vec<u8>, i64)>> {
        let mut all = Vec::new();
        loop {
            let page = self.page(key, i64::try_from(all.len()).unwrap_or(i64::MAX)).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Returns whether a sorted set or a hash of an index has this member.
    pub(super) async fn has(&self, command: &str, key: &[u8], member: &str) -> Result<bool> {
        let found = self.ask(command, key, &[member.as_bytes()]).await;
        self.or_fault(key, found.map(|found| decode::optional(found).is_some()))
    }

    /// Returns when the server removes a key; `None` if it keeps the key, or does not have it.
    pub(super) async fn ends_ms(&self, key: &[u8]) -> Result<Option<i64>> {
        let ends = decode::integer(self.ask("PEXPIRETIME", key, &[]).await?)?;
        Ok((ends >= 0).then_some(ends))
    }
}

/// Converts members with scores, which a server returns in a list or in pairs.
fn scored(answer: Value) -> Result<Vec<(Vec<u8>, i64)>> {
    let mut flat = Vec::new();
    for item in decode::array(answer)? {
        match item {
            Value::Array(pair) => flat.extend(pair),
            item => flat.push(item),
        }
    }
    let (mut items, mut found) = (flat.into_iter(), Vec::new());
    while let (Some(member), Some(score)) = (items.next(), items.next()) {
        found.push((decode::bytes(member)?, score_of(score)?));
    }
    Ok(found)
}

/// Converts a score. These stores use whole numbers only.
fn score_of(score: Value) -> Result<i64> {
    let text = match score {
        Value::Double(score) => format!("{score:.0}"),
        Value::Int(score) => score.to_string(),
        score => decode::text(score)?,
    };
    text.parse().map_err(|_| -> Error { corrupt(OPERATION) })
}

/// Returns the number in a field; `None` if the field is missing or no number.
pub(super) fn number(fields: &Hash, name: &str) -> Option<i64> {
    std::str::from_utf8(fields.get(name.as_bytes())?).ok()?.parse().ok()
}
