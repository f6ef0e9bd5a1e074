//! Stores opened from several URLs.

use std::fmt;
use std::sync::Arc;

use larder_kernel::{Contract, Embedder, Error, ErrorKind, Namespace, Result, StoreSet};

use crate::config::StoresConfig;
use larder_capabilities::driver::StoresRequest;

use crate::registry::{Registry, Target};
use crate::stores::Stores;

const OPEN: &str = "open";

/// Chooses the URLs, the namespace and the embedder of an application's stores.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder::Result<()> {
/// use larder::prelude::*;
///
/// let stores = Stores::builder()
///     .namespace(Namespace::new("tenant-1")?)
///     .url("memory:")
///     .tasks_url("memory:")
///     .open()
///     .await?;
/// assert_eq!(stores.contracts().len(), 6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StoresBuilder {
    registry: Registry,
    namespace: Option<Namespace>,
    urls: Vec<String>,
    own: Vec<(Contract, String)>,
    embedder: Option<Arc<dyn Embedder>>,
    read_only: bool,
}

impl StoresBuilder {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            namespace: None,
            urls: Vec::new(),
            own: Vec::new(),
            embedder: None,
            read_only: false,
        }
    }

    /// Sets the drivers. The default is the drivers of this build.
    #[must_use]
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Sets the namespace. The default is `default`.
    #[must_use]
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Adds a URL for every contract that its backend provides and that has no separate URL. If several URLs
    /// provide a contract, the first one is used. Blobs go to the first URL that provides nothing else, if
    /// there is one: `postgres://…` followed by `s3://…` keeps blobs in S3 and everything else in Postgres.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// Applies a configuration. Settings made on this builder take precedence over it.
    #[must_use]
    pub fn from_config(config: &StoresConfig) -> Self {
        let mut builder = Self {
            namespace: config.namespace.clone(),
            urls: config.urls(),
            ..Self::new(Registry::default())
        };
        for (contract, url) in config.own_urls() {
            builder = builder.own_url(contract, url.to_owned());
        }
        builder
    }

    /// Sets the URL of the history provider.
    #[must_use]
    pub fn history_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::History, url.into())
    }

    /// Sets the URL of the vector store.
    #[must_use]
    pub fn vectors_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::Vectors, url.into())
    }

    /// Sets the URL of the graph store.
    #[must_use]
    pub fn graph_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::Graph, url.into())
    }

    /// Sets the URL of the blob store.
    #[must_use]
    pub fn blobs_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::Blobs, url.into())
    }

    /// Sets the URL of the task store.
    #[must_use]
    pub fn tasks_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::Tasks, url.into())
    }

    /// Sets the URL of the key-value store.
    #[must_use]
    pub fn key_value_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::KeyValue, url.into())
    }

    /// Sets the embedder, with which the vector store embeds texts.
    #[must_use]
    pub fn embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }

    /// Opens every URL only for reading, as [`Registry::read_only_url`] describes.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    fn own_url(mut self, contract: Contract, url: String) -> Self {
        self.own.retain(|(other, _)| *other != contract);
        self.own.push((contract, url));
        self
    }

    /// Parses every URL, then opens each of them once.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` if no URL is given; `Unsupported` naming `url` if the URL of a contract
    /// does not provide that contract; otherwise as [`open`](crate::open).
    pub async fn open(self) -> Result<Stores> {
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None => Namespace::new("default")?,
        };
        let registry = self.registry;
        let read_only = self.read_only;
        let read = |url: &str| {
            if read_only { registry.read(&registry.read_only_url(url)?) } else { registry.read(url) }
        };
        let mut targets: Vec<(String, Target, Vec<Contract>)> = Vec::new();
        let mut taken: Vec<Contract> = self.own.iter().map(|(contract, _)| *contract).collect();
        let of_blobs = |target: &Target| target.contracts == [Contract::Blobs];
        let named: Vec<(String, Target)> =
            self.urls.into_iter().map(|url| read(&url).map(|target| (url, target))).collect::<Result<_>>()?;
        let has_own_blobs = named.iter().any(|(_, target)| of_blobs(target));
        for (url, target) in named {
            let elsewhere = if has_own_blobs && !of_blobs(&target) { Some(Contract::Blobs) } else { None };
            let free = |contract: &Contract| !taken.contains(contract) && elsewhere != Some(*contract);
            let wanted: Vec<Contract> = target.contracts.iter().copied().filter(free).collect();
            taken.extend(&wanted);
            targets.push((url, target, wanted));
        }
        for (contract, url) in self.own {
            let target = read(&url)?;
            if !target.contracts.contains(&contract) {
                return Err(wrong_url(contract));
            }
            match targets.iter_mut().find(|(known, ..)| *known == url) {
                Some((_, _, wanted)) => wanted.push(contract),
                None => targets.push((url, target, vec![contract])),
            }
        }
        if targets.is_empty() {
            return Err(Error::invalid(OPEN, "url", "is missing; set one with `StoresBuilder::url`"));
        }
        let mut stores = Stores::new(namespace.clone(), StoreSet::new());
        for (_, target, wanted) in targets.into_iter().filter(|(.., wanted)| !wanted.is_empty()) {
            let request = StoresRequest::new(namespace.clone())
                .with_contracts(wanted)
                .with_embedder(self.embedder.clone());
            stores = stores.or(target.open().await?.stores_for(request).await);
        }
        Ok(stores)
    }
}

fn wrong_url(contract: Contract) -> Error {
    let message = format!(
        "the URL given for the contract `{contract}` does not provide it in this build; use another URL"
    );
    Error::new(ErrorKind::Unsupported, OPEN, message).with_field("url")
}

impl fmt::Debug for StoresBuilder {
    /// Omits the URLs, which may contain secrets, and the namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: Vec<Contract> = self.own.iter().map(|(contract, _)| *contract).collect();
        f.debug_struct("StoresBuilder").field("own_url", &own).finish_non_exhaustive()
    }
}

/// Opens the stores behind a URL, in the namespace `default`, with the drivers of this build.
///
/// `open` opens every contract that it can. A contract that cannot be opened, such as vectors on a Postgres
/// without pgvector, fails at its accessor. [`Stores::builder`] takes several URLs, a namespace or an
/// embedder, and opens only the stores that you name.
///
/// ```
/// use larder::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder::Result<()> {
/// let stores = larder::open("memory:").await?;
/// assert_eq!(stores.contracts().len(), 6);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `InvalidInput` naming `url` if the URL is malformed, or has an unknown scheme or query parameter;
/// `Unsupported` naming `url` if this build lacks the cargo feature of the scheme; otherwise the backend's
/// error.
///
/// # Cancellation
/// Dropping the future leaves nothing open.
pub async fn open(url: &str) -> Result<Stores> {
    Registry::default().open(url).await
}

impl Registry {
    /// Opens the stores behind a URL, in the namespace `default`; see [`open`].
    ///
    /// # Errors
    /// As [`open`].
    pub async fn open(&self, url: &str) -> Result<Stores> {
        self.builder().url(url).open().await
    }

    /// Returns a builder that takes several URLs, a namespace or an embedder.
    #[must_use]
    pub fn builder(&self) -> StoresBuilder {
        StoresBuilder::new(self.clone())
    }
}

impl Stores {
    /// Returns a builder that takes several URLs, a namespace or an embedder.
    #[must_use]
    pub fn builder() -> StoresBuilder {
        Registry::default().builder()
    }
}

#[cfg(test)]
mod tests;
