//! Data without a field in the common format, for messages that were not read from a line.

use larder_kernel::{Author, BlobRef, ChatMessage, RunId, Timestamp, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ENVELOPE;
use super::fields::Fields;

/// The envelope in a line, which restores the same message when it is read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Envelope {
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<Author>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blobs: Vec<BlobRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    /// Metadata with the same names as fields of the line.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
}

impl Envelope {
    pub(super) fn of(
        message: &ChatMessage,
        result: Option<&ToolResult>,
        blobs: bool,
        metadata: Map<String, Value>,
    ) -> Self {
        Self {
            created_at: message.created_at,
            author: message.author.clone(),
            run: message.run.clone(),
            blobs: if blobs { message.blobs.clone() } else { Vec::new() },
            token_count: message.token_count,
            is_error: result.filter(|result| result.is_error).map(|_| true),
            metadata,
        }
    }

    /// Removes the envelope from the line. A field of the same name that is not a valid envelope is removed
    /// too.
    pub(super) fn take(fields: &mut Fields) -> Option<Self> {
        serde_json::from_str(fields.take(ENVELOPE)?.get()).ok()
    }

    /// Copies the data of the envelope into the message.
    pub(super) fn open(self, message: &mut ChatMessage) {
        message.created_at = self.created_at;
        message.author = self.author;
        message.run = self.run;
        message.blobs = self.blobs;
        message.token_count = self.token_count;
        for result in &mut message.tool_results {
            result.is_error |= self.is_error.unwrap_or(false);
        }
        for (name, value) in self.metadata {
            message.metadata.insert(name, value);
        }
    }
}
