//! Waivers in TOML.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Date, Waiver, WaiverError, Waivers};
use crate::case::Level;

/// The name of a waiver's table.
const TABLE: &str = "waiver";
/// The size limit. People write these files, so a longer file is not a file of waivers.
const BYTES_MAX: u64 = 1 << 20;

impl Waivers {
    /// Reads a file of waivers; `guide/src/reports.md` describes its fields.
    ///
    /// # Errors
    /// The file cannot be read, or a waiver in it is invalid; the error has the file, the line and the field.
    pub fn read(path: &Path) -> Result<Self, WaiverError> {
        let in_file = |error: WaiverError| WaiverError { file: Some(path.to_owned()), ..error };
        let cannot = |error: std::io::Error| in_file(WaiverError::new(format!("cannot be read: {error}")));
        if std::fs::metadata(path).map_err(cannot)?.len() > BYTES_MAX {
            return Err(in_file(WaiverError::new("is longer than 1 MiB")));
        }
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        Self::from_toml(&text).map_err(in_file)
    }

    /// Reads waivers from TOML: one table `[[waiver]]` for each, with `backend`, `clause` or `level` or both,
    /// `reason` and `expires`.
    ///
    /// ```
    /// use larder_conformance::report::waiver::Waivers;
    ///
    /// let waivers = Waivers::from_toml(
    ///     r#"
    ///     [[waiver]]
    ///     backend = "mine"
    ///     clause = "BLOB-004"
    ///     reason = "the server overwrites in two steps; mended in its next version"
    ///     expires = 2027-06-30
    ///     "#,
    /// )?;
    /// assert_eq!(waivers.as_slice()[0].subject(), "mine BLOB-004");
    /// # Ok::<(), larder_conformance::report::waiver::WaiverError>(())
    /// ```
    ///
    /// # Errors
    /// The text is not TOML, or a waiver is invalid; the error has the line and the field.
    pub fn from_toml(text: &str) -> Result<Self, WaiverError> {
        let source = Source { text };
        let document =
            DeTable::parse(text).map_err(|error| source.error(error.span(), None, error.message()))?;
        let mut waivers = Vec::new();
        for (key, value) in document.get_ref() {
            let field = key.get_ref().as_ref();
            let tables = match value.get_ref() {
                DeValue::Array(tables) if field == TABLE => tables,
                _ if field == TABLE => {
                    let message = "expected tables, each under [[waiver]]";
                    return Err(source.error(Some(value.span()), Some(TABLE), message));
                }
                _ => return Err(source.error(Some(key.span()), Some(field), "is unknown; remove it")),
            };
            for table in tables {
                waivers.push(source.waiver(table)?);
                let span = Some(table.span());
                // The last waiver is the new one, so an error belongs to its line.
                Self::new(waivers.clone())
                    .map_err(|error| source.error(span, error.field.as_deref(), &error.message))?;
            }
        }
        Self::new(waivers)
    }
}

/// The text, which maps byte positions to lines.
struct Source<'a> {
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Option<Range<usize>>, field: Option<&str>, message: &str) -> WaiverError {
        let line = |span: Range<usize>| {
            let before = self.text.as_bytes().iter().take(span.start);
            before.filter(|byte| **byte == b'\n').count() + 1
        };
        WaiverError {
            file: None,
            line: span.map(line),
            field: field.map(str::to_owned),
            message: message.to_owned(),
        }
    }

    fn waiver(&self, table: &Spanned<DeValue<'_>>) -> Result<Waiver, WaiverError> {
        let whole = Some(table.span());
        let Some(fields) = table.get_ref().as_table() else {
            return Err(self.error(whole, Some(TABLE), "expected a table"));
        };
        let (mut backend, mut clause, mut level, mut reason, mut expires) = (None, None, None, None, None);
        for (key, value) in fields {
            let field = key.get_ref().as_ref();
            match field {
                "backend" => backend = Some(self.text(field, value)?),
                "clause" => clause = Some(self.text(field, value)?),
                "reason" => reason = Some(self.text(field, value)?),
                "level" => level = Some(self.level(field, value)?),
                "expires" => expires = Some(self.date(field, value)?),
                _ => return Err(self.error(Some(key.span()), Some(field), "is unknown; remove it")),
            }
        }
        let missing = |field| self.error(whole.clone(), Some(field), "is missing");
        let waiver = Waiver {
            backend: backend.ok_or_else(|| missing("backend"))?,
            clause,
            level,
            reason: reason.ok_or_else(|| missing("reason"))?,
            expires: expires.ok_or_else(|| missing("expires"))?,
        };
        waiver.check().map_err(|error| {
            let field = error.field.as_deref().unwrap_or_default();
            let place = fields.iter().find(|(key, _)| key.get_ref().as_ref() == field);
            let span = place.map_or_else(|| table.span(), |(key, _)| key.span());
            self.error(Some(span), error.field.as_deref(), &error.message)
        })?;
        Ok(waiver)
    }

    fn text(&self, field: &str, value: &Spanned<DeValue<'_>>) -> Result<String, WaiverError> {
        let text = value.get_ref().as_str().map(str::to_owned);
        text.ok_or_else(|| self.error(Some(value.span()), Some(field), "expected text in quotes"))
    }

    fn level(&self, field: &str, value: &Spanned<DeValue<'_>>) -> Result<Level, WaiverError> {
        let word = self.text(field, value)?;
        Level::ALL.iter().copied().find(|level| level.as_str() == word).ok_or_else(|| {
            let words: Vec<_> = Level::ALL.iter().map(|level| level.as_str()).collect();
            let message = format!("{word:?} is not a level; the levels are {}", words.join(", "));
            self.error(Some(value.span()), Some(field), &message)
        })
    }

    /// Reads a TOML date, or the same in quotes.
    fn date(&self, field: &str, value: &Spanned<DeValue<'_>>) -> Result<Date, WaiverError> {
        let written = match value.get_ref() {
            DeValue::Datetime(date) => Cow::Owned(date.to_string()),
            other => Cow::Borrowed(other.as_str().unwrap_or_default()),
        };
        written.parse().map_err(|message: String| self.error(Some(value.span()), Some(field), &message))
    }
}
