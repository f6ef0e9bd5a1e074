//! Apache AGE: a knowledge graph inside Postgres that runs openCypher queries.
//!
//! ```no_run
//! use larder_capabilities::age::{Age, AgeConfig};
//! use larder_kernel::{CypherCapable, Metadata, Namespace};
//!
//! # async fn example() -> larder_kernel::Result<()> {
//! let age = Age::open(AgeConfig::from_url("age://app@localhost/app")?).await?;
//! let graph = age.graph(Namespace::new("app")?);
//! let query =
//!     "MATCH (p:Entity {id: $id})-[:Relationship {type: 'knows'}]->(q) RETURN q.properties.name AS name";
//! for row in graph.cypher(query, Metadata::new().with("id", "ada")).await? {
//!     println!("{:?}", row.get("name"));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Each namespace is a separate AGE graph, created at the first write; the table `larder.age_graphs` maps
//! namespaces to graphs. All data is in the graph's tables, so Cypher sees exactly the data that the store's
//! methods write. A unique index over the properties prevents duplicate ids. Other programs that write into
//! these graphs must follow the format that [`CypherCapable`](larder_kernel::CypherCapable) describes.
//!
//! The server needs AGE 1.5 or newer. Opening runs `CREATE EXTENSION age` if the extension is missing and the
//! user may create it; with `migrate=check` it only verifies. A user without superuser rights needs `USAGE`
//! on the schema `ag_catalog`, the right to write its tables `ag_graph` and `ag_label`, and `CREATE` on the
//! database.

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

/// An open database that returns graph stores. Clones share its connections, which close when the last clone
/// and the last graph store are dropped.
#[derive(Debug, Clone)]
pub struct Age {
    engine: Engine,
}

impl Age {
    /// Connects, and creates or upgrades the schema.
    ///
    /// # Errors
    /// As [`Postgres::open`](crate::postgres::Postgres::open). Also `Unsupported` if the server has no AGE or
    /// an old version, and `PermissionDenied` if the user may not create the extension.
    pub async fn open(config: AgeConfig) -> Result<Self> {
        let engine = Engine::open(config.postgres).await?;
        schema::ensure(&engine).await?;
        Ok(Self { engine })
    }

    /// Returns the graph store of `namespace`.
    #[must_use]
    pub fn graph(&self, namespace: Namespace) -> AgeGraphStore {
        AgeGraphStore::new(self.engine.clone(), namespace)
    }

    /// Returns the capabilities of the graphs, read back from the database's settings.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        capabilities(&self.engine)
    }

    /// Returns the state of the connection pool.
    pub(crate) fn pool(&self) -> crate::driver::Pool {
        self.engine.pool()
    }

    /// Closes the connections of every clone and graph store.
    pub async fn close(self) {
        self.engine.close().await;
    }
}

fn capabilities(engine: &Engine) -> Capabilities {
    engine.capabilities().with(Capability::Cypher)
}
