//! The reasons for which a case fails.

use larder_kernel::{Capability, Error, ErrorKind, RequestOption, undeclared_option};
use tokio::task::JoinError;

/// The reason why a case did not pass.
#[derive(Debug)]
pub enum Failure {
    /// The backend's behavior contradicts the clause.
    Broken {
        /// The result that the clause requires.
        expected: String,
        /// The actual result.
        got: String,
    },
    /// The case needs a method that the store does not implement yet. The clause is untested.
    Missing {
        /// The method, as `contract.method`.
        method: &'static str,
    },
    /// The case needs a capability that the backend does not declare.
    Unsupported(Capability),
    /// The case sets an option that the backend does not declare.
    Undeclared(RequestOption),
    /// The case needs data to outlive its handles, and the backend does not declare durability.
    NotDurable,
    /// A call reported that the backend cannot be reached. The answer is wrong if the backend can be reached.
    Unreachable(String),
    /// The harness or the suite itself failed.
    Engine(String),
}

/// The result of a case.
pub type CaseResult<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    /// Converts an error that a case did not expect: a service failure or a broken clause.
    fn from(error: Error) -> Self {
        if let Some(method) = error.missing_method() {
            return Self::Missing { method };
        }
        if let Some(option) = undeclared_option(&error) {
            return Self::Undeclared(option);
        }
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::PermissionDenied => {
                Self::Unreachable(format!("{error:?}"))
            }
            _ => Self::Broken { expected: "success".to_owned(), got: format!("{error:?}") },
        }
    }
}

impl From<JoinError> for Failure {
    /// Converts the end of a spawned task: a store that panics gives a wrong answer.
    fn from(error: JoinError) -> Self {
        if error.is_panic() {
            let (expected, got) = ("an answer or a typed error".to_owned(), format!("a panic: {error}"));
            return Self::Broken { expected, got };
        }
        Self::Engine(format!("a task of the case ended early: {error}"))
    }
}

/// Returns `None` if the store does not implement the called method yet. So a case can do without a method
/// that its clause is not about.
///
/// # Errors
/// Every other error.
pub(crate) fn implemented<T>(answer: Result<T, Error>) -> CaseResult<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.missing_method().is_some() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
