//! The configuration of a bucket.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use larder_kernel::{Error, Result};

use crate::driver::{BackendUrl, unknown_parameter};

use super::key::PREFIX_BYTES_MAX;

const OPERATION: &str = "blobs.open";
/// Default for the time limit of opening a connection.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);
/// Default for the time limit of one attempt of a call.
pub const RESPONSE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Default for the time that a transfer may make no progress.
pub const STALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);
/// The maximum of a timeout: one hour.
const TIMEOUT_MS_MAX: u64 = 3600 * 1000;
const FORM: &str = "write `s3://bucket/prefix?region=…` or \
                    `s3://ACCESS_KEY:SECRET_KEY@bucket?endpoint=http://127.0.0.1:3900`, and escape special \
                    characters of the keys with `%` (`/` is `%2F`, `+` is `%2B`)";

/// The location of the objects and the access to them.
///
/// ```
/// use larder_capabilities::s3::S3Config;
///
/// let config =
///     S3Config::from_url("s3://AKID:s3cret@files/app?endpoint=http://127.0.0.1:3900&region=garage")?;
/// assert!(!format!("{config:?}").contains("s3cret"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct S3Config {
    pub(crate) keys: Option<(String, String)>,
    pub(crate) bucket: String,
    /// Empty, or ending in `/`.
    pub(crate) prefix: String,
    /// The server, if it is not AWS. Defaults to `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// The region. Defaults to `AWS_REGION` or the region of the profile, and to `us-east-1` with a custom
    /// endpoint.
    pub region: Option<String>,
    /// True to name the bucket in the path instead of the host. Defaults to true with a custom endpoint.
    pub path_style: Option<bool>,
    /// True to allow an endpoint without TLS on another machine.
    pub allow_http: bool,
    /// The time limit of opening a connection.
    pub connect_timeout: Duration,
    /// The time limit of one attempt of a call until the reply begins. All attempts together may take three
    /// times as long. Calls that send, copy or assemble many bytes have a longer limit.
    pub response_timeout: Duration,
    /// The time that a transfer may make no progress.
    pub stall_timeout: Duration,
}

impl fmt::Debug for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Config")
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("path_style", &self.path_style)
            .field("allow_http", &self.allow_http)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("stall_timeout", &self.stall_timeout)
            .finish_non_exhaustive()
    }
}

