//! Arguments as clients send them, in the form that a tool's schema describes.
//!
//! Models write `2.0` for a whole number, a list or an object as JSON text, a single value for a list, a
//! number or a boolean as text, and `null` for what they leave out. Each has one meaning under the schema, so
//! it is accepted. A value that fits the schema is never changed.

use rmcp::model::JsonObject;
use serde_json::{Map, Number, Value};

/// The largest whole number that a float expresses exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// The maximum nesting of a schema.
const SCHEMA_DEPTH_MAX: usize = 16;

/// Converts arguments to the types of their schema, where that has one meaning.
pub(super) fn arguments(schema: &JsonObject, arguments: JsonObject) -> JsonObject {
    let root = Schema { root: schema, node: schema };
    match root.fit(Value::Object(arguments), 0) {
        Value::Object(arguments) => arguments,
        _ => JsonObject::new(),
    }
}

/// Returns the smallest arguments that fit a schema.
pub(super) fn example(schema: &JsonObject) -> Value {
    Schema { root: schema, node: schema }.example("", 0)
}

/// A schema, and the one that contains its definitions.
#[derive(Clone, Copy)]
struct Schema<'a> {
    root: &'a JsonObject,
    node: &'a JsonObject,
}

impl<'a> Schema<'a> {
    fn of(self, node: &'a Value) -> Option<Self> {
        let node = node.as_object()?;
        let reference =
            node.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"));
        let node = match reference {
            Some(name) => self.root.get("$defs")?.get(name)?.as_object()?,
            None => node,
        };
        Some(Self { root: self.root, node })
    }

    /// Returns the alternatives of a schema, or the schema itself.
    fn alternatives(self) -> Vec<Self> {
        let lists = ["anyOf", "oneOf"].into_iter().filter_map(|name| self.node.get(name)?.as_array());
        let all: Vec<Self> = lists.flatten().filter_map(|node| self.of(node)).collect();
        if all.is_empty() { vec![self] } else { all }
    }

    fn types(self) -> Vec<&'a str> {
        match self.node.get("type") {
            Some(Value::String(name)) => vec![name.as_str()],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns `true` if the schema allows the type of a value, or any.
    fn allows(self, value: &Value) -> bool {
        let types = self.types();
        types.is_empty() || types.iter().any(|name| is_type(name, value))
    }

    fn fit(self, value: Value, depth: usize) -> Value {
        if depth > SCHEMA_DEPTH_MAX {
            return value;
        }
        let alternatives = self.alternatives();
        if let Some(fitting) = alternatives.iter().find(|schema| schema.allows(&value)) {
            return fitting.fit_within(value, depth);
        }
        for schema in alternatives {
            if let Some(converted) = schema.convert(&value) {
                return schema.fit_within(converted, depth);
            }
        }
        value
    }

    /// Converts a value of another type, if it has one meaning as a type of the schema.
    fn convert(self, value: &Value) -> Option<Value> {
        let types = self.types();
        let parsed = || value.as_str().and_then(|text| serde_json::from_str::<Value>(text.trim()).ok());
        for name in &types {
            let converted = match *name {
                "integer" => whole(value).or_else(|| whole(&parsed()?)),
                "number" => parsed().filter(Value::is_number),
                "boolean" => parsed().filter(Value::is_boolean),
                "object" => parsed().filter(Value::is_object),
                "array" => parsed().filter(Value::is_array),
                _ => None,
            };
            if converted.is_some() {
                return converted;
            }
        }
        let single = types.contains(&"array") && !value.is_null();
        single.then(|| Value::Array(vec![value.clone()]))
    }

    fn fit_within(self, value: Value, depth: usize) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.fit_fields(fields, depth)),
            Value::Array(items) => {
                let schema = self.node.get("items").and_then(|node| self.of(node));
                let Some(schema) = schema else { return Value::Array(items) };
                Value::Array(items.into_iter().map(|item| schema.fit(item, depth + 1)).collect())
            }
            Value::Number(number) if self.types().contains(&"integer") => {
                whole(&Value::Number(number.clone())).unwrap_or(Value::Number(number))
            }
            other => other,
        }
    }

    fn fit_fields(self, fields: Map<String, Value>, depth: usize) -> Map<String, Value> {
        let Some(properties) = self.node.get("properties").and_then(Value::as_object) else { return fields };
        let required = self.node.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|known| known == name));
        let mut fitted = Map::new();
        for (name, value) in fields {
            let Some(schema) = properties.get(&name).and_then(|node| self.of(node)) else {
                fitted.insert(name, value);
                continue;
            };
            // `null` counts as a missing argument.
            if value.is_null() && !is_required(&name) {
                continue;
            }
            fitted.insert(name, schema.fit(value, depth + 1));
        }
        fitted
    }

    fn example(self, name: &str, depth: usize) -> Value {
        let alternatives = self.alternatives();
        let Some(schema) = alternatives.first().copied().filter(|_| depth <= SCHEMA_DEPTH_MAX) else {
            return Value::Null;
        };
        if let Some(first) = schema.node.get("enum").and_then(Value::as_array).and_then(|all| all.first()) {
            return first.clone();
        }
        if let Some(constant) = schema.node.get("const") {
            return constant.clone();
        }
        match schema.types().first().copied() {
            Some("string") => Value::from(if name.is_empty() { "text" } else { name }),
            Some("integer" | "number") => schema.node.get("minimum").cloned().unwrap_or_else(|| 1.into()),
            Some("boolean") => true.into(),
            Some("array") => {
                let items = schema.node.get("items").and_then(|node| schema.of(node));
                let name = name.strip_suffix('s').unwrap_or(name);
                Value::Array(items.map(|items| items.example(name, depth + 1)).into_iter().collect())
            }
            Some("object") => {
                let properties = schema.node.get("properties").and_then(Value::as_object);
                let required = schema.node.get("required").and_then(Value::as_array);
                let names = required.into_iter().flatten().filter_map(Value::as_str);
                let fields = names.filter_map(|name| {
                    let schema = schema.of(properties?.get(name)?)?;
                    Some((name.to_owned(), schema.example(name, depth + 1)))
                });
                Value::Object(fields.collect())
            }
            _ => Value::Null,
        }
    }
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

