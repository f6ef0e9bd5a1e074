//! How a refused or failed call reads to the client.

use larder_kernel::{Error, ErrorKind, Outcome};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An argument that the tool's schema does not allow: which, and what would be allowed.
    Argument { field: String, expected: String },
    /// What a check or a store said.
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
                format!("InvalidInput: the arguments do not fit the tool's schema: {expected}")
            }
            Self::Argument { field, expected } => {
                format!("InvalidInput: `{field}` does not fit the tool's schema: {expected}")
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

    /// As the result of a tool: the model reads it and can do better.
    pub(crate) fn into_result(self) -> CallToolResult {
        let mut result = CallToolResult::error(vec![ContentBlock::text(self.sentence())]);
        result.structured_content = Some(json!({ "error": self.value() }));
        result
    }

    /// As an error of the protocol, for what is no tool.
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
