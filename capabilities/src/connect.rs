//! From a URL to the stores behind it.
//!
//! | URL | what it opens | contracts |
//! |---|---|---|
//! | `memory:` | memory of this process; every opening is a place of its own | all six |
//! | `sqlite:./larder.db`, `sqlite:/var/larder.db`, `sqlite:///var/larder.db` | a SQLite file | all but blobs |
//! | the same with the feature `fs` | blobs in the folder beside it, `larder.db.blobs` | all six |
//! | `file:./blobs`, `file:///var/blobs` | a folder | blobs |
//! | `postgres://user:password@host:5432/database` | a Postgres database, with the feature `postgres` | all but blobs |
//! | `s3://ACCESS_KEY:SECRET_KEY@bucket/prefix` | a bucket of S3 or of a server like it, with the feature `s3` | blobs |
//! | `redis://user:password@host:6379/0`, `rediss://…` with TLS | a Redis server, with the feature `redis` | history, tasks, key-value |
//! | `redis+cluster://user:password@host:6379,host:6380`, `rediss+cluster://…` | a Redis cluster | the same |
//! | `age://user:password@host:5432/database` | a Postgres database with Apache AGE, with the feature `age` | graph, with openCypher |
//!
//! `sqlite:` takes the query parameters `synchronous=full` (the default: an acknowledged write survives the loss of
//! power) or `synchronous=normal`, and `busy_timeout_ms=`, how long to wait for a lock of another process.
//! `redis:` takes `connect_timeout_ms=`, `response_timeout_ms=` and, with TLS, `tls_ca_file=`. `s3:` takes `endpoint=`,
//! `region=`, `path_style=`, `allow_http=`, `connect_timeout_ms=`, `response_timeout_ms=` and `stall_timeout_ms=`, and
//! without keys asks the environment as other AWS clients do. `postgres:` and `age:` take what their rooms list. An
//! unknown parameter is an error. In a path `%` and two hexadecimal digits stand for a byte, so `#`, `?` and `%` are
//! written `%23`, `%3F` and `%25`.
//!
//! No call waits for ever on a server that stays silent. Unless these parameters say otherwise, an opening gives up one
//! that never says anything within about ten seconds, one that falls silent later within a minute, and a migration within
//! ten; any other call ends within the times that they set. The error is of the kind `Timeout` or `Unavailable`.
//!
//! `memory:` has no name: what is to be shared is opened once, with [`open_place`], and shared as a [`Place`]. It takes
//! `vector_index=none` (the default) or `vector_index=ivf`, by which searches of large collections become approximate as
//! [`with_approximate_search`](larder_agents::storage::InMemoryVectorStore::with_approximate_search) says.

#[cfg(feature = "age")]
mod age;
#[cfg(all(feature = "fs", unix))]
mod files;
mod memory;
#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
mod path;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "sqlite")]
mod sqlite;
mod url;

use std::fmt;
use std::sync::Arc;

use larder_agents::storage::MemoryBackend;
use larder_kernel::{Contract, Embedder, Error, ErrorKind, Namespace, Result};

use crate::diagnose::Findings;
use crate::health::Pool;
use crate::stores::Stores;
use url::{OPERATION, ParsedUrl, invalid};

/// Opens what the URL names, so that stores in any number of namespaces can be taken from it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// use larder_kernel::Namespace;
///
/// let place = larder_capabilities::open_place("memory:").await?;
/// let tenant = place.open(&Namespace::new("tenant-1")?, None).await?;
/// let history = tenant.history()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `InvalidInput` naming `url` for a URL that is malformed, has an unknown scheme or an unknown query parameter;
/// `Unsupported` naming `url` for a scheme whose cargo feature this build does not have; else the backend's own.
pub async fn open_place(url: &str) -> Result<Place> {
    Target::parse(url)?.open().await
}

/// What one URL names, opened. Clones share it.
#[derive(Clone)]
pub struct Place {
    scheme: &'static str,
    contracts: Arc<[Contract]>,
    backend: Backend,
}

#[derive(Clone)]
enum Backend {
    Memory(MemoryBackend, memory::VectorIndex),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlite::Opened),
    #[cfg(all(feature = "fs", unix))]
    Files(crate::fs::FsBlobStore),
    #[cfg(feature = "postgres")]
    Postgres(crate::postgres::Postgres),
    #[cfg(feature = "s3")]
    S3(crate::s3::S3BlobStore),
    #[cfg(feature = "redis")]
    Redis(crate::redis::Redis),
    #[cfg(feature = "age")]
    Age(crate::age::Age),
}

