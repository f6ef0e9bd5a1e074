//! Failures inside a job, and their translation to the caller's error.

use larder_kernel::{Error, ErrorKind, Outcome};
use rusqlite::ErrorCode;

/// A failure inside a job: an error of the contract or of SQLite. `?` converts both.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the contract, ready to return.
    Contract(Error),
    /// An error of SQLite, not translated yet.
    Sqlite(rusqlite::Error),
    /// An inline read exceeded its budget.
    BudgetExceeded,
}

/// The result of a step inside a job.
pub(crate) type Fallible<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Contract(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<serde_json::Error> for Failure {
    /// Converts a failure to parse stored JSON, the only case of this error. The parser's message may quote
    /// the text, so it is dropped.
    fn from(_: serde_json::Error) -> Self {
        Self::Contract(corrupt("sqlite.read"))
    }
}

impl Failure {
    /// Returns true if another connection holds the lock that the step needs.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Sqlite(error) if matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        ))
    }

    /// Returns the error for the caller of `operation`.
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        match self {
            Self::Contract(error) => error.in_operation(operation),
            Self::Sqlite(error) => from_sqlite(&error, operation),
            Self::BudgetExceeded => {
                Error::new(ErrorKind::Unexpected, operation, "the read exceeds the budget of an inline read")
                    .with_outcome(Outcome::NotApplied)
            }
        }
    }
}

/// Returns the error for stored data that cannot be read back.
pub(crate) fn corrupt(operation: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, operation, "a stored record is corrupt; restore it from a backup")
}

/// Keeps only the result code. SQLite's messages contain names of tables and columns and sometimes the
/// statement, and a failed conversion may quote the value.
fn from_sqlite(error: &rusqlite::Error, operation: &'static str) -> Error {
    let Some(failure) = error.sqlite_error() else {
        return match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::InvalidColumnType(..) => corrupt(operation),
            _ => Error::new(
                ErrorKind::Unexpected,
                operation,
                "the database driver rejected a statement; report the defect",
            )
            .with_outcome(Outcome::NotApplied),
        };
    };
    let (kind, message, outcome) = describe(failure.code);
    Error::new(kind, operation, message)
        .with_outcome(outcome)
        .with_context("sqlite_code", i64::from(failure.extended_code))
}

fn describe(code: ErrorCode) -> (ErrorKind, &'static str, Outcome) {
    use Outcome::{NotApplied, Unknown};
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => (
            ErrorKind::Timeout,
            "another process locked the database for longer than `busy_timeout_ms`; try again, or raise it",
            NotApplied,
        ),
        ErrorCode::DiskFull => {
            (ErrorKind::ResourceExhausted, "the disk is full; free space on it", NotApplied)
        }
        ErrorCode::TooBig => (
            ErrorKind::ResourceExhausted,
            "a record is larger than the database accepts; split it",
            NotApplied,
        ),
        ErrorCode::OutOfMemory => (
            ErrorKind::ResourceExhausted,
            "the process is out of memory; request less or add memory",
            NotApplied,
        ),
        ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied => (
            ErrorKind::PermissionDenied,
            "the database file cannot be written; check the permissions of the file and of its folder",
            NotApplied,
        ),
        ErrorCode::CannotOpen => (
            ErrorKind::PermissionDenied,
            "the database file cannot be opened for writing; check that its folder exists, and the \
             permissions of both",
            NotApplied,
        ),
        ErrorCode::DatabaseCorrupt => {
            (ErrorKind::Corrupt, "the database file is damaged; restore it from a backup", NotApplied)
        }
        ErrorCode::NotADatabase => (
            ErrorKind::Corrupt,
            "the file is not an SQLite database; name another file, or restore it",
            NotApplied,
        ),
        ErrorCode::SystemIoFailure | ErrorCode::FileLockingProtocolFailed => {
            (ErrorKind::Unavailable, "reading or writing the database file failed; check its disk", Unknown)
        }
        _ => (ErrorKind::Unexpected, "the database rejected a statement; report the defect", NotApplied),
    }
}
