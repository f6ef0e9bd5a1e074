//! A parsed URL: scheme, rest and query parameters.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use larder_kernel::{Error, Result};

/// The operation name in errors of reading and opening a URL.
pub(crate) const OPERATION: &str = "open";

/// Returns the error for an invalid URL. The message says how to write the URL; it must not repeat the URL,
/// which may hold a secret.
#[must_use]
pub fn invalid_url(message: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(OPERATION, "url", message)
}

/// A parsed URL. `Debug` shows only the scheme.
///
/// ```
/// # extern crate larder_capabilities as larder;
/// use larder::driver::BackendUrl;
///
/// let url = BackendUrl::parse("mydb:./agent.db?cache_mb=16")?;
/// assert_eq!((url.scheme(), url.parameter("cache_mb")), ("mydb", Some("16")));
/// assert_eq!(url.path()?.to_str(), Some("./agent.db"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
pub struct BackendUrl<'a> {
    text: &'a str,
    scheme: String,
    rest: &'a str,
    query: Vec<(&'a str, &'a str)>,
}

impl<'a> BackendUrl<'a> {
    /// Parses a URL.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for a text without a scheme, with a fragment, or with a repeated
    /// parameter.
    pub fn parse(url: &'a str) -> Result<Self> {
        let (scheme, rest) =
            url.split_once(':').filter(|(scheme, _)| !scheme.is_empty()).ok_or_else(|| {
                invalid_url("has no scheme; write for example `sqlite:./larder.db` or `memory:`")
            })?;
        if rest.contains('#') {
            return Err(invalid_url("contains a fragment; write a `#` in a path as `%23`"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query: Vec<_> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        for (at, (name, _)) in query.iter().enumerate() {
            if query.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(invalid_url("contains a query parameter twice; remove one of them"));
            }
        }
        Ok(Self { text: url, scheme: scheme.to_ascii_lowercase(), rest, query })
    }

    /// Returns the whole URL, including secrets.
    #[must_use]
    pub fn as_str(&self) -> &'a str {
        self.text
    }

    /// Returns the scheme in lower case, without the colon.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the text between the scheme's colon and the query, with escapes as written.
    #[must_use]
    pub fn rest(&self) -> &'a str {
        self.rest
    }

    /// Returns the value of a query parameter, as written.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.query.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// Returns a parameter as a number of milliseconds.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for a value that is not a number or exceeds `max`.
    pub fn millis(&self, name: &'static str, max: u64) -> Result<Option<Duration>> {
        let Some(text) = self.parameter(name) else { return Ok(None) };
        match text.parse::<u64>() {
            Ok(ms) if ms <= max => Ok(Some(Duration::from_millis(ms))),
            _ => Err(invalid_url(format!("has a `{name}` that is not a number from 0 to {max}"))),
        }
    }

    /// Returns the parameter `blob_versions`.
    pub(crate) fn blob_versions(&self) -> Result<bool> {
        match self.parameter("blob_versions") {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(invalid_url("has a `blob_versions` other than `true` and `false`")),
        }
    }

    /// Rejects parameters that a driver does not accept.
    ///
    /// # Errors
    /// `InvalidInput` naming `url`; the message names the parameter and the parameters that the scheme
    /// accepts.
    pub fn check_parameters(&self, name: &str, taken: &[&str]) -> Result<()> {
        match self.query.iter().find(|(given, _)| !taken.contains(given)) {
            None => Ok(()),
            // Text before an `@` may be a password that contains a `?`.
            Some(_) if self.query.iter().any(|(name, value)| name.contains('@') || value.contains('@')) => {
                Err(unknown_parameter(name, "", taken))
            }
            Some((given, _)) => Err(unknown_parameter(name, given, taken)),
        }
    }
}

/// Returns the error for a parameter that a scheme does not take. It names the parameter if that has the form
/// of a name.
pub(crate) fn unknown_parameter(scheme: &str, given: &str, taken: &[&str]) -> Error {
    const NAME_BYTES_MAX: usize = 40;
    let is_name = (1..=NAME_BYTES_MAX).contains(&given.len())
        && given.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let given = if is_name { format!(" `{given}`") } else { String::new() };
    let list: Vec<String> = taken.iter().map(|name| format!("`{name}`")).collect();
    let list = match list.split_last() {
        None => "none".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    };
    invalid_url(format!("has an unknown query parameter{given}; `{scheme}:` takes {list}"))
}

impl fmt::Debug for BackendUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendUrl").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}
