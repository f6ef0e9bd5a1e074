//! `sqlite:`, one file, with blobs in a folder next to it.

use std::sync::Arc;

use async_trait::async_trait;
#[cfg(all(feature = "fs", unix))]
use larder_kernel::Outcome;
use larder_kernel::{Contract, Error, ErrorKind, Result, StoreSet};

use super::{Sqlite, SqliteConfig, Synchronous};
use crate::diagnose::Findings;
use crate::driver::{
    BackendUrl, Connection, Driver, Location, OpenMode, Sharing, StoresRequest, invalid_url,
};
#[cfg(not(all(feature = "fs", unix)))]
use crate::files::{BUSY_TIMEOUT_MS_MAX, FilePermissions};
#[cfg(all(feature = "fs", unix))]
use crate::files::{BUSY_TIMEOUT_MS_MAX, FilePermissions, next_to, real_path};
use crate::verify::{Faults, Repaired};

/// The folder of blobs has the name of the database and this suffix.
#[cfg(all(feature = "fs", unix))]
const BLOBS: &str = ".blobs";

/// Opens `sqlite:./larder.db`, `sqlite:/var/larder.db` and `sqlite:///var/larder.db`.
///
/// With `synchronous=full` (the default) an acknowledged write survives a power failure; with
/// `synchronous=normal` it survives a crash of the process. `busy_timeout_ms=` limits the wait for a lock of
/// another process. `permissions=0660` also gives the group access to new files and folders. With `mode=ro`
/// the file is only read: nothing is created or upgraded, and every write fails with `PermissionDenied`. With
/// the feature `fs`, blobs are in the folder `larder.db.blobs`, next to the real file if the path is a link.
/// The first blob creates it. With `blob_versions=true` a new folder keeps earlier versions of blobs.
#[derive(Debug, Clone, Copy)]
pub struct SqliteDriver;

impl Driver for SqliteDriver {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["sqlite"]
    }

    fn contracts(&self) -> &'static [Contract] {
        &[
            Contract::History,
            Contract::Vectors,
            Contract::Graph,
            #[cfg(all(feature = "fs", unix))]
            Contract::Blobs,
            Contract::Tasks,
            Contract::KeyValue,
        ]
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["synchronous", "busy_timeout_ms", "permissions", "blob_versions", "mode"]
    }

    fn sharing(&self) -> Sharing {
        Sharing::Machine
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        let blob_versions = url.blob_versions()?;
        #[cfg(not(all(feature = "fs", unix)))]
        if blob_versions {
            return Err(invalid_url("has `blob_versions`, but this program stores no blobs next to SQLite"));
        }
        Ok(Box::new(SqliteLocation {
            config: config(url)?,
            #[cfg(all(feature = "fs", unix))]
            blob_versions,
        }))
    }
}

fn config(url: &BackendUrl<'_>) -> Result<SqliteConfig> {
    let path = url.path()?;
    let text = path.to_string_lossy();
    if text.starts_with(':') {
        return Err(invalid_url("asks SQLite for a database in memory; write `memory:` instead"));
    }
    if text.starts_with("file:") {
        return Err(invalid_url(
            "contains a second scheme; write `sqlite:./larder.db` or `sqlite:///absolute/larder.db`",
        ));
    }
    if text.ends_with('/') {
        return Err(invalid_url("names a folder; name the database file in it"));
    }
    let mut config = SqliteConfig::new(path).with_mode(OpenMode::of(url)?);
    config = match url.parameter("synchronous") {
        None => config,
        Some("full") => config.with_synchronous(Synchronous::Full),
        Some("normal") => config.with_synchronous(Synchronous::Normal),
        Some(_) => return Err(invalid_url("has a `synchronous` other than `full` and `normal`")),
    };
    if let Some(timeout) = url.millis("busy_timeout_ms", BUSY_TIMEOUT_MS_MAX)? {
        config = config.with_busy_timeout(timeout);
    }
    Ok(config.with_permissions(FilePermissions::of_url(url)?.unwrap_or_default()))
}

struct SqliteLocation {
    config: SqliteConfig,
    /// Keeps earlier versions of blobs in a new folder.
    #[cfg(all(feature = "fs", unix))]
    blob_versions: bool,
}

