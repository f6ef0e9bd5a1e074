//! Failures of a call to the server, and their translation to the caller's error.
//!
//! The SDK's errors contain requests, headers and the server's text, which may include keys and credentials.
//! Only the code and the status are read, and no part of the error is attached as a source.

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use larder_kernel::{Error, ErrorKind, Outcome};

/// The effect of a call if it happens. A lost response leaves open whether it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No effect.
    Read,
    /// A write that may be repeated.
    Repeatable,
    /// A write that may not be repeated: its condition would fail on its effect.
    Once,
}

/// Returns the status of the server's response, if one arrived.
pub(crate) fn status<E>(error: &SdkError<E>) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

/// Returns the code of the server's response, if it has one.
pub(crate) fn code<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Option<&str> {
    error.as_service_error().and_then(ProvideErrorMetadata::code)
}

const NOT_ALLOWED: &str = "the credentials do not have the permission; check access key and secret key, and \
                           grant `s3:ListBucket`, `s3:GetObject`, `s3:PutObject`, `s3:DeleteObject` and \
                           those of multipart uploads";

/// Returns the error of a transfer without progress beyond the limit.
pub(crate) fn progress_timed_out(operation: &'static str, effect: Effect) -> Error {
    let message = "the transfer stalled; check the network, or raise `stall_timeout_ms=`";
    finish(Error::new(ErrorKind::Timeout, operation, message), Outcome::Unknown, effect)
}

/// Returns the error for stored data that cannot be read back.
pub(crate) fn corrupt(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        operation,
        "the server's headers of the blob cannot be parsed; write the blob again",
    )
}

/// Returns the error for the caller of `operation`.
pub(crate) fn failed<E: ProvideErrorMetadata>(
    operation: &'static str,
    effect: Effect,
    error: &SdkError<E>,
) -> Error {
    use Outcome::{NotApplied, Unknown};
    let (kind, message, outcome) = match error {
        SdkError::ConstructionFailure(_) => {
            (ErrorKind::Unexpected, "the request could not be made; report the defect", NotApplied)
        }
        SdkError::TimeoutError(_) => (
            ErrorKind::Timeout,
            "the server did not respond in time; check `endpoint=`, or raise `response_timeout_ms=`",
            Unknown,
        ),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => (
            ErrorKind::Timeout,
            "the server did not accept the connection or respond in time; check `endpoint=`, or raise \
             `connect_timeout_ms=` or `response_timeout_ms=`",
            Unknown,
        ),
        // Also the error of a connection that ended with its runtime, whether it had sent the request or not.
        SdkError::DispatchFailure(failure) if failure.is_user() => (
            ErrorKind::Unexpected,
            "the request could not be made, or its runtime ended; keep the runtime until the call ends",
            Unknown,
        ),
        SdkError::DispatchFailure(_) => (
            ErrorKind::Unavailable,
            "the server cannot be reached or the connection was lost; check `endpoint=`, its certificate and \
             that the server runs",
            Unknown,
        ),
        _ => return from_answer(operation, effect, code(error).unwrap_or_default(), status(error)),
    };
    finish(Error::new(kind, operation, message), outcome, effect)
}

fn finish(error: Error, outcome: Outcome, effect: Effect) -> Error {
    let outcome = if effect == Effect::Read { Outcome::NotApplied } else { outcome };
    error.with_outcome(outcome).with_idempotent(effect != Effect::Once)
}

/// Returns true if a server that replies with this code has not begun to process the request.
pub(crate) fn turned_away(code: &str) -> bool {
    matches!(code, "SlowDown" | "ServiceUnavailable" | "ThrottlingException" | "TooManyRequests")
}

fn from_answer(operation: &'static str, effect: Effect, code: &str, status: Option<u16>) -> Error {
    let status = status.unwrap_or_default();
    let (kind, message) = by_code(code).unwrap_or_else(|| by_status(status));
    // A server that fails may have written before; one that rejects the request has not. A missing upload may
    // have been completed by an attempt whose response was lost.
    let outcome = match kind {
        ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Unexpected
            if status >= 500 && !turned_away(code)
                || matches!(code, "InternalError" | "NoSuchUpload")
                || status == 200 =>
        {
            Outcome::Unknown
        }
        _ => Outcome::NotApplied,
    };
    let error = Error::new(kind, operation, message).with_context("status", u64::from(status));
    let error = match code {
        "NoSuchBucket" | "PermanentRedirect" | "AuthorizationHeaderMalformed" => error.with_field("url"),
        _ => error,
    };
    finish(error, outcome, effect)
}

