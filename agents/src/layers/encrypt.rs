//! The layer that encrypts what stores keep.

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

/// Encrypts what stores keep, with XChaCha20-Poly1305 under the keys of a [`KeyRing`].
///
/// | contract | sealed | in clear | bound to |
/// |---|---|---|---|
/// | history | role, text, tool calls and results, blob references, author, metadata, token count | thread, run, `created_at`, sizes, `Seq` | namespace, run |
/// | vectors | text | collection, id, **embedding, metadata** | namespace, collection, id |
/// | graph | properties | ids, types, ends | namespace, id, type, ends |
/// | blobs | bytes | key, content type, user metadata, size | namespace, key |
/// | tasks | title, description, metadata, result, label | board, parent, id, status, retries, lease | namespace, board, id |
/// | key-value | value | bucket, key, revision, time to live, size | namespace, bucket, key |
///
/// What is sealed opens only where it was put: moved to another key, cut or altered it is `Corrupt`, and under a key
/// that the ring lacks it is `PermissionDenied`; neither is ever answered as text. Messages are not bound to their
/// thread, because the store itself copies them in a fork, and nothing is bound to a revision or a `Seq`, which the store
/// assigns after sealing: whoever can write to the store behind can move a message within its namespace or bring an old
/// version back. An embedding tells much of the text that it was made of; where that is too much, keep the vectors of
/// another store.
///
/// # What still holds, and what not
///
/// Every clause of the contracts does. Filters on metadata of documents work on the clear text; filters on properties
/// and on authors of messages are answered here, so the store hands over what they drop. `copy` of a blob passes its
/// bytes through this process. Cypher and presigned URLs, which would meet ciphertext, are not declared. An embedder
/// must be given to this layer, not to the store behind, which would embed ciphertext.
///
/// The store behind has the contract's limits too. A message is sealed to exactly the size that it has in clear, so that
/// the sizes of threads stay right; for that, and for values and texts within a few bytes of their limit, it is
/// compressed first. What does not compress that far, such as four megabytes of random bytes in one value, or kilobytes of
/// random control characters in one message, is `ResourceExhausted`; text that people or models write does, random
/// letters and base64 included. A message that was appended under an idempotency key
/// is sealed alike each time, so that repeating the append finds the first.
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
    /// Encrypts under the keys of the ring.
    #[must_use]
    pub fn new(ring: KeyRing) -> Self {
        Self { ring, embedder: None }
    }

    /// Sets what computes the embeddings that documents lack, from their clear text.
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

/// A store whose content is sealed. The contracts are implemented in the files beside.
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

/// Implements what the contracts share for a sealed store, less the capabilities named.
macro_rules! shared {
    ($contract:ident $(, $capability:ident)*) => {
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

            async fn erase(&self) -> Result<()> {
                self.inner.erase().await
            }
        }
    };
}
use shared;
