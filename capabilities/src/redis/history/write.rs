//! The writes of a thread. Each is one script, and so atomic.

use bytes::Bytes;
use larder_kernel::storage::history::{check_if_last, check_replace_at};
use larder_kernel::{
    Appended, Error, ErrorKind, FencingToken, IdempotencyKey, Replaced, Replacement, Result, RunId, Seq, Ttl,
};
use redis::Value;

use super::super::decode;
use super::super::engine::Engine;
use super::super::failure::corrupt;
use super::super::script::{Call, millis};
use super::address::{Address, with_fence};
use super::fast_path::FastAppendCache;
use super::index::Index;
use super::message::Batch;
use super::read::at_the_cap;
use super::scripts::{APPEND, APPEND_ONE, CLEAR, CLEAR_RUN, REPLACE, SET_TTL};

/// Adds a time to live to the arguments: the milliseconds or nothing, and whether use refreshes it.
fn with_ttl(call: Call, ttl: Option<Ttl>) -> Call {
    let call = match ttl {
        Some(ttl) => call.number(millis(ttl.after)),
        None => call.arg(""),
    };
    call.arg(if ttl.is_some_and(|ttl| ttl.refresh_on_use) { "1" } else { "0" })
}

/// Adds a condition on the thread's last position to the arguments: its number and its generation, each empty
/// if it is not given.
pub(super) fn with_condition(call: Call, if_last: Option<Seq>) -> Call {
    let number = if_last.map(|last| last.get().to_string()).unwrap_or_default();
    let generation = if_last.and_then(Seq::generation).map(|named| named.to_string()).unwrap_or_default();
    call.arg(number).arg(generation)
}

/// The options of an append.
pub(super) struct Append {
    pub(super) key: Option<(IdempotencyKey, [u8; 32])>,
    pub(super) ttl: Option<Ttl>,
    pub(super) if_last: Option<Seq>,
    pub(super) fence: Option<FencingToken>,
}

pub(super) async fn append(
    index: &Index,
    fast: &FastAppendCache,
    address: &Address,
    batch: Batch,
    options: Append,
) -> Result<Appended> {
    const OPERATION: &str = super::APPEND;
    let Append { key, ttl, if_last, fence } = options;
    if key.is_none()
        && ttl.is_none()
        && if_last.is_none()
        && fence.is_none()
        && let Some(message) = batch.without_run()
        && fast.contains(address)
    {
        let seq = append_one(index.engine(), address, message).await?;
        if let Some(seq) = seq {
            return Ok(Appended::new(seq, seq));
        }
        fast.remove(address);
    }
    let call = match &key {
        Some((key, digest)) => address.keys().arg(key.as_str()).arg(digest),
        None => address.keys().arg("").arg(""),
    };
    let call = batch.into_call(with_fence(with_condition(with_ttl(call, ttl), if_last), fence));
    match index.write(OPERATION, &APPEND, address, &call).await? {
        (0, mut numbers) => {
            if numbers.len() > 3 {
                numbers.truncate(3);
                fast.insert(address);
            }
            let (first, last) = numbered(OPERATION, numbers)?;
            Ok(Appended::new(Seq::new(first).in_generation(last.generation()), last))
        }
        (2, _) => Err(Error::new(
            ErrorKind::Conflict,
            OPERATION,
            "the idempotency key was used for different messages; use a new key",
        )),
        (3, _) => Err(at_the_cap(OPERATION)),
        (4, state) => {
            let [last, generation] = decode::tuple(Value::Array(state))?;
            let last = decode::seq(last, generation)?;
            Err(check_if_last(OPERATION, if_last, last).err().unwrap_or_else(|| corrupt(OPERATION)))
        }
        _ => Err(corrupt(OPERATION)),
    }
}

/// Appends one message and returns its number. `None` if the thread does not allow the fast append.
async fn append_one(
    engine: &Engine,
    address: &Address,
    (size, body): (usize, &Bytes),
) -> Result<Option<Seq>> {
    let call = Call::new().key(address.head()).key(address.messages()).number(size).bytes(body.clone());
    let answer = engine.run(super::APPEND, &APPEND_ONE, &call).await?;
    if matches!(answer, Value::Int(_)) {
        return Ok(None);
    }
    let [seq, generation] = decode::tuple(answer)?;
    Ok(Some(decode::seq(seq, generation)?))
}

pub(super) async fn clear(engine: &Engine, address: &Address, fence: Option<FencingToken>) -> Result<u64> {
    let call = with_fence(address.call(), fence);
    decode::count(engine.run("history.clear", &CLEAR, &call).await?)
}

pub(super) async fn clear_run(
    engine: &Engine,
    address: &Address,
    run: &RunId,
    fence: Option<FencingToken>,
) -> Result<u64> {
    let call = with_fence(address.call().arg(run.as_str()), fence);
    decode::count(engine.run("history.clear_run", &CLEAR_RUN, &call).await?)
}

pub(super) async fn replace(
    index: &Index,
    address: &Address,
    replacement: &Replacement,
    batch: Batch,
) -> Result<Replaced> {
    const OPERATION: &str = "history.replace";
    let Replacement { up_to, seen, fence, .. } = *replacement;
    let conflict = |message| Err(Error::new(ErrorKind::Conflict, OPERATION, message));
    let named = seen.generation().or(up_to.generation());
    check_replace_at(up_to, seen, Seq::ZERO.in_generation(named))?;
    let call = address.keys().key(address.place().part("work")).number(up_to.get()).number(seen.get());
    let call = with_fence(call.arg(named.map(|named| named.to_string()).unwrap_or_default()), fence);
    match index.write(OPERATION, &REPLACE, address, &batch.into_call(call)).await? {
        (0, numbers) => {
            let (removed, seq) = numbered(OPERATION, numbers)?;
            let removed = u64::try_from(removed).map_err(|_| corrupt(OPERATION))?;
            Ok(Replaced::new(removed, seq))
        }
        (2, _) => conflict("`up_to` or `seen` is beyond the thread's last `Seq`; read the thread again"),
        (3, _) => conflict("messages were removed from the thread after `seen`; read the thread again"),
        (4, _) => Err(at_the_cap(OPERATION)),
        // The script found another generation than the named one, so no generation fits.
        (5, _) => Err(check_replace_at(up_to, seen, Seq::ZERO).err().unwrap_or_else(|| corrupt(OPERATION))),
        _ => Err(corrupt(OPERATION)),
    }
}

/// Sets or removes the time to live.
pub(super) async fn set_ttl(
    engine: &Engine,
    address: &Address,
    ttl: Option<Ttl>,
    fence: Option<FencingToken>,
) -> Result<()> {
    const OPERATION: &str = "history.set_ttl";
    let call = with_fence(with_ttl(address.call(), ttl), fence);
    let answer = engine.run(OPERATION, &SET_TTL, &call).await?;
    if decode::integer(answer)? == 1 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NotFound, OPERATION, "the thread has no messages; append a message first"))
}

/// Returns a number and the last position of the thread.
fn numbered(operation: &'static str, numbers: Vec<Value>) -> Result<(i64, Seq)> {
    let [first, last, generation] =
        decode::tuple(Value::Array(numbers)).map_err(|error| error.in_operation(operation))?;
    let last = decode::seq(last, generation)?;
    Ok((decode::integer(first)?, last))
}
