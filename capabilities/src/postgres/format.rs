//! The format numbers of databases, and the error for a write to a database of another format.

use larder_kernel::Error;

use crate::format::Formats;

/// The oldest format that this program opens.
pub(super) const BASELINE: i64 = 12;

/// The error code that `larder.at_format` raises if the format is another. Its detail is the format of the
/// database and the format of the program.
pub(super) const WRONG_FORMAT: &str = "LF001";

/// Returns the formats that a program of the format `newest` supports.
pub(super) fn formats(newest: i64) -> Formats {
    Formats { subject: "the database", target: "a new database", oldest: BASELINE, newest }
}

/// Returns the error for the detail of the code `WRONG_FORMAT`.
pub(super) fn wrong_format(operation: &'static str, detail: &str) -> Option<Error> {
    let (found, expected) = detail.split_once(' ')?;
    Some(formats(expected.parse().ok()?).refuse(operation, found.parse().ok()?))
}
