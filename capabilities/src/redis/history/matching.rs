//! The newest messages that pass a filter by author.
//!
//! The client scans the thread backwards in steps. Each step is a script that ends after a number of messages
//! or bytes, and returns the messages that pass the filter. Every step contains the number of the last
//! removal, so steps of different states are never combined. Messages appended during the scan come after its
//! starting point.

use larder_kernel::storage::history::{PageBytes, check_before};
use larder_kernel::{AuthorSet, Error, ErrorKind, MessageFilter, MessagePage, Outcome, Result, Seq, Thread};
use redis::Value;

use super::super::decode;
use super::super::engine::Engine;
use super::super::script::Call;
use super::address::Address;
use super::message::Entry;
use super::scripts::MATCHING;

const OPERATION: &str = "history.tail_matching";
/// The maximum number of attempts of a scan during which messages are removed.
const ATTEMPTS_MAX: u32 = 16;
/// The maximum number of messages that one step examines.
const LOOKS_MAX: usize = 2_000;
/// A step ends when the messages that it examined reach this size.
const LOOK_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The parameters of a read.
pub(super) struct Matching<'a> {
    pub(super) thread: &'a Thread,
    pub(super) filter: &'a MessageFilter,
    pub(super) before: Option<Seq>,
    pub(super) limit: usize,
}

/// One step of the scan.
struct Step {
    /// A state that changes with each removal of a message.
    state: (i64, Vec<u8>),
    /// The number before which the next step continues.
    before: Option<i64>,
    /// The messages, newest first.
    messages: Vec<Value>,
    /// The last position of the thread.
    last: Seq,
    /// True if the next message that passes the filter does not fit into the page.
    more: bool,
}

/// Reads messages, which counts as a use of the thread.
pub(super) async fn messages(
    engine: &Engine,
    address: &Address,
    wanted: &Matching<'_>,
) -> Result<MessagePage> {
    let lists = lists(wanted);
    for _ in 0..ATTEMPTS_MAX {
        if let Some(mut page) = walk(engine, address, wanted, &lists).await? {
            page.messages.reverse();
            return Ok(page);
        }
    }
    let message = "messages were removed during every attempt to read them; try again later";
    Err(Error::new(ErrorKind::Unavailable, OPERATION, message).with_outcome(Outcome::NotApplied))
}

/// Returns the messages, newest first; `None` if the steps come from different states.
async fn walk(
    engine: &Engine,
    address: &Address,
    wanted: &Matching<'_>,
    lists: &Call,
) -> Result<Option<MessagePage>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut before = wanted.before.map(Seq::get);
    let mut first: Option<((i64, Vec<u8>), Seq)> = None;
    loop {
        let used = if first.is_none() { "use" } else { "" };
        let room = (wanted.limit - found.len(), PageBytes::MAX.saturating_sub(bytes));
        let step = step(engine, address, lists, used, before, room).await?;
        if first.is_none() {
            check_before(OPERATION, wanted.before, step.last)?;
        }
        // Later steps see the messages of the first one, and messages that were appended since.
        let (state, last) = first.get_or_insert_with(|| (step.state.clone(), step.last));
        if *state != step.state {
            return Ok(None);
        }
        for message in step.messages {
            let entry = Entry::parse(message)?;
            bytes += entry.bytes;
            found.push(entry.into_stored()?.in_generation(step.last.generation()));
        }
        before = step.before;
        if step.more || before.is_none() || found.len() >= wanted.limit {
            return Ok(Some(MessagePage::new(found, *last).with_more(step.more)));
        }
    }
}

async fn step(
    engine: &Engine,
    address: &Address,
    lists: &Call,
    used: &str,
    before: Option<i64>,
    (limit, bytes_max): (usize, u64),
) -> Result<Step> {
    let before = before.map_or_else(|| "+inf".to_owned(), |before| before.to_string());
    let call = address.call().arg(used).arg(before).number(limit).number(LOOKS_MAX).number(LOOK_BYTES_MAX);
    let call = call.number(PageBytes::MAX).number(bytes_max);
    let answer = engine.read(OPERATION, &MATCHING, &call.followed_by(lists)).await?;
    let [changed, token, before, messages, last, generation, more] = decode::tuple(answer)?;
    Ok(Step {
        state: (decode::integer(changed)?, decode::bytes(token)?),
        before: decode::optional(before).map(decode::integer).transpose()?,
        messages: decode::array(messages)?,
        last: decode::seq(last, generation)?,
        more: decode::integer(more)? == 1,
    })
}

/// Returns the filter in the form that the script takes.
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
