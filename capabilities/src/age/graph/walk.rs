//! Breadth-first traversal: one or two statements a level, all in one snapshot.

use std::collections::{BTreeSet, HashSet};

use larder_kernel::{Direction, EntityId, NeighborQuery, Reached, RelationshipId, SubGraph};
use sqlx::{AssertSqlSafe, PgConnection};

use super::rows::{self, field};
use crate::age::schema::GraphName;
use crate::postgres::decode;
use crate::postgres::failure::{Fallible, corrupt};

/// The relationships at one end of a level's entities, and the ids at their other ends.
macro_rules! steps {
    ($here:literal, $there:literal) => {
        concat!(
            "SELECT ",
            field!("r", "id"),
            ", ",
            field!("r", $there),
            r#" FROM {graph}."Entity" e JOIN {graph}."Relationship" r ON r."#,
            $here,
            " OPERATOR(ag_catalog.=) e.id WHERE ",
            field!("e", "id"),
            " = ANY($1){types}"
        )
    };
}
const OF_TYPES: &str = concat!(" AND ", field!("r", "type"), " = ANY($2)");

/// A relationship of the traversal, and the entity at its other end, seen from the expanded entity.
struct Step {
    relationship: RelationshipId,
    other: EntityId,
}

/// The state of a traversal.
struct Walk<'q> {
    graph: &'q GraphName,
    query: &'q NeighborQuery,
    types: Vec<&'q str>,
    reached: HashSet<EntityId>,
    /// The reached entities and their hops, in the order of the result.
    order: Vec<(EntityId, u32)>,
    /// The traversed relationships whose ends are both reached.
    walked: BTreeSet<RelationshipId>,
}

/// Returns the entities and relationships that `query` reaches from an entity. The connection must be inside
/// one snapshot.
pub(super) async fn neighbors(
    connection: &mut PgConnection,
    graph: &GraphName,
    start: &EntityId,
    query: &NeighborQuery,
) -> Fallible<SubGraph> {
    if query.limit == 0 || rows::entities(connection, graph, &[start.as_str()]).await?.is_empty() {
        return Ok(SubGraph::default());
    }
    let mut walk = Walk {
        graph,
        query,
        types: query.relationship_types.iter().map(|kind| kind.as_str()).collect(),
        reached: HashSet::from([start.clone()]),
        order: vec![(start.clone(), 0)],
        walked: BTreeSet::new(),
    };
    let mut level = vec![start.clone()];
    for hops in 1..=query.depth {
        level = walk.leave(connection, &level, hops).await?;
        if level.is_empty() {
            break;
        }
    }
    walk.into_answer(connection).await
}

impl Walk<'_> {
    /// Expands each entity of a level and returns the next level, up to the limit.
    async fn leave(
        &mut self,
        connection: &mut PgConnection,
        level: &[EntityId],
        hops: u32,
    ) -> Fallible<Vec<EntityId>> {
        let steps = self.steps(connection, level).await?;
        let met: BTreeSet<&EntityId> =
            steps.iter().map(|step| &step.other).filter(|other| !self.reached.contains(*other)).collect();
        let room = self.query.limit.saturating_sub(self.order.len());
        let next: Vec<EntityId> = met.into_iter().take(room).cloned().collect();
        self.order.extend(next.iter().map(|id| (id.clone(), hops)));
        self.reached.extend(next.iter().cloned());
        let kept = steps.into_iter().filter(|step| self.reached.contains(&step.other));
        self.walked.extend(kept.map(|step| step.relationship));
        Ok(next)
    }

    async fn steps(&self, connection: &mut PgConnection, level: &[EntityId]) -> Fallible<Vec<Step>> {
        let level: Vec<&str> = level.iter().map(EntityId::as_str).collect();
        let graph = &self.graph.name;
        let types = if self.types.is_empty() { "" } else { OF_TYPES };
        let out = || format!(steps!("start_id", "target"), graph = graph, types = types);
        let into = || format!(steps!("end_id", "source"), graph = graph, types = types);
        let statements = match self.query.direction {
            Direction::Both => vec![out(), into()],
            Direction::Out => vec![out()],
            Direction::In => vec![into()],
        };
        let mut steps = Vec::new();
        for sql in statements {
            let mut query = sqlx::query(AssertSqlSafe(sql)).bind(&level);
            if !self.types.is_empty() {
                query = query.bind(&self.types);
            }
            for row in query.fetch_all(&mut *connection).await? {
                steps.push(Step { relationship: decode::id(&row, 0)?, other: decode::id(&row, 1)? });
            }
        }
        Ok(steps)
    }

    async fn into_answer(self, connection: &mut PgConnection) -> Fallible<SubGraph> {
        let ids: Vec<&str> = self.order.iter().map(|(id, _)| id.as_str()).collect();
        let mut found = rows::entities(connection, self.graph, &ids).await?;
        let mut entities = Vec::with_capacity(self.order.len());
        for (id, hops) in &self.order {
            let entity = found.remove(id).ok_or_else(|| corrupt("age.read"))?;
            entities.push(Reached::new(entity, *hops));
        }
        let ids: Vec<&str> = self.walked.iter().map(RelationshipId::as_str).collect();
        let mut relationships: Vec<_> = if ids.is_empty() {
            Vec::new()
        } else {
            rows::relationships(connection, self.graph, &ids).await?.into_values().collect()
        };
        relationships.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        Ok(SubGraph::new(entities, relationships))
    }
}
