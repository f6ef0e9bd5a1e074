//! The driver of `redb:` URLs, which name one file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use larder::diagnose::{Check, Findings};
use larder::driver::{BackendUrl, Connection, Driver, Location, Sharing, StoresRequest};
use larder::{Contract, Error, ErrorKind, Result, StoreSet};
use redb::DatabaseError;

use crate::store::RedbKeyValueStore;
use crate::tables::Tables;

const OPERATION: &str = "open";
/// The time that an opening waits for another process to close the file.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The files that this process has open. redb locks a file for one opening, so later openings share it.
type Open = Arc<Mutex<BTreeMap<PathBuf, Weak<Tables>>>>;

/// Opens `redb:./agent.redb`.
#[derive(Debug, Default)]
pub struct RedbDriver {
    open: Open,
}

impl Driver for RedbDriver {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["redb"]
    }

    fn contracts(&self) -> &'static [Contract] {
        &[Contract::KeyValue]
    }

    fn sharing(&self) -> Sharing {
        Sharing::Process
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        Ok(Box::new(RedbLocation { path: url.path()?, open: Arc::clone(&self.open) }))
    }
}

struct RedbLocation {
    path: PathBuf,
    open: Open,
}

impl RedbLocation {
    /// Opens the file or shares it; returns `None` while another process has it open.
    fn try_open(&self) -> Result<Option<Arc<Tables>>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = open.get(&self.path).and_then(Weak::upgrade) {
            return Ok(Some(tables));
        }
        match Tables::open(&self.path) {
            Ok(tables) => {
                let tables = Arc::new(tables);
                open.insert(self.path.clone(), Arc::downgrade(&tables));
                Ok(Some(tables))
            }
            Err(redb::Error::DatabaseAlreadyOpen) => Ok(None),
            Err(error) => {
                Err(Error::new(ErrorKind::Unavailable, OPERATION, "cannot open the file").with_source(error))
            }
        }
    }
}

#[async_trait]
impl Location for RedbLocation {
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>> {
        let (begun, location) = (Instant::now(), Arc::new(*self));
        loop {
            let location = Arc::clone(&location);
            let opening = tokio::task::spawn_blocking(move || location.try_open()).await;
            let opened =
                opening.map_err(|_| Error::new(ErrorKind::Unexpected, OPERATION, "the task ended"))?;
            if let Some(tables) = opened? {
                return Ok(Arc::new(RedbConnection(tables)));
            }
            if begun.elapsed() > WAIT_MAX {
                let message = "another process has the file open; close it there";
                return Err(Error::new(ErrorKind::Unavailable, OPERATION, message));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn diagnose(&self, findings: &Findings) {
        const FILE: &str = "whether the file can be opened";
        if !self.path.exists() {
            findings.add(Check::ok("file", "it does not exist yet; opening makes it", FILE));
            return;
        }
        let read_only = redb::ReadOnlyDatabase::open(&self.path);
        findings.add(match read_only {
            Ok(_) => Check::ok("file", "a redb database", FILE),
            Err(DatabaseError::DatabaseAlreadyOpen) => {
                Check::warn("file", "a process has it open", FILE, "close it there")
            }
            Err(_) => Check::fail("file", "no redb database", FILE, "name another file"),
        });
        let why = "determines what an acknowledged write survives";
        findings.add(Check::ok("durability", "power: each write is flushed to the disk", why));
    }

    fn changes_on_open(&self) -> Option<&'static str> {
        (!self.path.exists()).then_some("it would make the file")
    }
}

struct RedbConnection(Arc<Tables>);

#[async_trait]
impl Connection for RedbConnection {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let store = RedbKeyValueStore::new(request.namespace.clone(), Arc::clone(&self.0));
        StoreSet::new().with_key_value(Arc::new(store)).only(&request.contracts)
    }
}
