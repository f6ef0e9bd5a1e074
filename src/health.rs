//! Health checks of the stores in a running program, for an orchestrator's probes, a load balancer or an
//! operator's page.
//!
//! Readiness and liveness are separate checks:
//!
//! - The readiness check, for `/readyz`, sends every store one small request and waits up to a timeout. It
//!   fails while a database is unavailable, so the program receives no work.
//! - The liveness check, for `/livez`, sends no request. A restart does not repair an unavailable database,
//!   so the check fails only if the stores were closed for good.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder::Result<()> {
//! use std::time::Duration;
//!
//! let stores = larder::open("memory:").await?;
//! // GET /readyz: 200 or 503, with the reasons as JSON.
//! let health = stores.health(Duration::from_secs(2)).await;
//! let (status, body) = (if health.is_ready() { 200 } else { 503 }, serde_json::to_string(&health).unwrap());
//! assert_eq!(status, 200);
//! assert!(body.contains(r#""contract":"history","backend":"memory","answers":true"#));
//! // GET /livez: 200 or 500, without I/O.
//! assert!(stores.is_live());
//! # Ok(())
//! # }
//! ```
//!
//! Neither check finds a full or read-only disk, because they do not write.
//! [`Stores::health_with_writes`] does.
//!
//! The example `health` of this crate serves both over HTTP.

use std::future::Future;
use std::time::{Duration, Instant};

use larder_agents::layers::TimeoutLayer;
use larder_kernel::{
    AppendOptions, BlobKey, BlobPutOptions, BoardId, ChatMessage, CollectionName, Contract, Document,
    DocumentId, Embedding, Entity, EntityId, EntityType, Error, ErrorKind, NewBoard, PutMode, Result, Thread,
};
use serde::{Serialize, Serializer};

use larder_capabilities::driver::Pool;

use crate::backend::Backend;
use crate::stores::Stores;

/// The key that the check reads. It need not exist: "not found" is a successful response.
const NAME: &str = "larder-health";

/// The health of the stores at one moment. It contains neither secrets nor stored data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// `true` if every store responded: the result of a readiness probe.
    pub ready: bool,
    /// `true` if no backend was closed: the result of a liveness probe.
    pub live: bool,
    /// The duration of the check, in microseconds: at most slightly more than the timeout.
    pub elapsed_us: u64,
    /// The health of each contract that has a store.
    pub contracts: Vec<ContractHealth>,
    /// The health of each backend that the stores were opened from.
    pub places: Vec<BackendHealth>,
}

/// The health of one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ContractHealth {
    /// The contract.
    pub contract: Contract,
    /// The scheme of the URL that the store was opened from; `custom` for a store without a URL.
    pub backend: &'static str,
    /// `true` if the store responded, with any result.
    pub answers: bool,
    /// The time until the store responded or failed, in microseconds.
    pub latency_us: u64,
    /// The reason for a missing response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<HealthError>,
}

/// The reason why a store did not respond.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HealthError {
    /// The kind, as its name: `Unavailable`, `Timeout`, `PermissionDenied`, `ResourceExhausted` and so on.
    #[serde(serialize_with = "kind_name")]
    pub kind: ErrorKind,
    /// The message of the error, which says what to do.
    pub message: String,
}

/// The health of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BackendHealth {
    /// The scheme of its URL.
    pub backend: &'static str,
    /// The contracts that the stores take from it.
    pub contracts: Vec<Contract>,
    /// The state of its connection pool, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
}

impl Health {
    /// Returns whether every store responded.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns whether no backend was closed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }
}

fn kind_name<S: Serializer>(kind: &ErrorKind, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.as_str())
}

impl Stores {
    /// Sends every store one small request, all concurrently, and waits for each at most `timeout`.
    ///
    /// The request reads a key that need not exist, in the namespace of the stores, through every layer
    /// around them. It writes nothing, and reads no stored content.
    ///
    /// The call needs a Tokio runtime with its timer. Each call uses a connection for the length of one read,
    /// so call it every few seconds, as an orchestrator does.
    ///
    /// # Cancellation
    /// Dropping the future has no effect on the stores.
    pub async fn health(&self, timeout: Duration) -> Health {
        self.probe(timeout, Probe::Read).await
    }

    /// As [`health`](Self::health), but every store also writes one small record and removes it again. So it
    /// finds a full disk, a read-only disk, a standby and a missing permission, which reads do not.
    ///
    /// The records have the name `larder-health`. A thread, a board and a bucket of this name remain, without
    /// content. Each call costs one flush per store, so call it every minute, not every second.
    ///
    /// # Cancellation
    /// The record may remain; the next call overwrites it.
    pub async fn health_with_writes(&self, timeout: Duration) -> Health {
        self.probe(timeout, Probe::Write).await
    }

