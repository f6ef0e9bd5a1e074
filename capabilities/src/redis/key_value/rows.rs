//! The reads and writes of a bucket.

use std::sync::LazyLock;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::limits::BUCKET_TOMBSTONES_MAX;
use larder_kernel::{
    BucketInfo, BucketName, Error, ErrorKind, Generation, Key, KeyRevision, KeyValueCondition, KeyValueEntry,
    KeyValuePutOptions, Page, PageRequest, Result, Revision,
};
use redis::Value;

use super::super::decode;
use super::super::engine::Engine;
use super::super::failure::corrupt;
use super::super::index::Index;
use super::super::key::Entity;
use super::super::script::{Call, Script, millis};
use super::PARTS;

/// The number of buckets that are counted concurrently.
const COUNTED_AT_ONCE: usize = 32;
/// The number of bucket names in one read.
const NAMES_AT_ONCE: usize = 1_000;

static PUT: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("bucket.lua"), include_str!("put.lua"))));

static DELETE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("bucket.lua"), include_str!("delete.lua"))));

static LIST: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("list.lua")));

static GET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local revision = redis.call('ZSCORE', KEYS[1], ARGV[1])
         local expires = redis.call('ZSCORE', KEYS[2], ARGV[1])
         if not revision or (expires and tonumber(expires) <= now_ms()) then return false end
         return {revision, expires, redis.call('HGET', KEYS[3], ARGV[1]), redis.call('HGET', KEYS[4], \
         'generation')}",
    )
});

static COUNT: LazyLock<Script> = LazyLock::new(|| {
    Script::new("return redis.call('ZCARD', KEYS[1]) - redis.call('ZCOUNT', KEYS[2], '-inf', int(now_ms()))")
});

fn conflict(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        operation,
        "the key is absent or at another revision; read it and try again",
    )
}

pub(super) fn full(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::ResourceExhausted,
        operation,
        "the bucket has used all of its revisions; use another bucket",
    )
}

/// Creates the call of a write to a bucket: its keys, and the arguments that every such script gets first.
fn writing(bucket: &Entity, key: &Key, wanted: &str, at: Option<Revision>) -> Call {
    let call = PARTS.iter().fold(Call::new(), |call, part| call.key(bucket.part(part)));
    let generation = at.and_then(Revision::generation).map(|named| named.to_string()).unwrap_or_default();
    let call = call.arg(key.as_str()).arg(wanted).number(BUCKET_TOMBSTONES_MAX).arg(bucket.channel());
    call.arg(generation)
}

pub(super) async fn put(
    engine: &Engine,
    index: &Index,
    bucket: &BucketName,
    key: &Key,
    bytes: Bytes,
    options: KeyValuePutOptions,
) -> Result<Revision> {
    const OPERATION: &str = "key_value.put";
    let (wanted, at) = match options.condition {
        KeyValueCondition::None => (String::new(), None),
        KeyValueCondition::Absent => ("absent".to_owned(), None),
        KeyValueCondition::AtRevision(at) => (at.to_string(), Some(at)),
        _ => return Err(Error::unknown_value(OPERATION, "condition")),
    };
    let ttl = options.ttl.map(|ttl| millis(ttl).to_string()).unwrap_or_default();
    let call = writing(&index.entity(bucket.as_str()), key, &wanted, at).arg(ttl).bytes(bytes);
    let answer = decode::text(engine.write(OPERATION, &PUT, index, bucket.as_str(), &call).await?)
        .map_err(|error| error.in_operation(OPERATION))?;
    match answer.as_str() {
        "EXISTS" => Err(Error::new(
            ErrorKind::Conflict,
            OPERATION,
            "the key already exists; read it or write without the condition",
        )),
        "CONFLICT" => Err(conflict(OPERATION)),
        "FULL" => Err(full(OPERATION)),
        written => {
            let (revision, generation) = written.split_once(' ').ok_or_else(|| corrupt(OPERATION))?;
            let generation = decode::generation(Value::SimpleString(generation.to_owned()))?;
            let revision = Revision::new(revision.parse().map_err(|_| corrupt(OPERATION))?);
            Ok(revision.in_generation(generation))
        }
    }
}

pub(super) async fn delete(
    engine: &Engine,
    index: &Index,
    bucket: &BucketName,
    key: &Key,
    at: Option<Revision>,
) -> Result<bool> {
    const OPERATION: &str = "key_value.delete";
    let wanted = at.map(|at| at.to_string()).unwrap_or_default();
    let call = writing(&index.entity(bucket.as_str()), key, &wanted, at);
    let answer = decode::text(engine.write(OPERATION, &DELETE, index, bucket.as_str(), &call).await?)
        .map_err(|error| error.in_operation(OPERATION))?;
    match answer.as_str() {
        "DELETED" => Ok(true),
        "ABSENT" => Ok(false),
        "CONFLICT" => Err(conflict(OPERATION)),
        "FULL" => Err(full(OPERATION)),
        _ => Err(corrupt(OPERATION)),
    }
}

