//! Apache AGE: a knowledge graph inside Postgres that answers openCypher.
//!
//! ```no_run
//! use larder_capabilities::age::{Age, AgeConfig};
//! use larder_kernel::{CypherCapable, Metadata, Namespace};
//!
//! # async fn example() -> larder_kernel::Result<()> {
//! let age = Age::open(AgeConfig::from_url("age://app@localhost/app")?).await?;
//! let graph = age.graph(Namespace::new("app")?);
//! let query = "MATCH (p:Entity {id: $id})-[:Relationship {type: 'knows'}]->(q) RETURN q.properties.name AS name";
//! for row in graph.cypher(query, Metadata::new().with("id", "ada")).await? {
//!     println!("{:?}", row.get("name"));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Each namespace is an AGE graph of its own, made at the first write; `larder.age_graphs` says which is whose. The
//! graph's own tables are all there is: what the store's methods write is what Cypher sees, and an index over the
//! properties keeps ids apart. Whatever else writes into these graphs must keep to the form that
//! [`CypherCapable`](larder_kernel::CypherCapable) describes.
//!
//! The server needs AGE 1.5 or newer. Opening runs `CREATE EXTENSION age` where it is missing and the user may; with
//! `migrate=check` it only looks. A user who is no superuser needs `USAGE` on the schema `ag_catalog`, the right to
//! write its tables `ag_graph` and `ag_label`, and `CREATE` on the database.

mod agtype;
mod config;
mod cypher;
pub(crate) mod diagnose;
mod driver;
mod graph;
mod query;
mod schema;

use larder_kernel::{Capabilities, Capability, Namespace, Result};

pub use config::AgeConfig;
pub use driver::AgeDriver;
pub use graph::AgeGraphStore;

use crate::postgres::engine::Engine;

/// An open database, from which the graphs are taken. Clones share its connections, which close when the last clone
/// and the last graph are dropped.
#[derive(Debug, Clone)]
pub struct Age {
    engine: Engine,
}

impl Age {
    /// Connects, and makes or upgrades the schema.
    ///
    /// # Errors
    /// As [`Postgres::open`](crate::postgres::Postgres::open); besides, `Unsupported` for a server without AGE or with
    /// one that is too old, and `PermissionDenied` for a user who may not create the extension.
    pub async fn open(config: AgeConfig) -> Result<Self> {
        let engine = Engine::open(config.postgres).await?;
        schema::ensure(&engine).await?;
        Ok(Self { engine })
    }

    /// The graph in `namespace`.
    #[must_use]
    pub fn graph(&self, namespace: Namespace) -> AgeGraphStore {
        AgeGraphStore::new(self.engine.clone(), namespace)
    }

    /// What the database's graphs declare, as its settings read back.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        capabilities(&self.engine)
    }

    /// How many connections there are.
    pub(crate) fn pool(&self) -> crate::driver::Pool {
        self.engine.pool()
    }

    /// Closes the connections, for every clone and graph.
    pub async fn close(self) {
        self.engine.close().await;
    }
}

fn capabilities(engine: &Engine) -> Capabilities {
    engine.capabilities().with(Capability::Cypher)
}
