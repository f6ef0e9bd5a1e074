//! One error type for every contract and every backend.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the terms a caller can act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The thing named is not there and the operation needs it.
    NotFound,
    /// The thing named is there and the operation needs it absent.
    AlreadyExists,
    /// A condition on the present state did not hold: somebody else wrote first, or the state forbids the step.
    Conflict,
    /// The input breaks a rule that [`Error::field`] names. Nothing was changed.
    InvalidInput,
    /// The backend does not declare the capability that the call needs.
    Unsupported,
    /// The credentials do not allow the operation.
    PermissionDenied,
    /// A quota, a cap or a pool is used up.
    ResourceExhausted,
    /// The time allowed passed before the answer came.
    Timeout,
    /// The backend cannot be reached, or went away during the call.
    Unavailable,
    /// Stored data does not read back as what was written.
    Corrupt,
    /// None of the above: a defect, or a backend's answer that has no meaning here.
    Unexpected,
}

impl ErrorKind {
    /// The kind's name in reports: `NotFound`, `Conflict` and so on.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::InvalidInput => "InvalidInput",
            Self::Unsupported => "Unsupported",
            Self::PermissionDenied => "PermissionDenied",
            Self::ResourceExhausted => "ResourceExhausted",
            Self::Timeout => "Timeout",
            Self::Unavailable => "Unavailable",
            Self::Corrupt => "Corrupt",
            Self::Unexpected => "Unexpected",
        }
    }

    const fn default_outcome(self) -> Outcome {
        match self {
            Self::Timeout | Self::Unavailable | Self::Unexpected => Outcome::Unknown,
            _ => Outcome::NotApplied,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a failed write may have happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The store is as it was before the call.
    NotApplied,
    /// The write may have happened, whole; it did not happen in part.
    Unknown,
}

/// A fact attached to an error: a number or a word fixed in the program, never data of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextValue {
    /// A count, a size or an ordinal.
    Number(i128),
    /// A word from the program's own text.
    Word(&'static str),
}

impl From<u64> for ContextValue {
    fn from(value: u64) -> Self {
        Self::Number(i128::from(value))
    }
}

impl From<i64> for ContextValue {
    fn from(value: i64) -> Self {
        Self::Number(i128::from(value))
    }
}

impl From<&'static str> for ContextValue {
    fn from(value: &'static str) -> Self {
        Self::Word(value)
    }
}

impl fmt::Display for ContextValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

type Source = Arc<dyn StdError + Send + Sync + 'static>;

/// The error of every contract.
///
/// It says what went wrong ([`kind`](Self::kind)), whether the write may have happened
/// ([`outcome`](Self::outcome)), in which operation, and for bad input which field broke which limit. Neither
/// `Display` nor `Debug` ever shows a secret, a bound value or stored text; backends attach only sources that keep
/// the same promise.
///
/// ```
/// use larder_kernel::{AgentId, ErrorKind, Outcome};
///
/// let error = AgentId::new("").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput);
/// assert_eq!(error.field(), Some("agent"));
/// assert_eq!(error.outcome(), Outcome::NotApplied);
/// assert!(!error.is_retryable());
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    operation: &'static str,
    message: Cow<'static, str>,
    field: Option<&'static str>,
    actual_and_limit: Option<(u64, u64)>,
    context: Vec<(&'static str, ContextValue)>,
    idempotent: bool,
    source: Option<Source>,
}

