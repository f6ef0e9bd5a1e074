//! A graph of three entities and three relationships among them: registers with dependencies.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_kernel::{
    Capabilities, Contract, Entity, EntityId, EntityType, EntityWrite, GraphStore, Relationship,
    RelationshipId, RelationshipType, RelationshipWrite, Result,
};
use serde::{Deserialize, Serialize};

use super::check::{Refusal, Reply, Spec};
use super::rng::Rng;
use super::subject::{Subject, Turn, number_in, or_nothing};
use crate::harness::StoreSet;

const ENTITIES: u8 = 3;
const RELATIONSHIPS: u8 = 3;

/// A graph.
pub(crate) struct Graph;

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    UpsertEntity { id: u8, value: u32 },
    CreateEntity { id: u8, value: u32 },
    UpsertRelationship { id: u8, edge: Edge },
    CreateRelationship { id: u8, edge: Edge },
    GetEntity { id: u8 },
    GetRelationship { id: u8 },
    DeleteEntity { id: u8 },
    DeleteRelationship { id: u8 },
}

/// A relationship.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Edge {
    source: u8,
    target: u8,
    value: u32,
}

/// A result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Upserted { created: u64, replaced: u64 },
    Created,
    Entity(Option<u32>),
    Relationship(Option<Edge>),
    EntityDeleted { existed: bool, relationships: u64 },
    RelationshipDeleted(bool),
}

/// The state of the graph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    entities: BTreeMap<u8, u32>,
    edges: BTreeMap<u8, Edge>,
}

impl State {
    fn with_entity(&self, id: u8, value: u32) -> Self {
        let mut next = self.clone();
        next.entities.insert(id, value);
        next
    }

    fn has_ends(&self, edge: Edge) -> bool {
        self.entities.contains_key(&edge.source) && self.entities.contains_key(&edge.target)
    }

    fn with_edge(&self, id: u8, edge: Edge) -> Option<Self> {
        let mut next = self.clone();
        next.edges.insert(id, edge);
        self.has_ends(edge).then_some(next)
    }

    /// Returns the graph without an entity, and the number of relationships that were removed with it.
    fn without_entity(&self, id: u8) -> (Self, u64) {
        let mut next = self.clone();
        next.entities.remove(&id);
        next.edges.retain(|_, edge| edge.source != id && edge.target != id);
        let gone = self.edges.len() - next.edges.len();
        (next, u64::try_from(gone).unwrap_or(u64::MAX))
    }

    fn without_edge(&self, id: u8) -> Self {
        let mut next = self.clone();
        next.edges.remove(&id);
        next
    }
}

/// Returns `true` if a result counts one item as replaced if it existed, and as created if not.
fn counts(created: u64, replaced: u64, there: bool) -> bool {
    (created, replaced) == if there { (0, 1) } else { (1, 0) }
}

impl Spec for Graph {
    type State = State;
    type Op = Op;
    type Answer = Answer;

    fn step(state: &State, op: &Op, reply: &Reply<Answer>) -> Option<State> {
        match (*op, reply) {
            (Op::CreateEntity { id, value }, Reply::Answered(Answer::Created)) => {
                (!state.entities.contains_key(&id)).then(|| state.with_entity(id, value))
            }
            (Op::CreateEntity { id, .. }, Reply::Refused(Refusal::Conflict)) => {
                state.entities.contains_key(&id).then(|| state.clone())
            }
            (Op::CreateEntity { id, value }, Reply::Unknown) => {
                (!state.entities.contains_key(&id)).then(|| state.with_entity(id, value))
            }
            (Op::UpsertEntity { id, value }, Reply::Answered(Answer::Upserted { created, replaced })) => {
                let right = counts(*created, *replaced, state.entities.contains_key(&id));
                right.then(|| state.with_entity(id, value))
            }
            (Op::UpsertEntity { id, value }, Reply::Unknown) => Some(state.with_entity(id, value)),
            (
                Op::UpsertRelationship { id, edge },
                Reply::Answered(Answer::Upserted { created, replaced }),
            ) => {
                let right = counts(*created, *replaced, state.edges.contains_key(&id));
                right.then(|| state.with_edge(id, edge))?
            }
            (Op::UpsertRelationship { edge, .. }, Reply::Refused(Refusal::NotFound)) => {
                (!state.has_ends(edge)).then(|| state.clone())
            }
            (Op::UpsertRelationship { id, edge }, Reply::Unknown) => state.with_edge(id, edge),
            (Op::CreateRelationship { id, edge }, Reply::Answered(Answer::Created) | Reply::Unknown) => {
                (!state.edges.contains_key(&id)).then(|| state.with_edge(id, edge))?
            }
            (Op::CreateRelationship { id, .. }, Reply::Refused(Refusal::Conflict)) => {
                state.edges.contains_key(&id).then(|| state.clone())
            }
            (Op::CreateRelationship { edge, .. }, Reply::Refused(Refusal::NotFound)) => {
                (!state.has_ends(edge)).then(|| state.clone())
            }
            (Op::GetEntity { id }, Reply::Answered(Answer::Entity(seen))) => {
                (state.entities.get(&id) == seen.as_ref()).then(|| state.clone())
            }
            (Op::GetRelationship { id }, Reply::Answered(Answer::Relationship(seen))) => {
                (state.edges.get(&id) == seen.as_ref()).then(|| state.clone())
            }
            (Op::DeleteEntity { id }, Reply::Answered(Answer::EntityDeleted { existed, relationships })) => {
                let (next, gone) = state.without_entity(id);
                (state.entities.contains_key(&id) == *existed && gone == *relationships).then_some(next)
            }
            (Op::DeleteEntity { id }, Reply::Unknown) => Some(state.without_entity(id).0),
            (Op::DeleteRelationship { id }, Reply::Answered(Answer::RelationshipDeleted(there))) => {
                (state.edges.contains_key(&id) == *there).then(|| state.without_edge(id))
            }
            (Op::DeleteRelationship { id }, Reply::Unknown) => Some(state.without_edge(id)),
            _ => None,
        }
    }

