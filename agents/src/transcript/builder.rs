//! Messages from lines that are not in the common format.

use larder_kernel::{ChatMessage, Error, Result, Role, ToolCall, ToolResult};
use serde_json::value::RawValue;

use super::fields::{Fields, text, unreadable};
use super::open_calls::OpenCalls;
use super::shape::{Owner, Shape};
use super::{CALL_ID, CALLS, PARSE, ROLE};

mod draft;
mod item;
mod part;

pub(super) use draft::Draft;

/// A message under construction. Text is added in the order of the line's fields.
pub(super) struct Builder<'a> {
    message: ChatMessage,
    said: bool,
    /// `true` for each result with a piece of content.
    results_said: Vec<bool>,
    calls: &'a mut OpenCalls,
    /// The number of results that were paired without an id.
    paired: u64,
    /// The number of parts that the message has no field for.
    kept: u64,
}

/// The way in which a format names the calls of its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// By id. A result without one is an exception.
    Id,
    /// By the name of the tool.
    Name,
}

impl<'a> Builder<'a> {
    pub(super) fn new(calls: &'a mut OpenCalls) -> Self {
        let message = ChatMessage::new(Role::Assistant, "");
        Self { message, said: false, results_said: Vec::new(), calls, paired: 0, kept: 0 }
    }

    /// Returns the message, the number of results that were paired without an id, and the number of parts
    /// that the message has no field for.
    pub(super) fn finish(self) -> (ChatMessage, u64, u64) {
        (self.message, self.paired, self.kept)
    }

    /// Reads a message with a role.
    pub(super) fn chat(&mut self, line: &mut Draft) -> Result<()> {
        let role = match line.get(ROLE) {
            Some(written) => text(written).ok_or_else(|| Error::invalid(PARSE, ROLE, "not a string"))?,
            None => "user".to_owned(),
        };
        self.message.role = match &*role {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" | "model" => Role::Assistant,
            "tool" | "function" => Role::Tool,
            _ => {
                let known = "not one of system, developer, user, assistant, model, tool and function";
                return Err(Error::invalid(PARSE, ROLE, known));
            }
        };
        line.keep(ROLE);
        let content = line.get("content").map(|content| content.get().to_owned());
        let has_results = content.as_deref().is_some_and(part::holds_results);
        if self.message.role == Role::Tool && !has_results && !line.has("parts") {
            let naming = if role == "function" { Naming::Name } else { Naming::Id };
            return self.result_line(line, naming);
        }
        let nothing = content.as_deref().is_none_or(|content| content == "null");
        for name in line.names() {
            let Some(written) = line.take(&name) else { continue };
            let json = written.get();
            match &*name {
                "content" => {
                    let shape = self.content(&written, Owner::Message)?;
                    line.set(&name, shape);
                }
                "parts" => {
                    let shape = self.parts(&written, Owner::Message, "parts")?;
                    line.set(&name, shape);
                }
                "tool_calls" if !matches!(json, "null" | "[]") => {
                    let shape = self.call_list(&written)?;
                    line.set(&name, shape);
                }
                "function_call" if json.starts_with('{') => {
                    let mut call = Draft::parse(&written, "function_call")?;
                    self.call(&mut call, Some("id"), "name", &["arguments"])?;
                    line.set(&name, call.into_shape());
                }
                "refusal" if nothing && json.len() > 2 && json.starts_with('"') => {
                    let shape = self.marked(&written, "refusal", Owner::Message);
                    line.set(&name, shape);
                }
                "audio" if nothing && json.starts_with('{') => {
                    let shape = self.shown("audio", &written, Owner::Message);
                    line.set(&name, shape);
                }
                _ => {}
            }
        }
        if content.is_none() && !line.has("parts") && !self.says_otherwise(line) {
            return Err(Error::invalid(PARSE, "content", "missing"));
        }
        Ok(())
    }

    /// Returns `true` for a message that needs no content.
    fn says_otherwise(&self, line: &Draft) -> bool {
        let otherwise = [CALLS, "function_call", "refusal", "audio"];
        self.message.role == Role::Assistant && otherwise.iter().any(|name| line.has(name))
    }

    /// Reads a line that is one result.
    fn result_line(&mut self, line: &mut Draft, naming: Naming) -> Result<()> {
        let name = line.get("name").and_then(text);
        let at = self.result(line, &[CALL_ID], naming, name.as_deref())?;
        self.message.tool_results[at].is_error =
            line.get("is_error").is_some_and(|written| written.get() == "true");
        let content = line.take("content").ok_or_else(|| Error::invalid(PARSE, "content", "missing"))?;
        let shape = self.content(&content, Owner::Result(at))?;
        line.set("content", shape);
        Ok(())
    }

    /// Reads a content: text, nothing, parts, or the JSON of a result.
    fn content(&mut self, written: &RawValue, owner: Owner) -> Result<Shape> {
        if let Some(said) = text(written) {
            return Ok(Shape::Text(owner, self.piece(owner, &said)));
        }
        match (written.get().as_bytes().first(), owner) {
            (Some(b'n'), _) => Ok(Shape::Raw(written.to_owned())),
            (Some(b'['), _) => self.parts(written, owner, "content"),
            (_, Owner::Result(_)) => Ok(Shape::Json(owner, self.piece(owner, written.get()))),
            _ => Err(Error::invalid(PARSE, "content", "neither text, null nor a list of parts")),
        }
    }

