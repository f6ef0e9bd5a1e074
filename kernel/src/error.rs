//! The error type of every contract and every backend.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The category of an error, by the action that a caller can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The named item does not exist, and the operation needs it.
    NotFound,
    /// The named item exists already, and the operation needs it to be absent.
    AlreadyExists,
    /// A condition on the current state failed: another writer was faster, or the state does not allow the
    /// operation.
    Conflict,
    /// The input breaks a rule on the field that [`Error::field`] names. Nothing was changed.
    InvalidInput,
    /// The backend does not declare the capability that the call needs.
    Unsupported,
    /// The credentials do not allow the operation.
    PermissionDenied,
    /// A quota, a size limit or a pool is exhausted.
    ResourceExhausted,
    /// The time limit passed before the backend replied.
    Timeout,
    /// The backend is unreachable, or the connection was lost during the call.
    Unavailable,
    /// Stored data cannot be read back as it was written.
    Corrupt,
    /// Any other error: a defect, or a backend reply that has no defined meaning.
    Unexpected,
}

impl ErrorKind {
    /// Returns the name used in reports: `NotFound`, `Conflict` and so on.
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

/// The state of a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The write did not happen. The store is unchanged.
    NotApplied,
    /// The write may have happened. If it happened, it is complete.
    Unknown,
}

