//! A common reader for settings in documents.

use larder_kernel::{Error, Result};
use serde::Deserializer;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Map, Number, Value};

/// Larger numbers are not exact as floats.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Reads the settings of one strategy from the fields next to its name. A field that is `null` is ignored,
/// and `20.0` is read as 20.
///
/// # Errors
/// `InvalidInput` with `field`, and the name of the setting in its message. The errors of `check`.
pub(crate) fn settings<T: DeserializeOwned>(
    operation: &'static str,
    field: &'static str,
    mut written: Map<String, Value>,
    check: impl FnOnce(&T) -> Result<()>,
) -> Result<T> {
    written.retain(|_, value| !value.is_null());
    let read: T =
        serde_path_to_error::deserialize(with_whole_numbers(Value::Object(written))).map_err(|error| {
            // An unknown field has no path; the message names it.
            let path = error.path().to_string();
            let place = if path == "." { String::new() } else { format!("`{path}`: ") };
            Error::invalid(operation, field, format!("{place}{}", error.inner()))
        })?;
    check(&read)?;
    Ok(read)
}

/// Removes the name of a strategy from its fields and returns it.
///
/// # Errors
/// `InvalidInput` with `field` if it is missing or not a string.
pub(crate) fn take_name(
    operation: &'static str,
    field: &'static str,
    written: &mut Map<String, Value>,
) -> Result<String> {
    match written.remove(field) {
        Some(Value::String(name)) => Ok(name),
        Some(_) => Err(Error::invalid(operation, field, "is not a string")),
        None => Err(Error::invalid(operation, field, "is missing")),
    }
}

/// Reads a whole number that may be written as a float, such as `20.0`.
pub(crate) fn whole<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> std::result::Result<T, D::Error> {
    let value = <Value as serde::Deserialize>::deserialize(deserializer)?;
    T::deserialize(with_whole_numbers(value)).map_err(D::Error::custom)
}

fn with_whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(whole_number(number)),
        Value::Array(items) => items.into_iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, with_whole_numbers(value))).collect())
        }
        other => other,
    }
}

fn whole_number(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT_MAX => {
            // Exact, because the number is whole and small enough.
            #[allow(clippy::cast_possible_truncation)]
            Number::from(float as i64)
        }
        _ => number,
    }
}
