//! The parts that the level needs from a contract: random calls and a sequential specification.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use larder_kernel::{Capabilities, Contract, Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::check::{RecordOf, Refusal, Reply, Spec};
use super::rng::Rng;
use crate::harness::StoreSet;

/// The position of a call: its client and its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// The client's number.
    pub(crate) client: u8,
    /// The number of calls that the client has made.
    pub(crate) number: u8,
}

impl Turn {
    /// Returns a number that no other call of the history has, so that its writes are distinguishable.
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
    /// The results that a client remembers in order to choose its next calls.
    type Memory: Default + Send;

    /// Returns the store of the contract.
    fn store(stores: &StoreSet) -> Result<Arc<Self::Store>>;

    /// Creates the data that the clients start from.
    fn prepare(_store: &Self::Store) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Returns the state of the object after `prepare`.
    fn initial() -> Self::State;

    /// Returns the next call of a client.
    fn choose(memory: &Self::Memory, rng: &mut Rng, turn: Turn, can: &Capabilities) -> Self::Op;

    /// Makes the call.
    fn call(store: &Self::Store, op: &Self::Op) -> impl Future<Output = Result<Self::Answer>> + Send;

    /// Remembers a result.
    fn learn(memory: &mut Self::Memory, op: &Self::Op, answer: &Self::Answer);

    /// Returns the operations that the record represents in the specification. It is one operation, or
    /// several at any moments of the same span if the contract does not promise that the call is one step.
    fn expand(record: RecordOf<Self>) -> Vec<RecordOf<Self>> {
        vec![record]
    }

    /// Returns the clause that is broken if no order explains the result.
    fn clause(op: &Self::Op, reply: &Reply<Self::Answer>) -> &'static str;

    /// Returns the clause that the result of a call breaks, given all calls of its history.
    fn broken(_history: &[RecordOf<Self>], call: &RecordOf<Self>) -> &'static str {
        Self::clause(&call.op, &call.reply)
    }

    /// Describes the call.
    fn show_op(op: &Self::Op) -> String;

    /// Describes the result.
    fn show_answer(op: &Self::Op, answer: &Self::Answer) -> String;

    /// Describes the state.
    fn show_state(state: &Self::State) -> String;
}

/// Converts the result of a call to a reply. `None` if the call certainly changed nothing and carries no
/// information, such as a failed connection attempt.
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
        // Valid calls must cause neither invalid input nor a defect, even if many are concurrent.
        _ => Reply::Refused(Refusal::Other(error.to_string())),
    })
}

/// Returns the number after a prefix in a stored text; `u32::MAX`, which no call writes, for any other text.
pub(crate) fn number_in(text: &str, prefix: &str) -> u32 {
    text.strip_prefix(prefix).and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX)
}

/// Describes an optional value.
pub(crate) fn or_nothing<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "nothing".to_owned(), show)
}