pub(super) async fn get(
    engine: &Engine,
    index: &Index,
    bucket: &BucketName,
    key: &Key,
) -> Result<Option<KeyValueEntry>> {
    const OPERATION: &str = "key_value.get";
    let place = index.entity(bucket.as_str());
    let call = Call::new()
        .key(place.part("revisions"))
        .key(place.part("expiries"))
        .key(place.part("values"))
        .key(place.part("meta"))
        .arg(key.as_str());
    let answer = engine.read(OPERATION, &GET, &call).await?;
    let read = |answer| {
        let [revision, expires, bytes, generation] = decode::tuple(answer)?;
        entry(revision, expires, bytes, generation)
    };
    decode::optional(answer).map(read).transpose().map_err(|error: Error| error.in_operation(OPERATION))
}

/// Returns the entry of a key in a reply.
pub(super) fn entry(
    revision: Value,
    expires: Value,
    bytes: Value,
    generation: Value,
) -> Result<KeyValueEntry> {
    let revision = Revision::new(decode::count(revision)?).in_generation(decode::generation(generation)?);
    Ok(KeyValueEntry::new(Bytes::from(decode::bytes(bytes)?), revision).with_expires_at(expiry(expires)?))
}

/// Returns the expiry of a key in a reply.
pub(super) fn expiry(answer: Value) -> Result<Option<larder_kernel::Timestamp>> {
    decode::optional(answer).map(|at| decode::timestamp(decode::integer(at)?)).transpose()
}

/// Returns a page of keys. Names compare by their bytes, and no byte of UTF-8 is 255. So the names with the
/// prefix are between the prefix and the prefix followed by that byte.
///
/// The page is the state of one instant: the result of one script. After many expired names it may be short.
pub(super) async fn list(
    engine: &Engine,
    index: &Index,
    bucket: &BucketName,
    prefix: &str,
    page: &PageRequest<Key>,
) -> Result<Page<KeyRevision, Key>> {
    const OPERATION: &str = "key_value.list";
    let place = index.entity(bucket.as_str());
    let mut from = match &page.after {
        Some(after) if after.as_str() >= prefix => format!("({after}").into_bytes(),
        _ => format!("[{prefix}").into_bytes(),
    };
    let to = [b"(", prefix.as_bytes(), b"\xff"].concat();
    loop {
        let call = Call::new()
            .key(place.part("names"))
            .key(place.part("revisions"))
            .key(place.part("expiries"))
            .key(place.part("meta"))
            .arg(from)
            .arg(&to)
            .number(page.limit.saturating_add(1));
        let answer = engine.read(OPERATION, &LIST, &call).await?;
        let (next, found) = listed(answer).map_err(|error| error.in_operation(OPERATION))?;
        if next.is_empty() {
            return Ok(Page::from_surplus(found, page.limit, |item| item.key.clone()));
        }
        if let Some(last) = found.last().filter(|_| found.len() <= page.limit) {
            let after = last.key.clone();
            return Ok(Page::new(found, Some(after)));
        }
        from = next;
    }
}

/// Returns the position at which a listing continues, empty at its end, and the listed keys.
fn listed(answer: Value) -> Result<(Vec<u8>, Vec<KeyRevision>)> {
    let [next, listed, generation] = decode::tuple(answer)?;
    Ok((decode::bytes(next)?, key_revisions(listed, decode::generation(generation)?)?))
}

fn key_revisions(answer: Value, generation: Option<Generation>) -> Result<Vec<KeyRevision>> {
    let mut answer = decode::array(answer)?.into_iter();
    let mut found = Vec::with_capacity(answer.len() / 2);
    while let (Some(name), Some(revision)) = (answer.next(), answer.next()) {
        let revision = Revision::new(decode::count(revision)?).in_generation(generation);
        found.push(KeyRevision::new(decode::id(name)?, revision));
    }
    Ok(found)
}

/// Returns the nonempty buckets of a page and one more.
pub(super) async fn buckets(
    engine: &Engine,
    index: &Index,
    page: &PageRequest<BucketName>,
) -> Result<Vec<BucketInfo>> {
    const OPERATION: &str = "key_value.list_buckets";
    let wanted = page.limit.saturating_add(1);
    let mut found = Vec::new();
    let mut after = page.after.as_ref().map(|after| after.as_str().to_owned());
    loop {
        let size = wanted.saturating_sub(found.len()).clamp(COUNTED_AT_ONCE, NAMES_AT_ONCE);
        let names = engine.names(OPERATION, index, after.as_deref(), size).await?;
        let more = names.len() == size;
        after = names.last().cloned();
        let counts = futures_util::stream::iter(names).map(|name| count(engine, index, name));
        let counted: Vec<BucketInfo> = counts.buffered(COUNTED_AT_ONCE).try_collect().await?;
        found.extend(counted.into_iter().filter(|bucket| bucket.keys > 0));
        if found.len() >= wanted || !more {
            found.truncate(wanted);
            return Ok(found);
        }
    }
}

async fn count(engine: &Engine, index: &Index, name: String) -> Result<BucketInfo> {
    const OPERATION: &str = "key_value.list_buckets";
    let place = index.entity(&name);
    let call = Call::new().key(place.part("names")).key(place.part("expiries"));
    let keys = decode::count(engine.read(OPERATION, &COUNT, &call).await?)?;
    Ok(BucketInfo::new(BucketName::try_from(name).map_err(|_| corrupt(OPERATION))?, keys))
}
