//! The errors that a client receives for refused and failed calls.

use larder_kernel::{Error, ErrorKind, Outcome};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An argument that the tool's schema does not allow: its name and the allowed values.
    Argument { field: String, expected: String },
    /// An error of a validation or a store.
    Store(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    fn sentence(&self) -> String {
        match self {
            Self::Argument { field, expected } if field.is_empty() => {
                format!("InvalidInput: an argument {expected}")
            }
            Self::Argument { field, expected } => {
                format!("InvalidInput: `{field}` {expected}")
            }
            Self::Store(error) => error.to_string(),
        }
    }

    fn value(&self) -> Value {
        match self {
            Self::Argument { field, expected } => json!({
                "kind": ErrorKind::InvalidInput.as_str(),
                "message": expected,
                "field": field,
                "may_have_happened": false,
                "retryable": false,
            }),
            Self::Store(error) => of_error(error),
        }
    }

    /// Returns the error as a tool result, so that the model can read it and correct the call.
    pub(crate) fn into_result(self) -> CallToolResult {
        let mut result = CallToolResult::error(vec![ContentBlock::text(self.sentence())]);
        result.structured_content = Some(json!({ "error": self.value() }));
        result
    }

    /// Returns the error as a protocol error, for requests other than tool calls.
    pub(crate) fn into_protocol(self) -> ErrorData {
        let kind = match &self {
            Self::Argument { .. } => ErrorKind::InvalidInput,
            Self::Store(error) => error.kind(),
        };
        let (sentence, data) = (self.sentence(), Some(self.value()));
        match kind {
            ErrorKind::InvalidInput => ErrorData::invalid_params(sentence, data),
            ErrorKind::NotFound | ErrorKind::Unsupported => ErrorData::resource_not_found(sentence, data),
            _ => ErrorData::internal_error(sentence, data),
        }
    }
}

fn of_error(error: &Error) -> Value {
    let mut value = Map::new();
    value.insert("kind".into(), error.kind().as_str().into());
    value.insert("operation".into(), error.operation().into());
    value.insert("message".into(), error.message().into());
    if let Some(field) = error.field() {
        value.insert("field".into(), field.into());
    }
    if let (Some(actual), Some(limit)) = (error.actual(), error.limit()) {
        value.insert("actual".into(), actual.into());
        value.insert("limit".into(), limit.into());
    }
    for (name, fact) in error.context() {
        value.entry(*name).or_insert_with(|| fact.to_string().into());
    }
    value.insert("may_have_happened".into(), (error.outcome() == Outcome::Unknown).into());
    value.insert("retryable".into(), error.is_retryable().into());
    Value::Object(value)
}
