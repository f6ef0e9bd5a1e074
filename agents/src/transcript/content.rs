//! `content`: text, nothing, or a list of parts.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::PARSE;
use super::fields::{Fields, raw, text};

/// The separator between the texts of two parts.
pub(super) const BETWEEN: char = '\n';

/// The form in which `content` was written. The message holds the text itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content {
    /// A string.
    #[default]
    Text,
    /// `null`.
    Null,
    /// A missing field.
    Absent,
    /// A list.
    Parts(Vec<Part>),
}

/// A single part. The number is the length of the part's text, in bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// `{"type": "text", "text": …}`.
    Text(usize),
    /// A plain string.
    Bare(usize),
    /// A part with a text and other fields.
    More(usize, Fields),
    /// Any other part: an image, a sound, a file.
    Other(Box<RawValue>),
}

impl Content {
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Text)
    }

    /// Reads `content` into the text and its original form.
    pub(super) fn take(fields: &mut Fields) -> Result<(String, Self)> {
        let Some(written) = fields.take("content") else { return Ok((String::new(), Self::Absent)) };
        let json = written.get();
        match json.as_bytes().first() {
            Some(b'"') => match text(&written) {
                Some(text) => Ok((text, Self::Text)),
                None => Err(Error::invalid(PARSE, "content", "contains an escape that is not a character")),
            },
            Some(b'n') => Ok((String::new(), Self::Null)),
            Some(b'[') => parts(json),
            _ => Err(Error::invalid(PARSE, "content", "is neither text, null nor a list of parts")),
        }
    }

    /// Writes `content` with the message's text in its original form. If the text has changed, writes it as a
    /// string.
    pub(super) fn write(&self, said: &str, line: &mut Fields) -> Result<()> {
        match self {
            Self::Absent if said.is_empty() => Ok(()),
            Self::Null if said.is_empty() => line.push_value("content", &()),
            Self::Parts(parts) => match unsplit(parts, said)? {
                Some(parts) => line.push_value("content", &parts),
                None => line.push_value("content", &said),
            },
            _ => line.push_value("content", &said),
        }
    }
}

/// Returns `true` if a content is not a list, or is a list of only texts.
pub(super) fn is_text_only(json: &str) -> bool {
    if !json.starts_with('[') {
        return true;
    }
    let parts: Vec<Box<RawValue>> = serde_json::from_str(json).unwrap_or_default();
    parts.iter().all(|part| {
        let Ok(fields) = Fields::parse(part.get(), "content") else { return true };
        let kind = fields.get_text("type");
        let is_text = matches!(kind.as_deref(), None | Some("text" | "input_text" | "output_text"));
        is_text && fields.get_text("text").is_some() && !fields.has("thought")
    })
}

fn parts(json: &str) -> Result<(String, Content)> {
    let malformed = |_| Error::invalid(PARSE, "content", "not JSON");
    let written: Vec<Box<RawValue>> = serde_json::from_str(json).map_err(malformed)?;
    let (mut said, mut parts) = (None::<String>, Vec::with_capacity(written.len()));
    let mut say = |text: &str| {
        match &mut said {
            None => said = Some(text.to_owned()),
            Some(said) => {
                said.push(BETWEEN);
                said.push_str(text);
            }
        }
        text.len()
    };
    for part in written {
        if let Some(text) = text(&part) {
            parts.push(Part::Bare(say(&text)));
            continue;
        }
        if !part.get().starts_with('{') {
            return Err(Error::invalid(
                PARSE,
                "content",
                "contains a part that is neither an object nor text",
            ));
        }
        // An invalid nested escape or an out-of-range number must fail now, not at export.
        serde_json::from_str::<Value>(part.get()).map_err(malformed)?;
        let mut rest = Fields::parse(part.get(), "content")?;
        parts.push(match rest.take("text") {
            Some(written) => match text(&written) {
                Some(text) if rest.are_only("type", "text") => Part::Text(say(&text)),
                Some(text) => Part::More(say(&text), rest),
                None => Part::Other(part),
            },
            None => Part::Other(part),
        });
    }
    Ok((said.unwrap_or_default(), Content::Parts(parts)))
}

/// Returns the parts with their texts, or `None` if the text has changed.
fn unsplit(parts: &[Part], said: &str) -> Result<Option<Vec<Box<RawValue>>>> {
    let (mut written, mut left, mut first) = (Vec::with_capacity(parts.len()), said, true);
    for part in parts {
        let bytes = match part {
            Part::Text(bytes) | Part::Bare(bytes) | Part::More(bytes, _) => *bytes,
            Part::Other(value) => {
                written.push(value.clone());
                continue;
            }
        };
        if !std::mem::take(&mut first) {
            let Some(rest) = left.strip_prefix(BETWEEN) else { return Ok(None) };
            left = rest;
        }
        let Some((text, rest)) = left.split_at_checked(bytes) else { return Ok(None) };
        left = rest;
        let mut object = Fields::default();
        match part {
            Part::Bare(_) => {
                written.push(raw(&text)?);
                continue;
            }
            Part::More(_, more) => {
                object.push_value("text", &text)?;
                object.append_sorted(more.clone());
            }
            _ => {
                object.push_value("type", &"text")?;
                object.push_value("text", &text)?;
            }
        }
        written.push(raw(&object)?);
    }
    Ok(left.is_empty().then_some(written))
}
