//! What the level needs of a contract: its calls, drawn at random, and its sequential specification.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use larder_kernel::{Capabilities, Contract, Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::check::{RecordOf, Refusal, Reply, Spec};
use super::rng::Rng;
use crate::harness::StoreSet;

/// What a client is, to the calls it chooses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// The client's number.
    pub(crate) client: u8,
    /// How many calls it has made.
    pub(crate) number: u8,
}

impl Turn {
    /// A number that no other call of the history has: what it writes can be told from all else.
    pub(crate) fn value(self) -> u32 {
        (u32::from(self.client) + 1) * 100 + u32::from(self.number)
    }
}

/// One contract under concurrent use.
pub(crate) trait Subject:
    Spec<
        Op: Debug + Send + Sync + Serialize + DeserializeOwned + 'static,
        Answer: Debug + Send + Sync + Serialize + DeserializeOwned + 'static,
        State: Send + Sync + 'static,
    > + Sized
    + Send
    + Sync
    + 'static
{
    /// The contract.
    const CONTRACT: Contract;
    /// Its store.
    type Store: ?Sized + Send + Sync + 'static;
    /// What a client remembers of the answers it got, and builds its next calls on.
    type Memory: Default + Send;

    /// The store of the contract.
    fn store(stores: &StoreSet) -> Option<Arc<Self::Store>>;

    /// Makes what the clients find.
    fn prepare(_store: &Self::Store) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// What the object holds then.
    fn initial() -> Self::State;

    /// The next call of a client.
    fn choose(memory: &Self::Memory, rng: &mut Rng, turn: Turn, can: &Capabilities) -> Self::Op;

    /// Makes the call.
    fn call(store: &Self::Store, op: &Self::Op) -> impl Future<Output = Result<Self::Answer>> + Send;

    /// Remembers an answer.
    fn learn(memory: &mut Self::Memory, op: &Self::Op, answer: &Self::Answer);

    /// The operations for which the record stands in the specification: one, or several at any moments of the same span
    /// where the contract does not promise that the call is one step.
    fn expand(record: RecordOf<Self>) -> Vec<RecordOf<Self>> {
        vec![record]
    }

    /// The clause that an answer breaks which no order explains.
    fn clause(op: &Self::Op, reply: &Reply<Self::Answer>) -> &'static str;

    /// The clause that the answer of a call breaks, seen beside all calls of its history.
    fn broken(_history: &[RecordOf<Self>], call: &RecordOf<Self>) -> &'static str {
        Self::clause(&call.op, &call.reply)
    }

    /// The call in words.
    fn show_op(op: &Self::Op) -> String;

    /// The answer in words.
    fn show_answer(op: &Self::Op, answer: &Self::Answer) -> String;

    /// The state in words.
    fn show_state(state: &Self::State) -> String;
}

/// What became of a call, as far as the history goes. `None` where it certainly changed nothing and says nothing either,
/// such as a connection that could not be made.
pub(crate) fn reply<A>(result: Result<A>) -> Option<Reply<A>> {
    match result {
        Ok(answer) => Some(Reply::Answered(answer)),
        Err(error) => refusal(&error),
    }
}

fn refusal<A>(error: &Error) -> Option<Reply<A>> {
    use larder_kernel::Outcome;

    if let Some(method) = error.missing_method() {
        return Some(Reply::Refused(Refusal::Missing(method.to_owned())));
    }
    Some(match error.kind() {
        ErrorKind::NotFound => Reply::Refused(Refusal::NotFound),
        ErrorKind::AlreadyExists => Reply::Refused(Refusal::AlreadyExists),
        ErrorKind::Conflict => Reply::Refused(Refusal::Conflict),
        ErrorKind::Timeout | ErrorKind::Unavailable | ErrorKind::ResourceExhausted => match error.outcome() {
            Outcome::Unknown => Reply::Unknown,
            Outcome::NotApplied => return None,
        },
        // Neither bad input nor a defect may come of valid calls, however many there are at once.
        _ => Reply::Refused(Refusal::Other(error.to_string())),
    })
}

/// The number behind a prefix in what a store returned; `u32::MAX`, which nothing writes, where it is something else.
pub(crate) fn number_in(text: &str, prefix: &str) -> u32 {
    text.strip_prefix(prefix).and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX)
}

/// What may be there, in words.
pub(crate) fn or_nothing<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "nothing".to_owned(), show)
}
