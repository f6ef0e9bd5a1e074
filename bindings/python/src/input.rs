//! Arguments from Python.

use bytes::Bytes;
use larder::{Error, Result};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use serde::de::DeserializeOwned;

use crate::errors::exception;

/// Returns the exception for an argument of another type than `wanted`.
pub(crate) fn wrong_type(field: &'static str, value: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let given = value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    let message = format!("is of the type `{given}`; pass {wanted}");
    exception(value.py(), &Error::invalid("python", field, message))
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $field:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub(crate) $inner);

        impl<'py> FromPyObject<'_, 'py> for $name {
            type Error = PyErr;

            fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
                let wrong = || wrong_type($field, &given, "a whole number that is not negative");
                given.extract::<$inner>().map(Self).map_err(|_| wrong())
            }
        }
    };
}

number!(
    /// The number of items to return.
    Limit, usize, "limit"
);
number!(
    /// The number of items to skip.
    Offset, u64, "offset"
);
number!(
    /// The fencing token of a writer.
    Fence, u64, "fence"
);

/// Returns the exception for an argument.
pub(crate) fn invalid(py: Python<'_>, field: &'static str, message: impl Into<String>) -> PyErr {
    exception(py, &Error::invalid("python", field, message.into()))
}

/// Reads a text.
pub(crate) fn text<'a>(field: &'static str, value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    let text = value.cast::<PyString>().map_err(|_| wrong_type(field, value, "a str"))?;
    text.to_str().map_err(|_| invalid(value.py(), field, "has a lone surrogate; remove it"))
}

/// Reads an id or a name.
pub(crate) fn id<I>(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<I>
where
    I: for<'a> TryFrom<&'a str, Error = Error>,
{
    I::try_from(text(field, value)?).map_err(|error| exception(value.py(), &error))
}

/// Reads a text that may be `None`, and converts it.
pub(crate) fn optional<T>(
    value: Option<&Bound<'_, PyAny>>,
    read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    value.map(read).transpose()
}

/// Reads a position from its text, such as `12@1f4`.
pub(crate) fn position<P>(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<P>
where
    P: std::str::FromStr<Err = Error>,
{
    let parsed: Result<P> = text(field, value)?.parse();
    parsed.map_err(|error| exception(value.py(), &error.with_field(field)))
}

/// Copies the bytes of an object with a buffer of bytes.
pub(crate) fn bytes(field: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Bytes::copy_from_slice(bytes.as_bytes()));
    }
    let buffer = PyBuffer::<u8>::get(value).map_err(|_| wrong_type(field, value, "bytes"))?;
    Ok(Bytes::from(buffer.to_vec(value.py())?))
}

/// Parses JSON. The error shows the place and none of the content.
pub(crate) fn json<T: DeserializeOwned>(
    operation: &'static str,
    field: &'static str,
    text: &str,
) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        let message =
            format!("has a wrong value at byte {} of its JSON; see the documentation", error.column());
        Error::invalid(operation, field, message)
    })
}
