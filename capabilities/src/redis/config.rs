//! The configuration of a server, a cluster, or a primary that sentinels name.

mod servers;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use larder_kernel::{Error, Result};

use super::key::{KEY_PREFIX_BYTES_MAX, KeyPrefix};
use crate::driver::{BackendUrl, unknown_parameter};
pub(crate) use servers::{Address, Servers};

const OPERATION: &str = "redis.config";
/// Default for the time limit of opening a connection.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Default for the time limit of a command.
pub const RESPONSE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// The maximum of a timeout: one day.
const TIMEOUT_MS_MAX: u64 = 24 * 3600 * 1000;

/// The location and settings of a server, a cluster, or a primary that sentinels name. `Debug` hides the user
/// and the password.
///
/// ```
/// use larder_capabilities::redis::RedisConfig;
///
/// let config = RedisConfig::from_url("redis://app:secret@localhost/0?response_timeout_ms=2000")?;
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) servers: Servers,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) tls: bool,
    pub(crate) key_prefix: KeyPrefix,
    /// A PEM file with the certificate authorities to trust, instead of those of the machine.
    pub tls_ca_file: Option<PathBuf>,
    /// The time limit of opening a connection.
    pub connect_timeout: Duration,
    /// The time limit of a command.
    pub response_timeout: Duration,
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RedisConfig");
        match &self.servers {
            Servers::Single(address, database) => shown.field("server", address).field("database", database),
            Servers::Cluster(addresses) => shown.field("cluster", addresses),
            Servers::Sentinel { sentinels, name, database } => {
                shown.field("sentinels", sentinels).field("primary", name).field("database", database)
            }
        };
        shown
            .field("tls", &self.tls)
            .field("key_prefix", &self.key_prefix.as_str())
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

