//! `SessionStore` of the crate `tower-sessions` 0.15 over any [`KeyValueStore`].
//!
//! A session is one value under its id, in one bucket. Its time to live ends with the session, so the store
//! deletes expired sessions and no cleanup is needed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::limits::TTL_MS_MAX;
use larder_kernel::{
    BucketName, Error, ErrorKind, Key, KeyValueCondition, KeyValuePutOptions, KeyValueStore, Result,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use tower_sessions_core::SessionStore;
use tower_sessions_core::session::{Id, Record};
use tower_sessions_core::session_store::{Error as SessionError, Result as SessionResult};

/// A [`KeyValueStore`] as a [`SessionStore`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use larder::{Stores, adapters::tower_sessions::KeyValueSessions};
/// use larder::BucketName;
/// use tower_sessions::{Expiry, SessionManagerLayer};
///
/// let stores = larder::open("memory:").await?;
/// let sessions = KeyValueSessions::new(stores.key_value()?, BucketName::new("sessions")?);
/// let layer = SessionManagerLayer::new(sessions)
///     .with_expiry(Expiry::OnInactivity(time::Duration::hours(8)));
/// # Ok(())
/// # }
/// ```
///
/// # Semantics
/// A new session whose id is taken gets another id. Saving overwrites the whole session without a version
/// check, as in all stores of `tower-sessions`; saving an expired session deletes it. A session reads as
/// absent after its expiry by this process's clock or by the store's, whichever is earlier. A lifetime above
/// 100 years is reduced to 100 years.
///
/// # Errors
/// `Encode` for a session that cannot be encoded as JSON, `Decode` for a value that this adapter did not
/// write, and `Backend` for an error of the store, including `InvalidInput` for a session over 4 MiB. No
/// error contains a session's content or id.
///
/// # Cancellation
/// Each call is one write or one read of the store, and takes effect completely or not at all.
#[derive(Clone)]
pub struct KeyValueSessions {
    store: Arc<dyn KeyValueStore>,
    bucket: BucketName,
}

/// The stored session. The key contains the id. The expiry is stored as numbers, because `time`'s own format
/// depends on features that any crate of the program can enable.
/// any crate of the program may set.
#[derive(Serialize, Deserialize)]
struct Stored<D> {
    /// Seconds since 1970.
    expires_at: i64,
    /// Nanoseconds within the second, below 1,000,000,000.
    nanos: u32,
    data: D,
}

impl KeyValueSessions {
    /// Creates a session store in this bucket, which must contain nothing else.
    #[must_use]
    pub fn new(store: impl Into<Arc<dyn KeyValueStore>>, bucket: BucketName) -> Self {
        Self { store: store.into(), bucket }
    }

    async fn put(&self, record: &Record, ttl: Duration, condition: KeyValueCondition) -> Result<()> {
        let value = encode(record)?;
        let options = KeyValuePutOptions::default().with_condition(condition).with_ttl(ttl);
        self.store.put(&self.bucket, &key(&record.id)?, value, options).await.map(drop)
    }
}

#[async_trait]
impl SessionStore for KeyValueSessions {
    async fn create(&self, session_record: &mut Record) -> SessionResult<()> {
        loop {
            // An expired session still takes its id for a moment.
            let ttl = life(session_record).unwrap_or(Duration::from_millis(1));
            match self.put(session_record, ttl, KeyValueCondition::Absent).await {
                Err(error) if error.kind() == ErrorKind::Conflict => session_record.id = Id::default(),
                done => return done.map_err(|error| failed(&error)),
            }
        }
    }

    async fn save(&self, session_record: &Record) -> SessionResult<()> {
        match life(session_record) {
            Some(ttl) => {
                self.put(session_record, ttl, KeyValueCondition::None).await.map_err(|error| failed(&error))
            }
            None => self.delete(&session_record.id).await,
        }
    }

    async fn load(&self, session_id: &Id) -> SessionResult<Option<Record>> {
        let key = key(session_id).map_err(|error| failed(&error))?;
        let Some(entry) = self.store.get(&self.bucket, &key).await.map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        let record = decode(*session_id, &entry.value)?;
        Ok((record.expiry_date > OffsetDateTime::now_utc()).then_some(record))
    }

    async fn delete(&self, session_id: &Id) -> SessionResult<()> {
        let key = key(session_id).map_err(|error| failed(&error))?;
        self.store.delete(&self.bucket, &key, None).await.map(drop).map_err(|error| failed(&error))
    }
}

impl fmt::Debug for KeyValueSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueSessions").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Returns the remaining lifetime of the session; `None` if it has expired.
fn life(record: &Record) -> Option<Duration> {
    let left = record.expiry_date - OffsetDateTime::now_utc();
    let left = Duration::try_from(left).ok().filter(|left| !left.is_zero())?;
    Some(left.clamp(Duration::from_millis(1), Duration::from_millis(TTL_MS_MAX)))
}

fn key(id: &Id) -> Result<Key> {
    Key::new(id.to_string())
}

fn encode(record: &Record) -> Result<Bytes> {
    let stored = Stored {
        expires_at: record.expiry_date.unix_timestamp(),
        nanos: record.expiry_date.nanosecond(),
        data: &record.data,
    };
    // The cause could reveal a value.
    serde_json::to_vec(&stored)
        .map(Bytes::from)
        .map_err(|_| Error::invalid("sessions.save", "data", "the value cannot be written as JSON"))
}

fn decode(id: Id, value: &[u8]) -> SessionResult<Record> {
    let stored: Option<Stored<HashMap<String, Value>>> = serde_json::from_slice(value).ok();
    let record = stored.and_then(|Stored { expires_at, nanos, data }| {
        let expiry_date =
            OffsetDateTime::from_unix_timestamp(expires_at).ok()?.replace_nanosecond(nanos).ok()?;
        Some(Record { id, data, expiry_date })
    });
    record.ok_or_else(|| {
        SessionError::Decode("the value is not a session of this adapter; use another bucket".to_owned())
    })
}

fn failed(error: &Error) -> SessionError {
    if error.operation() == "sessions.save" {
        SessionError::Encode(error.to_string())
    } else {
        SessionError::Backend(error.to_string())
    }
}