impl S3Config {
    /// The query parameters that a URL accepts.
    pub const PARAMETERS: &'static [&'static str] = &[
        "endpoint",
        "region",
        "path_style",
        "allow_http",
        "connect_timeout_ms",
        "response_timeout_ms",
        "stall_timeout_ms",
    ];

    /// Creates the configuration of a bucket. All other settings come from the environment.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for an invalid bucket name.
    pub fn new(bucket: impl Into<String>) -> Result<Self> {
        let bucket = bucket.into();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if !(3..=255).contains(&bucket.len()) || !bucket.bytes().all(allowed) {
            return Err(invalid("has an invalid bucket name; use 3 to 63 letters, digits, `.` and `-`"));
        }
        Ok(Self {
            keys: None,
            bucket,
            prefix: String::new(),
            endpoint: None,
            region: None,
            path_style: None,
            allow_http: false,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            response_timeout: RESPONSE_TIMEOUT_DEFAULT,
            stall_timeout: STALL_TIMEOUT_DEFAULT,
        })
    }

    /// Sets the access key and the secret key, instead of those of the environment.
    #[must_use]
    pub fn with_keys(mut self, access_key: impl Into<String>, secret_key: impl Into<String>) -> Self {
        self.keys = Some((access_key.into(), secret_key.into()));
        self
    }

    /// Keeps all objects under a prefix of the bucket.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for a prefix over 128 bytes, with an empty segment, or with characters
    /// other than letters, digits, `.`, `_`, `-`, `~`, `@` and `/`.
    pub fn with_prefix(mut self, prefix: &str) -> Result<Self> {
        let prefix = prefix.trim_end_matches('/');
        // Without `=`, no prefix can reach into the namespaces of a store with a shorter prefix.
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-~@/".contains(&byte);
        let segments = prefix.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
        if prefix.len() > PREFIX_BYTES_MAX || !(prefix.is_empty() || segments) || !prefix.bytes().all(allowed)
        {
            return Err(invalid(
                "has a prefix over 128 bytes, with an empty segment, `.` or `..`, or with characters other \
                 than letters, digits, `.`, `_`, `-`, `~`, `@` and `/`",
            ));
        }
        self.prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(self)
    }

    /// Reads a URL: `s3://ACCESS_KEY:SECRET_KEY@bucket/prefix?parameter=value`.
    ///
    /// The keys are optional. Without them, the credentials come from the first of these that has some: the
    /// environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`), the profile files,
    /// web identity, the role of the instance. Parameters: `endpoint`, `region`, `path_style=true|false`,
    /// `allow_http=true|false`, `connect_timeout_ms`, `response_timeout_ms`, `stall_timeout_ms`. An endpoint
    /// without TLS must be on this machine unless `allow_http=true`.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for a malformed URL, an unknown parameter or a value out of range.
    pub fn from_url(url: &str) -> Result<Self> {
        BackendUrl::parse(url)
            .and_then(|url| url.check_parameters("s3", Self::PARAMETERS))
            .map_err(|error| error.in_operation(OPERATION))?;
        let (location, query) = url.split_once('?').unwrap_or((url, ""));
        let rest = match location.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("s3") => rest,
            _ => return Err(invalid(format!("is not an `s3://` URL; {FORM}"))),
        };
        let (keys, place) = match rest.rsplit_once('@') {
            // The prefix may contain an `@`, but the keys contain no `/`.
            Some((keys, place)) if !keys.contains('/') => (Some(keys), place),
            Some((keys, _)) if keys.contains(':') => return Err(invalid(format!("is malformed; {FORM}"))),
            _ => (None, rest),
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let mut config = Self::new(bucket)?.with_prefix(prefix)?;
        if let Some(keys) = keys {
            let keys = keys.split_once(':').map(|(access, secret)| (decode(access), decode(secret)));
            config.keys = match keys {
                Some((Some(access), Some(secret))) if !access.is_empty() && !secret.is_empty() => {
                    Some((access, secret))
                }
                _ => return Err(invalid(format!("has malformed keys; {FORM}"))),
            };
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value =
                decode(value).ok_or_else(|| invalid("has a malformed `%` escape; write `%` as `%25`"))?;
            config.take(name, value)?;
        }
        if let Some(endpoint) = &config.endpoint {
            check_endpoint(endpoint, config.allow_http)?;
        }
        Ok(config)
    }

    fn take(&mut self, name: &str, value: String) -> Result<()> {
        let flag = |value: &str| match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(invalid("has a `path_style` or `allow_http` other than `true` and `false`")),
        };
        match name {
            "endpoint" => self.endpoint = Some(value.trim_end_matches('/').to_owned()),
            "region" => {
                let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
                if value.is_empty() || value.len() > 64 || !value.bytes().all(allowed) {
                    return Err(invalid("has a `region` that is not a region's name"));
                }
                self.region = Some(value);
            }
            "path_style" => self.path_style = Some(flag(&value)?),
            "allow_http" => self.allow_http = flag(&value)?,
            "connect_timeout_ms" => self.connect_timeout = millis(&value)?,
            "response_timeout_ms" => self.response_timeout = millis(&value)?,
            "stall_timeout_ms" => self.stall_timeout = millis(&value)?,
            _ => return Err(unknown_parameter("s3", "", Self::PARAMETERS).in_operation(OPERATION)),
        }
        Ok(())
    }
}

/// Rejects an invalid endpoint, and one that would expose the signature to a network.
pub(crate) fn check_endpoint(endpoint: &str, allow_http: bool) -> Result<()> {
    let (tls, place) = match endpoint.split_once("://") {
        Some(("https", place)) => (true, place),
        Some(("http", place)) => (false, place),
        _ => return Err(invalid("has an endpoint that begins with neither `https://` nor `http://`")),
    };
    let host = host_of(place).ok_or_else(|| {
        invalid("has an endpoint that is not a host with an optional port, such as `http://127.0.0.1:3900`")
    })?;
    let loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if tls || loopback || allow_http {
        Ok(())
    } else {
        Err(invalid(
            "has an endpoint without TLS on another machine; use `https://`, or add `allow_http=true`",
        ))
    }
}