/// Returns a number such as `2.0` as an integer.
fn whole(value: &Value) -> Option<Value> {
    if value.is_i64() || value.is_u64() {
        return Some(value.clone());
    }
    let float = value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT_MAX)?;
    format!("{float:.0}").parse::<i64>().ok().map(Number::from).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> JsonObject {
        let schema = json!({
            "type": "object",
            "required": ["id", "any"],
            "properties": {
                "id": { "type": "string" },
                "limit": { "type": ["integer", "null"] },
                "flag": { "type": "boolean" },
                "names": { "type": ["array", "null"], "items": { "type": "string" } },
                "items": { "type": "array", "items": { "$ref": "#/$defs/Item" } },
                "item": { "anyOf": [{ "$ref": "#/$defs/Item" }, { "type": "null" }] },
                "any": true,
                "map": { "type": "object", "additionalProperties": true },
            },
            "$defs": {
                "Item": {
                    "type": "object",
                    "required": ["n"],
                    "properties": {
                        "n": { "type": "integer", "minimum": 3 },
                        "kind": { "enum": ["a", "b"] },
                    },
                },
            },
        });
        schema.as_object().unwrap().clone()
    }

    fn fitted(given: &Value) -> Value {
        Value::Object(arguments(&schema(), given.as_object().unwrap().clone()))
    }

    #[test]
    fn values_of_another_form_get_the_type_of_the_schema() {
        for (given, expected) in [
            (json!({ "limit": 2.0 }), json!({ "limit": 2 })),
            (json!({ "limit": "2" }), json!({ "limit": 2 })),
            (json!({ "limit": null, "flag": null, "item": null }), json!({})),
            (json!({ "flag": "true" }), json!({ "flag": true })),
            (json!({ "names": "a" }), json!({ "names": ["a"] })),
            (json!({ "names": "[\"a\", \"b\"]" }), json!({ "names": ["a", "b"] })),
            (json!({ "items": { "n": 1.0 } }), json!({ "items": [{ "n": 1 }] })),
            (json!({ "items": "{\"n\": 1}" }), json!({ "items": [{ "n": 1 }] })),
            (json!({ "items": "[{\"n\": \"1\"}]" }), json!({ "items": [{ "n": 1 }] })),
            (json!({ "item": "{\"n\": 1.0, \"kind\": null}" }), json!({ "item": { "n": 1 } })),
            (json!({ "map": "{\"a\": \"2.0\"}" }), json!({ "map": { "a": "2.0" } })),
        ] {
            assert_eq!(fitted(&given), expected, "{given}");
        }
    }

    #[test]
    fn valid_and_ambiguous_values_stay_unchanged() {
        for given in [
            json!({ "id": "[1]", "any": "{\"a\": 1}", "map": { "a": null, "b": 2.0 } }),
            json!({ "id": "2", "names": ["[\"a\"]"] }),
            json!({ "id": 5, "limit": 2.5, "flag": "perhaps", "unknown": null }),
            json!({ "limit": "two", "map": "text", "item": [1] }),
            json!({ "id": null, "any": null, "limit": 1e300 }),
        ] {
            assert_eq!(fitted(&given), given);
        }
    }

    #[test]
    fn an_example_has_all_required_fields() {
        assert_eq!(example(&schema()), json!({ "id": "id" }));
        let mut all = schema();
        all.insert("required".to_owned(), json!(["id", "items", "item"]));
        assert_eq!(example(&all), json!({ "id": "id", "items": [{ "n": 3 }], "item": { "n": 3 } }));
    }
}
