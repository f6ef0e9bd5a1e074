//! How a case fails.

use larder_kernel::{Capability, Error, ErrorKind};

/// Why a case did not pass.
#[derive(Debug)]
pub enum Failure {
    /// The backend did something else than the clause says.
    Broken {
        /// What the clause leads to.
        expected: String,
        /// What came.
        got: String,
    },
    /// The case needs a method that the store does not implement yet, so nothing is known of the clause.
    Missing {
        /// The method, as `contract.method`.
        method: &'static str,
    },
    /// The case needs a capability that the backend does not declare.
    Unsupported(Capability),
    /// The case needs data to outlive its handles, and the backend declares that it does not.
    NotDurable,
    /// The backend could not be used at all, or the suite's own machinery failed.
    Engine(String),
}

/// How a case ends.
pub type CaseResult<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    /// An error that a case did not expect: the service's own trouble, or a broken clause.
    fn from(error: Error) -> Self {
        if let Some(method) = error.missing_method() {
            return Self::Missing { method };
        }
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::PermissionDenied => {
                Self::Engine(format!("{error:?}"))
            }
            _ => Self::Broken { expected: "success".to_owned(), got: format!("{error:?}") },
        }
    }
}
