//! The update of a message in place, which is one script.

use larder_kernel::storage::history::{
    check_if_last, check_revision, check_update_at, no_such_message, used_for_another,
};
use larder_kernel::{MessageUpdate, Result, Seq, Updated};
use redis::Value;

use super::super::decode;
use super::super::failure::corrupt;
use super::address::{Address, with_fence};
use super::index::Index;
use super::message::Batch;
use super::read::at_the_cap;
use super::scripts::UPDATE;
use super::write::with_condition;

const OPERATION: &str = "history.update";

/// Updates a message. `digest` is that of an update with an idempotency key.
pub(super) async fn update(
    index: &Index,
    address: &Address,
    update: &MessageUpdate,
    batch: Batch,
    digest: Option<[u8; 32]>,
) -> Result<Updated> {
    let key = update.idempotency_key.as_ref().map_or("", |key| key.as_str());
    let call = with_condition(address.keys(), update.if_last);
    let call = with_condition(call, update.bound()?).arg(key);
    let call = match &digest {
        Some(digest) => call.arg(digest),
        None => call.arg(""),
    };
    let call = with_fence(call, update.fence).number(update.seq.get()).number(update.revision.get());
    let (state, answer) = index.write(OPERATION, &UPDATE, address, &batch.into_call(call)).await?;
    let last = |answer| -> Result<Seq> {
        let [last, generation] = decode::tuple(Value::Array(answer))?;
        decode::seq(last, generation)
    };
    let in_operation = |error: larder_kernel::Error| error.in_operation(OPERATION);
    match state {
        0 => return last(answer).map(Updated::new).map_err(in_operation),
        2 => return Err(used_for_another(OPERATION)),
        3 => return Err(at_the_cap(OPERATION)),
        4 | 5 => {
            let last = last(answer).map_err(in_operation)?;
            check_if_last(OPERATION, update.if_last, last)?;
            check_update_at(update, last)?;
        }
        6 => return Err(no_such_message()),
        7 => {
            let [revision] = decode::tuple(Value::Array(answer)).map_err(in_operation)?;
            check_revision(update, decode::count(revision).map_err(in_operation)?)?;
        }
        _ => {}
    }
    Err(corrupt(OPERATION))
}
