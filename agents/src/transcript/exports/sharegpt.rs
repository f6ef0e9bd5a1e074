//! ShareGPT: `{"conversations": [{"from": "human", "value": "Hello"}, …]}`. The calls of tools are those of
//! LLaMA-Factory: `function_call` has JSON with `name` and `arguments`, `observation` has the result.

use larder_kernel::{Error, Result};
use serde_json::value::RawValue;

use super::{Conversation, Turn, located, take_list};
use crate::transcript::fields::{Fields, text};
use crate::transcript::{CALLS, PARSE, ROLE, scan};

pub(super) fn read(fields: &mut Fields) -> Result<Conversation> {
    let mut conversation = Conversation::default();
    for (index, written) in take_list(fields, "conversations")?.iter().enumerate() {
        let turn = Fields::parse(written.get(), "conversations[]").and_then(turn);
        let fields = turn.map_err(|error| located(error, index))?;
        conversation.turns.push(Turn { fields, at: None, kept: 0 });
    }
    Ok(conversation)
}

fn turn(mut fields: Fields) -> Result<Fields> {
    // Some data sets have messages of OpenAI in the list.
    if fields.has(ROLE) {
        return Ok(fields);
    }
    let from = fields.get("from").ok_or_else(|| Error::invalid(PARSE, "from", "missing"))?;
    let from = text(from).ok_or_else(|| Error::invalid(PARSE, "from", "not a string"))?;
    let said = fields.take_text("value", "value")?;
    let is_call = matches!(&*from, "function_call" | "tool_call");
    let role = match &*from {
        "system" => "system",
        "human" | "user" => "user",
        "gpt" | "assistant" | "chatgpt" | "model" | "bot" | "bing" | "bard" => "assistant",
        _ if is_call => "assistant",
        "observation" | "tool" | "function" | "function_response" => "function",
        _ => {
            let known = "not one of system, human, user, gpt, assistant, chatgpt, model, bot, bing, bard, \
                 function_call, tool_call, observation, tool, function and function_response";
            return Err(Error::invalid(PARSE, "from", known));
        }
    };
    fields.push_value(ROLE, &role)?;
    match calls(&said).filter(|_| is_call) {
        Some(calls) => {
            fields.push(CALLS, calls);
            fields.push_value("content", &())?;
        }
        None => fields.push_value("content", &said)?,
    }
    Ok(fields)
}

/// Returns the calls of a text that is one call as JSON, or a list of calls.
fn calls(said: &str) -> Option<Box<RawValue>> {
    scan::check(said).ok()?;
    let list = if said.trim_start().starts_with('[') { said.to_owned() } else { format!("[{said}]") };
    let calls: Vec<Fields> = serde_json::from_str(&list).ok()?;
    let is_call = |call: &Fields| call.get_text("name").is_some_and(|name| !name.is_empty());
    if calls.is_empty() || !calls.iter().all(is_call) {
        return None;
    }
    serde_json::value::to_raw_value(&calls).ok()
}
