//! Conditions on interactions, written as text.

use std::fmt;
use std::str::FromStr;

use larder_kernel::{ChatMessage, Error, Result, WindowMessage, json_equal};
use serde_json::Value;

const OPERATION: &str = "max_tokens.config";
const FIELD: &str = "conditions";

/// A condition on an interaction: a field of its messages, a comparison and a value.
///
/// | Field | Compared with |
/// |---|---|
/// | `text` | the text of a message |
/// | `role` | `system`, `user`, `assistant` or `tool` |
/// | `tool` | the names of the called tools |
/// | `author` | the agent that wrote the message |
/// | `run` | the run that wrote the message |
/// | `metadata.KEY` | the message's metadata under that key; further dots address nested objects |
///
/// `==` and `contains` hold if at least one message of the interaction matches. `!=` and `lacks` hold if no
/// message matches. A value is JSON or plain text, so quotes are optional. `contains` and `lacks` search for
/// the value as text.
///
/// ```
/// use larder_agents::compaction::InteractionCondition;
/// use larder_kernel::{ChatMessage, Metadata, Window};
///
/// let billing: InteractionCondition = r#"metadata.topic == "billing""#.parse().unwrap();
/// let refund: InteractionCondition = "text contains refund".parse().unwrap();
/// let message = ChatMessage::user("My refund?").with_metadata(Metadata::new().with("topic", "billing"));
/// let interaction = Window::injected([message, ChatMessage::assistant("It is on its way.")]).messages;
/// assert!(billing.holds(&interaction) && refund.holds(&interaction));
/// assert!("topic is billing".parse::<InteractionCondition>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct InteractionCondition {
    field: Field,
    comparison: Comparison,
    value: Value,
    /// The text form of the value, for searches.
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Text,
    Role,
    Tool,
    Author,
    Run,
    Metadata(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Contains,
    Lacks,
}

impl InteractionCondition {
    /// Returns `true` if the messages of an interaction satisfy the condition.
    #[must_use]
    pub fn holds(&self, interaction: &[WindowMessage]) -> bool {
        let fits = interaction.iter().any(|message| self.fits(&message.message));
        match self.comparison {
            Comparison::Equal | Comparison::Contains => fits,
            Comparison::NotEqual | Comparison::Lacks => !fits,
        }
    }

    fn fits(&self, message: &ChatMessage) -> bool {
        match &self.field {
            Field::Text => self.fits_text(&message.text),
            Field::Role => self.fits_text(message.role.as_str()),
            Field::Tool => message.tool_calls.iter().any(|call| self.fits_text(&call.name)),
            Field::Author => {
                message.author.as_ref().is_some_and(|author| self.fits_text(author.agent.as_str()))
            }
            Field::Run => message.run.as_ref().is_some_and(|run| self.fits_text(run.as_str())),
            Field::Metadata(path) => {
                metadata_at(message, path).is_some_and(|found| match (self.by_text(), found) {
                    (true, Value::String(found)) => found.contains(&self.text),
                    (true, Value::Array(found)) => found.iter().any(|item| json_equal(item, &self.value)),
                    (true, _) => false,
                    (false, found) => json_equal(found, &self.value),
                })
            }
        }
    }

    fn fits_text(&self, found: &str) -> bool {
        if self.by_text() { found.contains(&self.text) } else { found == self.text }
    }

    fn by_text(&self) -> bool {
        matches!(self.comparison, Comparison::Contains | Comparison::Lacks)
    }
}

fn metadata_at<'a>(message: &'a ChatMessage, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(message.metadata.get(first)?, |value, key| value.get(key))
}

impl FromStr for InteractionCondition {
    type Err = Error;

    fn from_str(condition: &str) -> Result<Self> {
        let refuse = |message: &'static str| Error::invalid(OPERATION, FIELD, message);
        let (field, rest) = condition.trim().split_once(char::is_whitespace).ok_or_else(|| {
            refuse("is not a field, a comparison and a value; write for example `role == user`")
        })?;
        let (comparison, value) = rest.trim_start().split_once(char::is_whitespace).ok_or_else(|| {
            refuse("is not a field, a comparison and a value; write for example `role == user`")
        })?;
        let field = match field {
            "text" => Field::Text,
            "role" => Field::Role,
            "tool" => Field::Tool,
            "author" => Field::Author,
            "run" => Field::Run,
            other => {
                let path = other.strip_prefix("metadata.").filter(|path| !path.split('.').any(str::is_empty));
                let path = path.ok_or_else(|| {
                    refuse("has an unknown field; use text, role, tool, author, run or metadata.KEY")
                })?;
                Field::Metadata(path.split('.').map(str::to_owned).collect())
            }
        };
        let comparison = match comparison {
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "contains" => Comparison::Contains,
            "lacks" => Comparison::Lacks,
            _ => return Err(refuse("has an unknown comparison; use ==, !=, contains or lacks")),
        };
        let written = value.trim();
        let value = serde_json::from_str(written).unwrap_or_else(|_| Value::String(written.to_owned()));
        let text = value.as_str().unwrap_or(written).to_owned();
        Ok(Self { field, comparison, value, text })
    }
}

impl fmt::Display for InteractionCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Field::Text => f.write_str("text"),
            Field::Role => f.write_str("role"),
            Field::Tool => f.write_str("tool"),
            Field::Author => f.write_str("author"),
            Field::Run => f.write_str("run"),
            Field::Metadata(path) => write!(f, "metadata.{}", path.join(".")),
        }?;
        let comparison = match self.comparison {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Contains => "contains",
            Comparison::Lacks => "lacks",
        };
        write!(f, " {comparison} {}", self.value)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{Metadata, ToolCall, Window};
    use serde_json::json;

    use super::*;

    fn holds(condition: &str, messages: &[WindowMessage]) -> bool {
        let parsed: InteractionCondition = condition.parse().unwrap();
        assert_eq!(parsed.to_string().parse::<InteractionCondition>().unwrap(), parsed);
        parsed.holds(messages)
    }

    /// Proves: ALQ-2
    #[test]
    fn a_condition_looks_at_each_message() {
        let metadata = Metadata::new().with("n", 3).with("deep", json!({"tags": ["a", "b"]}));
        let question = ChatMessage::user("Where is it?").with_metadata(metadata);
        let call = ChatMessage::assistant("").with_tool_call(ToolCall::new("1", "search", "{}"));
        let messages = Window::injected([question, call]).messages;
        for condition in [
            "text contains Where is",
            "text == Where is it?",
            r#"text == "Where is it?""#,
            "tool == search",
            "tool != calculator",
            "role == assistant",
            "role lacks system",
            "metadata.n == 3.0",
            "metadata.deep.tags contains b",
            "metadata.gone != 1",
            "author != somebody",
            "run lacks 7",
        ] {
            assert!(holds(condition, &messages), "{condition}");
        }
        for condition in
            ["text contains 7", "tool contains find", "role == tool", "metadata.n == \"3\"", "run == 7"]
        {
            assert!(!holds(condition, &messages), "{condition}");
        }
    }

    #[test]
    fn an_invalid_condition_is_refused_by_name() {
        for text in ["", "text", "text ==", "text is x", "topic == x", "metadata. == x", "metadata.a..b == x"]
        {
            let error = text.parse::<InteractionCondition>().unwrap_err();
            assert_eq!(error.field(), Some("conditions"), "{text}");
        }
    }
}
