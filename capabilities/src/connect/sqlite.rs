//! `sqlite:`, one file, with blobs in a folder beside it.

use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{Contract, Embedder, Namespace, Result};

use super::Target;
use super::url::{ParsedUrl, invalid};
use crate::diagnose::Findings;
use crate::sqlite::{Sqlite, SqliteConfig, Synchronous};
use crate::stores::Stores;

/// What a SQLite URL provides in this build.
pub(super) const CONTRACTS: &[Contract] = &[
    Contract::History,
    Contract::Vectors,
    Contract::Graph,
    #[cfg(all(feature = "fs", unix))]
    Contract::Blobs,
    Contract::Tasks,
    Contract::KeyValue,
];

pub(super) fn target(mut url: ParsedUrl<'_>) -> Result<Target> {
    let path = url.path()?;
    let text = path.to_string_lossy();
    if text.starts_with(':') {
        return Err(invalid("asks SQLite for memory; write `memory:` instead"));
    }
    if text.starts_with("file:") {
        return Err(invalid(
            "holds a second scheme; write `sqlite:./larder.db` or `sqlite:///absolute/larder.db`",
        ));
    }
    if text.ends_with('/') {
        return Err(invalid("names a folder; name the database file in it"));
    }
    let mut config = SqliteConfig::new(path);
    config = match url.take("synchronous") {
        None => config,
        Some("full") => config.with_synchronous(Synchronous::Full),
        Some("normal") => config.with_synchronous(Synchronous::Normal),
        Some(_) => return Err(invalid("has another `synchronous` than `full` or `normal`")),
    };
    if let Some(value) = url.take("busy_timeout_ms") {
        // SQLite counts them in 31 bits.
        let ms = value.parse().ok().filter(|ms| i32::try_from(*ms).is_ok());
        let ms: u64 =
            ms.ok_or_else(|| invalid("has a `busy_timeout_ms` that is no number from 0 to 2147483647"))?;
        config = config.with_busy_timeout(Duration::from_millis(ms));
    }
    url.nothing_left("`sqlite:` takes `synchronous` and `busy_timeout_ms`")?;
    Ok(Target::Sqlite(config))
}

/// An open database, and where its blobs are.
#[derive(Clone)]
pub(super) struct Opened {
    sqlite: Sqlite,
    #[cfg(all(feature = "fs", unix))]
    blobs: crate::fs::FsConfig,
}

impl Opened {
    pub(super) async fn new(config: SqliteConfig) -> Result<Self> {
        #[cfg(all(feature = "fs", unix))]
        let blobs = blobs_beside(&config);
        Ok(Self {
            sqlite: Sqlite::open(config).await?,
            #[cfg(all(feature = "fs", unix))]
            blobs,
        })
    }

    pub(super) async fn open(
        &self,
        namespace: &Namespace,
        embedder: Option<Arc<dyn Embedder>>,
        wanted: &[Contract],
    ) -> Result<Stores> {
        let stores = Stores::none(namespace.clone())
            .with_history(Arc::new(self.sqlite.history(namespace.clone())))
            .with_vectors(Arc::new(self.sqlite.vectors(namespace.clone(), embedder)))
            .with_graph(Arc::new(self.sqlite.graph(namespace.clone())))
            .with_tasks(Arc::new(self.sqlite.tasks(namespace.clone())))
            .with_key_value(Arc::new(self.sqlite.key_value(namespace.clone())));
        self.add_blobs(stores, wanted).await
    }

    /// Opens the folder, and so makes it, only for who wants blobs of it.
    #[cfg(all(feature = "fs", unix))]
    async fn add_blobs(&self, stores: Stores, wanted: &[Contract]) -> Result<Stores> {
        if !wanted.contains(&Contract::Blobs) {
            return Ok(stores);
        }
        let namespace = stores.namespace().clone();
        let blobs = crate::fs::FsBlobStore::open(self.blobs.clone(), namespace).await?;
        Ok(stores.with_blobs(Arc::new(blobs)))
    }

    #[cfg(not(all(feature = "fs", unix)))]
    async fn add_blobs(&self, stores: Stores, _wanted: &[Contract]) -> Result<Stores> {
        Ok(stores)
    }

    /// Whether the thread that writes has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.sqlite.is_closed()
    }

    pub(super) async fn close(self) {
        self.sqlite.close().await;
    }
}

/// Looks at the file, and at the folder of blobs where there is one.
pub(super) async fn diagnose(config: &SqliteConfig, findings: &Findings) {
    crate::sqlite::diagnose::diagnose(config, findings).await;
    #[cfg(all(feature = "fs", unix))]
    {
        let folder = blobs_beside(config);
        if folder.root.exists() {
            let of_blobs = Findings::default();
            crate::fs::diagnose::diagnose(&folder, &of_blobs).await;
            for mut check in of_blobs.take() {
                check.seen = format!("the folder of blobs: {}", check.seen);
                findings.add(check);
            }
        }
    }
}

/// Blobs lie in a folder that has the file's name.
#[cfg(all(feature = "fs", unix))]
fn blobs_beside(config: &SqliteConfig) -> crate::fs::FsConfig {
    let mut folder = config.path.clone().into_os_string();
    folder.push(".blobs");
    crate::fs::FsConfig::new(folder)
}
