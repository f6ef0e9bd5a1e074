//! The reads of a thread's messages.

use larder_kernel::limits::{MESSAGE_BYTES_MAX, READ_BYTES_MAX};
use larder_kernel::storage::history::{check_after, check_before};
use larder_kernel::{Error, ErrorKind, FencingToken, MessagePage, Outcome, Result, Seq, ThreadInfo};
use redis::Value;

use super::super::decode;
use super::super::engine::Engine;
use super::super::script::Call;
use super::address::{Address, named, with_fence};
use super::message::stored;
use super::scripts::{PAGE, SETTLE};

/// An offset beyond the end of any thread.
const OFFSET_MAX: u64 = 1 << 53;

/// A range of a thread's messages.
#[derive(Clone, Copy)]
pub(super) enum Range {
    /// The messages after this many of the oldest.
    Offset(u64),
    /// The newest messages, or those whose `Seq` is smaller.
    Before(Option<Seq>),
    /// The oldest messages whose `Seq` is greater.
    After(Seq),
}

impl Range {
    fn call(self, address: &Address, limit: usize) -> Call {
        let call = Call::new().key(address.head()).key(address.messages());
        let call = match self {
            Self::Offset(offset) => call.arg("offset").number(offset.min(OFFSET_MAX)),
            Self::Before(None) => call.arg("before").arg("+inf"),
            Self::Before(Some(before)) => call.arg("before").arg(format!("({}", before.get())),
            Self::After(after) => call.arg("after").arg(format!("({}", after.get())),
        };
        call.number(limit).number(READ_BYTES_MAX).number(MESSAGE_BYTES_MAX)
    }
}

/// Reads messages, which counts as a use of the thread.
pub(super) async fn messages(
    engine: &Engine,
    operation: &'static str,
    address: &Address,
    range: Range,
    limit: usize,
) -> Result<MessagePage> {
    let answer = engine.read(operation, &PAGE, &range.call(address, limit)).await?;
    let (renews, mut page) =
        decode::tuple(answer).and_then(page).map_err(|error| error.in_operation(operation))?;
    match range {
        Range::Offset(_) => {}
        Range::Before(before) => check_before(operation, before, page.last)?,
        Range::After(after) => check_after(operation, after, page.last)?,
    }
    if renews {
        engine.repeat(operation, &SETTLE, &address.call().arg("use")).await?;
    }
    if matches!(range, Range::Before(_)) {
        page.messages.reverse();
    }
    Ok(page)
}

/// Returns whether the read extends the thread's time to live, and the messages in the order of the read.
fn page([renews, last, generation, more, found]: [Value; 5]) -> Result<(bool, MessagePage)> {
    let generation = decode::generation(generation)?;
    let last = Seq::new(decode::integer(last)?).in_generation(generation);
    let named = |found| Ok(stored(found)?.in_generation(generation));
    let messages = decode::array(found)?.into_iter().map(named).collect::<Result<_>>()?;
    let page = MessagePage::new(messages, last).with_more(decode::integer(more)? == 1);
    Ok((decode::integer(renews)? == 1, page))
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
        Seq::new(decode::integer(last)?).in_generation(decode::generation(generation)?),
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