impl Error {
    /// An error of `kind` in `operation` (for example `"history.append_many"`) with a sentence that says what to do.
    ///
    /// The outcome starts as [`Outcome::Unknown`] for `Timeout`, `Unavailable` and `Unexpected`, else as
    /// [`Outcome::NotApplied`].
    #[must_use]
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                outcome: kind.default_outcome(),
                operation,
                message: message.into(),
                field: None,
                actual_and_limit: None,
                context: Vec::new(),
                idempotent: false,
                source: None,
            }),
        }
    }

    /// Bad input: `field` breaks the rule in `message`.
    #[must_use]
    pub fn invalid(
        operation: &'static str,
        field: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut error = Self::new(ErrorKind::InvalidInput, operation, message);
        error.inner.field = Some(field);
        error
    }

    /// Bad input: `field` measures `actual` where at most `limit` is allowed.
    #[must_use]
    pub fn over_limit(operation: &'static str, field: &'static str, actual: u64, limit: u64) -> Self {
        Self::invalid(operation, field, "over the limit").with_limit(actual, limit)
    }

    /// Bad input: `field` measures `actual` where at least `limit` is needed.
    #[must_use]
    pub fn under_limit(operation: &'static str, field: &'static str, actual: u64, limit: u64) -> Self {
        Self::invalid(operation, field, "under the limit").with_limit(actual, limit)
    }

    /// The capability that `operation` needs is not declared by this store.
    #[must_use]
    pub fn unsupported(operation: &'static str, capability: crate::Capability) -> Self {
        Self::new(ErrorKind::Unsupported, operation, "the store does not declare this capability")
            .with_context("capability", capability.as_str())
    }

    /// The store does not implement `operation` yet: what the default body of a contract's method returns.
    #[must_use]
    pub fn not_implemented(operation: &'static str) -> Self {
        Self::new(ErrorKind::Unsupported, operation, "the store does not implement this method")
            .with_context("missing", operation)
    }

    /// The namespace that a stream reads was erased, so what it has told so far is gone.
    #[must_use]
    pub fn erased(operation: &'static str) -> Self {
        Self::new(ErrorKind::Conflict, operation, "the namespace was erased: begin anew")
    }

    /// Names the input field that the error is about.
    #[must_use]
    pub fn with_field(mut self, field: &'static str) -> Self {
        self.inner.field = Some(field);
        self
    }

    /// Adds the measured size and the limit that it breaks.
    #[must_use]
    pub fn with_limit(mut self, actual: u64, limit: u64) -> Self {
        self.inner.actual_and_limit = Some((actual, limit));
        self
    }

    /// Adds a fact. Numbers and fixed words only, so that no stored text can leak.
    #[must_use]
    pub fn with_context(mut self, name: &'static str, value: impl Into<ContextValue>) -> Self {
        self.inner.context.push((name, value.into()));
        self
    }

    /// Attaches the cause. The caller vouches that its text shows no secret, bound value or stored text.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(Arc::from(source.into()));
        self
    }

    /// States whether the write may have happened.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.inner.outcome = outcome;
        self
    }

    /// Marks the failed call as one that may be repeated without a second effect.
    #[must_use]
    pub fn with_idempotent(mut self, idempotent: bool) -> Self {
        self.inner.idempotent = idempotent;
        self
    }

    /// Renames the operation, for a check that serves several of them.
    #[must_use]
    pub fn in_operation(mut self, operation: &'static str) -> Self {
        self.inner.operation = operation;
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether the write may have happened.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.inner.outcome
    }

    /// The operation that failed, as `contract.method`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.inner.operation
    }

    /// The sentence that says what is wrong or what to do.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// The input field that broke a rule.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        self.inner.field
    }

    /// The limit that the field broke.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.inner.actual_and_limit.map(|(_, limit)| limit)
    }

    /// What the field measured where it broke a limit.
    #[must_use]
    pub fn actual(&self) -> Option<u64> {
        self.inner.actual_and_limit.map(|(actual, _)| actual)
    }

    /// The facts attached, in the order they were added.
    #[must_use]
    pub fn context(&self) -> &[(&'static str, ContextValue)] {
        &self.inner.context
    }

    /// The method that the store does not implement, where the error is one of [`Error::not_implemented`].
    #[must_use]
    pub fn missing_method(&self) -> Option<&'static str> {
        self.inner.context.iter().find_map(|fact| match fact {
            ("missing", ContextValue::Word(method)) => Some(*method),
            _ => None,
        })
    }

    /// Whether the same call may be sent again as it is.
    ///
    /// True for `Timeout` and `Unavailable` when the write did not happen, or when a second one has no second
    /// effect (a read, an upsert, an append with an idempotency key). A `Conflict` is never retryable as it is: read
    /// again first.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let transient = matches!(self.inner.kind, ErrorKind::Timeout | ErrorKind::Unavailable);
        transient && (self.inner.outcome == Outcome::NotApplied || self.inner.idempotent)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.inner;
        write!(f, "{} in {}: ", inner.kind, inner.operation)?;
        if let Some(field) = inner.field {
            write!(f, "`{field}`: ")?;
        }
        f.write_str(&inner.message)?;
        if let Some((actual, limit)) = inner.actual_and_limit {
            write!(f, " ({actual}, limit {limit})")?;
        }
        for (name, value) in &inner.context {
            write!(f, "; {name} {value}")?;
        }
        if inner.outcome == Outcome::Unknown {
            f.write_str("; the write may have happened")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self}")?;
        if let Some(source) = &self.inner.source {
            write!(f, "; caused by: {source}")?;
        }
        f.write_str(")")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<Infallible> for Error {
    /// Lets a method take an id or a text that becomes one: `impl TryInto<Key, Error: Into<Error>>`.
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_follows_from_kind_outcome_and_idempotency() {
        let unknown = Error::new(ErrorKind::Timeout, "key_value.put", "late");
        assert_eq!(unknown.outcome(), Outcome::Unknown);
        assert!(!unknown.is_retryable());
        assert!(unknown.with_idempotent(true).is_retryable());
        let refused = Error::new(ErrorKind::Unavailable, "key_value.put", "no connection");
        assert!(refused.with_outcome(Outcome::NotApplied).is_retryable());
        assert!(
            !Error::new(ErrorKind::Conflict, "key_value.put", "lost").with_idempotent(true).is_retryable()
        );
    }

    #[test]
    fn a_missing_method_is_named_and_nothing_else_is_one() {
        let error = Error::not_implemented("history.fork").in_operation("retry.fork");
        assert_eq!((error.kind(), error.missing_method()), (ErrorKind::Unsupported, Some("history.fork")));
        let undeclared = Error::unsupported("blobs.presign", crate::Capability::BlobPresignGet);
        assert_eq!(undeclared.missing_method(), None);
    }

    #[test]
    fn display_is_one_line_with_field_limit_and_outcome() {
        let error = Error::over_limit("history.append_many", "messages", 1001, 1000);
        assert_eq!(
            error.to_string(),
            "InvalidInput in history.append_many: `messages`: over the limit (1001, limit 1000)"
        );
        let error = Error::new(ErrorKind::Unavailable, "key_value.put", "connection lost")
            .with_context("attempts", 3_u64);
        assert_eq!(
            error.to_string(),
            "Unavailable in key_value.put: connection lost; attempts 3; the write may have happened"
        );
    }
}
