//! Filters in a store whose database has no booleans.

use larder_kernel::{Filter, Metadata};
use serde_json::Value;

/// Converts JSON to a form in which booleans are numbers.
fn numbers(value: &Value) -> Value {
    match value {
        Value::Bool(truth) => Value::from(u8::from(*truth)),
        Value::Array(items) => items.iter().map(numbers).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), numbers(value))).collect(),
        other => other.clone(),
    }
}

/// Returns the filter with numbers for booleans.
pub(super) fn with_numbers(filter: &Filter) -> Filter {
    let all = |filters: &[Filter]| filters.iter().map(with_numbers).collect();
    match filter {
        Filter::Eq(field, value) => Filter::Eq(field.clone(), numbers(value)),
        Filter::Ne(field, value) => Filter::Ne(field.clone(), numbers(value)),
        Filter::In(field, values) => Filter::In(field.clone(), values.iter().map(numbers).collect()),
        Filter::ContainsAny(field, values) => {
            Filter::ContainsAny(field.clone(), values.iter().map(numbers).collect())
        }
        Filter::ContainsAll(field, values) => {
            Filter::ContainsAll(field.clone(), values.iter().map(numbers).collect())
        }
        Filter::And(filters) => Filter::And(all(filters)),
        Filter::Or(filters) => Filter::Or(all(filters)),
        Filter::Not(filter) => Filter::Not(Box::new(with_numbers(filter))),
        other => other.clone(),
    }
}

/// Returns the metadata that the filter examines.
pub(super) fn metadata_with_numbers(metadata: &Metadata) -> Metadata {
    metadata.iter().fold(Metadata::new(), |made, (name, value)| made.with(name, numbers(value)))
}
