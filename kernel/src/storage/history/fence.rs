//! The fence of a thread: the greatest token with which a write on it succeeded.
//!
//! A write carries its token as `Option<FencingToken>`, the type that the contract of tasks uses for a claim:
//! as a field of the requests that have options, and as the last argument of the other methods. A required
//! argument does not compile in a store that was written before it existed, so no store ignores it in
//! silence. A caller that holds one claim for many calls uses [`fenced`](crate::storage::fenced), which adds
//! the token to each.

use crate::error::{ContextValue, Error, ErrorKind, Result};
use crate::limits::FENCING_TOKEN_MAX;
use crate::position::FencingToken;

/// Checks the fencing token of a write.
///
/// # Errors
/// `InvalidInput` naming `fence` if the token is over 2^63 - 1.
pub fn check_token(operation: &'static str, fence: Option<FencingToken>) -> Result<()> {
    match fence {
        Some(token) if token.get() > FENCING_TOKEN_MAX => {
            Err(Error::over_limit(operation, "fence", token.get(), FENCING_TOKEN_MAX))
        }
        _ => Ok(()),
    }
}

/// Checks the fencing token of a write on a thread whose greatest token is `greatest`. Tokens are compared by
/// their numbers alone.
///
/// # Errors
/// `Conflict` naming `fence`, with the number of the thread's greatest token as the fact `fence`.
pub fn check_fence(
    operation: &'static str,
    fence: Option<FencingToken>,
    greatest: Option<FencingToken>,
) -> Result<()> {
    match greatest.filter(|greatest| fence.is_none_or(|token| token < *greatest)) {
        Some(greatest) => Err(fenced_off(operation, greatest)),
        None => Ok(()),
    }
}

/// Creates the error of a write whose token is missing or lower than the thread's greatest.
#[must_use]
pub fn fenced_off(operation: &'static str, greatest: FencingToken) -> Error {
    let message = "another writer has the thread, with a greater fencing token; claim the task again, read \
                   `thread_info` and the messages, and repeat the call with the token of the new claim";
    Error::new(ErrorKind::Conflict, operation, message)
        .with_field("fence")
        .with_context("fence", greatest.get())
}

/// Returns the greatest token of the thread, if the error is from [`fenced_off`]. An operator's tool that
/// must change a thread regardless of its writers, such as the erasure of a person's data, repeats the call
/// with this token.
#[must_use]
pub fn fence_of(error: &Error) -> Option<FencingToken> {
    let fence = error.context().iter().find_map(|fact| match fact {
        ("fence", ContextValue::Number(fence)) => u64::try_from(*fence).ok(),
        _ => None,
    });
    fence.map(FencingToken::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_refuses_lower_tokens_and_none() {
        let token = |number| Some(FencingToken::new(number));
        let refused = |fence, greatest| check_fence("test", fence, greatest).err();
        for accepted in [(None, None), (token(0), None), (token(7), token(7)), (token(8), token(7))] {
            assert!(refused(accepted.0, accepted.1).is_none(), "{accepted:?}");
        }
        for fence in [None, token(0), token(6)] {
            let error = refused(fence, token(7)).unwrap();
            assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("fence")));
            assert_eq!(fence_of(&error), token(7));
        }
        // Another board's token counts by its number.
        let named = token(7).map(|token| token.in_generation(crate::position::Generation::new(9)));
        assert!(refused(token(7), named).is_none() && refused(named, token(8)).is_some());
    }

    #[test]
    fn a_token_fits_a_signed_number_of_64_bits() {
        assert!(check_token("test", Some(FencingToken::new(FENCING_TOKEN_MAX))).is_ok());
        let error = check_token("test", Some(FencingToken::new(FENCING_TOKEN_MAX + 1))).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("fence")));
    }
}
