//! Entities and relationships, which cross the border as JSON.

use std::sync::Arc;

use larder::{
    CypherRow, EntityId, EntityQuery, EntityWrite, Error, Graph, Metadata, NeighborQuery, PageRequest,
    RelationshipId, RelationshipQuery, RelationshipWrite,
};
use pyo3::prelude::*;

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::input::{Limit, id, json, optional, text};
use crate::output;
use crate::process::Owned;
use crate::stores::Shared;

#[pyclass(frozen, module = "larder._native", name = "Graph")]
pub(crate) struct NativeGraph {
    pub(crate) shared: Arc<Shared>,
    pub(crate) handle: Owned<Graph>,
}

impl NativeGraph {
    fn handle(&self, py: Python<'_>) -> PyResult<Graph> {
        self.handle.get().cloned().or_raise(py)
    }
}

#[pymethods]
impl NativeGraph {
    fn write_entities(&self, py: Python<'_>, writes: String) -> PyResult<Call> {
        let handle = self.handle(py)?;
        self.shared.encoded(py, async move {
            let writes: Vec<EntityWrite> = json("graph.write_entities", "writes", &writes)?;
            handle.provider().write_entities(writes).await
        })
    }

    fn write_relationships(&self, py: Python<'_>, writes: String) -> PyResult<Call> {
        let handle = self.handle(py)?;
        self.shared.encoded(py, async move {
            let writes: Vec<RelationshipWrite> = json("graph.write_relationships", "writes", &writes)?;
            handle.provider().write_relationships(writes).await
        })
    }

    /// Returns the entities with their revisions; `null` for one that does not exist.
    fn entities(&self, py: Python<'_>, ids: Vec<Bound<'_, PyAny>>) -> PyResult<Call> {
        let ids = ids.iter().map(|entity| id("entity", entity)).collect::<PyResult<Vec<EntityId>>>()?;
        let handle = self.handle(py)?;
        self.shared.encoded(py, async move { handle.provider().get_stored_entities(&ids).await })
    }

    /// Returns the relationships with their revisions; `null` for one that does not exist.
    fn relationships(&self, py: Python<'_>, ids: Vec<Bound<'_, PyAny>>) -> PyResult<Call> {
        let ids = ids.iter().map(|given| id("relationship", given));
        let ids = ids.collect::<PyResult<Vec<RelationshipId>>>()?;
        let handle = self.handle(py)?;
        self.shared.encoded(py, async move { handle.provider().get_stored_relationships(&ids).await })
    }

    fn neighbors(&self, py: Python<'_>, entity: &Bound<'_, PyAny>, query: String) -> PyResult<Call> {
        let (entity, handle): (EntityId, _) = (id("entity", entity)?, self.handle(py)?);
        self.shared.encoded(py, async move {
            let query: NeighborQuery = json("graph.neighbors", "query", &query)?;
            handle.provider().neighbors(&entity, &query).await
        })
    }

    fn delete_entity(&self, py: Python<'_>, entity: &Bound<'_, PyAny>) -> PyResult<Call> {
        let (entity, handle): (EntityId, _) = (id("entity", entity)?, self.handle(py)?);
        self.shared.encoded(py, async move { handle.delete(entity).await })
    }

    fn delete_relationship(&self, py: Python<'_>, relationship: &Bound<'_, PyAny>) -> PyResult<Call> {
        let relationship: RelationshipId = id("relationship", relationship)?;
        let handle = self.handle(py)?;
        let work = async move { handle.provider().delete_relationship(&relationship).await };
        self.shared.call(py, work, output::flag)
    }

    fn find_entities(
        &self,
        py: Python<'_>,
        query: String,
        after: Option<&Bound<'_, PyAny>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let after = optional(after, |after| id::<EntityId>("after", after))?;
        let (page, handle) = (PageRequest::first(limit.0).with_after(after), self.handle(py)?);
        self.shared.encoded(py, async move {
            let query: EntityQuery = json("graph.find_entities", "query", &query)?;
            handle.provider().find_entities(&query, page).await
        })
    }

    fn find_relationships(
        &self,
        py: Python<'_>,
        query: String,
        after: Option<&Bound<'_, PyAny>>,
        limit: Limit,
    ) -> PyResult<Call> {
        let after = optional(after, |after| id::<RelationshipId>("after", after))?;
        let (page, handle) = (PageRequest::first(limit.0).with_after(after), self.handle(py)?);
        self.shared.encoded(py, async move {
            let query: RelationshipQuery = json("graph.find_relationships", "query", &query)?;
            handle.provider().find_relationships(&query, page).await
        })
    }

    fn count(&self, py: Python<'_>) -> PyResult<Call> {
        let handle = self.handle(py)?;
        self.shared.encoded(py, async move { handle.provider().count().await })
    }

    fn cypher(&self, py: Python<'_>, query: &Bound<'_, PyAny>, parameters: String) -> PyResult<Call> {
        let (query, handle) = (text("query", query)?.to_owned(), self.handle(py)?);
        self.shared.encoded(py, async move {
            let parameters: Metadata = json("graph.cypher", "parameters", &parameters)?;
            let Some(cypher) = handle.provider().as_cypher() else {
                return Err(Error::unsupported("graph.cypher", larder::Capability::Cypher));
            };
            let rows: Vec<CypherRow> = cypher.cypher(&query, parameters).await?;
            Ok(rows)
        })
    }
}
