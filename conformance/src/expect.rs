//! Expectations: each compares the actual result with the required one, and its failure shows both.

use std::fmt::Debug;

use larder_kernel::{Error, ErrorKind, Outcome, undeclared_option};

use crate::case::{CaseResult, Failure};

/// Checks that `got` equals `expected`.
///
/// # Errors
/// `Broken` with both values.
pub fn equal<T: PartialEq + Debug>(what: &str, got: &T, expected: &T) -> CaseResult {
    if got == expected {
        return Ok(());
    }
    Err(broken(format!("{what}: {}", shown(expected)), shown(got)))
}

/// Checks that `holds` is true.
///
/// # Errors
/// `Broken` with the two descriptions.
pub fn that(holds: bool, expected: impl Into<String>, got: impl Debug) -> CaseResult {
    if holds { Ok(()) } else { Err(broken(expected, shown(&got))) }
}

/// Checks that the call failed with an error of `kind`, and returns the error.
///
/// # Errors
/// `Broken`, which names the actual result; `Engine` if the service failed; `Missing` if the store does not
/// implement the method; `Undeclared` if it does not honor an option of the call.
pub fn error<T: Debug>(what: &str, result: Result<T, Error>, kind: ErrorKind) -> CaseResult<Error> {
    match result {
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) if error.kind() == ErrorKind::Unavailable || error.missing_method().is_some() => {
            Err(error.into())
        }
        Err(error) if undeclared_option(&error).is_some() => Err(error.into()),
        Err(error) => Err(broken(format!("{what}: {kind}"), format!("{error:?}"))),
        Ok(value) => Err(broken(format!("{what}: {kind}"), format!("success: {}", shown(&value)))),
    }
}

/// Checks that the call was rejected as invalid input that names `field`, without effect.
///
/// # Errors
/// `Broken`, which names the actual result.
pub fn invalid<T: Debug>(what: &str, result: Result<T, Error>, field: &str) -> CaseResult<Error> {
    let refusal = error(what, result, ErrorKind::InvalidInput)?;
    equal(&format!("{what}: the field named"), &refusal.field(), &Some(field))?;
    equal(&format!("{what}: the outcome"), &refusal.outcome(), &Outcome::NotApplied)?;
    Ok(refusal)
}

/// Returns the value of an `Option` that must be `Some`.
///
/// # Errors
/// `Broken` if it is `None`.
pub fn some<T>(what: &str, value: Option<T>) -> CaseResult<T> {
    value.ok_or_else(|| broken(format!("{what} to be there"), "nothing"))
}

/// Creates the failure of a broken clause.
pub fn broken(expected: impl Into<String>, got: impl Into<String>) -> Failure {
    Failure::Broken { expected: expected.into(), got: got.into() }
}

/// Returns the `Debug` form, truncated to the length that a report can show.
fn shown(value: &impl Debug) -> String {
    const CHARS_MAX: usize = 600;
    let text = format!("{value:?}");
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}
