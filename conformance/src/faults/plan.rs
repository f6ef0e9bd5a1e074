//! What is to happen to a connection, drawn from a seed.

use std::time::Duration;

use crate::oracle::Random;

/// The six kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The connection ends before the request gets through.
    CutBeforeRequest,
    /// The request gets through and the connection ends before the answer does.
    CutBeforeReply,
    /// The connection ends within the bytes of one direction.
    CutAtByte,
    /// What is sent arrives late.
    Delay,
    /// Nothing arrives any more, and nothing says so.
    BlackHole,
    /// The connection is reset (RST) rather than closed.
    Reset,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::CutBeforeRequest,
        Self::CutBeforeReply,
        Self::CutAtByte,
        Self::Delay,
        Self::BlackHole,
        Self::Reset,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CutBeforeRequest => "cut before the request",
            Self::CutBeforeReply => "cut before the reply",
            Self::CutAtByte => "cut at a byte",
            Self::Delay => "delay",
            Self::BlackHole => "black hole",
            Self::Reset => "reset",
        }
    }
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// One fault that is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Its kind.
    pub kind: Kind,
    /// Which way the bytes go that it strikes.
    pub direction: Direction,
    /// How many pieces of these go through first.
    pub skip: u64,
    /// For a cut at a byte: how many bytes still go through.
    pub byte: u64,
    /// For a delay: how long.
    pub delay: Duration,
    /// For a reset: whether the piece that it strikes still goes through.
    pub forward: bool,
    /// For a black hole: how long new bytes are swallowed, on every connection.
    pub window: Duration,
}

impl Plan {
    /// Draws a fault of a kind. `answer_time_max` is how long the client waits for an answer.
    #[must_use]
    pub fn draw(kind: Kind, seed: u64, answer_time_max: Duration) -> Self {
        let mut random = Random::new(seed, kind.as_str());
        let direction = match kind {
            Kind::CutAtByte | Kind::Delay if random.once_in(2) => Direction::Down,
            Kind::CutBeforeReply => Direction::Down,
            _ => Direction::Up,
        };
        let skip = random.below(10);
        // As likely within the first tens of bytes as within the first thousands.
        let bits = 3 + random.below(11);
        let byte = random.below(1 << bits);
        let outlasts = answer_time_max <= Duration::from_secs(8) && random.once_in(4);
        let delay = if outlasts {
            answer_time_max + Duration::from_millis(100 + random.below(300))
        } else {
            Duration::from_millis(5 + random.below(150))
        };
        let window = Duration::from_millis(20 + random.below(250));
        Self { kind, direction, skip, byte, delay, forward: random.once_in(2), window }
    }
}
