//! Checkpoints of LangGraph's `SqliteSaver`, in MessagePack. The messages are those of a thread's newest
//! checkpoint.

use larder_kernel::check;
use rmpv::Value as Packed;
use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::{Conversation, Lines, choose, unreadable};

/// Threads are numbered in the order of their first checkpoints. Ids of checkpoints rise with time.
const THREADS: &str = "SELECT thread_id FROM checkpoints WHERE checkpoint_ns = ''
    GROUP BY thread_id ORDER BY min(checkpoint_id)";
const NEWEST: &str = "SELECT type, checkpoint FROM checkpoints WHERE thread_id = ?1 AND checkpoint_ns = ''
    ORDER BY checkpoint_id DESC LIMIT 1";
const CHANNEL: &str = "messages";
/// The codes with which LangGraph writes objects of Python: a list of module, class and arguments.
const OBJECTS: std::ops::RangeInclusive<i8> = 0..=5;
/// The maximum nesting of a message. The reader of lines refuses more.
const LEVELS_MAX: usize = 127;

pub(super) fn read(database: &Connection, wanted: Option<&str>) -> Result<Conversation, String> {
    let thread = choose(database, THREADS, wanted)?;
    let row = database.query_row(NEWEST, [&thread], |row| Ok((row.get(0)?, row.get(1)?)));
    let (kind, checkpoint): (String, Vec<u8>) = row.map_err(unreadable)?;
    if kind != "msgpack" {
        return Err("the newest checkpoint is not MessagePack, or it is encrypted".to_owned());
    }
    let checkpoint = unpacked(&checkpoint).ok_or("the newest checkpoint is not valid MessagePack")?;
    let channels = field(&checkpoint, "channel_values").and_then(Packed::as_map);
    let channels = channels.ok_or("the newest checkpoint has no `channel_values`")?;
    let messages = channels.iter().find(|(name, _)| name.as_str() == Some(CHANNEL));
    let messages = messages.and_then(|(_, messages)| messages.as_array());
    let messages = messages.ok_or("the newest checkpoint has no list in the channel `messages`")?;
    let mut lines = Lines::new()?;
    for (index, message) in messages.iter().enumerate() {
        let line = line(message).map_err(|reason| format!("message {}: {reason}", index + 1))?;
        lines.push(&Value::Object(line).to_string())?;
    }
    let fields = check::size(channels.len() - 1);
    Ok(Conversation { lines: lines.finish()?, times: Vec::new(), skipped: 0, fields })
}

fn unpacked(mut bytes: &[u8]) -> Option<Packed> {
    rmpv::decode::read_value(&mut bytes).ok().filter(|_| bytes.is_empty())
}

fn field<'a>(map: &'a Packed, name: &str) -> Option<&'a Packed> {
    map.as_map()?.iter().find(|(known, _)| known.as_str() == Some(name)).map(|(_, value)| value)
}

/// Returns a message as a line of the common format. The fields of LangChain stay next to it.
fn line(message: &Packed) -> Result<Map<String, Value>, String> {
    let json = match message {
        Packed::Ext(code, bytes) if OBJECTS.contains(code) => {
            let object = unpacked(bytes).ok_or("not valid MessagePack")?;
            object.as_array().and_then(|object| object.get(2)).map(|fields| json(fields, 1))
        }
        other => Some(json(other, 1)),
    };
    let Some(Value::Object(mut line)) = json.transpose()? else {
        return Err("not an object with fields".to_owned());
    };
    // A state may have messages in the common format.
    if line.contains_key("role") {
        return Ok(line);
    }
    let kind = line.get("type").and_then(Value::as_str).ok_or("`type` is missing")?;
    let role = match kind.strip_suffix("MessageChunk").unwrap_or(kind) {
        "human" | "Human" => "user",
        "ai" | "AI" => "assistant",
        "system" | "System" => "system",
        "tool" | "Tool" => "tool",
        "function" | "Function" => "function",
        _ => return Err("`type` is none of human, ai, system, tool and function".to_owned()),
    };
    if role == "tool" && line.get("status").is_some_and(|status| status == "error") {
        line.insert("is_error".to_owned(), true.into());
    }
    without_repeated_calls(&mut line);
    line.insert("role".to_owned(), role.into());
    Ok(line)
}

/// Moves the parts of the content that repeat a call of `tool_calls` to the field `repeated_calls`. LangChain
/// keeps a call in the form of the provider there.
fn without_repeated_calls(line: &mut Map<String, Value>) {
    let calls = line.get("tool_calls").and_then(Value::as_array).cloned().unwrap_or_default();
    let repeats = |part: &Value| {
        let id = match part["type"].as_str() {
            Some("tool_use" | "tool_call") => &part["id"],
            Some("function_call") => &part["call_id"],
            _ => return false,
        };
        calls.iter().any(|call| call["id"] == *id)
    };
    let Some(Value::Array(parts)) = line.get_mut("content") else { return };
    let (repeated, others): (Vec<_>, Vec<_>) = std::mem::take(parts).into_iter().partition(repeats);
    *parts = others;
    if !repeated.is_empty() {
        line.insert("repeated_calls".to_owned(), repeated.into());
    }
}

/// Returns a value as JSON. Bytes become hexadecimal digits, and an object of Python its parts. A number that
/// JSON does not have becomes text.
fn json(value: &Packed, level: usize) -> Result<Value, String> {
    if level > LEVELS_MAX {
        return Err(format!("nested deeper than {LEVELS_MAX} levels"));
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let float = |number: f64| if number.is_finite() { number.into() } else { number.to_string().into() };
    Ok(match value {
        Packed::Nil => Value::Null,
        Packed::Boolean(value) => (*value).into(),
        Packed::Integer(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (None, number) => number.into(),
        },
        Packed::F32(number) => float((*number).into()),
        Packed::F64(number) => float(*number),
        Packed::String(text) => match text.as_str() {
            Some(text) => text.into(),
            None => json!({ "hex": hex(text.as_bytes()) }),
        },
        Packed::Binary(bytes) => json!({ "hex": hex(bytes) }),
        Packed::Array(items) => items.iter().map(|item| json(item, level + 1)).collect::<Result<_, _>>()?,
        Packed::Map(fields) => {
            let named = fields.iter().map(|(name, value)| {
                let value = json(value, level + 1)?;
                Ok::<_, String>(match name.as_str() {
                    Some(name) => (name.to_owned(), value),
                    None => (json(name, level + 1)?.to_string(), value),
                })
            });
            Value::Object(named.collect::<Result<_, _>>()?)
        }
        Packed::Ext(code, bytes) => match unpacked(bytes).filter(|_| OBJECTS.contains(code)) {
            Some(object) => json(&object, level + 1)?,
            None => json!({ "code": code, "hex": hex(bytes) }),
        },
    })
}
