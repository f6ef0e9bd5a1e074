//! Tools over the graph: a memory of entities, what was observed of them, and how they relate.
//!
//! Observations are texts in the property `observations` of their entity, so that other programs read them as they read
//! any property. The graph has no conditional write, so one server adds and removes them one call after the other; two
//! servers that change the same entity at the same instant can lose one of the changes.

mod find;
mod view;
mod write;

use larder_kernel::Contract;

use super::registry::{Effect, Entry, entry};

pub(crate) use view::EntityView;

/// The tools of this room.
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
            "Writes entities of the memory graph, all or none: new ones, and replacements of those that are there, whose \
             properties and observations go. Relationships stay.",
            write::upsert_entities,
        ),
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_upsert_relationships",
            "Write relationships",
            "Writes directed relationships between entities that are there, all or none. Without an id, a relationship of \
             the same type between the same two entities is the same relationship.",
            write::upsert_relationships,
        ),
        entry(
            Contract::Graph,
            Effect::AddsOnce,
            "graph_add_observations",
            "Add observations",
            "Adds texts to what is known of an entity; those that are known already are left out.",
            write::add_observations,
        ),
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_remove_observations",
            "Remove observations",
            "Removes texts from what is known of an entity.",
            write::remove_observations,
        ),
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_delete_entity",
            "Delete an entity",
            "Deletes an entity with all its relationships.",
            write::delete_entity,
        ),
        entry(
            Contract::Graph,
            Effect::Replaces,
            "graph_delete_relationship",
            "Delete a relationship",
            "Deletes a relationship; the entities stay.",
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
            "Reads entities by their ids, with properties and observations.",
            find::get,
        ),
        entry(
            Contract::Graph,
            Effect::Reads,
            "graph_neighbors",
            "Walk from an entity",
            "Reads what is connected with an entity within a number of hops: the entities, nearest first, and the \
             relationships among them.",
            find::neighbors,
        ),
        entry(
            Contract::Graph,
            Effect::Reads,
            "graph_search",
            "Search entities",
            "Finds entities by type, by equal properties, and by a text in their id, type, properties or observations. One \
             call looks at a bounded number of entities: an answer with a cursor has more to search.",
            find::search,
        ),
        entry(
            Contract::Graph,
            Effect::Reads,
            "graph_relationships",
            "Find relationships",
            "Lists relationships by type and by the entities at which they begin and end.",
            find::relationships,
        ),
    ]
}