    fn changes(op: &Op, reply: &Reply<Answer>) -> bool {
        let nothing = matches!(
            reply,
            Reply::Refused(_)
                | Reply::Answered(
                    Answer::EntityDeleted { existed: false, .. } | Answer::RelationshipDeleted(false)
                )
        );
        !matches!(op, Op::GetEntity { .. } | Op::GetRelationship { .. }) && !nothing
    }
}

fn entity_id(id: u8) -> Result<EntityId> {
    EntityId::new(format!("e{id}"))
}

fn relationship_id(id: u8) -> Result<RelationshipId> {
    RelationshipId::new(format!("r{id}"))
}

/// The type contains the value, so a read that mixes two writes is detected.
fn entity(id: u8, value: u32) -> Result<Entity> {
    Ok(Entity::new(entity_id(id)?, EntityType::new(format!("v{value}"))?))
}

fn relationship(id: u8, edge: Edge) -> Result<Relationship> {
    let kind = RelationshipType::new(format!("v{}", edge.value))?;
    Ok(Relationship::new(relationship_id(id)?, kind, entity_id(edge.source)?, entity_id(edge.target)?))
}

fn edge_of(found: &Relationship) -> Edge {
    let end = |id: &EntityId| u8::try_from(number_in(id.as_str(), "e")).unwrap_or(u8::MAX);
    Edge {
        source: end(&found.source),
        target: end(&found.target),
        value: number_in(found.relationship_type.as_str(), "v"),
    }
}

impl Subject for Graph {
    const CONTRACT: Contract = Contract::Graph;
    type Store = dyn GraphStore;
    type Memory = ();

    fn store(stores: &StoreSet) -> Result<Arc<Self::Store>> {
        stores.graph()
    }

    fn initial() -> State {
        State::default()
    }

    fn choose((): &(), rng: &mut Rng, turn: Turn, _: &Capabilities) -> Op {
        let (entity, relationship) = (rng.below(ENTITIES), rng.below(RELATIONSHIPS));
        let value = turn.value();
        match rng.below(100) {
            0..18 => Op::UpsertEntity { id: entity, value },
            18..25 => Op::CreateEntity { id: entity, value },
            choice @ 25..50 => {
                let edge = Edge { source: entity, target: rng.below(ENTITIES), value };
                match choice {
                    25..35 => Op::CreateRelationship { id: relationship, edge },
                    _ => Op::UpsertRelationship { id: relationship, edge },
                }
            }
            50..65 => Op::DeleteEntity { id: entity },
            65..72 => Op::DeleteRelationship { id: relationship },
            72..84 => Op::GetEntity { id: entity },
            _ => Op::GetRelationship { id: relationship },
        }
    }

