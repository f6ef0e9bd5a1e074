//! The backends of a move.

use std::sync::atomic::{AtomicU32, Ordering};

use larder::{Backend as Opened, Stores};
use larder_kernel::Namespace;
use tempfile::TempDir;

/// A backend that a test names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sqlite,
    /// Returns the live service of this variable.
    Live(&'static str),
}

pub(crate) const POSTGRES: Backend = Backend::Live("LARDER_POSTGRES_URL");
pub(crate) const REDIS: Backend = Backend::Live("LARDER_REDIS_URL");
pub(crate) const GARAGE: Backend = Backend::Live("LARDER_S3_GARAGE_URL");
pub(crate) const AGE: Backend = Backend::Live("LARDER_AGE_URL");

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Live("LARDER_POSTGRES_URL") => "postgres",
            Self::Live("LARDER_REDIS_URL") => "redis",
            Self::Live("LARDER_S3_GARAGE_URL") => "s3",
            Self::Live(_) => "age",
        }
    }

    pub(crate) fn variable(self) -> Option<&'static str> {
        if let Self::Live(variable) = self { Some(variable) } else { None }
    }
}

/// An empty namespace on a backend.
pub(crate) struct Place {
    pub(crate) stores: Stores,
    pub(crate) url: String,
    pub(crate) namespace: Namespace,
    _opened: Opened,
    _folder: TempDir,
}

impl Place {
    pub(crate) async fn new(backend: Backend) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let url = match backend {
            Backend::Memory => "memory:".to_owned(),
            Backend::Sqlite => format!("sqlite:{}", folder.path().join("larder.db").display()),
            Backend::Live(variable) => std::env::var(variable).expect("the variable names a service"),
        };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::new(format!("moving-{}-{count}", std::process::id())).unwrap();
        let opened = Opened::open(&url).await.unwrap();
        let stores = opened.stores(&namespace).await;
        Self { stores, url, namespace, _opened: opened, _folder: folder }
    }

    /// Removes the data that a live service would keep.
    pub(crate) async fn remove(self) {
        self.stores.erase().await.unwrap();
    }
}
