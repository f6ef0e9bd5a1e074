//! Failures of a call to the server, and their translation to the caller's error.

use larder_kernel::storage::history::fenced_off;
use larder_kernel::{Error, ErrorKind, FencingToken, Outcome};
use redis::{ErrorKind as Reported, RedisError, ServerErrorKind};

use super::script::formats;

const NOT_ALLOWED: &str = "the user does not have permission for a command or a key; grant `~larder:* \
                           &larder:* +@all -@admin +info +config|get`, with the URL's `key_prefix` for \
                           `larder:` if it has one";

/// A failure inside a call: an error of the contract, of the server or of the connection.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the contract, ready to return.
    Contract(Error),
    /// The connection could not be opened, so nothing was sent.
    Connect(RedisError),
    /// The command was sent or may have been sent.
    Sent(RedisError),
}

/// The result of a step inside a call.
pub(crate) type Fallible<T> = Result<T, Failure>;

/// The possible reaction to a failure that changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// No retry: the caller gets the error.
    None,
    /// The slot moved to another server; read the slots again.
    Moved,
    /// The slot is moving; the named server has the key, for this call only.
    Ask(String),
    /// Retry after a short pause.
    Wait,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Contract(error)
    }
}

impl Failure {
    /// Returns true if the server has not cached the script yet.
    pub(crate) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Sent(error) if error.kind() == Reported::Server(ServerErrorKind::NoScript))
    }

    /// Returns true if the server refused a write because too few replicas are connected.
    pub(crate) fn is_without_replicas(&self) -> bool {
        matches!(self, Self::Sent(error) if error.code() == Some("NOREPLICAS"))
    }

    /// Returns true if the connection was lost, so that a read may be sent again.
    pub(crate) fn is_lost_connection(&self) -> bool {
        matches!(self, Self::Sent(error) if !is_answer(error) && !error.is_timeout())
    }

    /// Returns true if the server did not reply in time.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Contract(error) => error.kind() == ErrorKind::Timeout,
            Self::Connect(error) | Self::Sent(error) => error.is_timeout(),
        }
    }

    /// Returns true if the connection must be discarded.
    pub(crate) fn ends_connection(&self) -> bool {
        let Self::Sent(error) = self else { return false };
        let demoted = error.kind() == Reported::Server(ServerErrorKind::ReadOnly);
        !is_answer(error) || demoted
    }

    /// Returns the possible reaction in a cluster.
    pub(crate) fn remedy(&self) -> Remedy {
        let error = match self {
            // An unreachable server may have passed its slots to another server.
            Self::Contract(error) if error.kind() == ErrorKind::Unavailable => return Remedy::Moved,
            Self::Connect(error) if !is_answer(error) => return Remedy::Moved,
            Self::Contract(_) | Self::Connect(_) => return Remedy::None,
            Self::Sent(error) => error,
        };
        match error.kind() {
            Reported::Server(ServerErrorKind::Moved | ServerErrorKind::ReadOnly) => Remedy::Moved,
            Reported::Server(ServerErrorKind::Ask) => {
                error.redirect_node().map_or(Remedy::Moved, |(address, _)| Remedy::Ask(address.to_owned()))
            }
            Reported::Server(
                ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::BusyLoading,
            ) => Remedy::Wait,
            _ if is_half_moved(error) => Remedy::Wait,
            _ => Remedy::None,
        }
    }

    /// Returns the error for the caller of `operation`.
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        match self {
            Self::Contract(error) => error.in_operation(operation),
            Self::Connect(error) => describe(&error, operation, true).with_outcome(Outcome::NotApplied),
            Self::Sent(error) => describe(&error, operation, false),
        }
    }
}

/// Returns true if the server replied with an error, so that the connection is usable.
fn is_answer(error: &RedisError) -> bool {
    matches!(error.kind(), Reported::Server(_) | Reported::Extension)
}

/// Returns true if a script found a key of an entity missing because the slot is moving to another server.
/// Scripts read all their keys before they write, so nothing was done.
fn is_half_moved(error: &RedisError) -> bool {
    error.code() == Some("ERR") && error.detail().is_some_and(|text| text.contains("access a non local key"))
}

/// Returns the error for stored data that cannot be read back.
pub(crate) fn corrupt(operation: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, operation, "a stored record is corrupt; restore it from a backup")
}

