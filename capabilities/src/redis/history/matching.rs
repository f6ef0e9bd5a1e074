//! The newest messages that a filter by author keeps.
//!
//! The server looks back through the thread in steps, each a script that ends after so many messages or bytes, and hands
//! over what the filter keeps. Every step tells the number of the last removal, so steps of different states are never
//! put together; what is appended meanwhile stands behind where the walk began.

use larder_kernel::{
    AuthorSet, Error, ErrorKind, MessageFilter, Outcome, Result, Seq, StoredMessage, Thread,
};
use redis::Value;

use super::super::decode;
use super::super::engine::Engine;
use super::super::script::Call;
use super::address::Address;
use super::message::Entry;
use super::scripts::MATCHING;

const OPERATION: &str = "history.tail_matching";
/// How often a walk begins again because messages were taken away under it.
const ATTEMPTS_MAX: u32 = 16;
/// Most messages that one step looks at.
const LOOKS_MAX: usize = 2_000;
/// A step ends when the messages that it looked at reach this size.
const LOOK_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What to read.
pub(super) struct Matching<'a> {
    pub(super) thread: &'a Thread,
    pub(super) filter: &'a MessageFilter,
    pub(super) before: Option<Seq>,
    pub(super) limit: usize,
}

/// One step back.
struct Step {
    /// What changes whenever a message is taken away.
    state: (i64, Vec<u8>),
    /// Where to go on.
    before: Option<i64>,
    /// Newest first.
    messages: Vec<Value>,
}

/// Reads messages, which counts as a use of the thread.
pub(super) async fn messages(
    engine: &Engine,
    address: &Address,
    wanted: &Matching<'_>,
) -> Result<Vec<StoredMessage>> {
    let lists = lists(wanted);
    for _ in 0..ATTEMPTS_MAX {
        if let Some(mut found) = walk(engine, address, wanted, &lists).await? {
            found.reverse();
            return Ok(found);
        }
    }
    let message = "messages were taken away again and again meanwhile";
    Err(Error::new(ErrorKind::Unavailable, OPERATION, message).with_outcome(Outcome::NotApplied))
}

/// The messages, newest first; `None` where not all steps are of one state.
async fn walk(
    engine: &Engine,
    address: &Address,
    wanted: &Matching<'_>,
    lists: &Call,
) -> Result<Option<Vec<StoredMessage>>> {
    let mut found = Vec::new();
    let mut before = wanted.before.map(Seq::get);
    let mut state = None;
    loop {
        let used = if state.is_none() { "use" } else { "" };
        let step = step(engine, address, lists, used, before, wanted.limit - found.len()).await?;
        if *state.get_or_insert_with(|| step.state.clone()) != step.state {
            return Ok(None);
        }
        for message in step.messages {
            let entry = Entry::parse(message)?;
            let (seq, judged) = (Seq::new(entry.seq), entry.names_author());
            let message = entry.into_message()?;
            if judged || wanted.filter.keeps(wanted.thread, &message) {
                found.push(StoredMessage { seq, message });
            }
        }
        before = step.before;
        if before.is_none() || found.len() >= wanted.limit {
            return Ok(Some(found));
        }
    }
}

async fn step(
    engine: &Engine,
    address: &Address,
    lists: &Call,
    used: &str,
    before: Option<i64>,
    limit: usize,
) -> Result<Step> {
    let before = before.map_or_else(|| "+inf".to_owned(), |before| before.to_string());
    let call = address.call().arg(used).arg(before).number(limit).number(LOOKS_MAX).number(LOOK_BYTES_MAX);
    let answer = engine.read(OPERATION, &MATCHING, &call.followed_by(lists)).await?;
    let [changed, token, before, messages] = decode::tuple(answer)?;
    Ok(Step {
        state: (decode::integer(changed)?, decode::bytes(token)?),
        before: decode::optional(before).map(decode::integer).transpose()?,
        messages: decode::array(messages)?,
    })
}

/// The filter as the script takes it.
fn lists(wanted: &Matching<'_>) -> Call {
    let terms = wanted.filter.terms(wanted.thread);
    let call = Call::new().number(u8::from(terms.include.is_some()));
    let call = list(call, &terms.include.unwrap_or_default());
    list(call, &terms.exclude)
}

fn list(call: Call, set: &AuthorSet) -> Call {
    let names = |call: Call, names: &[String]| names.iter().fold(call.number(names.len()), Call::arg);
    names(names(call, &set.agents), &set.roles)
}
