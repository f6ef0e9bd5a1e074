//! Adapters that implement the traits of other crates over Larder's stores, so programs written for those
//! traits can use any backend.
//!
//! Each adapter has a cargo feature and is off by default. It takes any store: one opened by URL, your own,
//! or one wrapped in [layers](crate::layers). The names contain the version of the other crate if that crate
//! breaks its trait in most releases.
//!
//! | feature | implements | over |
//! |---|---|---|
//! | `adapter-object-store` | `ObjectStore` of `object_store` 0.14 | [`BlobStore`] |
//! | `adapter-tower-sessions` | `SessionStore` of `tower-sessions` 0.15 | [`KeyValueStore`] |
//! | `adapter-rig-0-44` | `ConversationMemory` of `rig-core` 0.44 | [`HistoryProvider`] |
//! | `adapter-rig-0-44` | `VectorStoreIndex` and `InsertDocuments` of `rig-core` 0.44 | [`VectorStore`] |
//! | `adapter-rmcp-3` | a Model Context Protocol server with `rmcp` 3 | all stores of a URL |
//!
//! [`BlobStore`]: larder_kernel::BlobStore
//! [`HistoryProvider`]: larder_kernel::HistoryProvider
//! [`KeyValueStore`]: larder_kernel::KeyValueStore
//! [`VectorStore`]: larder_kernel::VectorStore

#[cfg(feature = "adapter-rmcp-3")]
pub mod mcp;
#[cfg(feature = "adapter-object-store")]
pub mod object_store;
#[cfg(feature = "adapter-rig-0-44")]
pub mod rig_0_44;
#[cfg(feature = "adapter-tower-sessions")]
pub mod tower_sessions;
