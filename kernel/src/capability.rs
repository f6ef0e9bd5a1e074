//! Optional capabilities and durability of a store.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// An optional capability. If a store declares it, the clauses of the capability hold. If not, calls that
/// need it fail with `Unsupported` and change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Capability {
    /// Other processes can open the same backend at the same time.
    MultiProcess,
    /// A blob can be written on the condition that its key has no blob.
    BlobCreateOnly,
    /// A blob can be written on the condition that the stored blob has a known version.
    BlobIfMatch,
    /// Blob keys can have every length that the grammar allows, in every namespace. Without this capability
    /// only short keys are guaranteed.
    BlobLongKeys,
    /// A blob can be moved to another key in one step.
    BlobRename,
    /// The store keeps earlier versions of blobs that were overwritten or deleted.
    BlobVersions,
    /// The store makes URLs to read a blob without credentials, or locators in place of such URLs.
    BlobPresignGet,
    /// The store makes URLs to write a blob without credentials, or locators in place of such URLs.
    BlobPresignPut,
    /// The graph runs openCypher queries.
    Cypher,
}

impl Capability {
    /// All capabilities.
    pub const ALL: &'static [Self] = &[
        Self::MultiProcess,
        Self::BlobCreateOnly,
        Self::BlobIfMatch,
        Self::BlobLongKeys,
        Self::BlobRename,
        Self::BlobVersions,
        Self::BlobPresignGet,
        Self::BlobPresignPut,
        Self::Cypher,
    ];

    /// Returns the name used in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MultiProcess => "multi-process",
            Self::BlobCreateOnly => "blob-create-only",
            Self::BlobIfMatch => "blob-if-match",
            Self::BlobLongKeys => "blob-long-keys",
            Self::BlobRename => "blob-rename",
            Self::BlobVersions => "blob-versions",
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

/// The failures that an acknowledged write survives. A store reads the value from the live setting and never
/// assumes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Durability {
    /// Writes survive no failure: the data is lost when its process ends.
    #[default]
    None,
    /// Writes survive the end of the process, including `kill -9`, but not a crash of the machine.
    Process,
    /// Writes also survive a power failure: each write is flushed to stable storage before it is
    /// acknowledged.
    Power,
}

impl Durability {
    /// Returns the name used in reports.
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

/// The declaration of one store: its durability and its optional capabilities.
///
/// ```
/// use larder_kernel::{Capabilities, Capability, Durability};
///
/// let declared = Capabilities::new(Durability::Power).with(Capability::MultiProcess);
/// assert!(declared.has(Capability::MultiProcess));
/// assert!(!declared.has(Capability::Cypher));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Capabilities {
    /// The failures that an acknowledged write survives.
    pub durability: Durability,
    /// The optional capabilities.
    pub optional: BTreeSet<Capability>,
}

impl Capabilities {
    /// Creates a declaration with this durability and no optional capability.
    #[must_use]
    pub fn new(durability: Durability) -> Self {
        Self { durability, optional: BTreeSet::new() }
    }

    /// Adds a capability.
    #[must_use]
    pub fn with(mut self, capability: Capability) -> Self {
        self.optional.insert(capability);
        self
    }

    /// Returns `true` if the capability is declared.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.optional.contains(&capability)
    }

    /// Sets the durability.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
}
