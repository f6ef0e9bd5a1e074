//! Results for Python.

use larder::{Error, ErrorKind, Result};
use pyo3::prelude::*;
use serde::Serialize;

/// Encodes a result as JSON. It runs without the interpreter.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| {
        let message = "the result has no JSON form";
        Error::new(ErrorKind::Unexpected, "python", message).with_source(error)
    })
}

pub(crate) fn text(py: Python<'_>, text: String) -> PyResult<Py<PyAny>> {
    Ok(text.into_pyobject(py)?.into_any().unbind())
}

pub(crate) fn count(py: Python<'_>, count: u64) -> PyResult<Py<PyAny>> {
    Ok(count.into_pyobject(py)?.into_any().unbind())
}

pub(crate) fn flag(py: Python<'_>, flag: bool) -> PyResult<Py<PyAny>> {
    Ok(flag.into_pyobject(py)?.to_owned().into_any().unbind())
}

pub(crate) fn none(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}
