//! The access of an agent to a session's memory.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{AppendOptions, Appended, ChatMessage, Error, Result, RunId, Thread, Window};
use serde::{Deserialize, Serialize};

use super::MemoryFilter;
use crate::written::whole;

/// The default size limit of a limited window: 156 KiB, as counted by [`ChatMessage::size_bytes`].
pub const LIMITED_WINDOW_BYTES_DEFAULT: u64 = 156 * 1024;

/// A window on a session's memory. Filters apply first, then the limits.
///
/// ```
/// use larder_agents::context::memory::{LimitedWindow, MemoryFilter};
/// use larder_kernel::AgentId;
///
/// let debugless = MemoryFilter::new().exclude_agent(AgentId::new("debug")?);
/// let memory = LimitedWindow::new().read_last(10).filtered(debugless).read_only();
/// assert_eq!(memory.max_bytes(), Some(156 * 1024));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitedWindow {
    read: bool,
    write: bool,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    read_last: Option<usize>,
    #[serde(deserialize_with = "whole")]
    max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "MemoryFilter::is_empty")]
    filter: MemoryFilter,
}

impl Default for LimitedWindow {
    fn default() -> Self {
        Self {
            read: true,
            write: true,
            read_last: None,
            max_bytes: Some(LIMITED_WINDOW_BYTES_DEFAULT),
            filter: MemoryFilter::new(),
        }
    }
}

impl LimitedWindow {
    /// Creates a window that reads the newest [`LIMITED_WINDOW_BYTES_DEFAULT`] bytes and writes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns writes off.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        (self.read, self.write) = (true, false);
        self
    }

    /// Turns reads off.
    #[must_use]
    pub fn write_only(mut self) -> Self {
        (self.read, self.write) = (false, true);
        self
    }

    /// Limits reads to the newest `messages` that pass the filter.
    #[must_use]
    pub fn read_last(mut self, messages: usize) -> Self {
        self.read_last = Some(messages);
        self
    }

    /// Adds a filter to reads. A message must pass this filter and the earlier ones.
    #[must_use]
    pub fn filtered(mut self, filter: MemoryFilter) -> Self {
        self.filter = self.filter.and(filter);
        self
    }

    /// Limits the total size of the messages that are read. The oldest messages leave first.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// Removes the size limit.
    #[must_use]
    pub fn without_max_bytes(mut self) -> Self {
        self.max_bytes = None;
        self
    }

    /// Returns `true` if the window reads and shows only a part of a thread.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.read_last.is_some() || self.max_bytes.is_some() || !self.filter.is_empty()
    }

    /// Returns `true` if the window reads.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.read
    }

    /// Returns `true` if the window writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.write
    }

    /// Returns the limit on the number of messages.
    #[must_use]
    pub fn last(&self) -> Option<usize> {
        self.read_last
    }

    /// Returns the limit on the number of bytes.
    #[must_use]
    pub fn max_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    /// Returns the filter.
    #[must_use]
    pub fn filter(&self) -> &MemoryFilter {
        &self.filter
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting and the limit.
    pub fn check(&self) -> Result<()> {
        const OPERATION: &str = "memory.config";
        if self.read_last == Some(0) {
            return Err(Error::under_limit(OPERATION, "read_last", 0, 1));
        }
        if self.max_bytes == Some(0) {
            return Err(Error::under_limit(OPERATION, "max_bytes", 0, 1));
        }
        if !self.read && (self.read_last.is_some() || !self.filter.is_empty()) {
            return Err(Error::invalid(
                OPERATION,
                "read",
                "has a filter or `read_last`, but the memory is not read; remove them",
            ));
        }
        self.filter.check(OPERATION)
    }
}