fn by_code(code: &str) -> Option<(ErrorKind, &'static str)> {
    use ErrorKind::{
        Conflict, InvalidInput, NotFound, PermissionDenied, ResourceExhausted, Timeout, Unavailable,
        Unexpected, Unsupported,
    };
    Some(match code {
        "NoSuchBucket" => {
            (NotFound, "the bucket of the URL does not exist; create it, or check name and endpoint")
        }
        "NoSuchKey" | "NotFound" => (NotFound, "the blob does not exist; check the key"),
        "NoSuchUpload" => (Unavailable, "another client ended the upload; try again"),
        "AccessDenied" | "AllAccessDisabled" | "AccountProblem" => (PermissionDenied, NOT_ALLOWED),
        "InvalidAccessKeyId" | "NoSuchAccessKey" => {
            (PermissionDenied, "the access key does not exist on the server; check it and `endpoint=`")
        }
        "SignatureDoesNotMatch" | "InvalidSignature" => {
            (PermissionDenied, "the signature does not match; check the secret key and `region=`")
        }
        "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
            (PermissionDenied, "the session token has expired or is not valid; get new credentials")
        }
        "RequestTimeTooSkewed" => (
            PermissionDenied,
            "the clocks of this machine and of the server differ too much; synchronize them",
        ),
        "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException" => {
            (InvalidInput, "the bucket is in another region; name it with `region=`")
        }
        "SlowDown" | "ServiceUnavailable" | "ThrottlingException" | "TooManyRequests" | "Throttling" => {
            (Unavailable, "the server rejected every attempt with a request to slow down; try again later")
        }
        "QuotaExceeded" | "EntityTooLarge" | "StorageFull" | "InsufficientStorage" => (
            ResourceExhausted,
            "the blob is larger than the server accepts, or a quota is reached; split it or raise the quota",
        ),
        "NotImplemented" | "MethodNotAllowed" => {
            (Unsupported, "the server does not support this operation; use another server")
        }
        "PreconditionFailed" => (Conflict, "the blob was changed concurrently; read it again and retry"),
        "ConditionalRequestConflict" | "OperationAborted" => {
            (Unavailable, "conflicts with other writes to the same blob in every attempt; try again")
        }
        "InternalError" => (Unavailable, "the server failed; try again later"),
        "RequestTimeout" => (Timeout, "the server did not receive the request in time; try again"),
        "BadDigest" | "InvalidDigest" | "XAmzContentSHA256Mismatch" | "IncompleteBody" => {
            (Unexpected, "the server received other bytes than were sent; try again")
        }
        _ => return None,
    })
}

fn by_status(status: u16) -> (ErrorKind, &'static str) {
    match status {
        401 | 403 => (ErrorKind::PermissionDenied, NOT_ALLOWED),
        404 => (ErrorKind::NotFound, "the blob does not exist; check the key"),
        408 => (ErrorKind::Timeout, "the server did not receive the request in time; try again"),
        409 => (
            ErrorKind::Unavailable,
            "conflicts with other writes to the same blob in every attempt; try again",
        ),
        412 => (ErrorKind::Conflict, "the blob was changed concurrently; read it again and retry"),
        405 | 501 => {
            (ErrorKind::Unsupported, "the server does not support this operation; use another server")
        }
        413 | 507 => (ErrorKind::ResourceExhausted, "the blob is larger than the server accepts; split it"),
        429 | 503 => (ErrorKind::Unavailable, "the server requests fewer calls; try again later"),
        301 | 302 | 307 | 308 => (
            ErrorKind::InvalidInput,
            "the bucket is in another region or endpoint; check `endpoint=` and `region=`",
        ),
        500..=599 => (ErrorKind::Unavailable, "the server failed; try again later"),
        _ => (ErrorKind::Unexpected, "the server refused the request; check the URL and the server's log"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_fails_leaves_a_write_open_and_one_that_refuses_does_not() {
        let told = |effect, code, status| {
            let error = from_answer("blobs.put", effect, code, Some(status));
            (error.kind(), error.outcome(), error.is_retryable())
        };
        use ErrorKind::{NotFound, PermissionDenied, Unavailable};
        use Outcome::{NotApplied, Unknown};
        assert_eq!(told(Effect::Repeatable, "InternalError", 500), (Unavailable, Unknown, true));
        assert_eq!(told(Effect::Once, "InternalError", 500), (Unavailable, Unknown, false));
        assert_eq!(told(Effect::Once, "InternalError", 200), (Unavailable, Unknown, false));
        assert_eq!(told(Effect::Once, "", 502), (Unavailable, Unknown, false));
        assert_eq!(told(Effect::Read, "", 502), (Unavailable, NotApplied, true));
        assert_eq!(told(Effect::Once, "SlowDown", 503), (Unavailable, NotApplied, true));
        assert_eq!(told(Effect::Once, "InvalidAccessKeyId", 403), (PermissionDenied, NotApplied, false));
        assert_eq!(told(Effect::Read, "", 404), (NotFound, NotApplied, false));
    }
}
