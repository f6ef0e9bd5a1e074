//! The names of threads, namespaces and checkpoints.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use larder_kernel::{BlobKey, BucketName, Error, Result, check};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The beginning of the names of all buckets with checkpoints.
const BUCKETS: &str = "larder.checkpoints/";
/// The maximum length of a thread's name, in bytes of UTF-8.
const THREAD_BYTES_MAX: usize = 400;
/// The maximum length of a namespace's name, in bytes of UTF-8.
const NAMESPACE_BYTES_MAX: usize = 256;
/// The maximum length of a checkpoint's id, in bytes.
const ID_BYTES_MAX: usize = 64;
/// The number of bytes of a thread's hash in the keys of its blobs.
const HASH_BYTES: usize = 16;

/// A thread: the checkpoints of one conversation or task, in any number of namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckpointThread {
    name: String,
    pub(super) bucket: BucketName,
}

impl CheckpointThread {
    /// Names a thread.
    ///
    /// # Errors
    /// `InvalidInput` for an empty name, one of more than 400 bytes, or one with NUL.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        const OPERATION: &str = "checkpoint.thread";
        let name = name.into();
        check::batch(OPERATION, "thread", name.len(), THREAD_BYTES_MAX)?;
        check::no_nul(OPERATION, "thread", &name)?;
        let bucket = BucketName::new(format!("{BUCKETS}{name}"))?;
        Ok(Self { name, bucket })
    }

    /// Returns the thread of a bucket, if the bucket has checkpoints.
    pub(super) fn of_bucket(bucket: &BucketName) -> Option<Self> {
        Self::new(bucket.as_str().strip_prefix(BUCKETS)?).ok()
    }

    /// Returns the name after which the buckets with checkpoints are listed.
    pub(super) fn before_all() -> Result<BucketName> {
        BucketName::new(BUCKETS)
    }

    /// Returns the name exactly as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Returns the namespace with the empty name, that of the outermost graph.
    #[must_use]
    pub fn root(&self) -> CheckpointNamespace {
        CheckpointNamespace { thread: self.clone(), name: String::new() }
    }

    /// Returns a namespace of the thread, such as that of an inner graph.
    ///
    /// # Errors
    /// `InvalidInput` for a name of more than 256 bytes or with NUL.
    pub fn namespace(&self, name: impl Into<String>) -> Result<CheckpointNamespace> {
        const OPERATION: &str = "checkpoint.namespace";
        let name = name.into();
        check::text(OPERATION, "namespace", &name, NAMESPACE_BYTES_MAX)?;
        check::no_nul(OPERATION, "namespace", &name)?;
        Ok(CheckpointNamespace { thread: self.clone(), name })
    }

    /// Returns the beginning of the keys of the thread's blobs. With a name, a key has 48 bytes, which every
    /// blob store accepts.
    pub(super) fn blobs(&self) -> String {
        let hash = Sha256::digest(self.name.as_bytes());
        format!("cp/{}/", URL_SAFE_NO_PAD.encode(&hash[..HASH_BYTES]))
    }

    /// Returns the key of one of the thread's blobs.
    pub(super) fn blob(&self, name: &str) -> Result<BlobKey> {
        BlobKey::new(format!("{}{name}", self.blobs()))
    }
}

/// Draws the name of a blob.
pub(super) fn draw_blob_name() -> String {
    URL_SAFE_NO_PAD.encode(Uuid::new_v4().as_bytes())
}

/// The checkpoints of one graph within a thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckpointNamespace {
    pub(super) thread: CheckpointThread,
    name: String,
}

impl CheckpointNamespace {
    /// Returns the thread.
    #[must_use]
    pub fn thread(&self) -> &CheckpointThread {
        &self.thread
    }

    /// Returns the name exactly as given; it is empty for the outermost graph.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Returns the same namespace of another thread.
    pub(super) fn of_thread(&self, thread: &CheckpointThread) -> Self {
        Self { thread: thread.clone(), name: self.name.clone() }
    }
}

/// The id of a checkpoint: 1 to 64 visible ASCII characters. Checkpoints are ordered by the bytes of their
/// ids.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CheckpointId(String);

impl CheckpointId {
    /// Checks the text and creates the id.
    ///
    /// # Errors
    /// `InvalidInput` for an empty text, one of more than 64 bytes, or other characters than visible ASCII.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        const OPERATION: &str = "checkpoint.id";
        let text = text.into();
        check::batch(OPERATION, "id", text.len(), ID_BYTES_MAX)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = "contains a space or another character than visible ASCII; remove it";
            return Err(Error::invalid(OPERATION, "id", message));
        }
        Ok(Self(text))
    }

    /// Draws the id of the checkpoint with this number in its namespace. It sorts after those of all smaller
    /// numbers.
    pub(super) fn draw(number: u64) -> Self {
        Self(format!("{number:016x}-{}", Uuid::new_v4().simple()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckpointId({:?})", self.0)
    }
}

impl FromStr for CheckpointId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl TryFrom<String> for CheckpointId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

impl From<CheckpointId> for String {
    fn from(id: CheckpointId) -> Self {
        id.0
    }
}
