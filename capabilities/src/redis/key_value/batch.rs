//! Reads and writes of several keys of a bucket, each in one script.

use std::ops::Bound;
use std::sync::LazyLock;

use bytes::Bytes;
use larder_kernel::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX, BUCKET_TOMBSTONES_MAX};
use larder_kernel::storage::key_value::{entries_page, many_page, prefix_end};
use larder_kernel::{
    BucketName, Error, Key, KeyOrder, KeyValueCondition, KeyValueEntry, KeyValueItem, KeyValueQuery,
    KeyValueWrite, KeyValueWriteKind, Outcome, Page, PageRequest, PrefixDeletion, Result, Revision,
};
use redis::Value;

use super::super::decode;
use super::super::engine::Engine;
use super::super::failure::corrupt;
use super::super::index::Index;
use super::super::script::{Call, Script, millis};
use super::PARTS;
use super::rows::{entry, expiry, full};

const WRITE: &str = "key_value.write";

static MANY: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("many.lua")));

static WRITE_KEYS: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("bucket.lua"), include_str!("write.lua"))));

static DELETE_PREFIX: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("bucket.lua"), include_str!("delete_prefix.lua"))));

static ENTRIES: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("entries.lua")));

pub(super) async fn get_many(
    engine: &Engine,
    index: &Index,
    bucket: &BucketName,
    keys: &[Key],
) -> Result<Page<Option<KeyValueEntry>, usize>> {
    const OPERATION: &str = "key_value.get_many";
    let place = index.entity(bucket.as_str());
    let call = ["revisions", "expiries", "values", "meta"]
        .into_iter()
        .fold(Call::new(), |call, part| call.key(place.part(part)))
        .number(BATCH_VALUES_BYTES_MAX);
    let call = keys.iter().fold(call, |call, key| call.arg(key.as_str()));
    let answer = engine.read(OPERATION, &MANY, &call).await?;
    let entries = many(answer).map_err(|error| error.in_operation(OPERATION))?;
    Ok(many_page(entries, keys.len()))
}

fn many(answer: Value) -> Result<Vec<Option<KeyValueEntry>>> {
    let [generation, entries] = decode::tuple(answer)?;
    let read = |found: Value| {
        let [revision, expires, bytes] = decode::tuple(found)?;
        entry(revision, expires, bytes, generation.clone())
    };
    decode::array(entries)?.into_iter().map(|found| decode::optional(found).map(read).transpose()).collect()
}

pub(super) async fn write(
    engine: &Engine,
    index: &Index,
    bucket: &BucketName,
    writes: Vec<KeyValueWrite>,
) -> Result<Vec<Option<Revision>>> {
    let place = index.entity(bucket.as_str());
    let mut call = PARTS.iter().fold(Call::new(), |call, part| call.key(place.part(part)));
    call = call.number(BUCKET_TOMBSTONES_MAX).arg(place.channel());
    let count = writes.len();
    for write in writes {
        call = added(call, write)?;
    }
    let answer = engine.write(WRITE, &WRITE_KEYS, index, bucket.as_str(), &call).await?;
    written(answer, count).map_err(|error| error.in_operation(WRITE))
}

/// Adds the six arguments of a write.
fn added(call: Call, write: KeyValueWrite) -> Result<Call> {
    let named = |at: Revision| {
        let generation = at.generation().map(|named| named.to_string()).unwrap_or_default();
        (at.to_string(), generation)
    };
    let anything = || (String::new(), String::new());
    let key = write.key;
    match write.kind {
        KeyValueWriteKind::Put { value, options } => {
            let (wanted, generation) = match options.condition {
                KeyValueCondition::None => anything(),
                KeyValueCondition::Absent => ("absent".to_owned(), String::new()),
                KeyValueCondition::AtRevision(at) => named(at),
                _ => return Err(Error::unknown_value(WRITE, "condition")),
            };
            let ttl = options.ttl.map(|ttl| millis(ttl).to_string()).unwrap_or_default();
            Ok(call.arg("put").arg(key.as_str()).arg(wanted).arg(generation).arg(ttl).bytes(value))
        }
        KeyValueWriteKind::Delete { at } => {
            let (wanted, generation) = at.map_or_else(anything, named);
            Ok(call.arg("delete").arg(key.as_str()).arg(wanted).arg(generation).arg("").arg(""))
        }
        _ => Err(Error::unknown_value(WRITE, "writes.kind")),
    }
}

fn written(answer: Value, count: usize) -> Result<Vec<Option<Revision>>> {
    let mut revisions = match answer {
        Value::Array(revisions) => revisions,
        refused => {
            let refused = decode::text(refused)?;
            return Err(match refused.strip_prefix("CONFLICT ").map(str::parse) {
                Some(Ok(index)) => KeyValueWrite::conflict(index),
                None if refused == "FULL" => full(WRITE),
                _ => corrupt(WRITE),
            });
        }
    };
    let generation = decode::generation(revisions.pop().ok_or_else(|| corrupt(WRITE))?)?;
    if revisions.len() != count {
        return Err(corrupt(WRITE));
    }
    let revision = |number| {
        let number = decode::count(number)?;
        Ok((number > 0).then(|| Revision::new(number).in_generation(generation)))
    };
    revisions.into_iter().map(revision).collect()
}

