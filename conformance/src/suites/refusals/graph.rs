//! Invalid calls of [`GraphStore`](larder_kernel::GraphStore) and
//! [`CypherCapable`](larder_kernel::CypherCapable).

use larder_kernel::limits::{
    BATCH_GRAPH_ITEMS_MAX, CYPHER_BYTES_MAX, NEIGHBORS_DEPTH_MAX, PAGE_ITEMS_MAX, RELATIONSHIP_TYPES_MAX,
};
use larder_kernel::{
    Capability, Direction, Entity, EntityId, EntityQuery, EntityType, EntityWrite, Error, Metadata,
    NeighborQuery, PageRequest, Relationship, RelationshipId, RelationshipQuery, RelationshipType,
    RelationshipWrite, Result,
};

use super::inputs::{
    BadFilter, NUL, PLACES, Rule, STANDS, Stand, TWICE, among, at_least, at_most, filters, limits, metadata,
    refused_ids, up_to,
};
use super::{Refusal, Table, table};

pub(super) fn tables() -> Vec<Table> {
    let mut all = Vec::new();
    for (place, stand) in STANDS {
        let of = |entities| filters().into_iter().map(move |bad| filter(entities, bad, stand));
        all.push(table(format!("filter_of_entities_{place}"), of(true)));
        all.push(table(format!("filter_of_relationships_{place}"), of(false)));
    }
    all.extend([
        table("entity", entities()),
        table("write_of_an_entity", writes()),
        table("relationship", relationships()),
        table("write_of_a_relationship", relationship_writes()),
        table("page_that_is_too_long", pages()),
        table("walk", walks()),
        table("id", ids()),
        Table { needs: Some(Capability::Cypher), ..table("cypher_query", queries()) },
    ]);
    all
}

fn filter(entities: bool, bad: BadFilter, stand: Stand) -> Refusal {
    let (what, field, limit, make, operator) = bad;
    let call = if entities { "graph.find_entities" } else { "graph.find_relationships" };
    Refusal::new(call, what, field, limit, move |stores| {
        let filter = Some(stand(make(operator)));
        Box::pin(async move {
            let store = stores.graph()?;
            if entities {
                let query = EntityQuery::default().with_filter(filter);
                store.find_entities(&query, PageRequest::first(10)).await.map(drop)
            } else {
                let query = RelationshipQuery::default().with_filter(filter);
                store.find_relationships(&query, PageRequest::first(10)).await.map(drop)
            }
        })
    })
}

fn entity(name: &str) -> Result<Entity> {
    Ok(Entity::new(EntityId::new(name)?, EntityType::new("new")?))
}

fn edge(name: &str, source: &str) -> Result<Relationship> {
    let (id, kind) = (RelationshipId::new(name)?, RelationshipType::new("new")?);
    Ok(Relationship::new(id, kind, EntityId::new(source)?, EntityId::new("kept-b")?))
}

/// Batches of invalid size with any content: their names, the limit, and the number of items.
const SIZES: [(&str, Rule, usize); 3] = [
    ("none", at_least(1), 0),
    ("one too many", at_most(BATCH_GRAPH_ITEMS_MAX), BATCH_GRAPH_ITEMS_MAX + 1),
    ("twice too many", at_most(BATCH_GRAPH_ITEMS_MAX), BATCH_GRAPH_ITEMS_MAX * 2),
];

fn entities() -> Vec<Refusal> {
    let upsert = |what: String, field, limit, batch, properties: Option<&'static Metadata>, at| {
        Refusal::new("graph.upsert_entities", what, field, limit, move |stores| {
            let (properties, batch): (_, EntityBatch) = (properties.cloned().unwrap_or_default(), batch);
            Box::pin(async move { stores.graph()?.upsert_entities(batch(properties, at)?).await.map(drop) })
        })
    };
    entity_rows(&upsert)
}

