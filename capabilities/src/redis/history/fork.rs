//! Copying a thread, whose target may be in another slot and on another server.
//!
//! The fork reads the source in parts and stages each part in the target's slot. Then one script turns the
//! staged messages into the target's messages, in a time that does not depend on their number. Every part
//! contains the number of the source's last removal, so parts of different states are never combined. The
//! staged messages of an abandoned fork expire on the server.

use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;
use larder_kernel::storage::history::check_fork;
use larder_kernel::{Error, ErrorKind, FencingToken, Forked, Outcome, Result, Seq};
use redis::Value;

use super::super::decode;
use super::super::engine::Engine;
use super::super::failure::corrupt;
use super::super::script::Call;
use super::address::{Address, with_fence};
use super::index::Index;
use super::message::Entry;
use super::read::{at_the_cap, before_write, untouched};
use super::scripts::{COMMIT, DISCARD, SOURCE, STAGE};

const OPERATION: &str = "history.fork";
/// The maximum number of attempts of a fork whose source or target changes during the copy.
const ATTEMPTS_MAX: u32 = 16;
/// The maximum number of messages in one part.
const PART_MESSAGES_MAX: usize = 500;
/// A part ends when its messages reach this size.
const PART_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The time for which the staged messages of an unfinished fork remain after its last part.
const STAGED_MS: u64 = 600_000;
/// Keeps the numbers in the index of runs positive, as the scripts do.
const RUN_OFFSET: i64 = 1 << 20;

pub(super) fn target_is_there() -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        OPERATION,
        "the target already has messages; fork into an empty thread",
    )
}

pub(super) async fn fork(
    engine: &Engine,
    index: &Index,
    source: &Address,
    target: &Address,
    up_to: Option<Seq>,
    fence: Option<FencingToken>,
) -> Result<Forked> {
    for _ in 0..ATTEMPTS_MAX {
        let stands = before_write(engine, OPERATION, target, fence).await.map_err(untouched)?;
        if stands.messages > 0 {
            return Err(target_is_there());
        }
        let mut copy = Copy::new(engine, target, stands.last.get());
        let forked = match copy.take(source, up_to).await.map_err(untouched) {
            Ok(true) => copy.commit(index, fence).await,
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        match forked {
            Ok(Some(forked)) => return Ok(forked),
            Ok(None) => copy.discard().await,
            Err(error) => {
                if error.outcome() == Outcome::NotApplied {
                    copy.discard().await;
                }
                return Err(error);
            }
        }
    }
    let message = "the source or the target changed during every attempt; try again later";
    Err(Error::new(ErrorKind::Unavailable, OPERATION, message).with_outcome(Outcome::NotApplied))
}

/// The staged messages for a target.
struct Copy<'a> {
    engine: &'a Engine,
    target: &'a Address,
    messages: Bytes,
    runs: Bytes,
    /// The target's last number when the copy began.
    base: i64,
    count: i64,
    bytes: u64,
}

/// One part of the source.
struct Part {
    /// A state that changes with each removal of a message.
    state: (i64, Vec<u8>),
    last: Seq,
    messages: Vec<Value>,
}

impl<'a> Copy<'a> {
    fn new(engine: &'a Engine, target: &'a Address, base: i64) -> Self {
        // A random name, so that no other fork stages messages under it.
        let random = || RandomState::new().build_hasher().finish();
        let name = format!("{:016x}{:016x}", random(), random());
        let key = |part| Bytes::from([&target.place().part(part)[..], b":", name.as_bytes()].concat());
        let (messages, runs) = (key("fork-messages"), key("fork-runs"));
        Self { engine, target, messages, runs, base, count: 0, bytes: 0 }
    }

    /// Stages the source's messages, and returns true if all parts come from one state.
    async fn take(&mut self, source: &Address, up_to: Option<Seq>) -> Result<bool> {
        let end = up_to.map_or(i64::MAX, Seq::get);
        let first = self.part(source, end, i64::MIN).await?;
        check_fork(up_to, first.last)?;
        // Messages appended from now on do not belong to the state of the first part.
        let (state, up_to) = (first.state, end.min(first.last.get()));
        let mut messages = first.messages;
        while !messages.is_empty() {
            let after = self.stage(messages).await?;
            if after >= up_to {
                break;
            }
            let next = self.part(source, up_to, after).await?;
            if next.state != state {
                return Ok(false);
            }
            messages = next.messages;
        }
        if self.count == 0 {
            return Err(Error::new(
                ErrorKind::NotFound,
                OPERATION,
                "the source has no messages to copy; check the thread and `up_to`",
            ));
        }
        Ok(true)
    }

    async fn part(&self, source: &Address, up_to: i64, after: i64) -> Result<Part> {
        let call = source.call().number(up_to).number(after).number(PART_MESSAGES_MAX).number(PART_BYTES_MAX);
        let answer = self.engine.repeat(OPERATION, &SOURCE, &call).await?;
        let [changed, token, last, generation, messages] = decode::tuple(answer)?;
        let state = (decode::integer(changed)?, decode::bytes(token)?);
        let last = decode::seq(last, generation)?;
        Ok(Part { state, last, messages: decode::array(messages)? })
    }

    /// Stages messages under their new numbers, and returns the old number of the last one.
    async fn stage(&mut self, messages: Vec<Value>) -> Result<i64> {
        let mut call = Call::new().key(self.messages.clone()).key(self.runs.clone()).number(STAGED_MS);
        let mut last = i64::MIN;
        for message in messages {
            let entry = Entry::parse(message)?;
            last = entry.seq;
            self.count += 1;
            self.bytes = self.bytes.saturating_add(entry.bytes);
            let (seq, size) = (self.base.saturating_add(self.count), entry.bytes);
            let header = format!("{seq} {size} {} 0 ", self.bytes);
            let stored = [header.as_bytes(), entry.run(), b"\0", entry.body()].concat();
            let run = match entry.run() {
                b"" => Bytes::new(),
                run => [run, format!("\0{:016} {size}", seq.saturating_add(RUN_OFFSET)).as_bytes()]
                    .concat()
                    .into(),
            };
            call = call.number(seq).bytes(stored.into()).bytes(run);
        }
        self.engine.repeat(OPERATION, &STAGE, &call).await?;
        Ok(last)
    }

    /// Turns the staged messages into the target's messages; `None` if the target assigned numbers during the
    /// copy.
    async fn commit(&self, index: &Index, fence: Option<FencingToken>) -> Result<Option<Forked>> {
        let call = self.target.keys().key(self.messages.clone()).key(self.runs.clone());
        let call = with_fence(call.number(self.base).number(self.count).number(self.bytes), fence);
        match index.write(OPERATION, &COMMIT, self.target, &call).await? {
            (0, numbers) => {
                let [last, generation] = decode::tuple(Value::Array(numbers))?;
                let last = decode::seq(last, generation)?;
                let messages = u64::try_from(self.count).map_err(|_| corrupt(OPERATION))?;
                Ok(Some(Forked::new(messages, last)))
            }
            (2, _) => Err(target_is_there()),
            (3 | 4, _) => Ok(None),
            (5, _) => Err(at_the_cap(OPERATION)),
            _ => Err(corrupt(OPERATION)),
        }
    }

    /// Removes the staged messages. If that fails, they expire later.
    async fn discard(&self) {
        let call = Call::new().key(self.messages.clone()).key(self.runs.clone());
        let _ = self.engine.repeat(OPERATION, &DISCARD, &call).await;
    }
}
