//! Whether the stores of a running program work, for whoever decides about the program: an orchestrator's probes, a load
//! balancer, a page for operators.
//!
//! Two questions have two answers. *Is it ready?* asks every store one small question and waits for the answers no longer
//! than it is told to: while a database is away, the program should get no work, and that is what `/readyz` says. *Is it
//! alive?* asks nobody: a program whose database is away is not cured by starting it anew, so `/livez` fails only where the
//! stores were closed for good.
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
//! // GET /livez: 200 or 500, without asking anybody.
//! assert!(stores.is_live());
//! # Ok(())
//! # }
//! ```
//!
//! The example `health` of this crate serves both over HTTP.

use std::future::Future;
use std::time::{Duration, Instant};

use larder_agents::layers::TimeoutLayer;
use larder_kernel::{
    BlobKey, BoardId, CollectionName, Contract, DocumentId, EntityId, Error, ErrorKind, Result, Thread,
};
use serde::{Serialize, Serializer};

use larder_capabilities::driver::Pool;

use crate::backend::Backend;
use crate::stores::Stores;

/// What is asked about. Nobody need have it: that it is not there is an answer.
const NAME: &str = "larder-health";

/// How the stores stand, at one moment. Holds neither secrets nor anything stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether every store answered: the answer to a readiness probe.
    pub ready: bool,
    /// Whether none of the places was closed: the answer to a liveness probe.
    pub live: bool,
    /// How long asking took, in microseconds; the timeout at most, and a little.
    pub elapsed_us: u64,
    /// Each contract for which there is a store.
    pub contracts: Vec<ContractHealth>,
    /// Each place that the stores were opened at.
    pub places: Vec<BackendHealth>,
}

/// How one store stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContractHealth {
    /// The contract.
    pub contract: Contract,
    /// The scheme of the URL that the store came from; `custom` where it came from none.
    pub backend: &'static str,
    /// Whether the store answered, whatever the answer was.
    pub answers: bool,
    /// How long it took to answer or to fail, in microseconds.
    pub latency_us: u64,
    /// Why it did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<HealthError>,
}

/// Why a store did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HealthError {
    /// The kind, as its name: `Unavailable`, `Timeout`, `PermissionDenied`, `ResourceExhausted` and so on.
    #[serde(serialize_with = "kind_name")]
    pub kind: ErrorKind,
    /// The sentence of the error, which says what to do.
    pub message: String,
}

/// How one place stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendHealth {
    /// The scheme of its URL.
    pub backend: &'static str,
    /// The contracts that the stores take from it.
    pub contracts: Vec<Contract>,
    /// Its connections, where it keeps any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
}

impl Health {
    /// Whether every store answered.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether none of the places was closed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }
}

fn kind_name<S: Serializer>(kind: &ErrorKind, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.as_str())
}

impl Stores {
    /// Asks every store one small question, all at once, and waits for each at most `timeout`: a read of something that
    /// need not be there, in the stores' own namespace, through every layer around them. Nothing is written, and nothing
    /// is read but whether it is there.
    ///
    /// Needs a Tokio runtime with its timer. Ask about as often as an orchestrator does, every few seconds: each time
    /// takes a connection for as long as a read does.
    ///
    /// # Cancellation
    /// Nothing to undo.
    pub async fn health(&self, timeout: Duration) -> Health {
        let begun = Instant::now();
        let asked = self.clone().layered(&TimeoutLayer::new(timeout));
        let asking = asked.contracts().into_iter().map(|contract| {
            let (backend, asked) = (self.backend_name(contract), &asked);
            async move {
                let (begun, answer) = timed(ask(asked, contract)).await;
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
        // Boxed, for the six futures are large together.
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

    /// Whether none of the places that the stores were opened at was closed. Asks nobody and does not wait, as a liveness
    /// probe should: what a place that is away needs is patience, not a program that starts anew.
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

/// Reads what need not be there. That it is not is an answer like any other.
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