impl RedisConfig {
    /// The query parameters that a URL accepts.
    pub const PARAMETERS: &'static [&'static str] =
        &["connect_timeout_ms", "key_prefix", "response_timeout_ms", "tls_ca_file"];
    /// The maximum length of a key prefix in bytes.
    pub const KEY_PREFIX_BYTES_MAX: usize = KEY_PREFIX_BYTES_MAX;

    /// Reads a URL: `redis://user:password@host:port/database?parameter=value`,
    /// `redis+cluster://user:password@host:port,host:port,host:port` with some of a cluster's servers, or
    /// `redis+sentinel://user:password@host:port,host:port/name/database` with sentinels and the name under
    /// which they watch the primary. Write `rediss` instead of `redis` for TLS; each server must then present
    /// a certificate that is valid for its name.
    ///
    /// Sentinels get the same user and password; if they reject them, they are asked without. The usual port
    /// of a sentinel is 26379.
    ///
    /// Parameters: `connect_timeout_ms`, `response_timeout_ms`, `key_prefix` (see
    /// [`with_key_prefix`](Self::with_key_prefix)), and with TLS `tls_ca_file`.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for a malformed URL, an unknown parameter or a value out of range, and
    /// naming `key_prefix` for a prefix that is not allowed.
    pub fn from_url(url: &str) -> Result<Self> {
        BackendUrl::parse(url)
            .and_then(|url| url.check_parameters("redis", Self::PARAMETERS))
            .map_err(|error| error.in_operation(OPERATION))?;
        let (location, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = location.split_once("://").unwrap_or(("", location));
        let scheme = scheme.to_ascii_lowercase();
        let (base, kind) = scheme.split_once('+').unwrap_or((&scheme, ""));
        let tls = base == "rediss";
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').map_or((None, authority), |(l, h)| (Some(l), h));
        let (user, password) = login.map_or(Ok((None, None)), read_login)?;
        let servers = match (base, kind) {
            ("redis" | "rediss", "") if !scheme.contains('+') => Servers::single(hosts, path)?,
            ("redis" | "rediss", "cluster") => Servers::cluster(hosts, path)?,
            ("redis" | "rediss", "sentinel") => Servers::sentinel(hosts, path)?,
            _ => {
                return Err(invalid(
                    "is not a `redis://`, `rediss://`, `redis+cluster://` or `redis+sentinel://` URL",
                ));
            }
        };
        let mut config = Self {
            servers,
            user,
            password,
            tls,
            key_prefix: KeyPrefix::default(),
            tls_ca_file: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            response_timeout: RESPONSE_TIMEOUT_DEFAULT,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            config.take(name, value)?;
        }
        Ok(config)
    }

    /// Sets the beginning of every key and channel; the default is `larder:`. A user of the server needs
    /// rights for these only: `~larder:* &larder:*` with the default, `~app:* &app:*` with the prefix `app:`.
    /// Programs see only the data with their prefix, so several of them can share a database.
    ///
    /// ```
    /// use larder_capabilities::redis::RedisConfig;
    ///
    /// RedisConfig::from_url("redis://app:secret@localhost/0?key_prefix=app:")?;
    /// RedisConfig::from_url("redis://app:secret@localhost/0")?.with_key_prefix("app:")?;
    /// # Ok::<(), larder_kernel::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` naming `key_prefix` if the prefix is empty, has more than
    /// [`KEY_PREFIX_BYTES_MAX`](Self::KEY_PREFIX_BYTES_MAX) bytes, or contains a brace, a space, a control
    /// character or a sign of patterns.
    pub fn with_key_prefix(mut self, prefix: &str) -> Result<Self> {
        self.key_prefix = KeyPrefix::new(OPERATION, prefix)?;
        Ok(self)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "key_prefix" => {
                let prefix = unescape(value).ok_or_else(|| {
                    invalid("has a `key_prefix` with an invalid `%` escape; write `%` as `%25`")
                })?;
                self.key_prefix = KeyPrefix::new(OPERATION, &prefix)?;
            }
            "connect_timeout_ms" => {
                self.connect_timeout = millis(value).ok_or_else(|| {
                    invalid("has a `connect_timeout_ms` that is not a number from 1 to 86400000")
                })?;
            }
            "response_timeout_ms" => {
                self.response_timeout = millis(value).ok_or_else(|| {
                    invalid("has a `response_timeout_ms` that is not a number from 1 to 86400000")
                })?;
            }
            "tls_ca_file" if !self.tls => {
                return Err(invalid(
                    "has a `tls_ca_file` but does not use TLS; write `rediss:` for `redis:`",
                ));
            }
            "tls_ca_file" => {
                let path = unescape(value).filter(|path| !path.is_empty());
                let path = path.ok_or_else(|| invalid("has a `tls_ca_file` that is not a path"))?;
                self.tls_ca_file = Some(PathBuf::from(path));
            }
            _ => return Err(unknown_parameter("redis", "", Self::PARAMETERS).in_operation(OPERATION)),
        }
        Ok(())
    }
}

/// Reads the optional user and the password.
fn read_login(login: &str) -> Result<(Option<String>, Option<String>)> {
    if login.contains('@') {
        return Err(invalid("has an unescaped `@` in the user or the password; write it as `%40`"));
    }
    let Some((user, password)) = login.split_once(':') else {
        return Err(invalid("has a user without a password; write `user:password@`, or `:password@`"));
    };
    let (Some(user), Some(password)) = (unescape(user), unescape(password)) else {
        return Err(invalid("has a user or a password with an invalid `%` escape; write `%` as `%25`"));
    };
    if password.is_empty() {
        return Err(invalid("has an empty password; remove the part before `@`"));
    }
    Ok(((!user.is_empty()).then_some(user), Some(password)))
}

/// Decodes `%`-escapes.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

fn millis(value: &str) -> Option<Duration> {
    let ms = value.parse().ok().filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms));
    ms.map(Duration::from_millis)
}

