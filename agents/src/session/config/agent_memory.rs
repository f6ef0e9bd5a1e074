//! The memory of agents that share sessions, as a JSON document.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::OPERATION;
use crate::context::memory::LimitedWindow;
use crate::written::whole;

/// The memory of agents that share sessions: the switch for it, and the part of it that they see.
///
/// ```
/// use larder_agents::session::MemoryDocument;
///
/// let document = r#"{"agent": {"memory": {"enabled": true, "limited-window": {"max-size": "156KiB"}}}}"#;
/// let MemoryDocument::Agent(memory) = MemoryDocument::parse(document)? else { unreachable!() };
/// assert_eq!(memory.window().max_bytes(), Some(156 * 1024));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AgentMemory {
    enabled: bool,
    limited_window: WrittenWindow,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct WrittenWindow {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_size: Option<Size>,
}

/// A size in bytes, written as a number or with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "u64")]
struct Size(u64);

impl Default for AgentMemory {
    fn default() -> Self {
        Self { enabled: true, limited_window: WrittenWindow::default() }
    }
}

impl AgentMemory {
    /// Returns `true` if inferences use the memory of their session by default.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the part of a session that agents see. The default is the newest 156 KiB.
    #[must_use]
    pub fn window(&self) -> LimitedWindow {
        let window = LimitedWindow::new();
        self.limited_window.max_size.map_or(window.clone(), |Size(bytes)| window.with_max_bytes(bytes))
    }
}

impl TryFrom<Value> for Size {
    type Error = Error;

    fn try_from(written: Value) -> Result<Self> {
        const FIELD: &str = "max-size";
        let wrong = || {
            Error::invalid(
                OPERATION,
                FIELD,
                "is not a size; write a number of bytes or a size such as `156KiB`",
            )
        };
        let bytes = match &written {
            Value::String(text) => {
                let text = text.trim();
                let (number, unit) =
                    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
                let unit: u64 = match unit.trim() {
                    "" | "B" | "b" | "byte" | "bytes" => 1,
                    "K" | "k" | "Ki" | "KiB" | "kibibytes" => 1 << 10,
                    "kB" | "kilobytes" => 1_000,
                    "M" | "m" | "Mi" | "MiB" | "mebibytes" => 1 << 20,
                    "MB" | "megabytes" => 1_000_000,
                    _ => return Err(wrong()),
                };
                number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(wrong)?
            }
            _ => whole(written).map_err(|_: serde_json::Error| wrong())?,
        };
        match bytes {
            0 => Err(Error::under_limit(OPERATION, FIELD, 0, 1)),
            bytes => Ok(Self(bytes)),
        }
    }
}

impl From<Size> for u64 {
    fn from(Size(bytes): Size) -> Self {
        bytes
    }
}
