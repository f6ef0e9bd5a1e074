//! Conversion of the server's replies to the contracts' values.

use larder_kernel::{Error, Generation, Seq, Timestamp};
use redis::Value;

use super::failure::corrupt;

const OPERATION: &str = "redis.read";

type Read<T> = Result<T, Error>;

/// Converts a stored instant.
pub(crate) fn timestamp(at_ms: i64) -> Read<Timestamp> {
    Timestamp::from_micros(at_ms.saturating_mul(1_000)).map_err(|_| corrupt(OPERATION))
}

/// Converts a stored id. This program never wrote an id that violates the rules.
pub(crate) fn id<T: TryFrom<String>>(answer: Value) -> Read<T> {
    T::try_from(text(answer)?).map_err(|_| corrupt(OPERATION))
}

/// Converts a reply that may be null.
pub(crate) fn optional(answer: Value) -> Option<Value> {
    (!matches!(answer, Value::Nil)).then_some(answer)
}

/// Converts a reply to bytes without a copy.
pub(crate) fn bytes(answer: Value) -> Read<Vec<u8>> {
    match answer {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text.into_bytes()),
        Value::Okay => Ok(b"OK".to_vec()),
        _ => Err(corrupt(OPERATION)),
    }
}

/// Converts a reply to text.
pub(crate) fn text(answer: Value) -> Read<String> {
    String::from_utf8(bytes(answer)?).map_err(|_| corrupt(OPERATION))
}

/// Converts a reply to a number. Scripts return a number or, if it may be large, text.
pub(crate) fn integer(answer: Value) -> Read<i64> {
    match answer {
        Value::Int(number) => Ok(number),
        other => text(other)?.parse().map_err(|_| corrupt(OPERATION)),
    }
}

/// Converts a reply to a count.
pub(crate) fn count(answer: Value) -> Read<u64> {
    u64::try_from(integer(answer)?).map_err(|_| corrupt(OPERATION))
}

/// Converts a stored generation. `None` for a place that does not exist or has none yet.
pub(crate) fn generation(answer: Value) -> Read<Option<Generation>> {
    let Some(answer) = optional(answer) else { return Ok(None) };
    let text = text(answer)?;
    if text.is_empty() {
        return Ok(None);
    }
    let number = u64::from_str_radix(&text, 16).map_err(|_| corrupt(OPERATION))?;
    Generation::new(number).map(Some).ok_or_else(|| corrupt(OPERATION))
}

/// Converts the number and the generation of a position in a thread.
pub(crate) fn seq(number: Value, named: Value) -> Read<Seq> {
    Ok(Seq::new(integer(number)?).in_generation(generation(named)?))
}

/// Converts a reply to a list.
pub(crate) fn array(answer: Value) -> Read<Vec<Value>> {
    match answer {
        Value::Array(items) | Value::Set(items) => Ok(items),
        _ => Err(corrupt(OPERATION)),
    }
}

/// Converts a reply to a list of exactly `N` items.
pub(crate) fn tuple<const N: usize>(answer: Value) -> Read<[Value; N]> {
    <[Value; N]>::try_from(array(answer)?).map_err(|_| corrupt(OPERATION))
}

/// Converts a reply to names and their texts.
pub(crate) fn pairs(answer: Value) -> Read<Vec<(String, String)>> {
    match answer {
        Value::Map(pairs) => pairs.into_iter().map(|(name, value)| Ok((text(name)?, text(value)?))).collect(),
        other => {
            let mut items = array(other)?.into_iter();
            let mut pairs = Vec::new();
            while let Some(name) = items.next() {
                let value = items.next().ok_or_else(|| corrupt(OPERATION))?;
                pairs.push((text(name)?, text(value)?));
            }
            Ok(pairs)
        }
    }
}
