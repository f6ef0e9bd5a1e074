//! Blobs as objects of S3, or of a server that speaks its protocol.
//!
//! A blob is one object. Small ones go in one request, larger ones in parts, several at once, and nothing stays behind
//! where a write fails or is given up. Reads ask for parts in the same way, all of one version. `key.rs` says how the
//! names of objects come about.
//!
//! Conditional writes are declared only if the server was seen to honour them when the store was opened: single requests
//! and uploads in parts, alone and in a race. With credentials that may only read, the store opens all the same, without
//! them. Durability is declared as `process`: what a server does beyond that it does not tell.
//!
//! Some servers cannot keep names as long as S3 can. What this one keeps is found out as well: if not every key fits, the
//! capability `blob-long-keys` is not declared, and keys whose names are too long are refused before anything is sent.
//!
//! What S3 does not offer in one step takes two: `delete` and `copy` ask for the blob first. Of two deletions at once both
//! may answer that the blob was there. The time in the answer to a write is this machine's; reads tell the server's.
//!
//! No call waits for ever on a server that stays silent. One without much data ends within three times
//! `response_timeout_ms`; bytes on their way, in either direction, may stand still for `stall_timeout_ms`, however many
//! they are; completing an upload and copying are given a minute, and a second for each 32 MiB, up to ten minutes.
//!
//! A signed URL ends with the credentials that signed it: those of a role end within hours, whatever time was asked for.
//!
//! The SDK writes the access key, which is a name, into its log at the level TRACE; the secret key is in no log.
//!
//! A write that fails waits up to a second until its upload is removed; what is left then goes in the background. A
//! lifecycle rule for unfinished uploads is still worth having: nobody cleans up after a machine that lost its power.

mod body;
mod config;
mod copy;
pub(crate) mod diagnose;
mod engine;
mod erase;
mod failure;
mod key;
mod list;
mod names;
mod presign;
mod probe;
mod read;
mod stall;
mod upload;
mod value;
mod write;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::blob::{check_get, check_prefix, check_presign, check_put};
use larder_kernel::{
    BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    Capabilities, Capability, Durability, Error, ErrorKind, Namespace, PresignRequest, PresignedUrl, Result,
    Store,
};

pub use config::{CONNECT_TIMEOUT_DEFAULT, RESPONSE_TIMEOUT_DEFAULT, S3Config, STALL_TIMEOUT_DEFAULT};
use engine::Engine;
use key::Layout;

/// A [`BlobStore`] over a bucket.
///
/// Needs a Tokio runtime.
///
/// ```no_run
/// use larder_capabilities::s3::{S3BlobStore, S3Config};
/// use larder_kernel::{BlobKey, BlobStoreExt, Namespace};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let config = S3Config::from_url("s3://files/app?region=eu-central-1")?;
/// let blobs = S3BlobStore::open(&config, Namespace::new("default")?).await?;
/// let key = BlobKey::new("reports/2026/a.txt")?;
/// blobs.put_bytes(&key, "hello".into()).await?;
/// assert_eq!(blobs.get_bytes(&key).await?, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct S3BlobStore {
    engine: Arc<Engine>,
    layout: Layout,
    namespace: Namespace,
    capabilities: Capabilities,
    /// The longest name of an object that the server keeps.
    name_bytes_max: usize,
}

impl S3BlobStore {
    /// Finds credentials, asks the server for the bucket, and tries out which conditional writes it honours and how
    /// long its names may be, with a few small objects under `probe/` that are removed again.
    ///
    /// # Errors
    /// `NotFound` naming `url` where there is no such bucket; `PermissionDenied` for credentials that are missing, wrong
    /// or may not list the bucket; `InvalidInput` naming `url` for a region or an endpoint that does not fit, or a prefix
    /// under which the server cannot even keep short keys;
    /// `Unavailable` or `Timeout` where the server cannot be reached or does not answer, within
    /// [`response_timeout`](S3Config::response_timeout); `Timeout` where it answers and then takes more than half a
    /// minute over what is tried out.
    pub async fn open(config: &S3Config, namespace: Namespace) -> Result<Self> {
        let engine = Arc::new(Engine::open(config).await?);
        // A probe takes away what it wrote, or leaves it where nobody looks.
        let honoured = probe::probe(&engine).await.map_err(|error| error.with_idempotent(true))?;
        let mut capabilities = Capabilities::new(Durability::Process)
            .with(Capability::MultiProcess)
            .with(Capability::BlobPresignGet)
            .with(Capability::BlobPresignPut);
        if honoured.create_only {
            capabilities = capabilities.with(Capability::BlobCreateOnly);
        }
        if honoured.if_match {
            capabilities = capabilities.with(Capability::BlobIfMatch);
        }
        if honoured.long_keys {
            capabilities = capabilities.with(Capability::BlobLongKeys);
        }
        let name_bytes_max = honoured.name_bytes_max;
        let layout = Layout::new(&engine.prefix, &namespace, name_bytes_max);
        Ok(Self { engine, layout, namespace, capabilities, name_bytes_max })
    }

    /// The same bucket in another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: Namespace) -> Self {
        let layout = Layout::new(&self.engine.prefix, &namespace, self.name_bytes_max);
        Self { layout, namespace, ..self.clone() }
    }

    /// Refuses to write under a key that the server does not keep.
    fn check_kept(&self, operation: &'static str, key: &BlobKey) -> Result<()> {
        if self.layout.keeps(key) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            operation,
            "in this namespace the key makes a name longer than the server keeps; shorten one of them",
        )
        .with_context("capability", Capability::BlobLongKeys.as_str())
        .with_field("key"))
    }

    /// Finds nothing under a key that the server does not keep.
    fn find_kept(&self, operation: &'static str, key: &BlobKey) -> Result<()> {
        if self.layout.keeps(key) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, operation, "no blob has this key"))
    }
}

impl fmt::Debug for S3BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3BlobStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for S3BlobStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn erase(&self) -> Result<()> {
        erase::erase(&self.engine, &self.layout).await
    }
}

#[async_trait]
impl BlobStore for S3BlobStore {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        check_put(&options, &self.capabilities)?;
        self.check_kept("blobs.put", key)?;
        write::put(&self.engine, &self.layout, key, body, options).await
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        self.find_kept("blobs.get", key)?;
        read::get(&self.engine, &self.layout, key, options).await
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        self.find_kept("blobs.head", key)?;
        read::head(&self.engine, &self.layout, "blobs.head", key).await
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        check_prefix(prefix)?;
        Ok(list::list(&self.engine, &self.layout, prefix, after))
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        self.check_kept("blobs.copy", target)?;
        self.find_kept("blobs.copy", source)?;
        copy::copy(&self.engine, &self.layout, source, target).await
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        if !self.layout.keeps(key) {
            return Ok(false);
        }
        erase::delete(&self.engine, &self.layout, key).await
    }

    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.capabilities)?;
        self.check_kept("blobs.presign", key)?;
        presign::presign(&self.engine, &self.layout, key, request).await
    }
}