#[async_trait]
impl Location for SqliteLocation {
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>> {
        #[cfg(all(feature = "fs", unix))]
        let blobs = checked_blobs(&self.config)
            .map(|folder| if self.blob_versions { folder.with_blob_versions() } else { folder });
        Ok(Arc::new(Opened {
            sqlite: Sqlite::open(self.config).await?,
            #[cfg(all(feature = "fs", unix))]
            blobs,
        }))
    }

    async fn diagnose(&self, findings: &Findings) {
        super::diagnose::diagnose(&self.config, findings).await;
        #[cfg(all(feature = "fs", unix))]
        {
            let folder = blobs_beside(&self.config);
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

    async fn verify(&self, faults: &Faults) -> Result<()> {
        super::verify::verify(&self.config, faults).await?;
        #[cfg(all(feature = "fs", unix))]
        {
            let folder = blobs_beside(&self.config);
            if folder.root.symlink_metadata().is_ok() {
                crate::fs::verify::verify(&folder, faults).await?;
                crate::fs::verify::check_named(folder, faults).await?;
            }
        }
        Ok(())
    }

    async fn renew_generations(&self) -> Result<u64> {
        if !self.config.path.is_file() {
            let message = "the database file does not exist; check the path";
            let error = Error::new(ErrorKind::NotFound, "sqlite.renew_generations", message);
            return Err(error.with_field("path"));
        }
        let sqlite = Sqlite::open(self.config.clone()).await?;
        let renewed = sqlite.renew_generations().await;
        sqlite.close().await;
        renewed
    }

    async fn repair(&self) -> Result<Repaired> {
        super::verify::repair(&self.config).await
    }

    fn changes_on_open(&self) -> Option<&'static str> {
        super::diagnose::opening_changes(&self.config)
    }
}

/// An open database and the folder of its blobs.
struct Opened {
    sqlite: Sqlite,
    #[cfg(all(feature = "fs", unix))]
    blobs: Result<crate::fs::FsConfig>,
}

#[async_trait]
impl Connection for Opened {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let (sqlite, namespace) = (&self.sqlite, &request.namespace);
        let set = StoreSet::new()
            .with_history(Arc::new(sqlite.history(namespace.clone())))
            .with_vectors(Arc::new(sqlite.vectors(namespace.clone(), request.embedder.clone())))
            .with_graph(Arc::new(sqlite.graph(namespace.clone())))
            .with_tasks(Arc::new(sqlite.tasks(namespace.clone())))
            .with_key_value(Arc::new(sqlite.key_value(namespace.clone())));
        #[cfg(all(feature = "fs", unix))]
        let set = if request.wants(Contract::Blobs) {
            let opened = match self.blobs.clone() {
                Ok(config) => crate::fs::FsBlobStore::open(config, namespace.clone()).await,
                Err(error) => Err(error),
            };
            match opened {
                Ok(blobs) => set.with_blobs(Arc::new(blobs)),
                Err(error) => set.with_error(Contract::Blobs, error),
            }
        } else {
            set
        };
        set.only(&request.contracts)
    }

    fn is_closed(&self) -> bool {
        self.sqlite.is_closed()
    }

    async fn close(self: Arc<Self>) {
        self.sqlite.clone().close().await;
    }
}

/// Returns the configuration of the blob folder. It is named after the real file, so a database that is
/// opened by a symbolic link has the same blobs.
#[cfg(all(feature = "fs", unix))]
fn blobs_beside(config: &SqliteConfig) -> crate::fs::FsConfig {
    crate::fs::FsConfig::new(next_to(&real_path(&config.path), BLOBS))
        .with_busy_timeout(config.busy_timeout)
        .with_permissions(config.permissions)
        .with_mode(config.mode)
}

/// As `blobs_beside`. Rejects blobs next to a symbolic link, where earlier versions put them, if the real
/// file has none.
#[cfg(all(feature = "fs", unix))]
fn checked_blobs(config: &SqliteConfig) -> Result<crate::fs::FsConfig> {
    let blobs = blobs_beside(config);
    if blobs.root.exists() || !next_to(&config.path, BLOBS).exists() {
        return Ok(blobs);
    }
    let message = "the folder of blobs is next to a symbolic link to the database; move it next to the \
                   database itself";
    Err(Error::new(ErrorKind::Unavailable, "blobs.open", message).with_outcome(Outcome::NotApplied))
}
