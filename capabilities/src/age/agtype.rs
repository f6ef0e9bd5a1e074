//! agtype, the value type of AGE: JSON with three kinds of numbers. A value that is more than JSON has a type
//! name after it, as in `{"id": 1}::vertex`.

use larder_kernel::{Entity, Metadata, Relationship};
use serde_json::{Map, Number, Value};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo};
use sqlx::{Encode, Postgres, Type};

use crate::postgres::failure::{Fallible, corrupt};

const READ: &str = "age.read";
/// The maximum nesting that is parsed. The contract's properties allow 32 levels, and the paths and lists of
/// a query add to them.
const DEPTH_MAX: usize = 256;

/// A statement parameter of the type agtype.
pub(super) struct Parameter(pub(super) String);

impl Type<Postgres> for Parameter {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("ag_catalog.agtype")
    }
}

impl Encode<'_, Postgres> for Parameter {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        // The version of the binary form; the text form follows.
        buffer.push(1);
        buffer.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}

/// Returns the properties of an entity's node.
pub(super) fn of_entity(entity: &Entity) -> String {
    let mut text = String::from("{");
    write_texts(&mut text, [("id", entity.id.as_str()), ("type", entity.entity_type.as_str())]);
    write_properties(&mut text, &entity.properties);
    text
}

/// Returns the properties of a relationship's edge.
pub(super) fn of_relationship(relationship: &Relationship) -> String {
    let mut text = String::from("{");
    write_texts(
        &mut text,
        [
            ("id", relationship.id.as_str()),
            ("type", relationship.relationship_type.as_str()),
            ("source", relationship.source.as_str()),
            ("target", relationship.target.as_str()),
        ],
    );
    write_properties(&mut text, &relationship.properties);
    text
}

/// Returns a map of values.
pub(super) fn of_metadata(metadata: &Metadata) -> String {
    let mut text = String::new();
    write_map(&mut text, metadata.as_map());
    text
}

fn write_texts<'t>(into: &mut String, fields: impl IntoIterator<Item = (&'t str, &'t str)>) {
    for (name, value) in fields {
        write_text(into, name);
        into.push(':');
        write_text(into, value);
        into.push(',');
    }
}

fn write_properties(into: &mut String, properties: &Metadata) {
    into.push_str("\"properties\":");
    write_map(into, properties.as_map());
    into.push('}');
}

fn write_map(into: &mut String, map: &Map<String, Value>) {
    into.push('{');
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 {
            into.push(',');
        }
        write_text(into, key);
        into.push(':');
        write(into, value);
    }
    into.push('}');
}

fn write_text(into: &mut String, text: &str) {
    // In JSON's notation.
    into.push_str(&Value::from(text).to_string());
}

fn write(into: &mut String, value: &Value) {
    match value {
        Value::Array(items) => {
            into.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    into.push(',');
                }
                write(into, item);
            }
            into.push(']');
        }
        Value::Object(map) => write_map(into, map),
        Value::Number(number) => {
            into.push_str(&number.to_string());
            if number.is_u64() && !number.is_i64() {
                // AGE's integers are signed 64-bit integers.
                into.push_str("::numeric");
            }
        }
        Value::String(text) => write_text(into, text),
        Value::Null | Value::Bool(_) => into.push_str(&value.to_string()),
    }
}

/// Returns the entity whose node has these properties.
pub(super) fn entity(text: &str) -> Fallible<Entity> {
    from_node(parse(text)?)
}

/// Returns the relationship whose edge has these properties.
pub(super) fn relationship(text: &str) -> Fallible<Relationship> {
    from_edge(parse(text)?)
}

/// Parses a value of a result into the contract's form.
pub(super) fn parse(text: &str) -> Fallible<Value> {
    let mut reader = Reader { rest: text, depth: 0 };
    let value = reader.value()?;
    if reader.rest.trim_start().is_empty() { Ok(value) } else { Err(unreadable()) }
}

fn unreadable() -> crate::postgres::failure::Failure {
    corrupt(READ).into()
}

fn take<T>(map: &mut Map<String, Value>, key: &str, read: fn(Value) -> Option<T>) -> Fallible<T> {
    map.remove(key).and_then(read).ok_or_else(unreadable)
}

fn take_id<T: TryFrom<String>>(map: &mut Map<String, Value>, key: &str) -> Fallible<T> {
    take(map, key, |value| match value {
        Value::String(text) => T::try_from(text).ok(),
        _ => None,
    })
}

fn take_map(map: &mut Map<String, Value>) -> Fallible<Map<String, Value>> {
    take(map, "properties", |value| match value {
        Value::Object(properties) => Some(properties),
        _ => None,
    })
}

fn from_node(node: Value) -> Fallible<Entity> {
    let Value::Object(mut node) = node else { return Err(unreadable()) };
    Ok(Entity {
        id: take_id(&mut node, "id")?,
        entity_type: take_id(&mut node, "type")?,
        properties: take_map(&mut node)?.into(),
    })
}

fn from_edge(edge: Value) -> Fallible<Relationship> {
    let Value::Object(mut edge) = edge else { return Err(unreadable()) };
    Ok(Relationship {
        id: take_id(&mut edge, "id")?,
        relationship_type: take_id(&mut edge, "type")?,
        source: take_id(&mut edge, "source")?,
        target: take_id(&mut edge, "target")?,
        properties: take_map(&mut edge)?.into(),
    })
}

