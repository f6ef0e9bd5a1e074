//! Tool arguments: parsed strictly, and validated by the kernel before any store call.

use std::borrow::Cow;
use std::str::FromStr;

use larder_kernel::check;
use larder_kernel::limits::ID_BYTES_MAX;
use larder_kernel::{Error, PageRequest, Result};
use rmcp::model::JsonObject;
use rmcp::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;
use super::{coerce, cursor};

/// The maximum number of items that one call lists.
pub(crate) const LIST_ITEMS_MAX: usize = 200;
/// The number of items that a call lists without a limit.
pub(crate) const LIST_ITEMS_DEFAULT: usize = 50;
/// The maximum length of a search text, in bytes.
pub(crate) const QUERY_BYTES_MAX: usize = 1_024;

/// Parses the arguments of a tool, in the forms that clients send. An error names the position and the
/// allowed values, with an example, and never the given value.
pub(crate) fn read<T: DeserializeOwned>(schema: &JsonObject, arguments: JsonObject) -> Result<T, Failure> {
    let arguments = coerce::arguments(schema, arguments);
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        let said = error.inner().to_string();
        let mut field = if path == "." { String::new() } else { path };
        let expected = match said.rsplit_once(", expected ") {
            Some((before, expected)) => allowed(before, expected),
            None => match said.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
                Some(name) => {
                    let dot = if field.is_empty() { "" } else { "." };
                    field = format!("{field}{dot}{name}");
                    "is missing".to_owned()
                }
                None => "is not a value that the schema allows".to_owned(),
            },
        };
        let example = coerce::example(schema);
        Failure::Argument {
            field,
            expected: format!("{expected}; a call with the required arguments is {example}"),
        }
    })
}

/// Returns the allowed values in words. `before` is the parser's description of the given value.
fn allowed(before: &str, expected: &str) -> String {
    let kind = match expected {
        "a string" => "a string, such as \"text\"",
        "a boolean" => "true or false",
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        "a map" => "an object, such as {\"name\": \"value\"}",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number, such as 5",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more, such as 5",
        "f32" | "f64" => "a number, such as 0.5",
        _ if expected.starts_with("struct") => "an object, such as {\"name\": \"value\"}",
        _ if before.starts_with("unknown field") => {
            let known = expected.strip_prefix("one of ").unwrap_or(expected);
            return format!("is not an argument; the arguments are {known}");
        }
        _ => expected,
    };
    format!("must be {kind}")
}

/// An id as a schema describes it. The kernel's newtypes validate it.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Id(String);

impl AsRef<str> for Id {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for Id {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": ID_BYTES_MAX })
    }
}

/// The requested part of a listing.
#[derive(Deserialize, JsonSchema, Default)]
#[schemars(crate = "rmcp::schemars", inline)]
#[serde(transparent)]
pub(crate) struct Limit(#[schemars(range(min = 1, max = 200))] pub(crate) Option<usize>);

impl Limit {
    /// Returns the number of items, 1 to [`LIST_ITEMS_MAX`].
    pub(crate) fn items(&self, operation: &'static str) -> Result<usize> {
        let items = self.0.unwrap_or(LIST_ITEMS_DEFAULT);
        check::batch(operation, "limit", items, LIST_ITEMS_MAX)?;
        Ok(items)
    }
}

/// Returns the page that a cursor and a limit select.
pub(crate) fn page<K: DeserializeOwned>(
    operation: &'static str,
    cursor: Option<&str>,
    limit: &Limit,
) -> Result<PageRequest<K>> {
    let limit = limit.items(operation)?;
    let after = cursor.map(|cursor| cursor::decode(operation, cursor)).transpose()?;
    Ok(PageRequest::first(limit).with_after(after))
}

/// Returns the search text in lower case.
pub(crate) fn query(operation: &'static str, text: &str) -> Result<String> {
    check::batch(operation, "query", text.len(), QUERY_BYTES_MAX)?;
    Ok(text.to_lowercase())
}

/// Converts an argument into an id and reports errors under the argument's name.
pub(crate) fn named<T>(field: &'static str, made: Result<T>) -> Result<T> {
    made.map_err(|error| error.with_field(field))
}

/// Converts an optional argument into an id.
pub(crate) fn optional<T: FromStr<Err = Error>>(id: Option<&Id>) -> Result<Option<T>> {
    id.map(|id| id.as_ref().parse()).transpose()
}

/// Refuses two arguments that exclude each other.
pub(crate) fn not_both(
    operation: &'static str,
    field: &'static str,
    one: bool,
    other: bool,
    message: &'static str,
) -> Result<()> {
    if one && other { Err(Error::invalid(operation, field, message)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[schemars(crate = "rmcp::schemars")]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        id: Id,
        items: Option<Vec<u32>>,
    }

    fn refused(arguments: Value) -> (String, String) {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let schema = rmcp::handler::server::common::schema_for_input::<Sample>().unwrap();
        match read::<Sample>(&schema, arguments) {
            Err(Failure::Argument { field, expected }) => (field, expected),
            _ => panic!("it is read"),
        }
    }

    #[test]
    fn an_invalid_argument_is_named_by_path_and_not_by_value() {
        let call = "; a call with the required arguments is {\"id\":\"id\"}";
        for (arguments, field, expected) in [
            (
                json!({ "id": "a", "items": [1, "s3cret"] }),
                "items[1]",
                "must be a whole number of 0 or more, such as 5",
            ),
            (json!({ "id": "a", "items": -1 }), "items[0]", "must be a whole number of 0 or more, such as 5"),
            (json!({}), "id", "is missing"),
            (json!({ "id": 5 }), "id", "must be a string, such as \"text\""),
            (
                json!({ "id": "a", "s3cret": 1 }),
                "s3cret",
                "is not an argument; the arguments are `id` or `items`",
            ),
        ] {
            assert_eq!(refused(arguments), (field.to_owned(), format!("{expected}{call}")));
        }
        let sent = json!({ "id": "a", "items": "[1.0, \"2\"]" });
        let Value::Object(sent) = sent else { unreachable!() };
        let schema = rmcp::handler::server::common::schema_for_input::<Sample>().unwrap();
        assert!(read::<Sample>(&schema, sent).is_ok_and(|sample| sample.items == Some(vec![1, 2])));
    }
}
