//! The data of a line that no field of the message preserves exactly.

use larder_kernel::{Error, Metadata, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::calls::CallRest;
use super::content::Content;
use super::fields::Fields;
use super::shape::Form;
use super::{PARSE, RECORD};

/// The record is stored as one JSON text, which every backend returns byte for byte. Every message from a
/// line has one, even if it is empty. Messages without one are written with an envelope.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// `true` if the role was written as `developer`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) developer: bool,
    #[serde(default, skip_serializing_if = "Content::is_text")]
    pub(super) content: Content,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tool_calls: Option<Vec<Option<CallRest>>>,
    /// The form of a line that is not in the common format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) form: Option<Form>,
    /// The fields that metadata cannot hold.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub(super) fields: Fields,
    /// `true` if the line had an envelope.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) envelope: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

impl Record {
    /// Returns `true` if the line is written in the same way without the record.
    pub(super) fn is_superfluous(&self) -> bool {
        let usual =
            !self.developer && self.content.is_text() && self.tool_calls.is_none() && self.form.is_none();
        self.envelope && usual && self.fields.is_empty()
    }

    pub(super) fn to_text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|_| Error::invalid(PARSE, "line", "cannot be written as JSON"))
    }

    /// Splits metadata into its record, if any, and everything else.
    pub(super) fn split(metadata: &Metadata) -> (Option<Self>, Map<String, Value>) {
        let mut rest = metadata.as_map().clone();
        let text = rest.get(RECORD).and_then(Value::as_str);
        let record: Option<Self> = text.and_then(|text| serde_json::from_str(text).ok());
        if record.is_some() {
            rest.remove(RECORD);
        }
        (record, rest)
    }
}