pub(super) async fn delete_prefix(
    engine: &Engine,
    index: &Index,
    bucket: &BucketName,
    prefix: &str,
) -> Result<PrefixDeletion> {
    const OPERATION: &str = "key_value.delete_prefix";
    let place = index.entity(bucket.as_str());
    let mut from = format!("[{prefix}").into_bytes();
    let to = below(prefix_end(prefix));
    loop {
        let call = PARTS.iter().fold(Call::new(), |call, part| call.key(place.part(part)));
        let call = call.arg(&from).arg(&to).number(BATCH_KEYS_MAX).number(BUCKET_TOMBSTONES_MAX);
        let call = call.arg(place.channel());
        let answer = engine.write(OPERATION, &DELETE_PREFIX, index, bucket.as_str(), &call).await?;
        if !matches!(answer, Value::Array(_)) {
            return Err(match decode::text(answer)?.as_str() {
                "FULL" => full(OPERATION),
                _ => corrupt(OPERATION),
            });
        }
        let [deleted, more, next] =
            decode::tuple(answer).map_err(|error: Error| error.in_operation(OPERATION))?;
        let (deleted, more, next) = (decode::count(deleted)?, decode::count(more)? > 0, decode::bytes(next)?);
        if next.is_empty() {
            return Ok(PrefixDeletion::new(deleted, more));
        }
        if deleted > 0 {
            // The script stopped at many expired names.
            let scan = Scan { from: next, to, reverse: false, values: false };
            let found = scan.page(OPERATION, engine, index, bucket, 1).await;
            let found = found.map_err(|error| error.with_outcome(Outcome::Unknown))?;
            return Ok(PrefixDeletion::new(deleted, !found.items.is_empty()));
        }
        from = next;
    }
}

/// Returns the end of a range: below a text, or below every name that cannot exist.
fn below(end: Option<String>) -> Vec<u8> {
    end.map_or_else(|| b"+".to_vec(), |end| format!("({end}").into_bytes())
}

pub(super) async fn entries(
    engine: &Engine,
    index: &Index,
    bucket: &BucketName,
    query: &KeyValueQuery,
    page: &PageRequest<Key>,
) -> Result<Page<KeyValueItem, Key>> {
    let (start, end) = query.bounds(page);
    let start = match start {
        Bound::Included(text) if text.is_empty() => b"-".to_vec(),
        Bound::Included(text) => format!("[{text}").into_bytes(),
        Bound::Excluded(text) => format!("({text}").into_bytes(),
        Bound::Unbounded => b"-".to_vec(),
    };
    let end = match end {
        Bound::Included(text) => format!("[{text}").into_bytes(),
        Bound::Excluded(text) => below(Some(text)),
        Bound::Unbounded => below(None),
    };
    let reverse = query.order == KeyOrder::Descending;
    let (from, to) = if reverse { (end, start) } else { (start, end) };
    let scan = Scan { from, to, reverse, values: query.values };
    scan.page("key_value.list_entries", engine, index, bucket, page.limit).await
}

/// The range of a listing.
struct Scan {
    from: Vec<u8>,
    to: Vec<u8>,
    reverse: bool,
    values: bool,
}

impl Scan {
    /// Returns a page: the result of one script, and therefore the state of one instant. After many expired
    /// names it may be short.
    async fn page(
        mut self,
        operation: &'static str,
        engine: &Engine,
        index: &Index,
        bucket: &BucketName,
        limit: usize,
    ) -> Result<Page<KeyValueItem, Key>> {
        let place = index.entity(bucket.as_str());
        loop {
            let call = ["names", "revisions", "expiries", "meta", "values"]
                .into_iter()
                .fold(Call::new(), |call, part| call.key(place.part(part)))
                .arg(&self.from)
                .arg(&self.to)
                .number(limit.saturating_add(1))
                .arg(if self.reverse { "reverse" } else { "forward" })
                .arg(if self.values { "values" } else { "" })
                .number(BATCH_VALUES_BYTES_MAX);
            let answer = engine.read(operation, &ENTRIES, &call).await?;
            let (next, found) = listed(answer, self.values).map_err(|error| error.in_operation(operation))?;
            if next.is_empty() {
                return Ok(entries_page(found, self.values, limit));
            }
            if let Some(last) = found.last().filter(|_| found.len() <= limit) {
                let after = last.key.clone();
                return Ok(Page::new(found, Some(after)));
            }
            self.from = next;
        }
    }
}

/// Returns the name from which a listing continues, empty at its end, and the items.
fn listed(answer: Value, values: bool) -> Result<(Vec<u8>, Vec<KeyValueItem>)> {
    let [next, listed, generation] = decode::tuple(answer)?;
    let generation = decode::generation(generation)?;
    let item = |found| {
        let [name, revision, expires, value] = decode::tuple(found)?;
        let revision = Revision::new(decode::count(revision)?).in_generation(generation);
        let item = KeyValueItem::new(decode::id(name)?, revision).with_expires_at(expiry(expires)?);
        let value = decode::optional(value).filter(|_| values).map(decode::bytes).transpose()?;
        Ok(item.with_value(value.map(Bytes::from)))
    };
    Ok((decode::bytes(next)?, decode::array(listed)?.into_iter().map(item).collect::<Result<_>>()?))
}
