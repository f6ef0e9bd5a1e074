//! Reading a URL: scheme, path and query parameters.

use larder_kernel::{Error, Result};

pub(crate) const OPERATION: &str = "connect";

/// Bad input in the URL. The sentence says what to write; the URL itself is not repeated, since it may hold a secret.
pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::invalid(OPERATION, "url", message)
}

/// A URL in its parts.
#[derive(Debug)]
pub(crate) struct ParsedUrl<'a> {
    pub(crate) scheme: String,
    /// What stands between the scheme and the query, escapes included.
    pub(crate) rest: &'a str,
    query: Vec<(&'a str, &'a str)>,
}

impl<'a> ParsedUrl<'a> {
    pub(crate) fn parse(url: &'a str) -> Result<Self> {
        let (scheme, rest) = url
            .split_once(':')
            .filter(|(scheme, _)| !scheme.is_empty())
            .ok_or_else(|| invalid("has no scheme; write for example `sqlite:./larder.db` or `memory:`"))?;
        if rest.contains('#') {
            return Err(invalid("holds a fragment; write a `#` in a path as `%23`"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query: Vec<_> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        for (at, (name, _)) in query.iter().enumerate() {
            if query.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(invalid("gives one query parameter twice"));
            }
        }
        Ok(Self { scheme: scheme.to_ascii_lowercase(), rest, query })
    }

    /// Takes the value of a parameter, if it is given.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.query.iter().position(|(given, _)| *given == name)?;
        Some(self.query.swap_remove(at).1)
    }

    /// Refuses the parameters that nobody took.
    pub(crate) fn nothing_left(&self, allowed: &'static str) -> Result<()> {
        if self.query.is_empty() {
            Ok(())
        } else {
            Err(invalid(format!("has an unknown query parameter; {allowed}")))
        }
    }
}