/// Translates an error. The server's text may quote keys, arguments and stored values, so it is only examined
/// and never passed on.
fn describe(error: &RedisError, operation: &'static str, connecting: bool) -> Error {
    use Outcome::{NotApplied, Unknown};
    if is_answer(error) {
        return from_server(error, operation, connecting);
    }
    let (kind, message, outcome) = match error.kind() {
        Reported::AuthenticationFailed => (
            ErrorKind::PermissionDenied,
            "the server rejected the user or the password; check the URL",
            NotApplied,
        ),
        Reported::RESP3NotSupported => {
            (ErrorKind::Unsupported, "the server is older than Redis 7.0; upgrade it", NotApplied)
        }
        Reported::Io if error.is_timeout() => (
            ErrorKind::Timeout,
            "the server did not respond in time; check host, port and load, or raise `connect_timeout_ms` or \
             `response_timeout_ms`",
            Unknown,
        ),
        Reported::Io if error.is_connection_refusal() => (
            ErrorKind::Unavailable,
            "the server cannot be reached; check host and port, and that it runs",
            Unknown,
        ),
        Reported::Io => (
            ErrorKind::Unavailable,
            "the connection to the server failed; check host, port and network",
            Unknown,
        ),
        Reported::InvalidClientConfig => (
            ErrorKind::InvalidInput,
            "the settings of the connection are invalid; check the host and `tls_ca_file`",
            NotApplied,
        ),
        Reported::Parse | Reported::UnexpectedReturnType => {
            (ErrorKind::Unavailable, "the response is not from a Redis server; check host and port", Unknown)
        }
        _ => (ErrorKind::Unexpected, "the driver rejected a command; report the defect", Unknown),
    };
    Error::new(kind, operation, message).with_outcome(outcome)
}

fn from_server(error: &RedisError, operation: &'static str, connecting: bool) -> Error {
    use ErrorKind::{Corrupt, PermissionDenied, ResourceExhausted, Unavailable, Unexpected, Unsupported};
    use Outcome::{NotApplied, Unknown};
    if error.code() == Some("LARDERFORMAT") {
        return wrong_format(error.detail().unwrap_or_default(), operation);
    }
    if error.code() == Some("LARDERFENCE") {
        let token = error.detail().unwrap_or_default().parse().map(FencingToken::new);
        return token.map_or_else(|_| corrupt(operation), |token| fenced_off(operation, token));
    }
    let (kind, message, outcome) = match error.code().unwrap_or_default() {
        "WRONGPASS" => {
            (PermissionDenied, "the server rejected the user or the password; check the URL", NotApplied)
        }
        "NOAUTH" => (
            PermissionDenied,
            "the server requires a password; write `redis://user:password@host`",
            NotApplied,
        ),
        "NOPERM" => (PermissionDenied, NOT_ALLOWED, NotApplied),
        "DENIED" => (PermissionDenied, "the server is in protected mode; set a password there", NotApplied),
        "OOM" => {
            (ResourceExhausted, "the server's `maxmemory` is reached; raise it or erase data", NotApplied)
        }
        "READONLY" => (
            Unavailable,
            "the server is a replica; name the primary in the URL, or the sentinels with `redis+sentinel://`",
            NotApplied,
        ),
        "LOADING" => (Unavailable, "the server is still loading its data; try again in a moment", NotApplied),
        "MISCONF" => {
            (Unavailable, "the server cannot write to its disk and rejects writes; check its log", NotApplied)
        }
        "NOREPLICAS" => (
            Unavailable,
            "the server has fewer replicas than it needs to write; check its `min-replicas-to-write`",
            NotApplied,
        ),
        "BUSY" => (
            Unavailable,
            "the server runs a script of another client; try again, or run `SCRIPT KILL`",
            NotApplied,
        ),
        "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" => {
            (Unavailable, "the cluster is not ready, or moving the slot; try again", NotApplied)
        }
        "ERR" if is_half_moved(error) => {
            (Unavailable, "the cluster is not ready, or moving the slot; try again", NotApplied)
        }
        "CROSSSLOT" => (Unsupported, "the server is part of a cluster; write `redis+cluster://`", NotApplied),
        "WRONGTYPE" => (Corrupt, "a key of the stores has another type; use a separate database", NotApplied),
        "ERR" if connecting && error.detail().is_some_and(|text| text.contains("max number of clients")) => {
            (ResourceExhausted, "the server has no connection left; raise its `maxclients`", NotApplied)
        }
        "ERR" if error.detail().is_some_and(is_refusal_in_script) => (PermissionDenied, NOT_ALLOWED, Unknown),
        "ERR" if connecting => (
            ErrorKind::InvalidInput,
            "the server rejected the connection; check the number of the database",
            NotApplied,
        ),
        _ => (Unexpected, "the server rejected a command; check its log", Unknown),
    };
    let outcome = if connecting { NotApplied } else { outcome };
    Error::new(kind, operation, message).with_outcome(outcome)
}

/// Returns the error for the detail of a script's reply: the format of the data and that of the program.
fn wrong_format(detail: &str, operation: &'static str) -> Error {
    let mut numbers = detail.split(' ').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(found)), Some(Ok(supported))) => formats(supported).refuse(operation, found),
        _ => corrupt(operation).with_outcome(Outcome::NotApplied),
    }
}

