//! The layer that encrypts stored data.

mod blobs;
mod graph;
mod history;
mod key_value;
mod ring;
mod tasks;
mod text;
mod vectors;

use std::fmt;
use std::sync::Arc;

use larder_kernel::{
    BlobStore, Embedder, GraphStore, HistoryProvider, KeyValueStore, TaskStore, VectorStore,
};

pub use ring::{EncryptionKey, KeyRing};

use super::layer::Layer;

/// Encrypts stored data with XChaCha20-Poly1305 under the keys of a [`KeyRing`].
///
/// Each contract encrypts some fields and leaves others in plaintext. A ciphertext is bound to some of the
/// plaintext fields:
///
/// - history: role, text, tool calls and results, blob references, author, metadata and token count are
///   encrypted. Thread, run, `created_at`, sizes and `Seq` are plaintext. A message is bound to its namespace
///   and run.
/// - vectors: the text is encrypted. Collection, id, **embedding and metadata** are plaintext. A document is
///   bound to its namespace, collection and id.
/// - graph: properties are encrypted. Ids, types and ends are plaintext. An item is bound to its namespace,
///   id, type and ends.
/// - blobs: the bytes are encrypted. Key, content type, user metadata and size are plaintext. A blob is bound
///   to its namespace and key.
/// - tasks: title, description, metadata, result and label are encrypted. Board, parent, id, status, retries
///   and lease are plaintext. A task is bound to its namespace, board and id.
/// - key-value: the value is encrypted. Bucket, key, revision, time to live and size are plaintext. A value
///   is bound to its namespace, bucket and key.
///
/// A ciphertext decrypts only at its own location. If it was moved to another key, truncated or altered, the
/// error is `Corrupt`. If the ring does not have its key, the error is `PermissionDenied`. Neither is ever
/// returned as text.
///
/// Messages are not bound to their thread, because the store itself copies them in a fork. Nothing is bound
/// to a revision or a `Seq`, which the store assigns after encryption. An attacker who can write to the inner
/// store can therefore move a message within its namespace or restore an old version. An embedding reveals
/// much of its text; if that is too much, keep the vectors in another store.
///
/// A store that compresses messages (SQLite, Postgres, Redis) leaves encrypted messages as they are. A
/// message is padded to its plain size, and compression would undo the padding, so that the stored length
/// would reveal how well the plain text compresses.
///
/// # Limitations
///
/// Every clause of the contracts holds. Filters on metadata of documents work on the unencrypted metadata.
/// This layer evaluates filters on properties and on authors of messages, so the inner store also returns the
/// items that they drop. `copy` of a blob passes its bytes through this process. Renames of
/// blobs are not declared, because the bytes of a blob are bound to its key. Cypher and presigned URLs, which
/// would return ciphertext, are not declared either. Set an embedder on this layer, not on the inner store,
/// which would embed ciphertext.
///
/// The inner store has the contract's limits too. A message is encrypted to exactly its plain size, so that
/// the sizes of threads stay correct. For that, it is compressed first, and so are values and texts within a
/// few bytes of their limit, and the largest values of a `write` near its limit. Data that does not compress
/// enough fails with `ResourceExhausted`, for example 4 MB of random bytes in one value, or kilobytes of
/// random control characters in one message. Text written by people or models always compresses enough, and
/// so do random letters and base64.
///
/// A message that was appended with an idempotency key is encrypted the same way each time, so that a
/// repeated append finds the first.
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::InMemoryHistoryProvider;
/// use larder_agents::layers::{EncryptionKey, EncryptionLayer, KeyRing, Layer};
/// use larder_kernel::{ChatMessage, HistoryProvider, HistoryProviderExt, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let behind = Arc::new(InMemoryHistoryProvider::new());
/// let (old, new) = (EncryptionKey::generate()?, EncryptionKey::generate()?);
/// let history = EncryptionLayer::new(KeyRing::new(&old)).history(behind.clone());
/// let thread = Thread::new("assistant", "session-1")?;
/// history.append(&thread, ChatMessage::user("My PIN is 1234")).await?;
/// assert!(!format!("{:?}", behind.all_messages(&thread).await?).contains("1234"));
///
/// let rotated = EncryptionLayer::new(KeyRing::new(&new).with_older(&old)).history(behind);
/// assert_eq!(rotated.all_messages(&thread).await?[0].message.text, "My PIN is 1234");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EncryptionLayer {
    ring: KeyRing,
    embedder: Option<Arc<dyn Embedder>>,
}

impl EncryptionLayer {
    /// Encrypts with the keys of the ring.
    #[must_use]
    pub fn new(ring: KeyRing) -> Self {
        Self { ring, embedder: None }
    }

    /// Sets the embedder for documents without an embedding. It embeds their plain text.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }
}

impl fmt::Debug for EncryptionLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptionLayer").field("ring", &self.ring).finish_non_exhaustive()
    }
}

/// A store with encrypted content. The submodules implement the contracts.
pub(super) struct Sealed<S: ?Sized> {
    inner: Arc<S>,
    ring: KeyRing,
    embedder: Option<Arc<dyn Embedder>>,
}

impl<S: ?Sized + fmt::Debug> fmt::Debug for Sealed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealed").field("store", &self.inner).finish_non_exhaustive()
    }
}

macro_rules! seal {
    ($($name:ident: $contract:ident;)*) => {
        impl Layer for EncryptionLayer {
            $(fn $name(&self, store: Arc<dyn $contract>) -> Arc<dyn $contract> {
                Arc::new(Sealed { inner: store, ring: self.ring.clone(), embedder: self.embedder.clone() })
            })*
        }
    };
}

seal! {
    history: HistoryProvider;
    vectors: VectorStore;
    graph: GraphStore;
    blobs: BlobStore;
    tasks: TaskStore;
    key_value: KeyValueStore;
}

/// Implements the shared methods of the contracts for an encrypted store, without the named capabilities.
macro_rules! shared {
    ($contract:ident, [$($option:ident),*] $(, $capability:ident)*) => {
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl Store for Sealed<dyn $contract> {
            fn namespace(&self) -> &Namespace {
                self.inner.namespace()
            }

            fn capabilities(&self) -> Capabilities {
                #[allow(unused_mut)]
                let mut declared = self.inner.capabilities();
                $(declared.optional.remove(&Capability::$capability);)*
                declared
            }

            // The layer encrypts the fields of requests, so it lists the fields that it supports.
            fn options(&self) -> larder_kernel::OptionSet {
                use larder_kernel::{OptionSet, RequestOption};
                self.inner.options().intersection(OptionSet::of(&[$(RequestOption::$option),*]))
            }

            async fn erase(&self) -> Result<()> {
                self.inner.erase().await
            }
        }
    };
}
use shared;