    fn call_list(&mut self, written: &RawValue) -> Result<Shape> {
        if self.message.role != Role::Assistant {
            return Err(Error::invalid(PARSE, CALLS, "only an assistant calls tools"));
        }
        let items: Vec<Box<RawValue>> =
            serde_json::from_str(written.get()).map_err(|error| unreadable(CALLS, &error))?;
        let mut calls = Vec::with_capacity(items.len());
        for item in &items {
            let mut call = Draft::parse(item, "tool_calls[]")?;
            let inner = ["function", "custom"].into_iter().find(|name| call.is_object(name));
            let at = match inner.and_then(|name| Some((name, call.take(name)?))) {
                Some((name, inner)) => {
                    let mut inner = Draft::parse(&inner, "tool_calls[].function")?;
                    let at = self.call(&mut inner, None, "name", &["arguments", "input"])?;
                    call.set(name, inner.into_shape());
                    at
                }
                None if call.has("name") => {
                    self.call(&mut call, None, "name", &["args", "arguments", "input"])?
                }
                None => {
                    let message = "missing (give each call `function` with `name` and `arguments`)";
                    return Err(Error::invalid(PARSE, "tool_calls[].function", message));
                }
            };
            self.name_call(at, &mut call, "id");
            calls.push(call.into_shape());
        }
        Ok(Shape::List(calls))
    }

    /// Adds a call and returns its index. Without the field of an id, the call gets a new one.
    fn call(&mut self, from: &mut Draft, id: Option<&str>, name: &str, arguments: &[&str]) -> Result<usize> {
        let at = self.message.tool_calls.len();
        let known = from.get(name).and_then(text);
        let known = known.ok_or_else(|| Error::invalid(PARSE, "tool_calls[].function.name", "missing"))?;
        from.set(name, Shape::CallName(at));
        let mut call = ToolCall::new("", known, "");
        if let Some((field, written)) = from.first(arguments) {
            let said = text(&written);
            let shape = if said.is_some() { Shape::ArgumentsText(at) } else { Shape::Arguments(at) };
            from.set(field, shape);
            call.arguments = said.unwrap_or_else(|| written.get().to_owned());
        }
        self.message.tool_calls.push(call);
        match id {
            Some(id) => self.name_call(at, from, id),
            None => self.message.tool_calls[at].id = String::new(),
        }
        Ok(at)
    }

    /// Sets the id of a call from a field. A call without an id gets a new one.
    fn name_call(&mut self, at: usize, from: &mut Draft, field: &str) {
        match from.get(field).and_then(text).filter(|id| !id.is_empty()) {
            Some(id) => {
                self.message.tool_calls[at].id = id;
                from.set(field, Shape::CallId(at));
            }
            None => {
                self.message.tool_calls[at].id = self.calls.make_id();
                from.keep(field);
            }
        }
    }

    /// Adds a result and returns its index. A result without an id is paired with an open call.
    fn result(
        &mut self,
        from: &mut Draft,
        ids: &[&'static str],
        naming: Naming,
        name: Option<&str>,
    ) -> Result<usize> {
        let at = self.message.tool_results.len();
        let field = ids.iter().find(|field| from.has(field)).copied();
        let given = field.and_then(|field| Some((field, from.get(field).and_then(text)?)));
        let call_id = match given.filter(|(_, id)| !id.is_empty()) {
            Some((field, id)) => {
                from.set(field, Shape::ResultId(at));
                self.calls.close(&id);
                id
            }
            None => {
                if let Some(field) = field {
                    from.keep(field);
                }
                match (self.own_call(name).or_else(|| self.calls.pair(name)), naming) {
                    (Some(id), Naming::Id) => {
                        self.paired += 1;
                        id
                    }
                    (Some(id), Naming::Name) => id,
                    (None, Naming::Name) => self.calls.make_id(),
                    (None, Naming::Id) => {
                        let message = "missing, and no call before it is open (give the id of the call)";
                        return Err(Error::invalid(PARSE, CALL_ID, message));
                    }
                }
            }
        };
        self.message.tool_results.push(ToolResult::new(call_id, ""));
        self.results_said.push(false);
        Ok(at)
    }

    /// Returns the first call of this message without a result, and of this name, if the result has a name.
    fn own_call(&self, name: Option<&str>) -> Option<String> {
        let open = |call: &&ToolCall| {
            let results = &self.message.tool_results;
            name.is_none_or(|name| call.name == name)
                && results.iter().all(|result| result.call_id != call.id)
        };
        self.message.tool_calls.iter().find(open).map(|call| call.id.clone())
    }

    /// Adds a piece of text and returns its length.
    fn piece(&mut self, owner: Owner, piece: &str) -> usize {
        let (to, said) = match owner {
            Owner::Message => (&mut self.message.text, &mut self.said),
            Owner::Result(at) => (&mut self.message.tool_results[at].content, &mut self.results_said[at]),
        };
        if std::mem::replace(said, true) {
            to.push(super::content::BETWEEN);
        }
        to.push_str(piece);
        piece.len()
    }
}

/// Returns the fields of a JSON object.
fn object(written: &RawValue, what: &'static str) -> Result<Fields> {
    Fields::parse(written.get(), what)
}
