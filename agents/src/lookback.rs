//! How far back a window has read, against how far it needs to.

use larder_kernel::{ChatMessage, Origin, Reach, check};

use crate::tokens::{TokenCounter, tokens_of};

/// What was read so far, in the measure of a reach.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lookback {
    stored: usize,
    size: u64,
}

impl Lookback {
    /// Takes in one message more.
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

    /// Whether what was read is enough. A size is reached with the first message beyond it, so that whoever cuts sees
    /// what does not fit.
    pub(crate) fn is_enough(self, reach: Reach) -> bool {
        match reach {
            Reach::Messages(messages) => self.stored >= messages,
            Reach::Bytes(size) | Reach::Tokens(size) => self.size > size,
            _ => false,
        }
    }

    /// How many stored messages are still needed; `None` where that is not known before they are read.
    pub(crate) fn missing(self, reach: Reach) -> Option<usize> {
        match reach {
            Reach::Messages(messages) => Some(messages.saturating_sub(self.stored)),
            _ => None,
        }
    }
}
