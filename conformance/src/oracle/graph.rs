//! A client of a graph: independent entities, and relationships between two permanent entities.

use async_trait::async_trait;
use larder_kernel::{
    Contract, Entity, EntityId, EntityType, GraphStore, Metadata, Relationship, RelationshipId,
    RelationshipType, Result,
};

use super::cells::{Cells, Clauses};
use super::{Answer, Defect, Ended, Held, Op, OracleClient, Random, filler, other_contract, unexplained};
use crate::harness::StoreSet;

const ENTITIES: Clauses = Clauses { equal: "GRAPH-001", whole: "GRAPH-004" };
const RELATIONSHIPS: Clauses = Clauses { equal: "GRAPH-005", whole: "GRAPH-006" };

#[derive(Debug)]
pub(crate) struct GraphClient {
    era: String,
    random: Random,
    /// True if the two permanent entities exist.
    ends: bool,
    entities: Cells,
    relationships: Cells,
}

impl GraphClient {
    pub(crate) fn new(era: &str, mut random: Random) -> Self {
        let mut chance = |name| Random::new(random.draw(), name);
        let entities = Cells::new("entity", ENTITIES, chance("entities"));
        let relationships = Cells::new("relationship", RELATIONSHIPS, chance("relationships"));
        Self { era: era.to_owned(), random, ends: false, entities, relationships }
    }

    fn end(&self, name: &str) -> Result<EntityId> {
        EntityId::new(format!("{} {name}", self.era))
    }

    fn properties(&self, at: usize, number: u64) -> Metadata {
        Metadata::new().with("number", number).with("text", format!("{at} {}", filler(number)))
    }

    fn entity(&self, at: usize, number: u64) -> Result<Entity> {
        let id = EntityId::new(format!("{} entity {at}", self.era))?;
        Ok(Entity::new(id, EntityType::new("client")?).with_properties(self.properties(at, number)))
    }

    fn relationship(&self, at: usize, number: u64) -> Result<Relationship> {
        let id = RelationshipId::new(format!("{} relationship {at}", self.era))?;
        let (source, target) = (self.end("source")?, self.end("target")?);
        let relationship = Relationship::new(id, RelationshipType::new("client")?, source, target);
        Ok(relationship.with_properties(self.properties(at, number)))
    }

    async fn write(&self, op: &Op, edges: bool, graph: &dyn GraphStore) -> Result<Answer> {
        match op {
            Op::WriteCells { places, number, .. } if edges => {
                let all = places.iter().map(|at| self.relationship(*at, *number)).collect::<Result<_>>()?;
                graph.upsert_relationships(all).await?;
            }
            Op::WriteCells { places, number, .. } => {
                let all = places.iter().map(|at| self.entity(*at, *number)).collect::<Result<_>>()?;
                graph.upsert_entities(all).await?;
            }
            Op::Remove { place } if edges => {
                graph.delete_relationship(&self.relationship(*place, 0)?.id).await?;
            }
            Op::Remove { place } => {
                let _ = graph.delete_entity(&self.entity(*place, 0)?.id).await?;
            }
            _ => return Err(other_contract()),
        }
        Ok(Answer::Numbers(Vec::new()))
    }

    async fn look(&self, places: &[usize], edges: bool, stores: &StoreSet) -> Result<Vec<Option<Held>>> {
        let graph = stores.graph()?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let is = |same: bool, number| same.then_some(Held { number: Some(number), ..Held::default() });
        let mut all = Vec::with_capacity(places.len());
        if edges {
            let ids =
                places.iter().map(|at| Ok(self.relationship(*at, 0)?.id)).collect::<Result<Vec<_>>>()?;
            for (at, found) in places.iter().zip(graph.get_relationships(&ids).await?) {
                all.push(match found {
                    None => Some(Held::default()),
                    Some(found) => number(&found.properties).and_then(|number| {
                        is(self.relationship(*at, number).is_ok_and(|written| written == found), number)
                    }),
                });
            }
        } else {
            let ids = places.iter().map(|at| Ok(self.entity(*at, 0)?.id)).collect::<Result<Vec<_>>>()?;
            for (at, found) in places.iter().zip(graph.get_entities(&ids).await?) {
                all.push(match found {
                    None => Some(Held::default()),
                    Some(found) => number(&found.properties).and_then(|number| {
                        is(self.entity(*at, number).is_ok_and(|written| written == found), number)
                    }),
                });
            }
        }
        Ok(all)
    }
}

fn number(properties: &Metadata) -> Option<u64> {
    properties.get("number").and_then(serde_json::Value::as_u64)
}

#[async_trait]
impl OracleClient for GraphClient {
    fn contract(&self) -> Contract {
        Contract::Graph
    }

    fn next(&mut self) -> Op {
        if !self.ends {
            return Op::MakeEnds;
        }
        if self.random.once_in(2) {
            return Op::Edges(Box::new(self.relationships.next(false)));
        }
        self.entities.next(false)
    }

    async fn perform(&self, op: &Op, stores: &StoreSet) -> Result<Answer> {
        let graph = stores.graph()?;
        match op {
            Op::MakeEnds => {
                let end = |name| {
                    Ok::<_, larder_kernel::Error>(Entity::new(self.end(name)?, EntityType::new("client")?))
                };
                graph.upsert_entities(vec![end("source")?, end("target")?]).await?;
                Ok(Answer::Numbers(Vec::new()))
            }
            Op::Edges(op) => match &**op {
                Op::Look { places } => Ok(Answer::Several(self.look(places, true, stores).await?)),
                op => self.write(op, true, &*graph).await,
            },
            Op::Look { places } => Ok(Answer::Several(self.look(places, false, stores).await?)),
            op => self.write(op, false, &*graph).await,
        }
    }

    fn settle(&mut self, op: &Op, ended: Ended) -> Option<Defect> {
        match (op, ended) {
            (Op::MakeEnds, Ended::Done(_)) => {
                self.ends = true;
                None
            }
            (Op::MakeEnds, Ended::Refused(error) | Ended::Open(Some(error))) => unexplained(Some(&error), op),
            (Op::MakeEnds, Ended::Open(None)) => None,
            (Op::Edges(op), ended) => self.relationships.settle(op, ended),
            (op, ended) => self.entities.settle(op, ended),
        }
    }

    async fn verify(&self, stores: &StoreSet, lost: &'static str) -> Result<Vec<Defect>> {
        let entities = self.look(&self.entities.all(), false, stores).await?;
        let relationships = self.look(&self.relationships.all(), true, stores).await?;
        let mut defects = self.entities.verify(&entities, lost);
        defects.extend(self.relationships.verify(&relationships, lost));
        Ok(defects)
    }
}
