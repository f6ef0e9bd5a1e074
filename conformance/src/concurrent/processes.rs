//! Clients in processes of their own.

use async_trait::async_trait;
use larder_kernel::Result;

use super::play::Script;

/// Starts clients of a history in processes of their own, each of which opens the same place.
///
/// Such a process opens its handle on the script's namespace, waits until all have, and then calls [`Script::play`] with
/// a clock that all processes of the machine share, such as `CLOCK_MONOTONIC`.
#[async_trait]
pub trait Processes: Send + Sync {
    /// Has each script played in a process of its own, all begun together, and returns what each recorded.
    ///
    /// # Errors
    /// `Unavailable` where a process cannot be started or ends too early; the backend's own.
    async fn play(&self, scripts: Vec<Script>) -> Result<Vec<String>>;
}