/// Returns the host of `host`, `host:port` or `[address]:port`, each with an optional path.
fn host_of(place: &str) -> Option<&str> {
    let (place, path) = place.split_once('/').unwrap_or((place, ""));
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("0"))?)
        }
        None => place.split_once(':').unwrap_or((place, "0")),
    };
    let plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:/~".contains(&byte));
    (!host.is_empty() && plain(host) && plain(path) && port.parse::<u16>().is_ok()).then_some(host)
}

fn millis(value: &str) -> Result<Duration> {
    let ms = value.parse().ok().filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms));
    ms.map(Duration::from_millis)
        .ok_or_else(|| invalid("has a time that is not a number of milliseconds from 1 to 3600000"))
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    // Keys are sent in a header.
    String::from_utf8(bytes).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::invalid(OPERATION, "url", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_keys_bucket_and_settings() {
        let config = S3Config::from_url(
            "s3://AKID:a%2Fb%2Bc:d@files/app/v1/\
             ?endpoint=http://127.0.0.1:3900&region=garage&path_style=true",
        )
        .unwrap();
        assert_eq!(config.keys, Some(("AKID".to_owned(), "a/b+c:d".to_owned())));
        assert_eq!((config.bucket.as_str(), config.prefix.as_str()), ("files", "app/v1/"));
        assert_eq!(config.endpoint.as_deref(), Some("http://127.0.0.1:3900"));
        assert_eq!(config.region.as_deref(), Some("garage"));
        assert_eq!(config.path_style, Some(true));
        let bare = S3Config::from_url("s3://files").unwrap();
        assert_eq!(bare, S3Config::new("files").unwrap());
        let escaped = S3Config::from_url("s3://files/a@b?endpoint=https%3A%2F%2Fs3.example%3A9000").unwrap();
        assert_eq!((escaped.prefix.as_str(), escaped.keys), ("a@b/", None));
    }

    #[test]
    fn an_endpoint_without_tls_is_on_this_machine_or_allowed() {
        for (endpoint, allowed) in [
            ("http://localhost:1", true),
            ("http://[::1]:9000", true),
            ("http://127.3.2.1", true),
            ("https://s3.example", true),
            ("http://s3.example:80", false),
            ("http://127.0.0.1.example", false),
            ("http://localhost@evil.example", false),
            ("http://10.0.0.1", false),
        ] {
            let url = format!("s3://files?endpoint={endpoint}");
            assert_eq!(S3Config::from_url(&url).is_ok(), allowed, "{endpoint}");
        }
        assert!(S3Config::from_url("s3://files?endpoint=http://10.0.0.1&allow_http=true").is_ok());
    }

    #[test]
    fn mistakes_are_refused_without_repeating_them() {
        for url in [
            "http://s3cret",
            "s3:s3cret",
            "s3://",
            "s3://b",
            "s3://s3cret@files",
            "s3://a:@files",
            "s3://a:s3cret/x@files",
            "s3://a:%zzs3cret@files",
            "s3://a:s3cret%0A@files",
            "s3://files/s3cret//x",
            "s3://files/../s3cret",
            "s3://files/n=s3cret",
            "s3://files?s3cret%=1",
            "s3://files?path_style=s3cret",
            "s3://files?region=s3cret%20",
            "s3://files?endpoint=s3cret",
            "s3://files?endpoint=http://u:s3cret@localhost",
            "s3://files?endpoint=http://localhost:s3cret",
            "s3://files?response_timeout_ms=s3cret",
            "s3://files?stall_timeout_ms=0",
        ] {
            let error = S3Config::from_url(url).unwrap_err();
            assert_eq!(error.field(), Some("url"), "{url}");
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{url}");
        }
    }

    #[test]
    fn debug_shows_no_keys() {
        let config = S3Config::from_url("s3://AKIDs3cret:s3cret@files").unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
    }
}
