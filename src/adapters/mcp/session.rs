//! rmcp's sessions in a key-value store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::digest::digest;
use bytes::Bytes;
use larder_kernel::{BucketName, Error, ErrorKind, Key, KeyValuePutOptions, KeyValueStore, Result};
use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};

const BUCKET: &str = "larder.mcp.sessions";
/// The time for which a session is kept.
const TTL: Duration = Duration::from_secs(24 * 3600);

/// rmcp's [`SessionStore`] over a [`KeyValueStore`]. Another instance, or the same one after a restart,
/// continues the sessions of clients without a new handshake.
///
/// Sessions are stored in the bucket `larder.mcp.sessions` for 24 hours after their start;
/// [`with_ttl`](Self::with_ttl) changes the time. A session's id authorizes its bearer to act as that client,
/// so the store keeps only a hash of it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder::Result<()> {
/// use larder::Stores;
/// use larder::adapters::mcp::KeyValueSessionStore;
/// use rmcp::transport::streamable_http_server::session::SessionStore;
///
/// let stores = larder::open("memory:").await?;
/// let sessions = KeyValueSessionStore::new(stores.key_value()?);
/// assert!(sessions.load("unknown").await.is_ok_and(|found| found.is_none()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KeyValueSessionStore {
    store: Arc<dyn KeyValueStore>,
    ttl: Duration,
}

impl KeyValueSessionStore {
    /// Creates a session store over a key-value store.
    #[must_use]
    pub fn new(store: impl Into<Arc<dyn KeyValueStore>>) -> Self {
        Self { store: store.into(), ttl: TTL }
    }

    /// Sets the time for which a session is kept, to the millisecond. A time below 1 ms or above 100 years is
    /// refused with `InvalidInput` when a session is stored.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    async fn find(&self, id: &str) -> Result<Option<SessionState>> {
        let (bucket, key) = address(id)?;
        let Some(entry) = self.store.get(&bucket, &key).await? else {
            return Ok(None);
        };
        let state = serde_json::from_slice(&entry.value);
        state.map(Some).map_err(|_| {
            Error::new(
                ErrorKind::Corrupt,
                "mcp.session.load",
                "the stored session is corrupt; start a new session",
            )
        })
    }

    async fn keep(&self, id: &str, state: &SessionState) -> Result<()> {
        let (bucket, key) = address(id)?;
        let json = serde_json::to_vec(state).map_err(|_| {
            Error::new(ErrorKind::Unexpected, "mcp.session.store", "the session cannot be written as JSON")
        })?;
        let options = KeyValuePutOptions::default().with_ttl(self.ttl);
        self.store.put(&bucket, &key, Bytes::from(json), options).await.map(drop)
    }

    async fn forget(&self, id: &str) -> Result<()> {
        let (bucket, key) = address(id)?;
        self.store.delete(&bucket, &key, None).await.map(drop)
    }
}

fn address(id: &str) -> Result<(BucketName, Key)> {
    Ok((BucketName::new(BUCKET)?, Key::new(digest(&[id]))?))
}

impl fmt::Debug for KeyValueSessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueSessionStore").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl SessionStore for KeyValueSessionStore {
    async fn load(&self, session_id: &str) -> std::result::Result<Option<SessionState>, SessionStoreError> {
        Ok(self.find(session_id).await?)
    }

    async fn store(
        &self,
        session_id: &str,
        state: &SessionState,
    ) -> std::result::Result<(), SessionStoreError> {
        Ok(self.keep(session_id, state).await?)
    }

    async fn delete(&self, session_id: &str) -> std::result::Result<(), SessionStoreError> {
        Ok(self.forget(session_id).await?)
    }
}
