//! Stores that are wrong in one field, in one of several methods that evaluate the same rule, or in the kind
//! of their result.
//!
//! Each passes every call on to an in-memory store, except for the calls that its defect concerns.

mod blobs;
mod graph;
mod history;
mod history_condition;
mod history_fence;
mod history_removal;
mod history_update;
mod key_value;
mod key_value_batch;
mod renames;
mod sizes;
mod tasks;
mod vectors;
mod versions;

use larder_kernel::{Error, ErrorKind, Metadata, Result};
use serde_json::Value;

use super::Mutant;

/// Returns the mutants of all contracts.
pub(super) fn mutants() -> Vec<Mutant> {
    let all = [
        history::mutants(),
        history_condition::mutants(),
        history_fence::mutants(),
        history_removal::mutants(),
        history_update::mutants(),
        vectors::mutants(),
        graph::mutants(),
        blobs::mutants(),
        renames::mutants(),
        versions::mutants(),
        sizes::mutants(),
        tasks::mutants(),
        key_value::mutants(),
        key_value_batch::mutants(),
    ];
    all.into_iter().flatten().collect()
}

/// Returns text that a JSON column parses and writes again.
fn reformatted(text: &str) -> String {
    serde_json::from_str::<Value>(text).map_or_else(|_| text.to_owned(), |value| value.to_string())
}

/// Returns metadata whose numbers all became floating-point numbers.
fn with_floats(metadata: &Metadata) -> Metadata {
    fn float(value: &Value) -> Value {
        match value {
            Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
            Value::Array(items) => items.iter().map(float).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), float(value))).collect()
            }
            other => other.clone(),
        }
    }
    metadata.iter().fold(Metadata::new(), |made, (name, value)| made.with(name, float(value)))
}

/// Returns the result of a call whose refusals look like a lost connection.
fn unavailable<T>(result: Result<T>, kind: ErrorKind) -> Result<T> {
    result.map_err(|error| {
        let refused = error.kind() == kind;
        if refused { Error::new(ErrorKind::Unavailable, error.operation(), "try again later") } else { error }
    })
}

/// Returns the result of a call that panics instead of refusing.
fn panicking<T>(result: Result<T>, kind: ErrorKind) -> Result<T> {
    if result.as_ref().is_err_and(|error| error.kind() == kind) {
        // Does not print the panic, which is intended.
        std::panic::resume_unwind(Box::new("the store panics instead of refusing"));
    }
    result
}
