//! Every layer forwards every method.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::{
    BlobKey, BlobStoreExt, Capabilities, Capability, Contract, CypherCapable, CypherRow, DeletedEntity,
    Durability, Entity, EntityId, EntityQuery, EntityWrite, ErrorKind, GraphCounts, GraphStore, GraphWritten,
    Metadata, Namespace, NeighborQuery, OptionSet, Page, PageRequest, Relationship, RelationshipId,
    RelationshipQuery, RelationshipWrite, Result, Store, StoredEntity, StoredRelationship, SubGraph,
    UpsertReport,
};

use super::super::{BlobCacheLayer, Layer, Layers, RetryLayer, Tenant};
use super::{Scripted, blobs, value};
use crate::storage::{InMemoryBlobStore, InMemoryGraphStore, MemoryBackend};

/// Returns the methods that a contract's trait declares, from its source.
fn methods(contract: Contract) -> BTreeSet<&'static str> {
    let name = |line: &'static str| {
        let line = line.strip_prefix("    async fn ").or_else(|| line.strip_prefix("    fn "))?;
        line.split('(').next()
    };
    contract.source().lines().filter_map(name).collect()
}

/// Returns the files that implement a contract for layers.
fn sources(contract: Contract) -> Vec<(&'static str, &'static str)> {
    let sealed = match contract {
        Contract::History => include_str!("../encrypt/history.rs"),
        Contract::Vectors => include_str!("../encrypt/vectors.rs"),
        Contract::Graph => include_str!("../encrypt/graph.rs"),
        Contract::Blobs => include_str!("../encrypt/blobs.rs"),
        Contract::Tasks => include_str!("../encrypt/tasks.rs"),
        Contract::KeyValue => include_str!("../encrypt/key_value.rs"),
    };
    let mut sources = vec![("forward", include_str!("../forward.rs")), ("encrypt", sealed)];
    if contract == Contract::Blobs {
        sources.push(("cache", include_str!("../cache.rs")));
    }
    sources
}

#[test]
fn every_implementation_has_every_method_of_every_contract() {
    for &contract in Contract::ALL {
        for (file, source) in sources(contract) {
            for method in methods(contract) {
                // Cypher is not declared over ciphertext, so no caller reaches it.
                if (file, method) == ("encrypt", "cypher") {
                    continue;
                }
                let forms = [format!("fn {method}("), format!("around {method}("), format!("open {method}(")];
                assert!(forms.iter().any(|form| source.contains(form)), "{file} lacks {contract}.{method}");
            }
            let implementations = source.matches("#[async_trait]").count();
            let refusing = source.matches("#[deny(clippy::missing_trait_methods)]").count();
            assert_eq!(implementations, refusing, "{file} may leave out a method that has a body");
        }
    }
}

/// A graph with Cypher.
#[derive(Debug)]
struct Speaking(InMemoryGraphStore);

#[async_trait]
impl Store for Speaking {
    fn namespace(&self) -> &Namespace {
        self.0.namespace()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::None).with(Capability::Cypher)
    }

    fn options(&self) -> OptionSet {
        self.0.options()
    }

    async fn erase(&self) -> Result<()> {
        self.0.erase().await
    }
}

macro_rules! graph_of {
    ($type:ident $(, $own:item)?) => {
        #[async_trait]
        impl GraphStore for $type {
            async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
                self.0.upsert_entities(entities).await
            }
            async fn write_entities(&self, writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
                self.0.write_entities(writes).await
            }
            async fn get_stored_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
                self.0.get_stored_entities(ids).await
            }
            async fn write_relationships(&self, writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
                self.0.write_relationships(writes).await
            }
            async fn get_stored_relationships(
                &self,
                ids: &[RelationshipId],
            ) -> Result<Vec<Option<StoredRelationship>>> {
                self.0.get_stored_relationships(ids).await
            }
            async fn upsert_relationships(&self, relationships: Vec<Relationship>) -> Result<UpsertReport> {
                self.0.upsert_relationships(relationships).await
            }
            async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
                self.0.get_entities(ids).await
            }
            async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
                self.0.get_relationships(ids).await
            }
            async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
                self.0.neighbors(entity, query).await
            }
            async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
                self.0.delete_entity(entity).await
            }
            async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
                self.0.delete_relationship(relationship).await
            }
            async fn find_entities(
                &self,
                query: &EntityQuery,
                page: PageRequest<EntityId>,
            ) -> Result<Page<Entity, EntityId>> {
                self.0.find_entities(query, page).await
            }
            async fn find_relationships(
                &self,
                query: &RelationshipQuery,
                page: PageRequest<RelationshipId>,
            ) -> Result<Page<Relationship, RelationshipId>> {
                self.0.find_relationships(query, page).await
            }
            async fn count(&self) -> Result<GraphCounts> {
                self.0.count().await
            }
            $($own)?
        }
    };
}

