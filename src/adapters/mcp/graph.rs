//! Tools over the graph: a memory of entities, their observations and their relationships.
//!
//! Observations are texts in the property `observations` of their entity, so other programs read them like
//! any property. Every change of an entity is a merge or a write at the revision that was read, so no change
//! of another server is lost.

mod change;
mod find;
mod view;
mod write;

use larder_kernel::Contract;

use super::registry::{Effect, Entry, entry};

pub(crate) use view::EntityView;

/// Returns the graph tools.
pub(crate) fn entries() -> Vec<Entry> {
    let mut entries = written();
    entries.extend(read());
    entries
}

fn written() -> Vec<Entry> {
    vec![
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_upsert_entities",
            "Write entities",
            "Writes entities of the memory graph, all or none; an existing entity keeps the properties and \
             observations that the call does not name, unless `mode` is `replace`. Example: {\"entities\": \
             [{\"id\": \"ann\", \"entity_type\": \"person\", \"observations\": [\"Ann likes tea.\"]}]}",
            write::upsert_entities,
        ),
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_upsert_relationships",
            "Write relationships",
            "Writes directed relationships between existing entities, all or none; an existing relationship \
             keeps the properties that the call does not name, unless `mode` is `replace`. Without an id, a \
             relationship is identified by its type, source and target. Example: {\"relationships\": \
             [{\"relationship_type\": \"works_at\", \"source\": \"ann\", \"target\": \"acme\"}]}",
            write::upsert_relationships,
        ),
        entry(
            Contract::Graph,
            Effect::AddsOnce,
            "graph_add_observations",
            "Add observations",
            "Adds texts to the observations of an entity and skips texts that the entity already has. \
             Example: {\"entity\": \"ann\", \"observations\": [\"Ann moved to Oslo.\"]}",
            write::add_observations,
        ),
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_remove_observations",
            "Remove observations",
            "Removes texts from the observations of an entity. Example: {\"entity\": \"ann\", \
             \"observations\": [\"Ann likes tea.\"]}",
            write::remove_observations,
        ),
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_delete_entity",
            "Delete an entity",
            "Deletes an entity with all its relationships. Example: {\"entity\": \"ann\"}",
            write::delete_entity,
        ),
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_delete_relationship",
            "Delete a relationship",
            "Deletes a relationship and keeps its entities. Example: {\"relationship\": \
             \"ann-works-at-acme\"}",
            write::delete_relationship,
        ),
    ]
}

fn read() -> Vec<Entry> {
    vec![
        entry(
            Contract::Graph,
            Effect::Reads,
            "graph_get",
            "Read entities",
            "Reads entities by their ids, with properties and observations. Example: {\"entities\": \
             [\"ann\", \"acme\"]}",
            find::get,
        ),
        entry(
            Contract::Graph,
            Effect::Reads,
            "graph_neighbors",
            "Traverse from an entity",
            "Reads the entities within a number of hops of an entity, nearest first, and the relationships \
             between them. Example: {\"entity\": \"ann\", \"depth\": 2}",
            find::neighbors,
        ),
        entry(
            Contract::Graph,
            Effect::Reads,
            "graph_search",
            "Search entities",
            "Finds entities by type, by equal properties, and by a text in their id, type, properties or \
             observations. One call scans a limited number of entities: if the result has a cursor, call \
             again with it. Example: {\"query\": \"tea\", \"entity_type\": \"person\"}",
            find::search,
        ),
        entry(
            Contract::Graph,
            Effect::Reads,
            "graph_relationships",
            "Find relationships",
            "Lists relationships by type, source entity and target entity. Example: {\"source\": \"ann\"}",
            find::relationships,
        ),
    ]
}
