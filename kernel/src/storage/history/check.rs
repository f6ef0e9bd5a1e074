//! Checks that every backend runs before its first I/O.

use super::fence::check_token;
use super::filter::MessageFilter;
use super::types::{AppendOptions, Replacement, Ttl};
use crate::check;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, PAGE_ITEMS_MAX};
use crate::message::ChatMessage;
use crate::position::{FencingToken, Seq};

fn check_messages(operation: &'static str, messages: &[ChatMessage]) -> Result<()> {
    check::at_most(operation, "messages", messages.len(), BATCH_MESSAGES_MAX)?;
    let mut bytes = 0;
    for message in messages {
        bytes += message.checked_bytes(operation)?;
    }
    check::at_most(operation, "messages.bytes", bytes, BATCH_BYTES_MAX)
}

/// Checks the arguments of [`append_many`](super::HistoryProvider::append_many).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_append(messages: &[ChatMessage], options: &AppendOptions) -> Result<()> {
    const OPERATION: &str = "history.append_many";
    check::at_least(OPERATION, "messages", messages.len(), 1)?;
    check_messages(OPERATION, messages)?;
    check_last(OPERATION, options.if_last)?;
    check_token(OPERATION, options.fence)?;
    options.ttl.map_or(Ok(()), |ttl| check::ttl(OPERATION, "ttl", ttl.after))
}

/// Refuses a negative last position, which no thread has.
pub(super) fn check_last(operation: &'static str, if_last: Option<Seq>) -> Result<()> {
    match if_last {
        Some(last) if last < Seq::ZERO => {
            Err(Error::invalid(operation, "if_last", "is negative; pass the `last` of `thread_info`"))
        }
        _ => Ok(()),
    }
}

/// Checks the condition of a write on the thread's `last` position, which is 0 without a generation for a
/// thread that does not exist.
///
/// # Errors
/// `Conflict` naming `if_last`, with the thread's last number as the fact `last`.
pub fn check_if_last(operation: &'static str, if_last: Option<Seq>, last: Seq) -> Result<()> {
    let Some(expected) = if_last.filter(|expected| !expected.names(last)) else { return Ok(()) };
    let message = if expected.is_of(last.generation()) {
        "the thread's last position is not `if_last`; read `thread_info` and the thread's messages again, \
         and repeat the call with the new `last`"
    } else {
        "`if_last` is of another generation: the thread was erased, lost or restored; read `thread_info`, \
         then the messages from the beginning"
    };
    Err(Error::new(ErrorKind::Conflict, operation, message)
        .with_field("if_last")
        .with_context("last", last.get()))
}

/// Checks the arguments of [`replace`](super::HistoryProvider::replace).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_replace(replacement: &Replacement) -> Result<()> {
    const OPERATION: &str = "history.replace";
    if replacement.up_to < Seq::ZERO {
        return Err(Error::invalid(OPERATION, "up_to", "is negative; pass a `Seq` of 0 or more"));
    }
    if replacement.seen < replacement.up_to {
        return Err(Error::invalid(
            OPERATION,
            "seen",
            "is before `up_to`; read the messages up to `up_to` first",
        ));
    }
    check_token(OPERATION, replacement.fence)?;
    check_messages(OPERATION, &replacement.messages)
}

/// Checks the position after which a read or a subscription continues in a thread whose last position is
/// `last`.
///
/// # Errors
/// `Conflict` naming `after` if the position is of another generation or beyond the last one.
pub fn check_after(operation: &'static str, after: Seq, last: Seq) -> Result<()> {
    if after.is_end() { Ok(()) } else { after.check_resume(operation, "after", last) }
}

/// Checks the position before which a read continues backwards. A position without a generation is a bound
/// and fits every thread.
///
/// # Errors
/// `Conflict` naming `before` if the position is of another generation or beyond the last one.
pub fn check_before(operation: &'static str, before: Option<Seq>, last: Seq) -> Result<()> {
    let named = before.filter(|before| before.generation().is_some());
    named.map_or(Ok(()), |before| before.check_resume(operation, "before", last))
}

/// Checks the position up to which a fork copies. A position without a generation is a bound and fits every
/// thread.
///
/// # Errors
/// `Conflict` naming `up_to` if the position is of another generation or beyond the last one.
pub fn check_fork(up_to: Option<Seq>, last: Seq) -> Result<()> {
    let named = up_to.filter(|up_to| up_to.generation().is_some());
    named.map_or(Ok(()), |up_to| up_to.check_resume("history.fork", "up_to", last))
}

/// Checks the generations of the positions of a replacement.
///
/// # Errors
/// `Conflict` naming `up_to` or `seen`.
pub fn check_replace_at(up_to: Seq, seen: Seq, last: Seq) -> Result<()> {
    const OPERATION: &str = "history.replace";
    up_to.check_generation(OPERATION, "up_to", last)?;
    seen.check_generation(OPERATION, "seen", last)
}

/// Returns the greatest of the positions that name a generation.
///
/// # Errors
/// `Conflict` if they name different generations.
pub(super) fn named_bound(
    operation: &'static str,
    field: &'static str,
    positions: &[Seq],
) -> Result<Option<Seq>> {
    let mut bound: Option<Seq> = None;
    for position in positions.iter().filter(|position| position.generation().is_some()) {
        if let Some(bound) = bound {
            position.check_generation(operation, field, bound)?;
        }
        bound = bound.max(Some(*position));
    }
    Ok(bound)
}

/// Checks the limit of a read of messages.
///
/// # Errors
/// `InvalidInput` naming `limit` if it is over 10,000.
pub fn check_limit(operation: &'static str, limit: usize) -> Result<()> {
    check::at_most(operation, "limit", limit, PAGE_ITEMS_MAX)
}

/// Checks the arguments of [`tail_matching`](super::HistoryProvider::tail_matching).
///
/// # Errors
/// `InvalidInput` naming `limit` if it is over 10,000, or `filter` if it names more than 64 agents and roles.
pub fn check_tail_matching(filter: &MessageFilter, limit: usize) -> Result<()> {
    const OPERATION: &str = "history.tail_matching";
    check_limit(OPERATION, limit)?;
    filter.check(OPERATION)
}

/// Checks the arguments of [`set_ttl`](super::HistoryProvider::set_ttl).
///
/// # Errors
/// `InvalidInput` naming `ttl` and the limit in milliseconds, or `fence` and its limit.
pub fn check_ttl(ttl: Option<Ttl>, fence: Option<FencingToken>) -> Result<()> {
    const OPERATION: &str = "history.set_ttl";
    check_token(OPERATION, fence)?;
    ttl.map_or(Ok(()), |ttl| check::ttl(OPERATION, "ttl", ttl.after))
}

/// Returns the digest by which a store recognizes a repeated append: SHA-256 over the canonical JSON of the
/// messages without `created_at`, because a caller may set a new timestamp for a retry.
///
/// # Errors
/// `Unexpected` if a message cannot be written as JSON. A message that passed [`check_append`] never causes
/// it.
pub fn append_digest(messages: &[ChatMessage]) -> Result<[u8; 32]> {
    use sha2::{Digest, Sha256};
    let mut digest = Sha256::new();
    for message in messages {
        let undated = message.clone().with_created_at(crate::Timestamp::default());
        let json = crate::metadata::canonical_json(&undated)?;
        digest.update(check::size(json.len()).to_be_bytes());
        digest.update(json);
    }
    Ok(digest.finalize().into())
}
