//! The result of reading all data of a backend.
//!
//! A driver adds each [`Fault`] to [`Faults`], with the path or the key of the damaged data. Reading changes
//! nothing. A repair is offered only where the right value follows from other data.

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) mod message;

#[cfg(feature = "sqlite")]
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use larder_kernel::{Error, ErrorKind, Outcome};
use serde::Serialize;

/// The operation of errors of a verification.
pub const OPERATION: &str = "verify";
/// The maximum number of faults that are listed. The others are counted.
pub const FAULTS_MAX: usize = 10_000;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// Data does not match its checksum.
    Checksum,
    /// A stored count or last number does not match the data that it counts.
    Counter,
    /// An index is missing, or does not match its table.
    Index,
    /// Data refers to data that does not exist.
    Reference,
    /// A record cannot be read, or contradicts itself.
    Record,
    /// The format or the schema is not that of this program.
    Format,
    /// A file, a table or a key of another program.
    Foreign,
}

impl FaultKind {
    /// Returns the name used in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Counter => "counter",
            Self::Index => "index",
            Self::Reference => "reference",
            Self::Record => "record",
            Self::Format => "format",
            Self::Foreign => "foreign",
        }
    }
}

/// Data that is not as this program writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The path or the key of the data. It contains stored ids.
    pub place: String,
    /// The observation, without stored content.
    pub seen: String,
    /// The change that a repair would make; `None` if no repair is safe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<&'static str>,
}

impl Fault {
    /// Creates a fault that no repair can remove safely.
    #[must_use]
    pub fn new(kind: FaultKind, place: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { kind, place: place.into(), seen: seen.into(), repair: None }
    }

    /// Sets the change that a repair would make.
    #[must_use]
    pub fn with_repair(mut self, repair: Option<&'static str>) -> Self {
        self.repair = repair;
        self
    }
}

/// The faults and counts of a verification. Clones share them, so that these faults are reported even if the
/// rest takes too long.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    verified: Arc<Mutex<Verified>>,
    /// The namespaces and keys of the blobs that messages name, each with the place of one message.
    #[cfg(feature = "sqlite")]
    blobs: Arc<Mutex<BTreeMap<(String, String), String>>>,
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Verified {
    /// The number of records that were read.
    pub records: u64,
    /// The faults, in the order in which they were found.
    pub faults: Vec<Fault>,
    /// The number of further faults, which are not listed.
    pub faults_not_listed: u64,
}

impl Faults {
    /// Adds a fault.
    pub fn add(&self, fault: Fault) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.faults.len() < FAULTS_MAX {
            verified.faults.push(fault);
        } else {
            verified.faults_not_listed += 1;
        }
    }

    /// Counts records that were read.
    pub fn read(&self, records: u64) {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).records += records;
    }

    /// Notes that a message names a blob of its namespace.
    #[cfg(feature = "sqlite")]
    pub(crate) fn names_blob(&self, namespace: &str, key: &str, place: &str) {
        let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.entry((namespace.to_owned(), key.to_owned())).or_insert_with(|| place.to_owned());
    }

    /// Takes the blobs that messages name.
    #[cfg(all(feature = "sqlite", feature = "fs", unix))]
    pub(crate) fn take_named_blobs(&self) -> BTreeMap<(String, String), String> {
        std::mem::take(&mut self.blobs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the result.
    #[must_use]
    pub fn take(&self) -> Verified {
        std::mem::take(&mut self.verified.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The result of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Repaired {
    /// The copy of the data as it was before the repair.
    pub copy: PathBuf,
}

impl Repaired {
    /// Creates the result.
    #[must_use]
    pub fn new(copy: impl Into<PathBuf>) -> Self {
        Self { copy: copy.into() }
    }
}

/// Returns the error of a backend that cannot do this.
pub(crate) fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, OPERATION, format!("the backend has no {what}"))
        .with_outcome(Outcome::NotApplied)
}