/// A fact attached to an error: a number or a fixed word of the program, never data of the caller.
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
/// An error has a [`kind`](Self::kind), an [`outcome`](Self::outcome) that states whether the write may have
/// happened, and the operation that failed. For invalid input it also has the field and the limit. Neither
/// `Display` nor `Debug` ever shows a secret, a bound value or stored text. Backends attach only sources that
/// keep the same promise.
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
    /// Creates an error of `kind` in `operation` (for example `"history.append_many"`). The `message` is a
    /// sentence that states the problem or the next step.
    ///
    /// The initial outcome is [`Outcome::Unknown`] for `Timeout`, `Unavailable` and `Unexpected`. For other
    /// kinds it is [`Outcome::NotApplied`].
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

    /// Creates an `InvalidInput` error: `field` breaks the rule in `message`.
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

    /// Creates an `InvalidInput` error: the size of `field` is `actual`, and at most `limit` is allowed.
    #[must_use]
    pub fn over_limit(operation: &'static str, field: &'static str, actual: u64, limit: u64) -> Self {
        Self::invalid(operation, field, "over the limit; reduce it").with_limit(actual, limit)
    }

    /// Creates an `InvalidInput` error: the size of `field` is `actual`, and at least `limit` is required.
    #[must_use]
    pub fn under_limit(operation: &'static str, field: &'static str, actual: u64, limit: u64) -> Self {
        Self::invalid(operation, field, "under the limit; increase it").with_limit(actual, limit)
    }

    /// Creates an `Unsupported` error: `operation` needs a capability that this store does not declare.
    #[must_use]
    pub fn unsupported(operation: &'static str, capability: crate::Capability) -> Self {
        Self::new(
            ErrorKind::Unsupported,
            operation,
            "the store does not declare this capability; check `capabilities()` first",
        )
        .with_context("capability", capability.as_str())
    }

    /// Creates an `Unsupported` error: the store was written before this value of `field` existed. A store
    /// returns it in the wildcard arm of a `match` over a type that may grow.
    #[must_use]
    pub fn unknown_value(operation: &'static str, field: &'static str) -> Self {
        Self::new(ErrorKind::Unsupported, operation, "this store does not support the value")
            .with_field(field)
    }

    /// Creates the error that the default body of a contract's method returns: the store does not implement
    /// `operation`.
    #[must_use]
    pub fn not_implemented(operation: &'static str) -> Self {
        Self::new(
            ErrorKind::Unsupported,
            operation,
            "the store does not implement this method; implement it or use another store",
        )
        .with_context("missing", operation)
    }

    /// Creates the error that ends a stream whose data was erased or lost. The items that the stream has
    /// delivered no longer exist.
    #[must_use]
    pub fn erased(operation: &'static str) -> Self {
        Self::new(
            ErrorKind::Conflict,
            operation,
            "the data at the saved position was erased or lost; discard the position and start from the \
             beginning",
        )
    }

    /// Sets the input field that the error is about.
    #[must_use]
    pub fn with_field(mut self, field: &'static str) -> Self {
        self.inner.field = Some(field);
        self
    }

    /// Sets the measured size and the limit that it exceeds or falls below.
    #[must_use]
    pub fn with_limit(mut self, actual: u64, limit: u64) -> Self {
        self.inner.actual_and_limit = Some((actual, limit));
        self
    }

    /// Adds a fact. Facts are numbers and fixed words only, so stored text cannot leak.
    #[must_use]
    pub fn with_context(mut self, name: &'static str, value: impl Into<ContextValue>) -> Self {
        self.inner.context.push((name, value.into()));
        self
    }

    /// Attaches the cause. The caller guarantees that its text shows no secret, bound value or stored text.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(Arc::from(source.into()));
        self
    }

    /// Sets the outcome of the write.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.inner.outcome = outcome;
        self
    }

    /// Marks the failed call as idempotent: repeating it has no second effect.
    #[must_use]
    pub fn with_idempotent(mut self, idempotent: bool) -> Self {
        self.inner.idempotent = idempotent;
        self
    }

    /// Sets the operation, for a check that several operations share.
    #[must_use]
    pub fn in_operation(mut self, operation: &'static str) -> Self {
        self.inner.operation = operation;
        self
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Returns the outcome of the write.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.inner.outcome
    }

    /// Returns the operation that failed, as `contract.method`.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.inner.operation
    }

    /// Returns the message: a sentence that states the problem or the next step.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Returns the input field that broke a rule.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        self.inner.field
    }

    /// Returns the limit that the field broke.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.inner.actual_and_limit.map(|(_, limit)| limit)
    }

    /// Returns the measured size of a field that broke a limit.
    #[must_use]
    pub fn actual(&self) -> Option<u64> {
        self.inner.actual_and_limit.map(|(actual, _)| actual)
    }

    /// Returns the attached facts, in the order in which they were added.
    #[must_use]
    pub fn context(&self) -> &[(&'static str, ContextValue)] {
        &self.inner.context
    }

    /// Returns the method that the store does not implement, if the error is from [`Error::not_implemented`].
    #[must_use]
    pub fn missing_method(&self) -> Option<&'static str> {
        self.inner.context.iter().find_map(|fact| match fact {
            ("missing", ContextValue::Word(method)) => Some(*method),
            _ => None,
        })
    }

    /// Returns `true` if the same call may be repeated unchanged.
    ///
    /// An error is retryable if its kind is `Timeout` or `Unavailable`, and either the write did not happen
    /// or a second write has no second effect. Examples of the latter are a read, an upsert and an append
    /// with an idempotency key. A `Conflict` is never retryable: read the current state first.
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
        // The figures follow the reason and precede the advice.
        let (reason, advice) = inner.message.split_once("; ").unwrap_or((&*inner.message, ""));
        f.write_str(reason)?;
        if let Some((actual, limit)) = inner.actual_and_limit {
            write!(f, " ({actual}, limit {limit})")?;
        }
        if !advice.is_empty() {
            write!(f, "; {advice}")?;
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
    /// Allows a method to accept an id or a text that converts to one: `impl TryInto<Key, Error:
    /// Into<Error>>`.
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
    fn a_missing_method_is_named_and_others_are_not() {
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
            "InvalidInput in history.append_many: `messages`: over the limit (1001, limit 1000); reduce it"
        );
        let error = Error::new(ErrorKind::Unavailable, "key_value.put", "connection lost")
            .with_context("attempts", 3_u64);
        assert_eq!(
            error.to_string(),
            "Unavailable in key_value.put: connection lost; attempts 3; the write may have happened"
        );
    }
}
