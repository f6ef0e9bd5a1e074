//! The fence of a thread: the greatest fencing token with which a write succeeded.

use larder_kernel::storage::history::check_fence;
use larder_kernel::{FencingToken, Result};

use super::ThreadState;

impl ThreadState {
    /// Refuses a write whose token is missing or too low.
    pub(in super::super) fn check_fence(
        &self,
        operation: &'static str,
        fence: Option<FencingToken>,
    ) -> Result<()> {
        check_fence(operation, fence, self.fence)
    }

    /// Remembers the token of a write that succeeded.
    pub(in super::super) fn raise_fence(&mut self, fence: Option<FencingToken>) {
        self.fence = self.fence.max(fence);
    }
}
