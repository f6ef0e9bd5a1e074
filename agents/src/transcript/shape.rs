//! The form of a line that is not in the common format: its JSON with references to the message's fields.

use larder_kernel::ChatMessage;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::content::BETWEEN;
use super::fields::{Fields, raw};

/// A JSON value. Text that the message holds is a reference, so it is stored once. The numbers of pieces are
/// lengths in bytes; pieces are separated by line breaks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Shape {
    /// JSON that the message does not hold.
    Raw(Box<RawValue>),
    /// A list.
    List(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
    /// A string. Its text is the next piece.
    Text(Owner, usize),
    /// A string. Its text is in the next piece, after a label of this length and before `]`.
    Marked(Owner, usize, usize),
    /// JSON. The next piece of a text is its description.
    Shown(Owner, usize, Box<RawValue>),
    /// Any JSON. The next piece is its JSON text.
    Json(Owner, usize),
    /// The id of a call.
    CallId(usize),
    /// The name of a call.
    CallName(usize),
    /// The arguments of a call, as a string.
    ArgumentsText(usize),
    /// The arguments of a call, as JSON.
    Arguments(usize),
    /// The call's id of a result.
    ResultId(usize),
}

/// The text that a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Owner {
    /// The text of the message.
    Message,
    /// The content of a result.
    Result(usize),
}

/// The fields of a line that the message holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    pub(super) calls: usize,
    pub(super) results: usize,
    pub(super) fields: Vec<(String, Shape)>,
}

impl Form {
    /// Returns the fields of the line, or `None` if the message has changed since it was read.
    pub(super) fn fields(&self, message: &ChatMessage) -> Option<Fields> {
        if (self.calls, self.results) != (message.tool_calls.len(), message.tool_results.len()) {
            return None;
        }
        let mut source = Source::new(message);
        let mut line = Fields::default();
        for (name, shape) in &self.fields {
            line.push(name.as_str(), source.value(shape)?);
        }
        source.is_used_up().then_some(line)
    }
}

/// The parts of a message that are not yet written.
struct Source<'a> {
    message: &'a ChatMessage,
    text: Pieces<'a>,
    results: Vec<Pieces<'a>>,
}

impl<'a> Source<'a> {
    fn new(message: &'a ChatMessage) -> Self {
        Self {
            message,
            text: Pieces::new(&message.text),
            results: message.tool_results.iter().map(|result| Pieces::new(&result.content)).collect(),
        }
    }

    fn is_used_up(&self) -> bool {
        self.results.iter().chain([&self.text]).all(|pieces| pieces.left.is_empty())
    }

    fn pieces(&mut self, owner: Owner) -> Option<&mut Pieces<'a>> {
        match owner {
            Owner::Message => Some(&mut self.text),
            Owner::Result(at) => self.results.get_mut(at),
        }
    }

    fn value(&mut self, shape: &Shape) -> Option<Box<RawValue>> {
        match shape {
            Shape::Raw(value) => Some(value.clone()),
            Shape::List(items) => {
                let items: Option<Vec<_>> = items.iter().map(|item| self.value(item)).collect();
                raw(&items?).ok()
            }
            Shape::Object(fields) => {
                let mut object = Fields::default();
                for (name, shape) in fields {
                    object.push(name.as_str(), self.value(shape)?);
                }
                raw(&object).ok()
            }
            Shape::Text(owner, bytes) => raw(&self.pieces(*owner)?.next(*bytes)?).ok(),
            Shape::Marked(owner, label, bytes) => {
                let piece = self.pieces(*owner)?.next(*bytes)?;
                raw(&piece.get(*label..piece.len().checked_sub(1)?)?).ok()
            }
            Shape::Shown(owner, bytes, value) => {
                self.pieces(*owner)?.next(*bytes)?;
                Some(value.clone())
            }
            Shape::Json(owner, bytes) => {
                RawValue::from_string(self.pieces(*owner)?.next(*bytes)?.to_owned()).ok()
            }
            Shape::CallId(at) => raw(&self.message.tool_calls.get(*at)?.id).ok(),
            Shape::CallName(at) => raw(&self.message.tool_calls.get(*at)?.name).ok(),
            Shape::ArgumentsText(at) => raw(&self.message.tool_calls.get(*at)?.arguments).ok(),
            Shape::Arguments(at) => {
                RawValue::from_string(self.message.tool_calls.get(*at)?.arguments.clone()).ok()
            }
            Shape::ResultId(at) => raw(&self.message.tool_results.get(*at)?.call_id).ok(),
        }
    }
}

/// The rest of a text.
struct Pieces<'a> {
    left: &'a str,
    first: bool,
}

impl<'a> Pieces<'a> {
    fn new(left: &'a str) -> Self {
        Self { left, first: true }
    }

    /// Returns the next piece, or `None` if the text has changed.
    fn next(&mut self, bytes: usize) -> Option<&'a str> {
        if !std::mem::take(&mut self.first) {
            self.left = self.left.strip_prefix(BETWEEN)?;
        }
        let (piece, left) = self.left.split_at_checked(bytes)?;
        self.left = left;
        Some(piece)
    }
}