/// A custom session memory outside the history.
#[async_trait]
pub trait SessionMemory: fmt::Debug + Send + Sync + 'static {
    /// Returns the messages of a thread that the agent sees, oldest first.
    ///
    /// # Errors
    /// The errors of the memory.
    ///
    /// # Cancellation
    /// The call stores nothing.
    async fn read(&self, thread: &Thread) -> Result<Window>;

    /// Adds messages to a thread. Returns `None` if the memory stores none.
    ///
    /// # Errors
    /// The errors of the memory.
    ///
    /// # Cancellation
    /// All messages are added or none.
    async fn write(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Option<Appended>>;

    /// Removes the messages of a run and returns their number.
    ///
    /// # Errors
    /// The errors of the memory.
    ///
    /// # Cancellation
    /// All messages of the run are removed or none.
    async fn clear_run(&self, thread: &Thread, run: &RunId) -> Result<u64>;
}

/// The access of an agent to a session's memory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MemoryProvider {
    /// The agent neither reads nor writes.
    None,
    /// A window on the history.
    Window(LimitedWindow),
    /// A custom memory instead of the history.
    Custom(Arc<dyn SessionMemory>),
}

impl MemoryProvider {
    /// Reads the whole history, as far as the strategies look, and writes.
    #[must_use]
    pub fn everything() -> Self {
        Self::Window(LimitedWindow::new().without_max_bytes())
    }

    /// Neither reads nor writes.
    #[must_use]
    pub fn none() -> Self {
        Self::None
    }

    /// Reads the newest 156 KiB and writes.
    #[must_use]
    pub fn limited_window() -> LimitedWindow {
        LimitedWindow::new()
    }

    /// Reads and does not write.
    #[must_use]
    pub fn read_only() -> Self {
        LimitedWindow::new().read_only().into()
    }

    /// Writes and does not read.
    #[must_use]
    pub fn write_only() -> Self {
        LimitedWindow::new().write_only().into()
    }

    /// Reads the newest `messages` messages and writes.
    #[must_use]
    pub fn read_last(messages: usize) -> Self {
        LimitedWindow::new().read_last(messages).into()
    }

    /// Reads and writes a custom memory.
    #[must_use]
    pub fn custom(memory: impl SessionMemory) -> Self {
        Self::Custom(Arc::new(memory))
    }

    /// Returns `true` if it reads only a part of a thread.
    #[must_use]
    pub fn is_part(&self) -> bool {
        matches!(self, Self::Window(window) if window.reads() && window.is_part())
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting and the limit.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Window(window) => window.check(),
            Self::None | Self::Custom(_) => Ok(()),
        }
    }
}

impl Default for MemoryProvider {
    fn default() -> Self {
        Self::everything()
    }
}

impl From<LimitedWindow> for MemoryProvider {
    fn from(window: LimitedWindow) -> Self {
        Self::Window(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves: AKKA-2, AKKA-3
    #[test]
    fn settings_are_read_exactly_and_errors_name_the_field() {
        let window: LimitedWindow = serde_json::from_str("{}").unwrap();
        assert_eq!(window, LimitedWindow::new());
        assert_eq!(window.max_bytes(), Some(159_744));
        let text =
            r#"{"write":false,"read_last":10,"max_bytes":null,"filter":[{"exclude":[{"agent":"debug"}]}]}"#;
        let window: LimitedWindow = serde_json::from_str(text).unwrap();
        assert_eq!((window.last(), window.max_bytes(), window.writes()), (Some(10), None, false));
        let again = serde_json::to_string(&window).unwrap();
        assert_eq!(serde_json::from_str::<LimitedWindow>(&again).unwrap(), window);
        assert!(serde_json::from_str::<LimitedWindow>(r#"{"max_byte":1}"#).is_err());

        for (window, field) in [
            (LimitedWindow::new().read_last(0), "read_last"),
            (LimitedWindow::new().with_max_bytes(0), "max_bytes"),
            (LimitedWindow::new().read_last(3).write_only(), "read"),
        ] {
            assert_eq!(MemoryProvider::from(window).check().unwrap_err().field(), Some(field));
        }
        assert!(MemoryProvider::read_last(1).check().is_ok());
    }
}
