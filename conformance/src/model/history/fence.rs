//! The fencing tokens of writes.

use larder_kernel::FencingToken;

use super::Held;
use crate::model::compare::Refusal;
use crate::model::recorder::{optional, with};
use crate::model::rng::Rng;

/// The token of a write, relative to the greatest token of the thread.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) enum Fence {
    /// The greatest token, or none if the thread is not fenced.
    Fitting,
    Greater,
    Lower,
    Missing,
}

/// Draws a token that mostly fits, so that fenced threads still change.
pub(super) fn draw(rng: &mut Rng<'_>) -> Fence {
    match rng.below(24) {
        0 | 1 => Fence::Greater,
        2 => Fence::Lower,
        3 => Fence::Missing,
        _ => Fence::Fitting,
    }
}

impl Held {
    /// Returns the token of a write. A thread that was never written gets none: the contract leaves open what
    /// it remembers of a write that changes nothing.
    pub(super) fn token(&self, fence: Fence) -> Option<FencingToken> {
        let greatest = self.fence.map_or(0, FencingToken::get);
        match fence {
            Fence::Missing => None,
            Fence::Greater if self.last > 0 => Some(FencingToken::new(greatest + 1)),
            Fence::Lower => self.fence.map(|_| FencingToken::new(greatest - 1)),
            Fence::Greater | Fence::Fitting => self.fence,
        }
    }

    /// Returns the error of a write whose token is missing or too low.
    pub(super) fn fenced_off(&self, operation: &'static str, token: Option<FencingToken>) -> Option<Refusal> {
        larder_kernel::storage::history::check_fence(operation, token, self.fence).err().map(Refusal::from)
    }

    /// Remembers the token of a write that succeeded.
    pub(super) fn raise(&mut self, token: Option<FencingToken>) {
        self.fence = self.fence.max(token);
    }
}

fn expression(token: FencingToken) -> String {
    format!("FencingToken::new({token})")
}

/// Returns the token as an argument.
pub(super) fn argument(token: Option<FencingToken>) -> String {
    optional(token, expression)
}

/// Returns the call that sets the token of a request.
pub(super) fn set(token: Option<FencingToken>) -> String {
    with("fence", token, expression)
}
