//! The configuration of a client for an OpenAI-compatible server.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use larder_kernel::{Error, Result, check};
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::Deserialize;

const OPERATION: &str = "openai.config";
const ATTEMPTS_MAX: u32 = 20;
const RESPONSE_BYTES_LIMIT: usize = 256 * 1024 * 1024;
const BATCH_TEXTS_LIMIT: usize = 2_048;

/// The name of the request field for the output token limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutputLimitField {
    /// The current name, which reasoning models require.
    #[default]
    MaxCompletionTokens,
    /// The former name, which some servers require.
    MaxTokens,
}

/// The address and the settings of an OpenAI-compatible server.
///
/// The key is never printed, serialized or part of an error.
///
/// ```
/// use larder_agents::model::OpenAiConfig;
///
/// let config = OpenAiConfig::new("https://api.example.com/v1", "small").with_api_key("canary");
/// assert!(!format!("{config:?}").contains("canary"));
///
/// let from_file: OpenAiConfig =
///     serde_json::from_str(r#"{"base_url": "http://127.0.0.1:11434/v1", "model": "small"}"#).unwrap();
/// assert_eq!(from_file.attempts_max, 4);
/// ```
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OpenAiConfig {
    /// The address before `/chat/completions` and `/embeddings`. It usually ends in `/v1`.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// The key, sent as a bearer token; `None` for servers without authentication.
    #[serde(default)]
    pub api_key: Option<String>,
    /// The time limit of one attempt, from connecting to the last byte, in milliseconds.
    #[serde(default = "timeout_ms_default")]
    pub timeout_ms: u64,
    /// The time limit for connecting, in milliseconds.
    #[serde(default = "connect_timeout_ms_default")]
    pub connect_timeout_ms: u64,
    /// The largest number of attempts of one call, including the first.
    #[serde(default = "attempts_max_default")]
    pub attempts_max: u32,
    /// The pause before the second attempt, in milliseconds. It doubles with each further attempt.
    #[serde(default = "backoff_ms_default")]
    pub backoff_ms: u64,
    /// The longest pause between attempts, in milliseconds. If the server requests a longer one, the call
    /// fails.
    #[serde(default = "backoff_ms_max_default")]
    pub backoff_ms_max: u64,
    /// The largest answer, in bytes.
    #[serde(default = "response_bytes_max_default")]
    pub response_bytes_max: usize,
    /// The largest number of texts in one embedding request. More texts are split into several requests.
    #[serde(default = "batch_texts_max_default")]
    pub batch_texts_max: usize,
    /// Allows `http` to another machine, where the network can read the key and the conversation.
    #[serde(default)]
    pub allow_plain_http: bool,
    /// Requests an answer that is a single JSON object.
    #[serde(default)]
    pub json_mode: bool,
    /// The tools that the model may call, each in the server's format.
    #[serde(default)]
    pub tools: Vec<serde_json::Value>,
    /// The name of the request field for the output token limit.
    #[serde(default)]
    pub output_limit_field: OutputLimitField,
}

const fn timeout_ms_default() -> u64 {
    120_000
}
const fn connect_timeout_ms_default() -> u64 {
    10_000
}
const fn attempts_max_default() -> u32 {
    4
}
const fn backoff_ms_default() -> u64 {
    500
}
const fn backoff_ms_max_default() -> u64 {
    30_000
}
const fn response_bytes_max_default() -> usize {
    32 * 1024 * 1024
}
const fn batch_texts_max_default() -> usize {
    256
}

