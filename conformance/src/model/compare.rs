//! The comparison of a store's result with the model's.

use std::fmt::Debug;

use larder_kernel::{Error, ErrorKind, Outcome, Result};
use serde::Serialize;

use super::recorder::{Recorder, json_text, plain};

/// The result of a comparison.
pub(super) type Checked<T = ()> = Result<T, Mismatch>;

/// The reason why a script ended early.
#[derive(Debug)]
pub(super) enum Mismatch {
    /// The store differs from the model.
    Wrong(Box<Wrong>),
    /// The service or the suite failed. The operation is untested.
    Trouble(String),
}

impl Mismatch {
    /// Creates the end of a script whose operation the suite cannot make.
    pub(super) fn trouble(error: &Error) -> Self {
        Self::Trouble(error.to_string())
    }
}

/// A difference between store and model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The clause that requires the expected result.
    pub(super) clause: &'static str,
    pub(super) expected: String,
    pub(super) got: String,
    /// The statement that fails in the printed script.
    pub(super) assertion: String,
}

impl Wrong {
    pub(super) fn sentence(&self) -> String {
        format!("expected {}; got {}", cut(&self.expected), cut(&self.got))
    }
}

/// An error that the model expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    /// The field, for invalid input.
    pub(super) field: Option<&'static str>,
}

impl From<ErrorKind> for Refusal {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, field: None }
    }
}

impl From<Error> for Refusal {
    /// Converts the error of a kernel check.
    fn from(error: Error) -> Self {
        Self { kind: error.kind(), field: error.field() }
    }
}

/// The result that the model expects.
pub(super) type Expected<T> = std::result::Result<T, Refusal>;

/// Compares a result with the model's.
pub(super) fn same<T: PartialEq + Debug + Serialize>(
    recorder: &Recorder,
    clause: &'static str,
    got: &Result<T>,
    expected: &Expected<T>,
) -> Checked {
    match (got, expected) {
        (Ok(got), Ok(expected)) if got == expected => Ok(()),
        (Err(got), Err(expected)) => refused(recorder, clause, got, *expected),
        (Err(error), Ok(_)) if is_trouble(error) => Err(Mismatch::Trouble(format!("{error:?}"))),
        (_, Ok(value)) => {
            let assertion = difference(recorder, got.as_ref().ok(), value);
            Err(wrong(clause, format!("{value:?}"), shown(got), assertion))
        }
        (Ok(got), Err(expected)) => Err(unrefused(recorder, clause, got, *expected)),
    }
}

/// Returns the statement that fails. It omits the store's free choices if another difference exists.
fn difference<T: Serialize>(recorder: &Recorder, got: Option<&T>, expected: &T) -> String {
    let json = |value: &T| serde_json::to_value(value).unwrap_or_default();
    let (whole, without) = (json(expected), plain(json(expected)));
    let besides = got.is_none_or(|got| plain(json(got)) != without);
    let how = if besides && whole != without { "alike" } else { "same" };
    format!("{how}({}.unwrap(), {});", recorder.answer(), json_text(expected))
}

/// Compares a result with the model's error, if the model expects one. Otherwise returns the result, for a
/// model that computes from the store's choices.
pub(super) fn answered<T: Debug>(
    recorder: &Recorder,
    clause: &'static str,
    got: Result<T>,
    expected: &Expected<()>,
) -> Checked<Option<T>> {
    match (got, expected) {
        (Ok(got), Ok(())) => Ok(Some(got)),
        (Err(got), Err(expected)) => refused(recorder, clause, &got, *expected).map(|()| None),
        (Err(error), Ok(())) if is_trouble(&error) => Err(Mismatch::Trouble(format!("{error:?}"))),
        (Err(error), Ok(())) => {
            let assertion = format!("assert!({0}.is_ok(), \"{{:?}}\", {0}.err());", recorder.answer());
            Err(wrong(clause, "success".to_owned(), format!("{error:?}"), assertion))
        }
        (Ok(got), Err(expected)) => Err(unrefused(recorder, clause, &got, *expected)),
    }
}

/// Checks any other relation between store and model.
pub(super) fn holds(
    clause: &'static str,
    holds: bool,
    expected: impl FnOnce() -> String,
    got: &impl Debug,
    assertion: impl FnOnce() -> String,
) -> Checked {
    if holds { Ok(()) } else { Err(wrong(clause, expected(), shown(got), assertion())) }
}

pub(super) fn wrong(clause: &'static str, expected: String, got: String, assertion: String) -> Mismatch {
    Mismatch::Wrong(Box::new(Wrong { clause, expected, got, assertion }))
}

fn refused(recorder: &Recorder, clause: &'static str, got: &Error, expected: Refusal) -> Checked {
    let field = expected.field.is_none() || got.field() == expected.field;
    if got.kind() == expected.kind && field && got.outcome() == Outcome::NotApplied {
        return Ok(());
    }
    if is_trouble(got) {
        return Err(Mismatch::Trouble(format!("{got:?}")));
    }
    // A wrong error kind for invalid input breaks the clause about error kinds, not the clause of the call.
    let clause = if expected.kind == ErrorKind::InvalidInput { "STORE-010" } else { clause };
    let assertion = refusal_assertion(recorder, expected);
    Err(wrong(clause, named(expected), format!("{got:?}"), assertion))
}

fn unrefused(recorder: &Recorder, clause: &'static str, got: &impl Debug, expected: Refusal) -> Mismatch {
    let clause = if expected.kind == ErrorKind::InvalidInput { "STORE-010" } else { clause };
    wrong(clause, named(expected), format!("success: {}", shown(got)), refusal_assertion(recorder, expected))
}

fn refusal_assertion(recorder: &Recorder, expected: Refusal) -> String {
    let answer = recorder.answer();
    match expected.field {
        None => format!("assert_eq!({answer}.unwrap_err().kind(), ErrorKind::{});", expected.kind),
        Some(field) => format!(
            "let refusal = {answer}.unwrap_err();\nassert_eq!((refusal.kind(), refusal.field(), \
             refusal.outcome()), (ErrorKind::{}, Some({field:?}), Outcome::NotApplied));",
            expected.kind
        ),
    }
}

fn named(refusal: Refusal) -> String {
    refusal.field.map_or_else(
        || refusal.kind.to_string(),
        |field| format!("{} naming {field}, without effect", refusal.kind),
    )
}

/// Returns `true` if the error is about the service and not about the contract.
pub(super) fn is_trouble(error: &Error) -> bool {
    // A missing method proves nothing about the clauses.
    error.missing_method().is_some()
        || matches!(
            error.kind(),
            ErrorKind::Unavailable
                | ErrorKind::Timeout
                | ErrorKind::PermissionDenied
                | ErrorKind::ResourceExhausted
        )
}

/// Returns the `Debug` form, truncated to the length that a report can show.
pub(super) fn shown(value: &impl Debug) -> String {
    cut(&format!("{value:?}"))
}

fn cut(text: &str) -> String {
    const CHARS_MAX: usize = 800;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