/// The rows of conditional writes. Invalid input takes precedence over a condition that does not hold.
fn writes() -> Vec<Refusal> {
    type Way = (&'static str, fn(Entity) -> EntityWrite);
    const WAYS: [Way; 3] = [
        ("replaced", EntityWrite::replace),
        ("created", EntityWrite::create),
        ("merged", EntityWrite::merge),
    ];
    let rows = WAYS.into_iter().flat_map(|(way, write)| {
        entity_rows(&|what: String, field, limit, batch, properties: Option<&'static Metadata>, at| {
            Refusal::new("graph.write_entities", format!("{what}, {way}"), field, limit, move |stores| {
                let (properties, batch): (_, EntityBatch) = (properties.cloned().unwrap_or_default(), batch);
                Box::pin(async move {
                    let writes = batch(properties, at)?.into_iter().map(write).collect();
                    stores.graph()?.write_entities(writes).await.map(drop)
                })
            })
        })
    });
    rows.collect()
}

type EntityBatch = fn(Metadata, usize) -> Result<Vec<Entity>>;
type EntityRow<'r> =
    &'r dyn Fn(String, &'static str, Rule, EntityBatch, Option<&'static Metadata>, usize) -> Refusal;

fn entity_rows(upsert: EntityRow<'_>) -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (place, at) in PLACES {
        for (what, limit, properties) in metadata() {
            let batch: EntityBatch = |properties, at| {
                Ok(among([entity("kept-a")?, entity("new")?], entity("bad")?.with_properties(properties), at))
            };
            let what = format!("properties of {what}, {place}");
            rows.push(upsert(what, "entity.properties", *limit, batch, Some(properties), at));
        }
        let twice: EntityBatch =
            |_, at| Ok(among([entity("twice")?, entity("kept-a")?], entity("twice")?, at));
        rows.push(upsert(format!("an id twice, {place}"), "entities.id", TWICE, twice, None, at));
    }
    for (what, limit, count) in SIZES {
        let many: EntityBatch = |_, count| (0..count).map(|number| entity(&format!("n{number}"))).collect();
        rows.push(upsert(what.to_owned(), "entities", limit, many, None, count));
    }
    rows
}

fn relationships() -> Vec<Refusal> {
    relationship_rows(&|what: String,
                        field,
                        limit,
                        batch: RelationshipBatch,
                        properties: Option<&'static Metadata>,
                        at| {
        Refusal::new("graph.upsert_relationships", what, field, limit, move |stores| {
            let properties = properties.cloned().unwrap_or_default();
            Box::pin(
                async move { stores.graph()?.upsert_relationships(batch(properties, at)?).await.map(drop) },
            )
        })
    })
}

/// The rows of conditional writes. Invalid input takes precedence over a condition that does not hold.
fn relationship_writes() -> Vec<Refusal> {
    type Way = (&'static str, fn(Relationship) -> RelationshipWrite);
    const WAYS: [Way; 2] = [("created", RelationshipWrite::create), ("merged", RelationshipWrite::merge)];
    let rows = WAYS.into_iter().flat_map(|(way, write)| {
        relationship_rows(&|what: String,
                            field,
                            limit,
                            batch: RelationshipBatch,
                            properties: Option<&'static Metadata>,
                            at| {
            let what = format!("{what}, {way}");
            Refusal::new("graph.write_relationships", what, field, limit, move |stores| {
                let properties = properties.cloned().unwrap_or_default();
                Box::pin(async move {
                    let writes = batch(properties, at)?.into_iter().map(write).collect();
                    stores.graph()?.write_relationships(writes).await.map(drop)
                })
            })
        })
    });
    rows.collect()
}

type RelationshipBatch = fn(Metadata, usize) -> Result<Vec<Relationship>>;
type RelationshipRow<'r> =
    &'r dyn Fn(String, &'static str, Rule, RelationshipBatch, Option<&'static Metadata>, usize) -> Refusal;

fn relationship_rows(upsert: RelationshipRow<'_>) -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (place, at) in PLACES {
        for (what, limit, properties) in metadata() {
            let batch: RelationshipBatch = |properties, at| {
                let bad = edge("bad", "kept-a")?.with_properties(properties);
                Ok(among([edge("kept-r1", "kept-c")?, edge("new", "kept-a")?], bad, at))
            };
            // Invalid input takes precedence over a missing end.
            let homeless: RelationshipBatch = |properties, at| {
                let bad = edge("bad", "missing")?.with_properties(properties);
                Ok(among([edge("kept-r1", "kept-c")?, edge("new", "missing")?], bad, at))
            };
            let field = "relationship.properties";
            let what = format!("properties of {what}, {place}");
            rows.push(upsert(what.clone(), field, *limit, batch, Some(properties), at));
            rows.push(upsert(
                format!("{what}, an end missing"),
                field,
                *limit,
                homeless,
                Some(properties),
                at,
            ));
        }
        let twice: RelationshipBatch = |_, at| {
            Ok(among([edge("twice", "kept-a")?, edge("new", "kept-a")?], edge("twice", "kept-c")?, at))
        };
        rows.push(upsert(format!("an id twice, {place}"), "relationships.id", TWICE, twice, None, at));
    }
    for (what, limit, count) in SIZES {
        let many: RelationshipBatch =
            |_, count| (0..count).map(|number| edge(&format!("n{number}"), "kept-a")).collect();
        rows.push(upsert(what.to_owned(), "relationships", limit, many, None, count));
    }
    rows
}