    async fn probe(&self, timeout: Duration, probe: Probe) -> Health {
        let begun = Instant::now();
        let asked = self.clone().layered(&TimeoutLayer::new(timeout));
        let asking = asked.contracts().into_iter().map(|contract| {
            let (backend, asked) = (self.backend_name(contract), &asked);
            async move {
                let (begun, answer) = timed(probe.run(asked, contract)).await;
                let error = answer
                    .err()
                    .map(|error| HealthError { kind: error.kind(), message: error.message().to_owned() });
                ContractHealth {
                    contract,
                    backend,
                    answers: error.is_none(),
                    latency_us: micros(begun),
                    error,
                }
            }
        });
        // Boxed, because the six futures are large together.
        let contracts = Box::pin(futures_util::future::join_all(asking)).await;
        let places = self.origins().iter().map(|(place, contracts)| BackendHealth {
            backend: place.name(),
            contracts: contracts.clone(),
            pool: place.pool(),
        });
        Health {
            ready: contracts.iter().all(|contract| contract.answers),
            live: self.is_live(),
            places: places.collect(),
            contracts,
            elapsed_us: micros(begun.elapsed()),
        }
    }

    /// Returns whether no backend of the stores was closed. The call does no I/O and does not wait, as a
    /// liveness probe should: restarting the program does not repair an unavailable backend.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !self.origins().iter().any(|(place, _)| Backend::is_closed(place))
    }
}

async fn timed<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let begun = Instant::now();
    let done = work.await;
    (begun.elapsed(), done)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The request that a check sends.
#[derive(Debug, Clone, Copy)]
enum Probe {
    Read,
    Write,
}

impl Probe {
    async fn run(self, stores: &Stores, contract: Contract) -> Result<()> {
        ask(stores, contract).await?;
        match self {
            Self::Read => Ok(()),
            // Boxed, because the six futures are large together.
            Self::Write => Box::pin(write(stores, contract)).await.or_else(raced),
        }
    }
}

/// Another program's probe wrote or removed the same record, so the store works.
fn raced(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::Conflict => Ok(()),
        _ => Err(error),
    }
}

/// Writes a small record and removes it.
async fn write(stores: &Stores, contract: Contract) -> Result<()> {
    match contract {
        Contract::History => {
            let (history, thread) = (stores.set().history()?, Thread::new(NAME, NAME)?);
            history.append_many(&thread, vec![ChatMessage::user(NAME)], AppendOptions::default()).await?;
            history.clear(&thread, None).await.map(drop)
        }
        Contract::Vectors => {
            let (vectors, collection) = (stores.set().vectors()?, CollectionName::new(NAME)?);
            let document = Document::new(DocumentId::new(NAME)?, NAME).with_embedding(Embedding::new([1.0])?);
            vectors.put(&collection, vec![document], PutMode::Upsert).await?;
            vectors.drop_collection(&collection).await.map(drop)
        }
        Contract::Graph => {
            let (graph, id) = (stores.set().graph()?, EntityId::new(NAME)?);
            graph.upsert_entities(vec![Entity::new(id.clone(), EntityType::new(NAME)?)]).await?;
            graph.delete_entity(&id).await.map(drop)
        }
        Contract::Blobs => {
            let (blobs, key) = (stores.set().blobs()?, BlobKey::new(NAME)?);
            blobs.put(&key, NAME.into(), BlobPutOptions::default()).await?;
            blobs.delete(&key).await.map(drop)
        }
        Contract::Tasks => {
            let (tasks, board) = (stores.set().tasks()?, BoardId::new(NAME, NAME)?);
            tasks.create_task_list(&board, NewBoard::default()).await?;
            tasks.delete_board(&board).await.map(drop)
        }
        Contract::KeyValue => {
            stores.key_value()?.set(NAME, NAME, NAME).await?;
            stores.key_value()?.delete(NAME, NAME).await.map(drop)
        }
    }
}

/// Reads a key that need not exist. "Not found" is a successful response.
async fn ask(stores: &Stores, contract: Contract) -> Result<()> {
    let answer: Result<()> = match contract {
        Contract::History => stores.history()?.thread_info(&Thread::new(NAME, NAME)?).await.map(drop),
        Contract::Vectors => {
            let (collection, document) = (CollectionName::new(NAME)?, DocumentId::new(NAME)?);
            stores.vectors()?.get(collection, document).await.map(drop)
        }
        Contract::Graph => stores.graph()?.get_entities(&[EntityId::new(NAME)?]).await.map(drop),
        Contract::Blobs => stores.blobs()?.head(&BlobKey::new(NAME)?).await.map(drop),
        Contract::Tasks => stores.tasks()?.get_board(&BoardId::new(NAME, NAME)?).await.map(drop),
        Contract::KeyValue => stores.key_value()?.get(NAME, NAME).await.map(drop),
    };
    answer.or_else(|error: Error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests;