impl OpenAiConfig {
    /// Configures the model `model` of the server at `base_url`, without a key and with the default limits.
    #[must_use]
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            api_key: None,
            timeout_ms: timeout_ms_default(),
            connect_timeout_ms: connect_timeout_ms_default(),
            attempts_max: attempts_max_default(),
            backoff_ms: backoff_ms_default(),
            backoff_ms_max: backoff_ms_max_default(),
            response_bytes_max: response_bytes_max_default(),
            batch_texts_max: batch_texts_max_default(),
            allow_plain_http: false,
            json_mode: false,
            tools: Vec::new(),
            output_limit_field: OutputLimitField::default(),
        }
    }

    /// Sets the key.
    #[must_use]
    pub fn with_api_key(mut self, api_key: impl Into<String>) -> Self {
        self.api_key = Some(api_key.into());
        self
    }

    /// Sets the time limit of one attempt.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Sets the number of attempts and the pauses between them.
    #[must_use]
    pub fn with_attempts(mut self, attempts_max: u32, backoff: Duration, backoff_max: Duration) -> Self {
        self.attempts_max = attempts_max;
        self.backoff_ms = u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX);
        self.backoff_ms_max = u64::try_from(backoff_max.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Asks the model to reply with a single JSON object.
    #[must_use]
    pub fn with_json_mode(mut self) -> Self {
        self.json_mode = true;
        self
    }

    /// Offers these tools to the model.
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<serde_json::Value>) -> Self {
        self.tools = tools;
        self
    }

    /// Allows `http` to another machine.
    #[must_use]
    pub fn with_plain_http(mut self) -> Self {
        self.allow_plain_http = true;
        self
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting.
    pub fn check(&self) -> Result<()> {
        self.endpoint("")?;
        self.bearer()?;
        check::at_least(OPERATION, "model", self.model.len(), 1)?;
        for (field, ms) in [
            ("timeout_ms", self.timeout_ms),
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("backoff_ms", self.backoff_ms),
            ("backoff_ms_max", self.backoff_ms_max),
        ] {
            check::ttl(OPERATION, field, Duration::from_millis(ms))?;
        }
        if self.backoff_ms > self.backoff_ms_max {
            return Err(Error::over_limit(OPERATION, "backoff_ms", self.backoff_ms, self.backoff_ms_max));
        }
        if self.attempts_max == 0 {
            return Err(Error::under_limit(OPERATION, "attempts_max", 0, 1));
        }
        if self.attempts_max > ATTEMPTS_MAX {
            let (actual, limit) = (u64::from(self.attempts_max), u64::from(ATTEMPTS_MAX));
            return Err(Error::over_limit(OPERATION, "attempts_max", actual, limit));
        }
        check::batch(OPERATION, "response_bytes_max", self.response_bytes_max, RESPONSE_BYTES_LIMIT)?;
        check::batch(OPERATION, "batch_texts_max", self.batch_texts_max, BATCH_TEXTS_LIMIT)
    }

    /// Returns the address of `path` on the server.
    pub(super) fn endpoint(&self, path: &str) -> Result<Url> {
        let refuse = |message: &'static str| Error::invalid(OPERATION, "base_url", message);
        // The parser's error may quote the address, so it is dropped.
        let mut url = Url::parse(&self.base_url).map_err(|_| refuse("not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("contains credentials; set `api_key` instead"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("has a query or a fragment; remove it"));
        }
        match url.scheme() {
            "https" => {}
            "http" if self.allow_plain_http || is_loopback(&url) => {}
            "http" => {
                return Err(refuse("uses `http` to another machine; use `https` or set `allow_plain_http`"));
            }
            _ => return Err(refuse("begins with neither `https://` nor `http://`; add one of them")),
        }
        let joined = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&joined);
        Ok(url)
    }

    /// Returns the header with the key.
    pub(super) fn bearer(&self) -> Result<Option<HeaderValue>> {
        let Some(api_key) = &self.api_key else { return Ok(None) };
        check::at_least(OPERATION, "api_key", api_key.len(), 1)?;
        let mut header = HeaderValue::from_str(&format!("Bearer {api_key}")).map_err(|_| {
            Error::invalid(
                OPERATION,
                "api_key",
                "contains characters that an HTTP header cannot carry; remove them",
            )
        })?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

impl fmt::Debug for OpenAiConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address is omitted, because a rejected address may contain credentials.
        f.debug_struct("OpenAiConfig")
            .field("model", &self.model)
            .field("api_key", &self.api_key.as_ref().map(|_| "***"))
            .field("timeout_ms", &self.timeout_ms)
            .field("attempts_max", &self.attempts_max)
            .field("json_mode", &self.json_mode)
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_out_of_bounds_is_named() {
        let good = OpenAiConfig::new("http://localhost:1/v1/", "m");
        good.check().unwrap();
        assert_eq!(good.endpoint("embeddings").unwrap().as_str(), "http://localhost:1/v1/embeddings");
        let cases: Vec<(&str, OpenAiConfig)> = vec![
            ("model", OpenAiConfig::new("http://[::1]/v1", "")),
            ("timeout_ms", good.clone().with_timeout(Duration::ZERO)),
            ("api_key", good.clone().with_api_key("")),
            ("api_key", good.clone().with_api_key("two\nlines")),
            ("attempts_max", OpenAiConfig { attempts_max: 0, ..good.clone() }),
            ("attempts_max", OpenAiConfig { attempts_max: 21, ..good.clone() }),
            ("backoff_ms", OpenAiConfig { backoff_ms: 9, backoff_ms_max: 8, ..good.clone() }),
            ("response_bytes_max", OpenAiConfig { response_bytes_max: 0, ..good.clone() }),
            ("batch_texts_max", OpenAiConfig { batch_texts_max: 2_049, ..good.clone() }),
        ];
        for (field, config) in cases {
            assert_eq!(config.check().unwrap_err().field(), Some(field));
        }
    }

    #[test]
    fn plain_http_reaches_only_this_machine_unless_allowed() {
        for refused in [
            "http://models.example.com/v1",
            "http://127.0.0.1.example.com/v1",
            "http://10.0.0.1/v1",
            "ftp://localhost/v1",
            "localhost",
            "https://key@models.example.com/v1",
            "https://models.example.com/v1?key=canary",
        ] {
            let error = OpenAiConfig::new(refused, "m").check().unwrap_err();
            assert_eq!(error.field(), Some("base_url"));
            assert!(!format!("{error:?}").contains("key@"));
        }
        OpenAiConfig::new("http://10.0.0.1/v1", "m").with_plain_http().check().unwrap();
        OpenAiConfig::new("http://127.8.0.1/v1", "m").check().unwrap();
        assert!(serde_json::from_str::<OpenAiConfig>(r#"{"base_url":"","model":"","modell":1}"#).is_err());
    }
}
