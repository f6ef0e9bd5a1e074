//! Progress of a backward read toward its reach.

use larder_kernel::{ChatMessage, Origin, Reach, check};

use crate::tokens::{TokenCounter, tokens_of};

/// The amount read so far, in the units of a reach.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lookback {
    stored: usize,
    size: u64,
}

impl Lookback {
    /// Adds one message.
    pub(crate) fn add(
        &mut self,
        reach: Reach,
        counter: &dyn TokenCounter,
        origin: Origin,
        message: &ChatMessage,
    ) {
        self.stored += usize::from(matches!(origin, Origin::Stored(_)));
        let size = match reach {
            Reach::Bytes(_) => check::size(message.size_bytes()),
            Reach::Tokens(_) => tokens_of(counter, message),
            _ => 0,
        };
        self.size = self.size.saturating_add(size);
    }

    /// Returns `true` if enough was read. A size is reached with the first message beyond it, so that the
    /// strategy sees a message that does not fit.
    pub(crate) fn is_enough(self, reach: Reach) -> bool {
        match reach {
            Reach::Messages(messages) => self.stored >= messages,
            Reach::Bytes(size) | Reach::Tokens(size) => self.size > size,
            _ => false,
        }
    }

    /// Returns the number of messages still needed, or `None` if it is unknown before they are read.
    pub(crate) fn missing(self, reach: Reach) -> Option<usize> {
        match reach {
            Reach::Messages(messages) => Some(messages.saturating_sub(self.stored)),
            _ => None,
        }
    }
}
