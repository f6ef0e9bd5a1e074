//! The connection part of a URL: read as libpq reads it, and rewritten for the driver.
//!
//! The driver has its own parser, which keeps the brackets of an IPv6 address, takes a host out of a password
//! with an unescaped `@`, and only logs a parameter that it does not support. So it gets a URL in which every
//! part is an escaped query parameter.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use larder_kernel::{Error, Result};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::{invalid, is_this_machine};

const FORM: &str = "write `postgres://user:password@host:port/database`, and escape special characters of \
                    user and password with `%` (`@` is `%40`, `/` is `%2F`, `%` is `%25`)";

/// The kind of server that `target_session_attrs` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Target {
    /// Any server.
    #[default]
    Any,
    /// A server that is not a standby.
    Primary,
    /// A server that accepts writes.
    ReadWrite,
}

/// The parameters of the connection.
#[derive(Default)]
pub(super) struct ConnectionParameters {
    user: Option<String>,
    password: Option<String>,
    host: Option<String>,
    address: Option<IpAddr>,
    port: Option<u16>,
    database: Option<String>,
    ssl_mode: Option<PgSslMode>,
    root_certificate: Option<String>,
    /// Parameters that the driver takes as they are.
    passed_on: Vec<(&'static str, String)>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) target: Target,
}

/// Rejects a URL in which the end of the user and password is not certain, so that no part of a password is
/// taken for a host, a database or a parameter.
pub(super) fn check_login(location: &str, query: &str) -> Result<()> {
    let rest = location.split_once("://").map_or(location, |(_, rest)| rest);
    if rest.matches('@').count() > 1 || query.contains('@') {
        return Err(ambiguous());
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if !authority.contains('@') && rest.contains('@') {
        return Err(ambiguous());
    }
    if location.contains('#') || query.contains('#') {
        return Err(invalid("contains an unescaped `#`; write it as `%23`"));
    }
    Ok(())
}

fn ambiguous() -> Error {
    invalid(format!("has an unescaped `@` or `/` in the user, the password or a parameter; {FORM}"))
}

fn malformed() -> Error {
    invalid(format!("is malformed; {FORM}"))
}

impl ConnectionParameters {
    /// Reads the part before the `?`, without the scheme.
    pub(super) fn read(rest: &str) -> Result<Self> {
        let mut read = Self::default();
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = authority.split_once('@').map_or((None, authority), |(l, p)| (Some(l), p));
        if let Some(login) = login {
            let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
            read.user = Some(decode("user", user)?).filter(|user| !user.is_empty());
            read.password = password.map(|password| decode("password", password)).transpose()?;
        }
        read.database = Some(decode("database", database)?).filter(|database| !database.is_empty());
        let (host, port) = match place.strip_prefix('[') {
            Some(place) => {
                let (host, port) = place.split_once(']').ok_or_else(malformed)?;
                host.parse::<Ipv6Addr>().map_err(|_| malformed())?;
                match port.strip_prefix(':') {
                    None if !port.is_empty() => return Err(malformed()),
                    port => (host.to_owned(), port),
                }
            }
            None if place.contains(',') => return Err(several_hosts()),
            None => {
                let (host, port) = place.split_once(':').map_or((place, None), |(h, p)| (h, Some(p)));
                (decode("host", host)?, port)
            }
        };
        if let Some(port) = port.filter(|port| !port.is_empty()) {
            read.port = Some(read_port(port)?);
        }
        if !host.is_empty() {
            read.host = Some(read_host(host)?);
        }
        Ok(read)
    }

    /// Takes a query parameter. Returns false for one that is not of the connection.
    pub(super) fn take(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "host" if value.contains(',') => return Err(several_hosts()),
            "host" => self.host = Some(read_host(decode("host", value)?)?),
            "hostaddr" if value.contains(',') => return Err(several_hosts()),
            "hostaddr" => {
                let address = decode("hostaddr", value)?.parse();
                let not_an_address = |_| invalid("has a `hostaddr` that is not an IP address");
                self.address = Some(address.map_err(not_an_address)?);
            }
            "port" if value.contains(',') => return Err(several_hosts()),
            "port" => self.port = Some(read_port(value)?),
            "dbname" => self.database = Some(decode("dbname", value)?),
            "user" => self.user = Some(decode("user", value)?),
            "password" => self.password = Some(decode("password", value)?),
            "application_name" => self.pass_on("application_name", value)?,
            "options" => self.pass_on("options", value)?,
            "sslcert" => self.pass_on("sslcert", value)?,
            "sslkey" => self.pass_on("sslkey", value)?,
            "sslrootcert" => self.root_certificate = Some(decode("sslrootcert", value)?),
            "sslmode" => self.ssl_mode = Some(read_ssl_mode(value)?),
            "connect_timeout" => self.connect_timeout = read_seconds(value)?,
            "channel_binding" => check_channel_binding(value)?,
            "target_session_attrs" => self.target = read_target(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn pass_on(&mut self, name: &'static str, value: &str) -> Result<()> {
        self.passed_on.push((name, decode(name, value)?));
        Ok(())
    }

    /// Returns the driver's options.
    pub(super) fn into_options(self) -> Result<PgConnectOptions> {
        let named = self.host.is_some();
        let host = self.address.map(|address| address.to_string()).or(self.host);
        let system = self.root_certificate.as_deref() == Some("system");
        let port = self.port.map(|port| port.to_string());
        let mut pairs = self.passed_on;
        for (name, value) in [
            ("host", host),
            ("port", port),
            ("user", self.user),
            ("password", self.password),
            ("dbname", self.database),
            ("sslrootcert", self.root_certificate.filter(|_| !system)),
        ] {
            pairs.extend(value.map(|value| (name, value)));
        }
        let verifies = pairs.iter().any(|(name, _)| *name == "sslrootcert");
        let pairs: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        // The parser's message may quote the text that it could not read.
        let connect = PgConnectOptions::from_str(&format!("postgres:///?{}", pairs.join("&")))
            .map_err(|_| malformed())?;
        let mode = match self.ssl_mode {
            Some(PgSslMode::VerifyFull) => PgSslMode::VerifyFull,
            Some(_) if system => {
                return Err(invalid("has `sslrootcert=system`, which needs `sslmode=verify-full`"));
            }
            // As libpq does: an authority that is named is verified.
            Some(PgSslMode::Require) if verifies => PgSslMode::VerifyCa,
            Some(mode) => mode,
            None if is_this_machine(&connect) && !system => PgSslMode::Prefer,
            None => PgSslMode::VerifyFull,
        };
        if self.address.is_some() && named && matches!(mode, PgSslMode::VerifyFull) {
            return Err(invalid(
                "has a `hostaddr` and a host; the driver cannot connect to one and verify the certificate \
                 of the other, so remove `hostaddr`, or set `sslmode=verify-ca`",
            ));
        }
        let connect = connect.ssl_mode(mode);
        Ok(if connect.get_application_name().is_none() {
            connect.application_name("larder")
        } else {
            connect
        })
    }
}

fn several_hosts() -> Error {
    invalid("names several hosts, which is not supported; name one, for writes the primary server")
}

/// Accepts a name, an address, or the folder of a socket.
fn read_host(host: String) -> Result<String> {
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.to_owned(),
        None => host,
    };
    let is_host = !host.is_empty() && host.chars().all(named);
    // A `:` that is not of an address separates a port.
    let is_host = is_host && (!host.contains(':') || host.parse::<Ipv6Addr>().is_ok());
    if is_host || host.starts_with('/') {
        Ok(host)
    } else {
        Err(invalid("has a host that is neither a name, an address nor the folder of a socket; check it"))
    }
}

fn read_port(port: &str) -> Result<u16> {
    let port = port.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| invalid("has a port that is not a number from 1 to 65535"))
}

fn read_ssl_mode(mode: &str) -> Result<PgSslMode> {
    Ok(match mode {
        "disable" => PgSslMode::Disable,
        // The driver treats `allow` as `disable`, so that a server that needs TLS would refuse it.
        "allow" | "prefer" => PgSslMode::Prefer,
        "require" => PgSslMode::Require,
        "verify-ca" => PgSslMode::VerifyCa,
        "verify-full" => PgSslMode::VerifyFull,
        _ => {
            return Err(invalid(
                "has a `sslmode` other than `disable`, `allow`, `prefer`, `require`, `verify-ca` and \
                 `verify-full`",
            ));
        }
    })
}

/// Parses a time in seconds; 0 and less mean the default.
fn read_seconds(value: &str) -> Result<Option<Duration>> {
    let seconds = value.parse::<i32>().ok().filter(|seconds| *seconds <= 86_400);
    let seconds = seconds
        .ok_or_else(|| invalid("has a `connect_timeout` that is not a number of seconds up to 86400"))?;
    Ok(u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs))
}

fn check_channel_binding(value: &str) -> Result<()> {
    match value {
        "disable" | "prefer" => Ok(()),
        "require" => Err(invalid(
            "has `channel_binding=require`, which the driver does not support; write \
             `sslmode=verify-full&channel_binding=prefer`, which authenticates the server by its certificate",
        )),
        _ => Err(invalid("has a `channel_binding` other than `disable` and `prefer`")),
    }
}

fn read_target(value: &str) -> Result<Target> {
    Ok(match value {
        "any" => Target::Any,
        "primary" => Target::Primary,
        "read-write" => Target::ReadWrite,
        _ => {
            return Err(invalid(
                "has a `target_session_attrs` other than `any`, `primary` and `read-write`; the stores need \
                 a server that they can write to",
            ));
        }
    })
}

/// Decodes `%`-escapes.
fn decode(part: &'static str, text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let byte = rest.split_at_checked(2).and_then(|(digits, tail)| {
            rest = tail;
            let digits = std::str::from_utf8(digits).ok()?;
            let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            u8::from_str_radix(digits, 16).ok()
        });
        bytes.push(byte.ok_or_else(|| {
            invalid(format!("has an invalid `%` escape in the {part}; write `%` as `%25`"))
        })?);
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| {
        invalid(format!(
            "has a {part} with a NUL or with bytes that are not UTF-8, which the driver cannot send; \
             choose another {part}"
        ))
    })
}

/// Escapes every byte that is not a letter or a digit.
fn encode(text: &str) -> String {
    let escaped = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(escaped).collect()
}
