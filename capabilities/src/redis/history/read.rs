//! The reads of a thread's messages.

use larder_kernel::limits::{MESSAGE_BYTES_MAX, READ_BYTES_MAX};
use larder_kernel::storage::history::{PageBytes, check_after, check_before};
use larder_kernel::{
    Error, ErrorKind, FencingToken, MessagePage, Outcome, Result, Seq, StoredMessage, ThreadInfo,
};
use redis::{Cmd, Value};

use super::super::decode;
use super::super::engine::Engine;
use super::super::script::{Call, formats};
use super::address::{Address, named, with_fence};
use super::message::stored;
use super::scripts::{PAGE, SETTLE};

/// An offset beyond the end of any thread.
const OFFSET_MAX: u64 = 1 << 53;
/// The greatest limit with which messages are read before the size of the thread is known.
const UNSIZED_MESSAGES_MAX: usize = 64;

/// A range of a thread's messages.
#[derive(Clone, Copy)]
pub(super) enum Range {
    /// The messages after this many of the oldest.
    Offset(u64),
    /// The newest messages, or those whose `Seq` is smaller, newest first.
    Before(Option<Seq>),
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
            Self::Before(None) => command.arg(0).arg(limit - 1).arg("REV"),
            Self::Before(Some(before)) => command
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

/// A page, and whether its read extends the thread's time to live.
struct Read {
    /// The messages in the order of the read.
    page: MessagePage,
    renews: bool,
}

/// Reads messages, which counts as a use of the thread.
pub(super) async fn messages(
    engine: &Engine,
    operation: &'static str,
    address: &Address,
    range: Range,
    limit: usize,
) -> Result<MessagePage> {
    let read = match plainly(engine, operation, address, range, limit).await? {
        Some(read) => read,
        None => {
            let answer = engine.read(operation, &PAGE, &range.call(address, limit)).await?;
            decode::tuple(answer).and_then(bounded).map_err(|error| error.in_operation(operation))?
        }
    };
    let Read { mut page, renews } = read;
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

/// Reads messages with plain commands, which cost the server less than a script. Returns `None` if only the
/// script is exact: the thread has more bytes than a page, changes between the commands, or may have expired.
async fn plainly(
    engine: &Engine,
    operation: &'static str,
    address: &Address,
    range: Range,
    limit: usize,
) -> Result<Option<Read>> {
    let head = address.head();
    if limit > UNSIZED_MESSAGES_MAX {
        let mut size = redis::cmd("HGET");
        size.arg(&head[..]).arg("b");
        let bytes = decode::optional(engine.fetch(operation, &head, &size).await?).map(decode::count);
        let bytes = bytes.transpose().map_err(|error| error.in_operation(operation))?;
        if bytes.is_some_and(|bytes| bytes > PageBytes::MAX) {
            return Ok(None);
        }
    }
    let mut fields = redis::cmd("HMGET");
    fields.arg(&head[..]).arg(&["f", "s", "g", "i", "r", "n", "e"]);
    let commands = [&fields, &range.command(address, limit), &fields];
    match engine.fetch_each(operation, &head, commands).await? {
        Some([state, found, state_after]) if state == state_after => {
            let read = decode::tuple(state).and_then(|state| unbounded(engine.format(), state, found));
            read.map_err(|error| error.in_operation(operation))
        }
        _ => Ok(None),
    }
}

/// Decodes the replies to the plain commands, and cuts the page to its maximum size.
fn unbounded(
    oldest: i64,
    [format, last, generation, _, renews, count, ends]: [Value; 7],
    found: Value,
) -> Result<Option<Read>> {
    if let Some(format) = decode::optional(format).map(decode::integer).transpose()? {
        formats(oldest).check("history.read", format)?;
    }
    let found = decode::array(found)?;
    let integer = |value| decode::optional(value).map_or(Ok(0), decode::integer);
    if found.is_empty() && integer(count)? > 0 && decode::optional(ends).is_some() {
        return Ok(None);
    }
    let last = Seq::new(integer(last)?).in_generation(decode::generation(generation)?);
    let mut messages = named_messages(found, last)?;
    let more = PageBytes::cut(&mut messages);
    let renews = decode::optional(renews).map(decode::bytes).transpose()?;
    let page = MessagePage::new(messages, last).with_more(more);
    Ok(Some(Read { page, renews: renews.is_some_and(|renews| renews == b"1") }))
}

/// Decodes the reply of the script.
fn bounded([renews, last, generation, more, found]: [Value; 5]) -> Result<Read> {
    let last = decode::seq(last, generation)?;
    let messages = named_messages(decode::array(found)?, last)?;
    let page = MessagePage::new(messages, last).with_more(decode::integer(more)? == 1);
    Ok(Read { page, renews: decode::integer(renews)? == 1 })
}

fn named_messages(found: Vec<Value>, last: Seq) -> Result<Vec<StoredMessage>> {
    found.into_iter().map(|found| Ok(stored(found)?.in_generation(last.generation()))).collect()
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
