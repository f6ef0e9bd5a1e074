//! Errors as Python exceptions.

use std::error::Error as _;

use larder::{ContextValue, Error, Outcome};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::callback::raised;

/// Returns the exception of an error. The class is that of its kind. The exception of a function that the
/// call needed is returned unchanged.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    if let Some(raised) = raised(py, error) {
        return raised;
    }
    let build = || -> PyResult<PyErr> {
        let facts = PyDict::new(py);
        for (name, value) in error.context() {
            match value {
                ContextValue::Number(number) if i64::try_from(*number).is_ok() => {
                    facts.set_item(*name, i64::try_from(*number).unwrap_or_default())?;
                }
                other => facts.set_item(*name, other.to_string())?,
            }
        }
        let outcome = if error.outcome() == Outcome::Unknown { "unknown" } else { "not_applied" };
        let sizes = (error.actual(), error.limit());
        let source = error.source().map(ToString::to_string);
        let arguments = (
            error.kind().as_str(),
            error.to_string(),
            outcome,
            error.operation(),
            error.field(),
            sizes,
            facts,
            error.is_retryable(),
            source,
        );
        let value = py.import("larder._errors")?.getattr("exception")?.call1(arguments)?;
        Ok(PyErr::from_value(value))
    };
    build().unwrap_or_else(|error| error)
}

/// Converts the errors of the Rust library.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for larder::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}
