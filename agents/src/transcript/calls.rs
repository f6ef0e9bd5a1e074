//! `tool_calls`: `{"id": …, "type": "function", "function": {"name": …, "arguments": "…"}}`.

use larder_kernel::{Error, Result, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::PARSE;
use super::fields::{Fields, raw, text, unreadable};

/// The form in which the arguments of a call were written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Arguments {
    /// A JSON string.
    #[default]
    Text,
    /// A JSON value.
    Json,
    /// A missing field.
    Absent,
}

/// The fields of a call other than id, name and arguments.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallRest {
    #[serde(default)]
    arguments: Arguments,
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    call: Fields,
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    function: Fields,
}

/// The calls, and the other fields of each; `None` if no call has any.
pub(super) type Calls = (Vec<ToolCall>, Option<Vec<Option<CallRest>>>);

/// Returns `true` if the value contains no call: `null` or an empty list.
pub(super) fn asks_nothing(written: &RawValue) -> bool {
    matches!(written.get(), "null" | "[]")
}

/// Returns `true` if each call is one of a function, with an id.
pub(super) fn are_common(written: &RawValue) -> bool {
    if asks_nothing(written) {
        return true;
    }
    // The reader of the calls refuses a value that is not a list.
    let Ok(items) = serde_json::from_str::<Vec<Box<RawValue>>>(written.get()) else { return true };
    items.iter().all(|item| {
        let Ok(call) = Fields::parse(item.get(), "tool_calls[]") else { return true };
        call.get_text("id").is_some_and(|id| !id.is_empty()) && call.has("function")
    })
}

pub(super) fn parse(written: &RawValue) -> Result<Calls> {
    let items: Vec<Box<RawValue>> =
        serde_json::from_str(written.get()).map_err(|error| unreadable("tool_calls", &error))?;
    let (mut calls, mut rests) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for item in &items {
        let (call, rest) = parse_one(item)?;
        calls.push(call);
        rests.push(rest);
    }
    let any = rests.iter().any(Option::is_some);
    Ok((calls, any.then_some(rests)))
}

fn parse_one(item: &RawValue) -> Result<(ToolCall, Option<CallRest>)> {
    // An invalid nested escape or an out-of-range number must fail now, not at export.
    serde_json::from_str::<Value>(item.get())
        .map_err(|_| Error::invalid(PARSE, "tool_calls", "is not valid JSON"))?;
    let mut call = Fields::parse(item.get(), "tool_calls[]")?;
    let id = call.take_text("id", "tool_calls[].id")?;
    let function = call.take("function");
    let function = function.ok_or_else(|| {
        Error::invalid(PARSE, "tool_calls[].function", "is missing; write the function that is called")
    })?;
    let mut function = Fields::parse(function.get(), "tool_calls[].function")?;
    let name = function.take_text("name", "tool_calls[].function.name")?;
    let (written, arguments) = match function.take("arguments") {
        None => (Arguments::Absent, String::new()),
        Some(value) => match text(&value) {
            Some(text) => (Arguments::Text, text),
            None => (Arguments::Json, value.get().to_owned()),
        },
    };
    let usual = written == Arguments::Text && call.are_only("type", "function") && function.is_empty();
    let rest = CallRest { arguments: written, call, function };
    Ok((ToolCall::new(id, name, arguments), (!usual).then_some(rest)))
}

/// Writes the calls in their original form.
pub(super) fn write(calls: &[ToolCall], rests: Option<&[Option<CallRest>]>, line: &mut Fields) -> Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let rests = rests.filter(|rests| rests.len() == calls.len()).unwrap_or_default();
    let written = calls.iter().enumerate();
    let written = written.map(|(at, call)| write_one(call, rests.get(at).and_then(Option::as_ref)));
    line.push_value("tool_calls", &written.collect::<Result<Vec<Fields>>>()?)
}

fn write_one(call: &ToolCall, rest: Option<&CallRest>) -> Result<Fields> {
    let mut item = Fields::default();
    let mut function = Fields::default();
    item.push_value("id", &call.id)?;
    function.push_value("name", &call.name)?;
    match rest.map_or(Arguments::Text, |rest| rest.arguments) {
        Arguments::Absent if call.arguments.is_empty() => {}
        Arguments::Json => match RawValue::from_string(call.arguments.clone()) {
            Ok(value) => function.push("arguments", value),
            Err(_) => function.push_value("arguments", &call.arguments)?,
        },
        _ => function.push_value("arguments", &call.arguments)?,
    }
    match rest {
        None => item.push_value("type", &"function")?,
        Some(rest) => {
            function.append_sorted(rest.function.clone());
            item.append_sorted(rest.call.clone());
        }
    }
    item.push("function", raw(&function)?);
    Ok(item)
}