fn pages() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, most, count) in limits() {
        for after in [None, Some("kept-a")] {
            for kind in [None, Some("kept-person"), Some("kept-knows")] {
                let name = |of: &str| format!("{of} of {kind:?} after {after:?}: {what}");
                rows.push(Refusal::new(
                    "graph.find_entities",
                    name("entities"),
                    "limit",
                    most,
                    move |stores| {
                        Box::pin(async move {
                            let query =
                                EntityQuery::default().with_type(kind.map(EntityType::new).transpose()?);
                            let page =
                                PageRequest::first(count).with_after(after.map(EntityId::new).transpose()?);
                            stores.graph()?.find_entities(&query, page).await.map(drop)
                        })
                    },
                ));
                rows.push(Refusal::new(
                    "graph.find_relationships",
                    name("relationships"),
                    "limit",
                    most,
                    move |stores| {
                        Box::pin(async move {
                            let relationship_type = kind.map(RelationshipType::new).transpose()?;
                            let query = RelationshipQuery::default().with_type(relationship_type);
                            let page = PageRequest::first(count)
                                .with_after(after.map(RelationshipId::new).transpose()?);
                            stores.graph()?.find_relationships(&query, page).await.map(drop)
                        })
                    },
                ));
            }
        }
    }
    rows.extend(too_many_ids());
    rows
}

fn too_many_ids() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for count in [PAGE_ITEMS_MAX + 1, PAGE_ITEMS_MAX * 2] {
        let most = at_most(PAGE_ITEMS_MAX);
        rows.push(Refusal::new(
            "graph.get_entities",
            format!("{count} entities by id"),
            "ids",
            most,
            move |stores| {
                Box::pin(async move {
                    let ids: Result<Vec<_>> = (0..count).map(|_| EntityId::new("kept-a")).collect();
                    stores.graph()?.get_entities(&ids?).await.map(drop)
                })
            },
        ));
        rows.push(Refusal::new(
            "graph.get_stored_entities",
            format!("{count} stored entities by id"),
            "ids",
            most,
            move |stores| {
                Box::pin(async move {
                    let ids: Result<Vec<_>> = (0..count).map(|_| EntityId::new("kept-a")).collect();
                    stores.graph()?.get_stored_entities(&ids?).await.map(drop)
                })
            },
        ));
        rows.push(Refusal::new(
            "graph.get_stored_relationships",
            format!("{count} stored relationships by id"),
            "ids",
            most,
            move |stores| {
                Box::pin(async move {
                    let ids: Result<Vec<_>> = (0..count).map(|_| RelationshipId::new("kept-r1")).collect();
                    stores.graph()?.get_stored_relationships(&ids?).await.map(drop)
                })
            },
        ));
        rows.push(Refusal::new(
            "graph.get_relationships",
            format!("{count} relationships by id"),
            "ids",
            most,
            move |stores| {
                Box::pin(async move {
                    let ids: Result<Vec<_>> = (0..count).map(|_| RelationshipId::new("kept-r1")).collect();
                    stores.graph()?.get_relationships(&ids?).await.map(drop)
                })
            },
        ));
    }
    rows
}

