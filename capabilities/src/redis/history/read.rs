//! The reads of a thread's messages.

use larder_kernel::storage::history::{check_after, check_before};
use larder_kernel::{Error, ErrorKind, FencingToken, Outcome, Result, Seq, StoredMessage, ThreadInfo};
use redis::{Cmd, Value};

use super::super::decode;
use super::super::engine::Engine;
use super::super::script::{Call, formats};
use super::address::{Address, named, with_fence};
use super::message::stored;
use super::scripts::SETTLE;

/// An offset beyond the end of any thread.
const OFFSET_MAX: u64 = 1 << 53;

/// A range of a thread's messages.
#[derive(Clone, Copy)]
pub(super) enum Range {
    /// The messages after this many of the oldest.
    Offset(u64),
    /// The newest messages.
    Newest,
    /// The newest messages whose `Seq` is smaller.
    Before(Seq),
    /// The oldest messages whose `Seq` is greater.
    After(Seq),
}

impl Range {
    fn command(self, address: &Address, limit: usize) -> Cmd {
        let mut command = redis::cmd("ZRANGE");
        command.arg(&address.messages()[..]);
        match self {
            // Positions that match nothing.
            _ if limit == 0 => command.arg(1).arg(0),
            Self::Offset(offset) => {
                let offset = offset.min(OFFSET_MAX);
                command.arg(offset).arg(offset + larder_kernel::check::size(limit) - 1)
            }
            Self::Newest => command.arg(format!("-{limit}")).arg(-1),
            Self::Before(before) => command
                .arg(format!("({}", before.get()))
                .arg("-inf")
                .arg("BYSCORE")
                .arg("REV")
                .arg("LIMIT")
                .arg(0)
                .arg(limit),
            Self::After(after) => command
                .arg(format!("({}", after.get()))
                .arg("+inf")
                .arg("BYSCORE")
                .arg("LIMIT")
                .arg(0)
                .arg(limit),
        };
        command
    }
}

/// Reads messages, which counts as a use of the thread. A plain command is enough, because the server removes
/// expired messages on time. Another command reads the format, the last position and whether the use
/// refreshes the time to live.
pub(super) async fn messages(
    engine: &Engine,
    operation: &'static str,
    address: &Address,
    range: Range,
    limit: usize,
) -> Result<Vec<StoredMessage>> {
    let head = address.head();
    let mut fields = redis::cmd("HMGET");
    fields.arg(&head[..]).arg(&["r", "f", "s", "g"]);
    let command = range.command(address, limit);
    // The generation is read first: if the thread is erased in between, the reader's next call finds out.
    let (fields, found) = engine.fetch_both(operation, &head, &fields, &command).await?;
    let [renews, format, last, generation] = decode::tuple(fields)?;
    // No number: no thread, or one that was erased between the two reads.
    if let Some(format) = decode::optional(format).map(decode::integer).transpose()? {
        formats(engine.format()).check(operation, format)?;
    }
    let last = decode::optional(last).map_or(Ok(0), decode::integer)?;
    let last = Seq::new(last).in_generation(decode::generation(generation)?);
    match range {
        Range::Offset(_) | Range::Newest => {}
        Range::Before(before) => check_before(operation, Some(before), last)?,
        Range::After(after) => check_after(operation, after, last)?,
    }
    let renews = decode::optional(renews).map(decode::bytes).transpose()?;
    if renews.is_some_and(|renews| renews == b"1") {
        engine.repeat(operation, &SETTLE, &address.call().arg("use")).await?;
    }
    let named = |found| Ok(stored(found)?.in_generation(last.generation()));
    let messages = decode::array(found).and_then(|found| found.into_iter().map(named).collect());
    let mut messages: Vec<StoredMessage> = messages.map_err(|error| error.in_operation(operation))?;
    if matches!(range, Range::Before(_)) {
        messages.reverse();
    }
    Ok(messages)
}

/// Returns the state of the thread. Records a passed expiry as a clear event.
pub(super) async fn settle(
    engine: &Engine,
    operation: &'static str,
    address: &Address,
) -> Result<ThreadInfo> {
    settled(engine, operation, address, &address.call().arg("")).await
}

/// Returns the state of the thread like `settle`, for a write with this fencing token that follows.
pub(super) async fn before_write(
    engine: &Engine,
    operation: &'static str,
    address: &Address,
    fence: Option<FencingToken>,
) -> Result<ThreadInfo> {
    settled(engine, operation, address, &with_fence(address.call().arg("write"), fence)).await
}

async fn settled(
    engine: &Engine,
    operation: &'static str,
    address: &Address,
    call: &Call,
) -> Result<ThreadInfo> {
    let answer = engine.repeat(operation, &SETTLE, call).await?;
    let stands = decode::tuple(answer).and_then(|counts| info(address, counts));
    stands.map_err(|error| error.in_operation(operation))
}

/// Returns the number of messages, their bytes and the last position.
fn info(address: &Address, [messages, bytes, last, generation]: [Value; 4]) -> Result<ThreadInfo> {
    let thread = named(address.name()).ok_or_else(|| super::super::failure::corrupt("history.read"))?;
    Ok(ThreadInfo::new(
        thread,
        decode::count(messages)?,
        decode::count(bytes)?,
        decode::seq(last, generation)?,
    ))
}

/// Returns the state of the thread if it holds messages.
pub(super) async fn living(
    engine: &Engine,
    operation: &'static str,
    address: &Address,
) -> Result<Option<ThreadInfo>> {
    let head = address.head();
    let mut command = redis::cmd("HMGET");
    command.arg(&head[..]).arg(&["n", "b", "s", "g", "e"]);
    let answer = engine.fetch(operation, &head, &command).await?;
    let [messages, bytes, last, generation, ends] = decode::tuple(answer)?;
    if matches!(messages, Value::Nil) {
        return Ok(None);
    }
    let info =
        info(address, [messages, bytes, last, generation]).map_err(|error| error.in_operation(operation))?;
    if info.messages == 0 {
        return Ok(None);
    }
    if decode::optional(ends).is_some() {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(&address.messages()[..]);
        let there = engine.fetch(operation, &head, &exists).await?;
        if decode::integer(there)? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(info))
}

/// Marks the error as not applied: a step before the write failed, so nothing was changed.
pub(super) fn untouched(error: Error) -> Error {
    error.with_outcome(Outcome::NotApplied)
}

pub(super) fn at_the_cap(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::ResourceExhausted,
        operation,
        "the thread has used all of its numbers; start another thread",
    )
}
