//! Scripts, which the server runs atomically.
//!
//! A script is not rolled back, so each one finishes all its checks before it writes. The server rejects a
//! script that would need memory beyond its limit before its first write.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use larder_kernel::limits;
use redis::Cmd;

use crate::format::Formats;

/// The greatest integer that scripts and sorted sets represent exactly. Counters stay below it.
pub(crate) const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Functions that every script may use.
///
/// - `now_ms()`: the store's clock, constant during a script.
/// - `int(n)`: an integer as decimal text, exact up to 2^53.
/// - `draw(name)`: a generation for the place with this name.
/// - `registered()`: whether the entity may be written; see `index.rs`. `KEYS[1]` is the entity's `meta`,
///   `KEYS[2]` its `erased`, `ARGV[1]` and `ARGV[2]` the registration. A script that gets `false` immediately
///   returns `'REGISTER'`.
/// - `FORMAT` and `NEWEST`: the format numbers of this program as text. Every thread, bucket and board has a
///   number: `FORMAT` when it is created, and `NEWEST` after a write that programs of `FORMAT` do not
///   support.
/// - `supported(found)`: whether this program supports a format. A script that finds another one writes
///   nothing.
/// - `wrong_format(found)`: the error reply for another format.
const PRELUDE: &str = include_str!("prelude.lua");
/// The format of new threads, buckets and boards. A thread with a fence or with an updated message has the
/// next one, so that a program that supports neither does not write to it.
pub(crate) const FORMAT: i64 = 1;

/// Returns the formats that a program supports whose new data has the format `oldest`.
pub(crate) fn formats(oldest: i64) -> Formats {
    let (subject, target) = ("the thread, bucket or board", "another namespace or server");
    Formats { subject, target, oldest, newest: oldest + 1 }
}

/// Returns the whole milliseconds of a validated time to live.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(limits::TTL_MS_MAX)
}

/// A script of one format, which the server caches by its hash.
#[derive(Clone)]
pub(crate) struct ScriptText {
    text: String,
    hash: String,
}

/// A script.
pub(crate) struct Script {
    body: String,
    current: ScriptText,
}

/// The keys and arguments of one run.
#[derive(Clone, Default)]
pub(crate) struct Call {
    keys: Vec<Bytes>,
    arguments: Vec<Bytes>,
}

impl Script {
    /// Creates the script from this text, preceded by the shared functions.
    pub(crate) fn new(body: &str) -> Self {
        Self { body: body.to_owned(), current: ScriptText::new(FORMAT, body) }
    }

    /// Returns the script for a program of this format. Only tests have another than `FORMAT`.
    pub(crate) fn at(&self, format: i64) -> Cow<'_, ScriptText> {
        if format == FORMAT {
            Cow::Borrowed(&self.current)
        } else {
            Cow::Owned(ScriptText::new(format, &self.body))
        }
    }
}

impl ScriptText {
    fn new(format: i64, body: &str) -> Self {
        let text =
            format!("local FORMAT, NEWEST = '{format}', '{}'\n{PRELUDE}\n{body}", formats(format).newest);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Returns the command that runs the script by its hash.
    pub(crate) fn by_hash(&self, call: &Call) -> Cmd {
        call.command("EVALSHA", &self.hash)
    }

    /// Returns the command that makes the server cache the script.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// Returns the command that runs the script by its text, after which the server has it cached.
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

    /// Returns the key that decides where the call is sent.
    pub(crate) fn first_key(&self) -> &[u8] {
        self.keys.first().map_or(&[], |key| key)
    }

    /// Prepends keys and arguments.
    pub(crate) fn preceded_by(&self, keys: &[Bytes], arguments: &[Bytes]) -> Self {
        Self {
            keys: keys.iter().chain(&self.keys).cloned().collect(),
            arguments: arguments.iter().chain(&self.arguments).cloned().collect(),
        }
    }

    /// Appends the keys and arguments of another call.
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