fn walks() -> Vec<Refusal> {
    let mut rows = Vec::new();
    let mut add = |what: String, field, most, start: &'static str, query: NeighborQuery| {
        rows.push(Refusal::new("graph.neighbors", what, field, most, move |stores| {
            let query = query.clone();
            Box::pin(async move { stores.graph()?.neighbors(&EntityId::new(start)?, &query).await.map(drop) })
        }));
    };
    for start in ["kept-a", "absent"] {
        for direction in [Direction::Both, Direction::Out, Direction::In] {
            let at = format!("{direction:?} from {start}");
            for (depth, items) in [(NEIGHBORS_DEPTH_MAX + 1, 10), (256, 10), (u32::MAX, 10), (u32::MAX, 0)] {
                let query = NeighborQuery::depth(depth).with_direction(direction).with_limit(items);
                add(
                    format!("{depth} hops, {items} items, {at}"),
                    "depth",
                    up_to(u64::from(NEIGHBORS_DEPTH_MAX)),
                    start,
                    query,
                );
            }
            for (what, most, count) in limits() {
                for depth in [0, 1] {
                    let query = NeighborQuery::depth(depth).with_direction(direction).with_limit(count);
                    add(format!("a limit of {what}, {depth} hops, {at}"), "limit", most, start, query);
                }
            }
            let kinds: Vec<_> = (0..=RELATIONSHIP_TYPES_MAX)
                .flat_map(|number| RelationshipType::new(format!("t{number}")))
                .collect();
            let query = NeighborQuery::depth(1).with_direction(direction).with_types(kinds);
            add(
                format!("65 types, {at}"),
                "relationship_types",
                at_most(RELATIONSHIP_TYPES_MAX),
                start,
                query,
            );
        }
    }
    rows
}

fn ids() -> Vec<Refusal> {
    [
        refused_ids("entity", EntityId::new),
        refused_ids("entity_type", EntityType::new),
        refused_ids("relationship", RelationshipId::new),
        refused_ids("relationship_type", RelationshipType::new),
    ]
    .concat()
}

/// The description, the field of the error, the rule, the text and the parameters.
type BadQuery = (String, &'static str, Rule, String, Option<&'static Metadata>);

fn queries() -> Vec<Refusal> {
    const ALL: &str = "MATCH (n:Entity) RETURN n";
    let mut bad = Vec::new();
    for (what, limit, parameters) in metadata() {
        bad.push((format!("parameters of {what}"), "parameters", *limit, ALL.to_owned(), Some(parameters)));
    }
    for (what, text) in [
        ("alone", "\0".to_owned()),
        ("at the end", format!("{ALL}\0")),
        ("within", "MATCH (n\0) RETURN n".to_owned()),
    ] {
        bad.push((format!("NUL {what}"), "query", NUL, text, None));
    }
    for (what, blank) in [("a byte", " "), ("two", "é")] {
        let text = format!("{ALL} // {}", blank.repeat(CYPHER_BYTES_MAX));
        bad.push((
            format!("a text too long, in letters of {what}"),
            "query",
            at_most(CYPHER_BYTES_MAX),
            text,
            None,
        ));
    }
    let row = |(what, field, limit, text, parameters): BadQuery| {
        Refusal::new("graph.cypher", what, field, limit, move |stores| {
            let (text, parameters) = (text.clone(), parameters.cloned().unwrap_or_default());
            Box::pin(async move {
                let store = stores.graph()?;
                let missing = || Error::unsupported("graph.cypher", Capability::Cypher);
                store.as_cypher().ok_or_else(missing)?.cypher(&text, parameters).await.map(drop)
            })
        })
    };
    bad.into_iter().map(row).collect()
}
