//! `SessionStore` of the crate `tower-sessions` 0.15 over any [`KeyValueStore`].
//!
//! A session is one value, under its id, in one bucket, with a time to live that ends when the session does: the store
//! forgets it by itself, and nothing has to be swept.

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
/// A new session whose id is taken gets another one. Saving writes the session whole, whoever wrote it before, as in all
/// stores of `tower-sessions`; one that has expired is deleted instead. A session reads as absent from its expiry on, by
/// this process's clock and by the store's, whichever comes first. A life beyond 100 years is cut to that.
///
/// # Errors
/// `Encode` for a session that is no JSON, `Decode` for a value that no such adapter wrote, `Backend` for what the store
/// answers, `InvalidInput` for a session over 4 MiB included. None shows what the session holds or its id.
///
/// # Cancellation
/// Each call is one write or one read of the store, and is done or not done.
#[derive(Clone)]
pub struct KeyValueSessions {
    store: Arc<dyn KeyValueStore>,
    bucket: BucketName,
}

/// What is stored. The id is the key, and the instant is numbers, because how `time` writes it depends on features that
/// any crate of the program may set.
#[derive(Serialize, Deserialize)]
struct Stored<D> {
    /// Seconds since 1970.
    expires_at: i64,
    /// And nanoseconds, below 1,000,000,000.
    nanos: u32,
    data: D,
}

impl KeyValueSessions {
    /// Sessions in this bucket, which holds nothing else.
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
            // One that is over before it begins takes its id for a moment, as any other.
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

/// How long the session lives from now; `None` for one that has expired.
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
    // The cause could show a value.
    serde_json::to_vec(&stored)
        .map(Bytes::from)
        .map_err(|_| Error::invalid("sessions.save", "data", "a value that JSON cannot express"))
}

fn decode(id: Id, value: &[u8]) -> SessionResult<Record> {
    let stored: Option<Stored<HashMap<String, Value>>> = serde_json::from_slice(value).ok();
    let record = stored.and_then(|Stored { expires_at, nanos, data }| {
        let expiry_date =
            OffsetDateTime::from_unix_timestamp(expires_at).ok()?.replace_nanosecond(nanos).ok()?;
        Some(Record { id, data, expiry_date })
    });
    record.ok_or_else(|| SessionError::Decode("the value is no session of this adapter".to_owned()))
}

fn failed(error: &Error) -> SessionError {
    if error.operation() == "sessions.save" {
        SessionError::Encode(error.to_string())
    } else {
        SessionError::Backend(error.to_string())
    }
}
