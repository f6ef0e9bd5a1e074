//! Writes that carry the fencing token of a claim.

use std::fmt;
use std::sync::Arc;

use crate::HistoryProvider;
use crate::position::FencingToken;

/// Returns a store whose writes carry this fencing token, unless the call has one.
#[must_use]
pub fn fenced(inner: Arc<dyn HistoryProvider>, token: FencingToken) -> Arc<dyn HistoryProvider> {
    Arc::new(Fenced { inner, token })
}

/// A store whose writes carry a fencing token.
struct Fenced {
    inner: Arc<dyn HistoryProvider>,
    token: FencingToken,
}

impl fmt::Debug for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

macro_rules! with_token {
    ($self:ident $contract:ident append_many($thread:ident, $messages:ident, $options:ident)) => {{
        let fence = $options.fence.or(Some($self.token));
        $self.inner.append_many($thread, $messages, $options.with_fence(fence)).await
    }};
    ($self:ident $contract:ident replace($thread:ident, $replacement:ident)) => {{
        let fence = $replacement.fence.or(Some($self.token));
        $self.inner.replace($thread, $replacement.with_fence(fence)).await
    }};
    ($self:ident $contract:ident remove($thread:ident, $removal:ident)) => {{
        let fence = $removal.fence.or(Some($self.token));
        $self.inner.remove($thread, $removal.with_fence(fence)).await
    }};
    ($self:ident $contract:ident update($thread:ident, $update:ident)) => {{
        let fence = $update.fence.or(Some($self.token));
        $self.inner.update($thread, $update.with_fence(fence)).await
    }};
    ($self:ident $contract:ident clear($thread:ident, $fence:ident)) => {
        $self.inner.clear($thread, $fence.or(Some($self.token))).await
    };
    ($self:ident $contract:ident clear_run($thread:ident, $run:ident, $fence:ident)) => {
        $self.inner.clear_run($thread, $run, $fence.or(Some($self.token))).await
    };
    ($self:ident $contract:ident fork($source:ident, $target:ident, $up_to:ident, $fence:ident)) => {
        $self.inner.fork($source, $target, $up_to, $fence.or(Some($self.token))).await
    };
    ($self:ident $contract:ident set_ttl($thread:ident, $ttl:ident, $fence:ident)) => {
        $self.inner.set_ttl($thread, $ttl, $fence.or(Some($self.token))).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

crate::forward!(Store for Fenced);
crate::forward!(HistoryProvider for Fenced, with_token);
