//! A planned fault of a connection, drawn from a seed.

use std::time::Duration;

use crate::oracle::Random;

/// The six kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The connection ends before the request gets through.
    CutBeforeRequest,
    /// The request arrives, and the connection ends before the reply does.
    CutBeforeReply,
    /// The connection ends within the bytes of one direction.
    CutAtByte,
    /// Data arrives late.
    Delay,
    /// No data arrives, without any sign of an error.
    BlackHole,
    /// The connection is reset (RST) rather than closed.
    Reset,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::CutBeforeRequest,
        Self::CutBeforeReply,
        Self::CutAtByte,
        Self::Delay,
        Self::BlackHole,
        Self::Reset,
    ];

    /// Returns the name in reports.
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

/// The direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// A planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The kind of the fault.
    pub kind: Kind,
    /// The direction of the data that the fault hits.
    pub direction: Direction,
    /// The number of pieces in this direction that pass first.
    pub skip: u64,
    /// For a cut at a byte: the number of bytes that still pass.
    pub byte: u64,
    /// For a delay: its duration.
    pub delay: Duration,
    /// For a reset: true if the piece that it hits still passes.
    pub forward: bool,
    /// For a black hole: the time for which new bytes are dropped, on every connection.
    pub window: Duration,
}

impl Plan {
    /// Draws a fault of a kind. `answer_time_max` is the longest time that the client waits for a reply.
    #[must_use]
    pub fn draw(kind: Kind, seed: u64, answer_time_max: Duration) -> Self {
        let mut random = Random::new(seed, kind.as_str());
        let direction = match kind {
            Kind::CutAtByte | Kind::Delay if random.once_in(2) => Direction::Down,
            Kind::CutBeforeReply => Direction::Down,
            _ => Direction::Up,
        };
        let skip = random.below(10);
        // A logarithmic draw: a cut within the first tens of bytes is as likely as one within the first
        // thousands.
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
