//! Stores behind the traits of other crates, so that programs written for those keep what they have in any backend.
//!
//! Each adapter has a cargo feature, is off by default, and takes any store: one of a URL, one of your own, or one in
//! [layers](crate::layers). Where the other crate breaks its trait with most releases, the version stands in the
//! names.
//!
//! | feature | for | over |
//! |---|---|---|
//! | `adapter-object-store` | `object_store` 0.14, its `ObjectStore` | [`BlobStore`](larder_kernel::BlobStore) |
//! | `adapter-tower-sessions` | `tower-sessions` 0.15, its `SessionStore` | [`KeyValueStore`](larder_kernel::KeyValueStore) |
//! | `adapter-rig-0-44` | `rig-core` 0.44, its `ConversationMemory` | [`HistoryProvider`](larder_kernel::HistoryProvider) |
//! | `adapter-rig-0-44` | `rig-core` 0.44, its `VectorStoreIndex` and `InsertDocuments` | [`VectorStore`](larder_kernel::VectorStore) |
//! | `adapter-rmcp-3` | `rmcp` 3, a server of the Model Context Protocol | all stores of a URL |

#[cfg(feature = "adapter-rmcp-3")]
pub mod mcp;
#[cfg(feature = "adapter-object-store")]
pub mod object_store;
#[cfg(feature = "adapter-rig-0-44")]
pub mod rig_0_44;
#[cfg(feature = "adapter-tower-sessions")]
pub mod tower_sessions;
