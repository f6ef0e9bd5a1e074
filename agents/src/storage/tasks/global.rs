//! The process-wide task store.

use std::sync::{Arc, OnceLock};

use larder_kernel::{Error, ErrorKind, Result, TaskStore};

use super::InMemoryTaskStore;

static STORE: OnceLock<Arc<dyn TaskStore>> = OnceLock::new();

/// The task store that a whole process shares. It is in memory, unless another store is set at the start.
///
/// The store is chosen once. Call [`set`](Self::set) before the first [`get`](Self::get). A later call fails
/// with `AlreadyExists`, so that no board can be split between two stores.
///
/// ```
/// use larder_agents::storage::GlobalTaskStore;
/// use larder_kernel::{BoardId, NewBoard, TaskStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let board = BoardId::new("conversation-1", "planner")?;
/// GlobalTaskStore::get().create_task_list(&board, NewBoard::default()).await?;
/// assert!(GlobalTaskStore::get().get_board(&board).await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct GlobalTaskStore;

impl GlobalTaskStore {
    /// Sets the store of the process.
    ///
    /// # Errors
    /// `AlreadyExists` if a store was set, or if the default store is in use. The store does not change.
    pub fn set(store: Arc<dyn TaskStore>) -> Result<()> {
        STORE.set(store).map_err(|_| {
            Error::new(
                ErrorKind::AlreadyExists,
                "tasks.set_global",
                "a global task store is already set; set it once, at the start",
            )
        })
    }

    /// Returns the store of the process: the one that was set, otherwise one in memory that stays in use.
    #[must_use]
    pub fn get() -> Arc<dyn TaskStore> {
        Arc::clone(STORE.get_or_init(|| Arc::new(InMemoryTaskStore::new())))
    }
}