/// Converts a value by the type name after it.
fn named(word: &str, value: Value) -> Fallible<Value> {
    match (word, value) {
        ("numeric", value @ (Value::Number(_) | Value::String(_))) => Ok(value),
        ("vertex", Value::Object(mut node)) => {
            Ok(serde_json::to_value(from_node(Value::Object(take_map(&mut node)?))?)?)
        }
        ("edge", Value::Object(mut edge)) => {
            Ok(serde_json::to_value(from_edge(Value::Object(take_map(&mut edge)?))?)?)
        }
        ("path", Value::Array(steps)) => {
            // Nodes and edges alternate.
            let mut path = [Vec::new(), Vec::new()];
            for (at, step) in steps.into_iter().enumerate() {
                path[at % 2].push(step);
            }
            let [entities, relationships] = path;
            Ok(serde_json::json!({ "entities": entities, "relationships": relationships }))
        }
        _ => Err(unreadable()),
    }
}

struct Reader<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn value(&mut self) -> Fallible<Value> {
        self.rest = self.rest.trim_start();
        let mut value = match self.rest.as_bytes().first() {
            Some(b'{') => self.nested(Self::map)?,
            Some(b'[') => self.nested(Self::list)?,
            Some(b'"') => Value::String(self.text()?),
            _ => self.word()?,
        };
        while let Some(rest) = self.rest.strip_prefix("::") {
            let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (word, rest) = rest.split_at(end);
            value = named(word, value)?;
            self.rest = rest;
        }
        Ok(value)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Fallible<Value>) -> Fallible<Value> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(unreadable());
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Skips spaces and the expected character.
    fn past(&mut self, expected: char) -> bool {
        match self.rest.trim_start().strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn map(&mut self) -> Fallible<Value> {
        let mut map = Map::new();
        if !self.past('{') {
            return Err(unreadable());
        }
        while !self.past('}') {
            if !map.is_empty() && !self.past(',') {
                return Err(unreadable());
            }
            self.rest = self.rest.trim_start();
            let key = self.text()?;
            if !self.past(':') {
                return Err(unreadable());
            }
            let value = self.value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn list(&mut self) -> Fallible<Value> {
        let mut items = Vec::new();
        if !self.past('[') {
            return Err(unreadable());
        }
        while !self.past(']') {
            if !items.is_empty() && !self.past(',') {
                return Err(unreadable());
            }
            items.push(self.value()?);
        }
        Ok(Value::Array(items))
    }

    /// Parses a quoted text, with JSON's escapes.
    fn text(&mut self) -> Fallible<String> {
        let bytes = self.rest.as_bytes();
        let mut end = 1;
        while let Some(byte) = bytes.get(end) {
            match byte {
                b'"' => {
                    let (text, rest) = self.rest.split_at(end + 1);
                    self.rest = rest;
                    return Ok(serde_json::from_str(text)?);
                }
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        Err(unreadable())
    }

    /// Parses a value without quotes or brackets.
    fn word(&mut self) -> Fallible<Value> {
        let of_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.');
        let end = self.rest.find(|letter| !of_word(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "null" => Ok(Value::Null),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "NaN" | "Infinity" | "-Infinity" => Ok(Value::from(word)),
            number => self::number(number).ok_or_else(unreadable),
        }
    }
}

/// Parses a number. A whole number is exact if JSON parsers keep it exact.
fn number(word: &str) -> Option<Value> {
    if let Ok(number) = word.parse::<i64>() {
        return Some(Value::from(number));
    }
    if let Ok(number) = word.parse::<u64>() {
        return Some(Value::from(number));
    }
    if !word.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return None;
    }
    Number::from_f64(word.parse().ok()?).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_read_back_equal() {
        let values = json!({
            "": [[], {}, "", null, true],
            "numbers": [0, -1, 1.5, 1e300, 5e-324, i64::MIN, u64::MAX, 1e16, -0.0],
            "::vertex": "1::numeric\"}::path\\",
            "é": "e\u{301}\u{1f}$$\n",
        });
        let Value::Object(map) = values else { unreachable!() };
        let metadata = Metadata::from(map);
        let read = parse(&of_metadata(&metadata)).unwrap();
        let Value::Object(read) = read else { panic!("no map") };
        assert_eq!(Metadata::from(read), metadata);
    }

    #[test]
    fn nodes_edges_and_paths_are_entities_and_relationships() {
        let node = concat!(
            r#"{"id": 844, "label": "Entity", "properties": {"id": "a", "type": "t", "properties": "#,
            r#"{}}}::vertex"#,
        );
        let edge = r#"{"id": 11, "label": "Relationship", "end_id": 844, "start_id": 844, "properties":
            {"id": "r", "type": "u", "source": "a", "target": "a",
             "properties": {"k": 1.5::numeric}}}::edge"#;
        let entity = json!({"id": "a", "entity_type": "t"});
        let relationship = json!({"id": "r", "relationship_type": "u", "source": "a", "target": "a",
            "properties": {"k": 1.5}});
        assert_eq!(parse(node).unwrap(), entity);
        assert_eq!(parse(edge).unwrap(), relationship);
        let path = parse(&format!("[{node}, {edge}, {node}]::path")).unwrap();
        assert_eq!(path, json!({"entities": [entity, entity], "relationships": [relationship]}));
    }

    #[test]
    fn an_invalid_value_is_refused() {
        for text in
            ["", "{", "[1,", "\"", "\"\\", "1 2", "{\"a\" 1}", "1::vertex", "{}::vertex", "x", "inf", "1::x"]
        {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse(&"[".repeat(1_000)).is_err());
        assert_eq!(parse("[NaN, -Infinity]").unwrap(), json!(["NaN", "-Infinity"]));
    }
}