fn invalid(message: &'static str) -> Error {
    Error::invalid(OPERATION, "url", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> Address {
        (host.to_owned(), port)
    }

    #[test]
    fn a_url_is_parsed_as_documented() {
        let config = RedisConfig::from_url("redis://u%40:s3%2Fcret@db.example:7000/3").unwrap();
        assert!(config.servers == Servers::Single(address("db.example", 7000), 3) && !config.tls);
        assert_eq!((config.user.as_deref(), config.password.as_deref()), (Some("u@"), Some("s3/cret")));
        let config = RedisConfig::from_url("REDISS://:s3cret@[::1]?tls_ca_file=/a%20b").unwrap();
        assert!(config.servers == Servers::Single(address("::1", 6379), 0) && config.tls);
        assert_eq!((config.user, config.password.as_deref()), (None, Some("s3cret")));
        assert_eq!(config.tls_ca_file, Some(PathBuf::from("/a b")));
        let config = RedisConfig::from_url("redis+cluster://a:1,b,c:3/?connect_timeout_ms=7").unwrap();
        let nodes = vec![address("a", 1), address("b", 6379), address("c", 3)];
        assert!(config.servers == Servers::Cluster(nodes));
        assert_eq!(config.connect_timeout, Duration::from_millis(7));
    }

    #[test]
    fn a_key_prefix_is_read_and_checked() {
        let prefix = |url| RedisConfig::from_url(url).map(|config| config.key_prefix.as_str().to_owned());
        assert_eq!(prefix("redis://h").unwrap(), "larder:");
        assert_eq!(prefix("redis://h?key_prefix=app:").unwrap(), "app:");
        assert_eq!(prefix("redis+cluster://h?key_prefix=a%3A%C3%A9").unwrap(), "a:é");
        for url in ["redis://h?key_prefix=", "redis://h?key_prefix=s3cret*", "redis://h?key_prefix=s3cret%7B"]
        {
            let error = RedisConfig::from_url(url).unwrap_err();
            assert_eq!(error.field(), Some("key_prefix"), "{url}");
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{url}");
        }
        assert_eq!(prefix("redis://h?key_prefix=%zz").unwrap_err().field(), Some("url"));
    }

    #[test]
    fn a_url_of_sentinels_names_the_primary() {
        let servers = |url| RedisConfig::from_url(url).map(|config| (config.servers, config.tls));
        let sentinels = vec![address("a", 26_379), address("::1", 7)];
        let expected = |database| {
            let sentinels = sentinels.clone();
            Servers::Sentinel { sentinels, name: "my-primary".to_owned(), database }
        };
        let (read, tls) = servers("redis+sentinel://u:p@a,[::1]:7/my-primary").unwrap();
        assert!(read == expected(0) && !tls);
        let (read, tls) = servers("rediss+sentinel://u:p@a:26379,[::1]:7/my-primary/3").unwrap();
        assert!(read == expected(3) && tls);
    }

    #[test]
    fn debug_hides_the_login() {
        let config = RedisConfig::from_url("redis+cluster://us3r:s3cret@h:1").unwrap();
        let shown = format!("{config:?} {config:#?}");
        assert!(!shown.contains("s3cret") && !shown.contains("us3r"), "{shown}");
    }

    #[test]
    fn mistakes_are_refused_without_repeating_them() {
        for url in [
            "mysql://u:s3cret@h/x",
            "redis:s3cret",
            "redis://s3cret@h",
            "redis://u:@h#s3cret",
            "redis://u:s3%cret@h",
            "redis://u:s3cret@h:port",
            "redis://u:s3cret@h:0",
            "redis://u:s3cret@",
            "redis://u:s3/cret@h",
            "redis://u:p@s3cret@h",
            "redis://u:p@evil/s3cret@h/0",
            "redis://u:6379?s3cret&x@h/0",
            "redis://u:s3cret@a:1,b:2",
            "redis://u:s3cret@h/name",
            "redis://u:s3cret@h/-1",
            "redis+cluster://u:s3cret@h/1",
            "redis+cluster://u:s3cret@h,",
            "redis+://u:s3cret@h",
            "redis+sentinel://u:s3cret@h",
            "redis+sentinel://u:s3cret@h/",
            "redis+sentinel://u:s3cret@h/a b",
            "redis+sentinel://u:s3cret@h/name/x",
            "redis+sentinel://u:s3cret@h/name/0/1",
            "redis+sentinel://u:s3cret@h,/name",
            "redis://u:s3cret@::1",
            "redis://h?s3cret%=1",
            "redis://h?response_timeout_ms=0",
            "redis://h?connect_timeout_ms=s3cret",
            "redis://h?tls_ca_file=s3cret",
            "rediss://h?tls_ca_file=",
        ] {
            let error = RedisConfig::from_url(url).unwrap_err();
            assert_eq!(error.field(), Some("url"), "{url}");
            assert!(!format!("{error:?} {error}").contains("s3cret"), "{url}");
        }
    }
}
