//! The removal of single messages, which is one script.

use bytes::Bytes;
use larder_kernel::limits::{BATCH_BYTES_MAX, POPPED_KEPT_MAX};
use larder_kernel::storage::history::{
    check_if_last, check_remove_at, check_removed_bytes, used_for_another,
};
use larder_kernel::{Error, IdempotencyKey, Outcome, Removal, RemovalTarget, Removed, Result, Seq};
use redis::Value;

use super::super::decode;
use super::super::failure::corrupt;
use super::super::script::{Call, millis};
use super::address::{Address, with_fence};
use super::index::Index;
use super::message::stored;
use super::read::at_the_cap;
use super::scripts::REMOVE;
use super::write::with_condition;

const OPERATION: &str = "history.remove";

/// Returns the key of the messages that a pop with this idempotency key keeps.
fn popped(address: &Address, key: Option<&IdempotencyKey>) -> Bytes {
    let key = key.map_or("", |key| key.as_str());
    let name: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    Bytes::from([&address.place().part("popped")[..], b":", name.as_bytes()].concat())
}

fn with_target(call: Call, target: &RemovalTarget) -> Result<Call> {
    Ok(match target {
        RemovalTarget::Numbers(numbers) => {
            let mut numbers: Vec<i64> = numbers.iter().map(|seq| seq.get()).collect();
            numbers.sort_unstable();
            numbers.into_iter().fold(call.arg("numbers"), Call::number)
        }
        RemovalTarget::After(position) => call.arg("after").number(position.get()),
        RemovalTarget::Newest(newest) => call.arg("newest").number(newest),
        _ => return Err(Error::unknown_value(OPERATION, "target")),
    })
}

pub(super) async fn remove(index: &Index, address: &Address, removal: &Removal) -> Result<Removed> {
    let key = removal.idempotency_key.as_ref();
    let call = with_condition(address.keys().key(popped(address, key)), removal.if_last);
    let call = with_condition(call, removal.bound()?);
    let call = call.arg(key.map_or("", |key| key.as_str())).arg(removal.digest());
    let call = with_fence(call.number(BATCH_BYTES_MAX).number(millis(POPPED_KEPT_MAX)), removal.fence);
    let call = with_target(call, &removal.target)?;
    let (state, answer) = index.write(OPERATION, &REMOVE, address, &call).await?;
    let in_operation = |error: Error| error.in_operation(OPERATION);
    match state {
        0 => decode::tuple(Value::Array(answer)).and_then(done).map_err(|error| {
            // The script has removed the messages.
            in_operation(error).with_outcome(Outcome::Unknown)
        }),
        2 => Err(used_for_another(OPERATION)),
        3 => Err(at_the_cap(OPERATION)),
        4 | 5 => {
            let [last, generation] = decode::tuple(Value::Array(answer)).map_err(in_operation)?;
            let last = decode::seq(last, generation)?;
            check_if_last(OPERATION, removal.if_last, last)?;
            check_remove_at(removal, last)?;
            Err(corrupt(OPERATION))
        }
        6 => {
            let [bytes] = decode::tuple(Value::Array(answer)).map_err(in_operation)?;
            check_removed_bytes(removal, decode::count(bytes)?)?;
            Err(corrupt(OPERATION))
        }
        _ => Err(corrupt(OPERATION)),
    }
}

fn done([answer, generation, messages]: [Value; 3]) -> Result<Removed> {
    let text = decode::text(answer)?;
    let (removed, last, seqs) = parse(&text).ok_or_else(|| corrupt(OPERATION))?;
    let messages = decode::array(messages)?.into_iter().map(stored).collect::<Result<Vec<_>>>()?;
    let removed = Removed::new(removed, last).with_seqs(seqs).with_messages(messages);
    Ok(removed.in_generation(decode::generation(generation)?))
}

/// Parses '<removed> <last> <numbers>'.
fn parse(text: &str) -> Option<(u64, Seq, Vec<Seq>)> {
    let mut parts = text.splitn(3, ' ');
    let removed = parts.next()?.parse().ok()?;
    let last = parts.next()?.parse().ok()?;
    Some((removed, Seq::new(last), numbers(parts.next()?)?))
}

/// Parses numbers that are separated by commas.
pub(super) fn numbers(text: &str) -> Option<Vec<Seq>> {
    let numbers = text.split(',').filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().ok().map(Seq::new)).collect()
}