/// Returns true for the server's error text when a script lacks a permission, in the form of 7.2 and of
/// earlier versions.
fn is_refusal_in_script(text: &str) -> bool {
    text.starts_with("ACL failure in script") || text.starts_with("The user executing the script")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn answered(code: &str) -> Error {
        let text = Some("ARGV s3cret".to_owned());
        let error = redis::make_extension_error(code.to_owned(), text);
        Failure::Sent(error).into_error("key_value.put")
    }

    #[test]
    fn server_errors_become_a_kind_and_an_outcome() {
        for (code, kind, outcome) in [
            ("WRONGPASS", ErrorKind::PermissionDenied, Outcome::NotApplied),
            ("NOAUTH", ErrorKind::PermissionDenied, Outcome::NotApplied),
            ("OOM", ErrorKind::ResourceExhausted, Outcome::NotApplied),
            ("MISCONF", ErrorKind::Unavailable, Outcome::NotApplied),
            ("BUSY", ErrorKind::Unavailable, Outcome::NotApplied),
            ("WRONGTYPE", ErrorKind::Corrupt, Outcome::NotApplied),
            ("S3CRET", ErrorKind::Unexpected, Outcome::Unknown),
        ] {
            let error = answered(code);
            assert_eq!((error.kind(), error.outcome()), (kind, outcome), "{code}");
            assert!(!format!("{error} {error:?}").to_lowercase().contains("s3cret"), "{code}");
            assert!(std::error::Error::source(&error).is_none());
        }
    }

    #[test]
    fn another_format_is_unsupported_with_both_numbers_and_no_other_text() {
        let answered = |detail: &str| {
            let error = redis::make_extension_error("LARDERFORMAT".to_owned(), Some(detail.to_owned()));
            Failure::Sent(error).into_error("key_value.put")
        };
        let error = answered("3 1");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied));
        assert!(error.message().contains("has format 3; this release supports up to format 2"), "{error}");
        let error = answered("0 1");
        assert!(
            error.message().contains("has no format number; the oldest supported format is 1"),
            "{error}"
        );
        for detail in ["s3cret 1", "2", ""] {
            let error = answered(detail);
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Corrupt, Outcome::NotApplied));
            assert!(!format!("{error:?}").contains("s3cret"));
        }
    }

    #[test]
    fn a_script_on_a_moving_slot_runs_again() {
        let text =
            "Script attempted to access a non local key in a cluster node script: 0, on @user_script:1.";
        for (kind, text, remedy, expected) in [
            (ServerErrorKind::ResponseError, text, Remedy::Wait, ErrorKind::Unavailable),
            (ServerErrorKind::ResponseError, "s3cret", Remedy::None, ErrorKind::Unexpected),
        ] {
            let failure = Failure::Sent(RedisError::from((Reported::Server(kind), "ERR", text.to_owned())));
            assert_eq!(failure.remedy(), remedy);
            assert_eq!(failure.into_error("tasks.claim").kind(), expected);
        }
    }

    #[test]
    fn the_drivers_kinds_of_replies_are_distinguished() {
        for (kind, expected) in [
            (ServerErrorKind::NoPerm, ErrorKind::PermissionDenied),
            (ServerErrorKind::ReadOnly, ErrorKind::Unavailable),
            (ServerErrorKind::BusyLoading, ErrorKind::Unavailable),
            (ServerErrorKind::ClusterDown, ErrorKind::Unavailable),
            (ServerErrorKind::MasterDown, ErrorKind::Unavailable),
        ] {
            let error = RedisError::from((Reported::Server(kind), "x", "s3cret".to_owned()));
            let error = Failure::Sent(error).into_error("key_value.put");
            assert_eq!((error.kind(), error.outcome()), (expected, Outcome::NotApplied), "{kind:?}");
        }
    }

    #[test]
    fn a_script_without_permission_is_denied() {
        let text = "The user executing the script can't run this command or subcommand script: s3cret";
        let error =
            RedisError::from((Reported::Server(ServerErrorKind::ResponseError), "x", text.to_owned()));
        let error = Failure::Sent(error).into_error("key_value.put");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::PermissionDenied, Outcome::Unknown));
        assert!(!format!("{error:?}").contains("s3cret"));
    }

    #[test]
    fn after_a_lost_connection_only_sent_commands_are_unknown() {
        let lost = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        let late = || RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
        for (failure, kind, outcome) in [
            (Failure::Sent(lost()), ErrorKind::Unavailable, Outcome::Unknown),
            (Failure::Connect(lost()), ErrorKind::Unavailable, Outcome::NotApplied),
            (Failure::Sent(late()), ErrorKind::Timeout, Outcome::Unknown),
            (Failure::Connect(late()), ErrorKind::Timeout, Outcome::NotApplied),
        ] {
            let error = failure.into_error("key_value.put");
            assert_eq!((error.kind(), error.outcome()), (kind, outcome));
        }
        assert!(Failure::Sent(lost()).is_lost_connection() && Failure::Sent(late()).ends_connection());
        assert_eq!(Failure::Sent(lost()).remedy(), Remedy::None);
    }
}