impl Place {
    /// The scheme of the URL: `memory`, `sqlite`, `file`, `postgres`, `age`, `redis` or `s3`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The contracts that the place provides.
    #[must_use]
    pub fn contracts(&self) -> &[Contract] {
        &self.contracts
    }

    /// Opens every store that the place provides in one namespace. The embedder, where there is one, lets the vector
    /// store embed texts itself.
    ///
    /// # Errors
    /// The backend's own.
    pub async fn open(&self, namespace: &Namespace, embedder: Option<Arc<dyn Embedder>>) -> Result<Stores> {
        self.open_some(namespace, embedder, &self.contracts).await
    }

    /// Opens those stores of `wanted` that the place provides.
    pub(crate) async fn open_some(
        &self,
        namespace: &Namespace,
        embedder: Option<Arc<dyn Embedder>>,
        wanted: &[Contract],
    ) -> Result<Stores> {
        let stores = match &self.backend {
            Backend::Memory(place, index) => memory::open(place, *index, namespace, embedder),
            #[cfg(feature = "sqlite")]
            Backend::Sqlite(opened) => opened.open(namespace, embedder, wanted).await?,
            #[cfg(all(feature = "fs", unix))]
            Backend::Files(blobs) => files::in_namespace(blobs, namespace),
            #[cfg(feature = "postgres")]
            Backend::Postgres(opened) => postgres::open(opened, namespace, embedder, wanted).await?,
            #[cfg(feature = "s3")]
            Backend::S3(blobs) => s3::in_namespace(blobs, namespace),
            #[cfg(feature = "redis")]
            Backend::Redis(opened) => redis::open(opened, namespace),
            #[cfg(feature = "age")]
            Backend::Age(opened) => age::open(opened, namespace),
        };
        Ok(stores.with_origin(self).keep(wanted))
    }

    /// The connections that the place has, where it keeps any.
    pub(crate) fn pool(&self) -> Option<Pool> {
        match &self.backend {
            #[cfg(feature = "postgres")]
            Backend::Postgres(opened) => Some(opened.pool()),
            #[cfg(feature = "redis")]
            Backend::Redis(opened) => Some(opened.pool()),
            #[cfg(feature = "age")]
            Backend::Age(opened) => Some(opened.pool()),
            _ => None,
        }
    }