graph_of!(
    Speaking,
    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        Some(self)
    }
);

#[async_trait]
impl CypherCapable for Speaking {
    async fn cypher(&self, _query: &str, parameters: Metadata) -> Result<Vec<CypherRow>> {
        Ok(vec![parameters])
    }
}

/// Returns `true` if a graph implements Cypher exactly when it declares it.
fn keeps_its_word(graph: &dyn GraphStore) -> bool {
    graph.as_cypher().is_some() == graph.capabilities().has(Capability::Cypher)
}

#[tokio::test]
async fn cypher_works_through_every_layer_that_does_not_hide_it() {
    let speaking = || Arc::new(Speaking(InMemoryGraphStore::new()));
    let namespace = speaking().namespace().clone();
    let tenant = Tenant::new("t").unwrap().enter(&namespace).unwrap();
    let inside = Speaking(InMemoryGraphStore::open(&MemoryBackend::new(), tenant.behind().clone()));
    let layers = Layers::new()
        .trace("test")
        .metrics("test")
        .with(tenant)
        .retry(RetryLayer::new())
        .timeout(Duration::from_secs(5))
        .limit(4)
        .with(BlobCacheLayer::new(1_024));
    let graph = layers.graph(Arc::new(inside));
    assert!(keeps_its_word(&*graph));
    let rows =
        graph.as_cypher().unwrap().cypher("RETURN $a AS a", Metadata::new().with("a", 1)).await.unwrap();
    assert_eq!(rows, [Metadata::new().with("a", 1)]);
    #[cfg(feature = "encryption")]
    {
        let key = super::super::EncryptionKey::new([1; 32]);
        let sealed = super::super::EncryptionLayer::new(super::super::KeyRing::new(&key)).graph(speaking());
        assert!(keeps_its_word(&*sealed) && sealed.as_cypher().is_none());
    }
}

/// A layer that forwards only the methods without a default body.
#[derive(Debug)]
struct Forgetful(Arc<dyn GraphStore>);

#[async_trait]
impl Store for Forgetful {
    fn namespace(&self) -> &Namespace {
        self.0.namespace()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn options(&self) -> OptionSet {
        self.0.options()
    }

    async fn erase(&self) -> Result<()> {
        self.0.erase().await
    }
}

graph_of!(Forgetful);

#[test]
fn a_layer_that_forgets_a_method_is_caught() {
    let forgetful = Forgetful(Arc::new(Speaking(InMemoryGraphStore::new())));
    assert!(!keeps_its_word(&forgetful));
}

#[tokio::test]
async fn a_tenant_layer_refuses_a_store_of_another_namespace() {
    let layer = Tenant::new("acme").unwrap().enter(&Namespace::new("prod").unwrap()).unwrap();
    let foreign = layer.blobs(Arc::new(InMemoryBlobStore::new()));
    let key = BlobKey::new("k").unwrap();
    assert_eq!(foreign.put_bytes(&key, value()).await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(foreign.erase().await.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn the_cache_reads_bytes_once_and_never_serves_an_old_blob() {
    let scripted = Scripted::default();
    let store = blobs(&scripted, &BlobCacheLayer::new(1_024));
    let key = BlobKey::new("k").unwrap();
    store.put_bytes(&key, value()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(store.get_bytes(&key).await.unwrap(), value());
    }
    let expected = ["blobs.put", "blobs.get", "blobs.head", "blobs.head"];
    assert_eq!(scripted.calls(), expected);
    store.put_bytes(&key, "other".into()).await.unwrap();
    assert_eq!(store.get_bytes(&key).await.unwrap(), "other");
    store.erase().await.unwrap();
    assert_eq!(store.get_bytes(&key).await.unwrap_err().kind(), ErrorKind::NotFound);
    store.put_bytes(&key, vec![0; 1_000].into()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(store.get_bytes(&key).await.unwrap().len(), 1_000);
    }
    assert_eq!(
        scripted.calls().iter().filter(|call| **call == "blobs.get").count(),
        4,
        "too large to be kept"
    );
}