    async fn call(store: &Self::Store, op: &Op) -> Result<Answer> {
        match *op {
            Op::UpsertEntity { id, value } => {
                let report = store.upsert_entities(vec![entity(id, value)?]).await?;
                Ok(Answer::Upserted { created: report.created, replaced: report.replaced })
            }
            Op::CreateEntity { id, value } => {
                store.write_entities(vec![EntityWrite::create(entity(id, value)?)]).await?;
                Ok(Answer::Created)
            }
            Op::UpsertRelationship { id, edge } => {
                let report = store.upsert_relationships(vec![relationship(id, edge)?]).await?;
                Ok(Answer::Upserted { created: report.created, replaced: report.replaced })
            }
            Op::CreateRelationship { id, edge } => {
                let write = RelationshipWrite::create(relationship(id, edge)?);
                store.write_relationships(vec![write]).await?;
                Ok(Answer::Created)
            }
            Op::GetEntity { id } => {
                let found = store.get_entities(&[entity_id(id)?]).await?.pop().flatten();
                Ok(Answer::Entity(found.map(|found| number_in(found.entity_type.as_str(), "v"))))
            }
            Op::GetRelationship { id } => {
                let found = store.get_relationships(&[relationship_id(id)?]).await?.pop().flatten();
                Ok(Answer::Relationship(found.as_ref().map(edge_of)))
            }
            Op::DeleteEntity { id } => {
                let deleted = store.delete_entity(&entity_id(id)?).await?;
                Ok(Answer::EntityDeleted { existed: deleted.existed, relationships: deleted.relationships })
            }
            Op::DeleteRelationship { id } => {
                let there = store.delete_relationship(&relationship_id(id)?).await?;
                Ok(Answer::RelationshipDeleted(there))
            }
        }
    }

    fn learn((): &mut (), _: &Op, _: &Answer) {}

    fn clause(op: &Op, reply: &Reply<Answer>) -> &'static str {
        match (op, reply) {
            (Op::UpsertEntity { .. }, _) => "GRAPH-003",
            (Op::CreateEntity { .. }, Reply::Answered(_)) => "GRAPH-050",
            (Op::CreateEntity { .. }, _) => "GRAPH-046",
            (Op::UpsertRelationship { .. }, Reply::Answered(_)) => "GRAPH-010",
            (Op::UpsertRelationship { .. }, _) => "GRAPH-006",
            (Op::CreateRelationship { .. }, Reply::Answered(_)) => "GRAPH-061",
            (Op::CreateRelationship { .. }, Reply::Refused(Refusal::Conflict)) => "GRAPH-057",
            (Op::CreateRelationship { .. }, _) => "GRAPH-060",
            (Op::GetEntity { .. } | Op::GetRelationship { .. }, _) => "STORE-002",
            (Op::DeleteEntity { .. }, _) => "GRAPH-031",
            (Op::DeleteRelationship { .. }, _) => "GRAPH-034",
        }
    }

    fn show_op(op: &Op) -> String {
        match *op {
            Op::UpsertEntity { id, value } => format!("upsert e{id} := v{value}"),
            Op::CreateEntity { id, value } => format!("create e{id} := v{value}"),
            Op::UpsertRelationship { id, edge } => format!("upsert r{id} := {}", show_edge(edge)),
            Op::CreateRelationship { id, edge } => format!("create r{id} := {}", show_edge(edge)),
            Op::GetEntity { id } => format!("get e{id}"),
            Op::GetRelationship { id } => format!("get r{id}"),
            Op::DeleteEntity { id } => format!("delete e{id}"),
            Op::DeleteRelationship { id } => format!("delete r{id}"),
        }
    }

    fn show_answer(_: &Op, answer: &Answer) -> String {
        match *answer {
            Answer::Upserted { created, replaced } => format!("{created} created, {replaced} replaced"),
            Answer::Created => "created".to_owned(),
            Answer::Entity(value) => or_nothing(value, |value| format!("v{value}")),
            Answer::Relationship(edge) => or_nothing(edge, show_edge),
            Answer::EntityDeleted { existed: true, relationships } => {
                format!("deleted with {relationships} relationships")
            }
            Answer::EntityDeleted { existed: false, relationships } => {
                format!("it did not exist; {relationships} relationships were deleted")
            }
            Answer::RelationshipDeleted(true) => "it existed".to_owned(),
            Answer::RelationshipDeleted(false) => "it did not exist".to_owned(),
        }
    }

    fn show_state(state: &State) -> String {
        let entities = state.entities.iter().map(|(id, value)| format!("e{id} = v{value}"));
        let edges = state.edges.iter().map(|(id, edge)| format!("r{id} = {}", show_edge(*edge)));
        let all: Vec<String> = entities.chain(edges).collect();
        if all.is_empty() { "no entity".to_owned() } else { all.join(", ") }
    }
}

fn show_edge(edge: Edge) -> String {
    format!("v{} from e{} to e{}", edge.value, edge.source, edge.target)
}