    /// Whether the place was closed, so that no call of its stores can succeed any more.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.backend {
            #[cfg(feature = "sqlite")]
            Backend::Sqlite(opened) => opened.is_closed(),
            #[cfg(feature = "postgres")]
            Backend::Postgres(opened) => opened.pool().closed,
            #[cfg(feature = "age")]
            Backend::Age(opened) => opened.pool().closed,
            _ => false,
        }
    }

    /// Lets go of the place and waits until it is closed: for SQLite, until every clone and every store taken from it is
    /// dropped.
    pub async fn close(self) {
        match self.backend {
            Backend::Memory(..) => {}
            #[cfg(feature = "sqlite")]
            Backend::Sqlite(opened) => opened.close().await,
            #[cfg(all(feature = "fs", unix))]
            Backend::Files(_) => {}
            #[cfg(feature = "postgres")]
            Backend::Postgres(opened) => opened.close().await,
            #[cfg(feature = "s3")]
            Backend::S3(_) => {}
            #[cfg(feature = "redis")]
            Backend::Redis(opened) => opened.close().await,
            #[cfg(feature = "age")]
            Backend::Age(opened) => opened.close().await,
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// What a URL asks for, read and checked but not yet opened.
pub(crate) enum Target {
    Memory(memory::VectorIndex),
    #[cfg(feature = "sqlite")]
    Sqlite(crate::sqlite::SqliteConfig),
    #[cfg(all(feature = "fs", unix))]
    Files(crate::fs::FsConfig),
    #[cfg(feature = "postgres")]
    Postgres(Box<crate::postgres::PostgresConfig>),
    #[cfg(feature = "s3")]
    S3(Box<crate::s3::S3Config>),
    #[cfg(feature = "redis")]
    Redis(Box<crate::redis::RedisConfig>),
    #[cfg(feature = "age")]
    Age(Box<crate::age::AgeConfig>),
}

impl Target {
    /// Reads a URL, without I/O.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let url = ParsedUrl::parse(text)?;
        match url.scheme.as_str() {
            "memory" => memory::target(url),
            #[cfg(feature = "sqlite")]
            "sqlite" => sqlite::target(url),
            #[cfg(all(feature = "fs", unix))]
            "file" => files::target(&url),
            #[cfg(all(feature = "fs", not(unix)))]
            "file" => Err(unsupported("`file:` works on Unix only; use another URL for blobs")),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => postgres::target(text),
            #[cfg(feature = "s3")]
            "s3" => s3::target(text),
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => redis::target(text),
            #[cfg(feature = "age")]
            "age" => age::target(text),
            scheme => Err(not_in_this_build(scheme)),
        }
    }

    /// The contracts that the place will provide.
    pub(crate) fn contracts(&self) -> &'static [Contract] {
        match self {
            Self::Memory(_) => &Contract::ALL,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => sqlite::CONTRACTS,
            #[cfg(all(feature = "fs", unix))]
            Self::Files(_) => &[Contract::Blobs],
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => postgres::CONTRACTS,
            #[cfg(feature = "s3")]
            Self::S3(_) => &[Contract::Blobs],
            #[cfg(feature = "redis")]
            Self::Redis(_) => redis::CONTRACTS,
            #[cfg(feature = "age")]
            Self::Age(_) => age::CONTRACTS,
        }
    }

    /// The scheme, as a [`Place`] has it.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => "sqlite",
            #[cfg(all(feature = "fs", unix))]
            Self::Files(_) => "file",
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgres",
            #[cfg(feature = "s3")]
            Self::S3(_) => "s3",
            #[cfg(feature = "redis")]
            Self::Redis(_) => "redis",
            #[cfg(feature = "age")]
            Self::Age(_) => "age",
        }
    }

    /// Looks at the place without opening it.
    pub(crate) async fn diagnose(self, findings: &Findings) {
        match self {
            Self::Memory(_) => crate::diagnose::memory(findings),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(config) => sqlite::diagnose(&config, findings).await,
            #[cfg(all(feature = "fs", unix))]
            Self::Files(config) => crate::fs::diagnose::diagnose(&config, findings).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => {
                if let Some(connection) = crate::postgres::diagnose::diagnose(&config, true, findings).await {
                    crate::postgres::diagnose::close(connection).await;
                }
            }
            #[cfg(feature = "s3")]
            Self::S3(config) => Box::pin(crate::s3::diagnose::diagnose(&config, findings)).await,
            #[cfg(feature = "redis")]
            Self::Redis(config) => Box::pin(crate::redis::diagnose::diagnose(&config, findings)).await,
            #[cfg(feature = "age")]
            Self::Age(config) => crate::age::diagnose::diagnose(&config, findings).await,
        }
    }

    /// What opening changes, as far as files tell.
    pub(crate) fn opening_changes(&self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(config) => crate::sqlite::diagnose::opening_changes(config),
            #[cfg(all(feature = "fs", unix))]
            Self::Files(config) => {
                (!config.root.exists()).then_some("the folder is not there, and opening would make it")
            }
            _ => None,
        }
    }

    pub(crate) async fn open(self) -> Result<Place> {
        // The clients of some backends make large futures while they connect; boxed, they weigh on no caller.
        Box::pin(self.connect()).await
    }

    async fn connect(self) -> Result<Place> {
        let (scheme, contracts) = (self.scheme(), self.contracts().into());
        let backend = match self {
            Self::Memory(index) => Backend::Memory(MemoryBackend::new(), index),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(config) => Backend::Sqlite(sqlite::Opened::new(config).await?),
            #[cfg(all(feature = "fs", unix))]
            Self::Files(config) => Backend::Files(files::open(config).await?),
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => Backend::Postgres(crate::postgres::Postgres::open(*config).await?),
            #[cfg(feature = "s3")]
            Self::S3(config) => Backend::S3(s3::open(&config).await?),
            #[cfg(feature = "redis")]
            Self::Redis(config) => Backend::Redis(crate::redis::Redis::open(*config).await?),
            #[cfg(feature = "age")]
            Self::Age(config) => Backend::Age(crate::age::Age::open(*config).await?),
        };
        Ok(Place { scheme, contracts, backend })
    }
}

/// The error for a scheme without a backend in this build.
fn not_in_this_build(scheme: &str) -> Error {
    let feature = match scheme {
        "sqlite" => "sqlite",
        "file" => "fs",
        "postgres" | "postgresql" => "postgres",
        "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => "redis",
        "s3" => "s3",
        "age" => "age",
        _ => {
            return invalid(
                "has an unknown scheme; there are `memory:`, `sqlite:`, `file:`, `postgres:`, `redis:`, `rediss:`, \
                 `redis+cluster:`, `rediss+cluster:`, `s3:` and `age:`",
            );
        }
    };
    unsupported(format!(
        "the scheme needs the cargo feature `{feature}` of larder-capabilities, which this build does not have"
    ))
}

fn unsupported(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, OPERATION, message).with_field("url")
}

#[cfg(test)]
mod tests;
