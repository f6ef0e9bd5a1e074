//! Scripts, the steps that the server runs as a whole.
//!
//! A script is not rolled back, so each checks all it needs to before it writes. One that would need memory which the
//! server does not have is refused before its first write.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::limits;
use redis::Cmd;

/// The greatest whole number that scripts and sorted sets keep exactly. Counters stay below it.
pub(crate) const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Functions that every script may use.
///
/// - `now_ms()`: the store's clock, the same throughout a script.
/// - `int(n)`: a whole number as text, in full, up to 2^53.
/// - `registered()`: whether the entity may be written; see `index.rs`. `KEYS[1]` is the entity's `meta`, `KEYS[2]` its
///   `erased`, `ARGV[1]` and `ARGV[2]` the registration. A script that gets `false` answers `'REGISTER'` at once.
const PRELUDE: &str = include_str!("prelude.lua");

/// Whole milliseconds of a time to live that has passed its check.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(limits::TTL_MS_MAX)
}

/// A script, known to the server by its hash.
pub(crate) struct Script {
    text: String,
    hash: String,
}

/// The keys and arguments of one run.
#[derive(Clone, Default)]
pub(crate) struct Call {
    keys: Vec<Bytes>,
    arguments: Vec<Bytes>,
}

impl Script {
    /// The script of this text, behind the functions for all.
    pub(crate) fn new(text: &str) -> Self {
        let text = format!("{PRELUDE}\n{text}");
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// The command that runs it by its hash.
    pub(crate) fn by_hash(&self, call: &Call) -> Cmd {
        call.command("EVALSHA", &self.hash)
    }

    /// The command that runs it by its text, after which the server knows it.
    pub(crate) fn by_text(&self, call: &Call) -> Cmd {
        call.command("EVAL", &self.text)
    }
}

impl Call {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a key. All keys of a call belong to one entity.
    pub(crate) fn key(mut self, key: Bytes) -> Self {
        self.keys.push(key);
        self
    }

    /// Adds an argument: text or bytes.
    pub(crate) fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.arguments.push(Bytes::copy_from_slice(argument.as_ref()));
        self
    }

    /// Adds an argument without a copy of its bytes.
    pub(crate) fn bytes(mut self, argument: Bytes) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Adds a number.
    pub(crate) fn number(self, number: impl std::fmt::Display) -> Self {
        self.arg(number.to_string())
    }

    /// The key that decides where the call is sent.
    pub(crate) fn first_key(&self) -> &[u8] {
        self.keys.first().map_or(&[], |key| key)
    }

    /// Puts keys and arguments before the others.
    pub(crate) fn preceded_by(&self, keys: &[Bytes], arguments: &[Bytes]) -> Self {
        Self {
            keys: keys.iter().chain(&self.keys).cloned().collect(),
            arguments: arguments.iter().chain(&self.arguments).cloned().collect(),
        }
    }

    /// Puts the keys and arguments of another call behind its own.
    pub(crate) fn followed_by(mut self, other: &Self) -> Self {
        self.keys.extend_from_slice(&other.keys);
        self.arguments.extend_from_slice(&other.arguments);
        self
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let size: usize = self.keys.iter().chain(&self.arguments).map(Bytes::len).sum();
        let mut command =
            Cmd::with_capacity(3 + self.keys.len() + self.arguments.len(), size + script.len() + 32);
        command.arg(name).arg(script).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.arguments) {
            command.arg(&part[..]);
        }
        command
    }
}
