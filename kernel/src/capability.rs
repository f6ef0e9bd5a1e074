//! What a store declares beyond what every store must do.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// An optional ability. Declared means that its clauses hold; undeclared means that the calls which need it fail with
/// `Unsupported` and change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Capability {
    /// Another process can open the same place at the same time.
    MultiProcess,
    /// Blobs can be written only where none is.
    BlobCreateOnly,
    /// Blobs can be written only over a known version.
    BlobIfMatch,
    /// Blobs can have every key that the grammar allows, in every namespace; without it only short ones for certain.
    BlobLongKeys,
    /// The store makes URLs to read a blob without credentials, or locators that stand for one.
    BlobPresignGet,
    /// The store makes URLs to write a blob without credentials, or locators that stand for one.
    BlobPresignPut,
    /// The graph answers openCypher queries.
    Cypher,
}

impl Capability {
    /// Every capability there is.
    pub const ALL: &'static [Self] = &[
        Self::MultiProcess,
        Self::BlobCreateOnly,
        Self::BlobIfMatch,
        Self::BlobLongKeys,
        Self::BlobPresignGet,
        Self::BlobPresignPut,
        Self::Cypher,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MultiProcess => "multi-process",
            Self::BlobCreateOnly => "blob-create-only",
            Self::BlobIfMatch => "blob-if-match",
            Self::BlobLongKeys => "blob-long-keys",
            Self::BlobPresignGet => "blob-presign-get",
            Self::BlobPresignPut => "blob-presign-put",
            Self::Cypher => "cypher",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an acknowledged write survives. A store reads it back from the live setting; it never assumes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing: the data ends with the process that holds it.
    #[default]
    None,
    /// The death of the process, `kill -9` included, but not of the machine.
    Process,
    /// The loss of power as well: the write was flushed to stable storage before it was acknowledged.
    Power,
}

impl Durability {
    /// The name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Process => "process",
            Self::Power => "power",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one store declares.
///
/// ```
/// use larder_kernel::{Capabilities, Capability, Durability};
///
/// let declared = Capabilities::new(Durability::Power).with(Capability::MultiProcess);
/// assert!(declared.has(Capability::MultiProcess));
/// assert!(!declared.has(Capability::Cypher));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capabilities {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// The optional abilities.
    pub optional: BTreeSet<Capability>,
}

impl Capabilities {
    /// The given durability and no optional ability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        Self { durability, optional: BTreeSet::new() }
    }

    /// Declares one more ability.
    #[must_use]
    pub fn with(mut self, capability: Capability) -> Self {
        self.optional.insert(capability);
        self
    }

    /// Whether the ability is declared.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.optional.contains(&capability)
    }
}
