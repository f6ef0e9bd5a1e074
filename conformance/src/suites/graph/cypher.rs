//! openCypher: available exactly if declared, and the data that its queries see.

use larder_kernel::{Capability, Contract, CypherCapable, ErrorKind, GraphStore, Metadata};
use serde_json::{Value, json};

use super::dump::{dump, populate};
use super::support::{edge, edges, graph_is, node, nodes, rich_properties, store_all, typed};
use crate::case::{CaseResult, Failure};
use crate::context::{Context, Handles};
use crate::expect;
use crate::harness::OpenOptions;
use crate::suites::ids;

pub(super) async fn cypher_exists_exactly_if_declared(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    for store in [&a, &b] {
        let declared = store.capabilities().has(Capability::Cypher);
        expect::equal("the interface, as declared", &store.as_cypher().is_some(), &declared)?;
    }
    Ok(())
}

async fn cypher(context: &Context, store: &dyn GraphStore) -> CaseResult {
    context.require(Contract::Graph, Capability::Cypher).await?;
    expect::that(store.as_cypher().is_some(), "a store with openCypher queries", "none")
}

fn capable(store: &dyn GraphStore) -> CaseResult<&dyn CypherCapable> {
    expect::some("a store with openCypher queries", store.as_cypher())
}

async fn single(store: &dyn GraphStore, query: &str, parameters: Metadata) -> CaseResult<Value> {
    let rows = capable(store)?.cypher(query, parameters).await?;
    expect::equal(&format!("rows of {query}"), &rows.len(), &1)?;
    expect::some("the column `answer`", rows[0].get("answer").cloned())
}

pub(super) async fn queries_see_the_graph_of_their_namespace(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    cypher(&context, &*a).await?;
    let other = context.open_with(&context.sibling("-other")?, &OpenOptions::default()).await?.graph()?;
    store_all(&*other, &nodes(&["a", "b", "x"])?, &edges(&[("r", "t", "a", "b")])?).await?;
    let (entities, relationships) =
        ("MATCH (n) RETURN count(n) AS answer", "MATCH ()-[r]->() RETURN count(r) AS answer");
    let counted = single(&*b, entities, Metadata::new()).await?;
    expect::equal("entities of an empty graph", &counted, &json!(0))?;
    let all =
        edges(&[("r", "t", "a", "b"), ("s", "u", "b", "c"), ("l", "t", "c", "c"), ("p", "t", "a", "b")])?;
    store_all(&*a, &nodes(&["a", "b", "c", "d", "e"])?, &all).await?;
    expect::equal("entities", &single(&*b, entities, Metadata::new()).await?, &json!(5))?;
    expect::equal("relationships", &single(&*b, relationships, Metadata::new()).await?, &json!(4))?;
    let _ = b.delete_entity(&nodes(&["a"])?[0].id).await?;
    expect::equal("entities left", &single(&*a, entities, Metadata::new()).await?, &json!(4))?;
    expect::equal("relationships left", &single(&*a, relationships, Metadata::new()).await?, &json!(2))?;
    expect::equal("entities of the other", &single(&*other, entities, Metadata::new()).await?, &json!(3))?;
    Ok(other.erase().await?)
}

pub(super) async fn parameters_are_data(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    cypher(&context, &*a).await?;
    let all = edges(&[("r", "t", "a", "b")])?;
    store_all(&*a, &nodes(&["a", "b"])?, &all).await?;
    let mut texts = ids::hostile();
    texts.extend(
        ["$$ $$", "' RETURN 1 //", "}) DETACH DELETE n //", "$x", "$cypher$ $cypher$"].map(str::to_owned),
    );
    for text in texts {
        let parameters = Metadata::new().with("x", text.clone());
        let got = single(&*b, "RETURN $x AS answer", parameters).await?;
        expect::equal("the text given", &got, &Value::String(text))?;
    }
    let nested = Metadata::new().with("x", json!({"list": [1, "two", null, true], "map": {"k": -1.5}}));
    let got = Metadata::new().with("x", single(&*b, "RETURN $x AS answer", nested.clone()).await?);
    expect::equal("the value given", &got, &nested)?;
    let rows = capable(&*b)?
        .cypher("UNWIND $x AS answer RETURN answer", Metadata::new().with("x", json!([3, 1, 2])));
    let answers: Vec<_> = rows.await?.iter().filter_map(|row| row.get("answer").cloned()).collect();
    expect::equal("a row for each", &answers, &vec![json!(3), json!(1), json!(2)])?;
    graph_is("the graph", &*a, &nodes(&["a", "b"])?, &all).await
}

pub(super) async fn patterns_match_ids_types_and_properties(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    cypher(&context, &*a).await?;
    let values = [
        json!("$$ ' \" ` }) DETACH DELETE n //"),
        json!(1.5),
        json!(true),
        json!([1, "two"]),
        json!(i64::MIN),
    ];
    for (number, name) in ids::hostile().iter().enumerate() {
        let value = values[number % values.len()].clone();
        let properties = Metadata::new().with("k", value.clone());
        let there = vec![
            typed(name, name, properties.clone())?,
            typed(&format!("{number}-to"), "to", Metadata::new())?,
        ];
        store_all(&*a, &there, &[]).await?;
        let going = edge(&format!("{number}-r"), name, name, &format!("{number}-to"))?;
        a.upsert_relationships(vec![going.clone().with_properties(properties)]).await?;
        let query = "MATCH (n:Entity {id: $name, type: $name})-[r:Relationship {type: $name}]->(m:Entity)
            WHERE n.properties.k = $value AND r.properties.k = $value AND r.source = n.id AND r.target = m.id
            RETURN m.id + '/' + m.type + '/' + r.id AS answer";
        let parameters = Metadata::new().with("name", name.clone()).with("value", value);
        let answer = single(&*b, query, parameters).await?;
        expect::equal("what matches", &answer, &json!(format!("{number}-to/to/{}", going.id)))?;
    }
    let none = capable(&*b)?
        .cypher("MATCH (n:Entity)<-[:Relationship]-(:Entity {type: 'to'}) RETURN n.id", Metadata::new());
    expect::equal("rows against the arrow", &none.await?.len(), &0)
}

pub(super) async fn cypher_rows_are_entities_and_relationships(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    cypher(&context, &*a).await?;
    let entities = vec![typed("a", "t", rich_properties())?, node("b")?];
    let going = edge("r", "u", "a", "b")?.with_properties(rich_properties());
    store_all(&*a, &entities, std::slice::from_ref(&going)).await?;
    let query = "MATCH p = (n {id: 'a'})-[r]->(m)
        RETURN n, r AS going, p AS `the path`, [m, 1] AS list, {of: r.id} AS map, null AS nothing, \
        n.properties.numbers";
    let rows = capable(&*b)?.cypher(query, Metadata::new()).await?;
    let (from, to, way) = (as_json(&entities[0])?, as_json(&entities[1])?, as_json(&going)?);
    let expected = Metadata::new()
        .with("n", from.clone())
        .with("going", way.clone())
        .with("the path", json!({"entities": [from, to], "relationships": [way]}))
        .with("list", json!([to, 1]))
        .with("map", json!({"of": "r"}))
        .with("nothing", Value::Null)
        .with("n.properties.numbers", rich_properties().get("numbers").cloned().unwrap_or_default());
    expect::equal("the row", &rows, &vec![expected])?;
    let rows = capable(&*b)?
        .cypher("MATCH (n:Entity) RETURN DISTINCT n.id AS id ORDER BY id DESC LIMIT 1", Metadata::new());
    expect::equal("the last row", &rows.await?, &vec![Metadata::new().with("id", "b")])
}

fn as_json(of: &impl serde::Serialize) -> CaseResult<Value> {
    serde_json::to_value(of).map_err(|error| Failure::Engine(format!("the stored value as JSON: {error}")))
}

pub(super) async fn queries_that_would_write_are_refused(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    cypher(&context, &*a).await?;
    populate(&*a, "kept").await?;
    let before = dump(&*b).await?;
    for query in [
        "CREATE (n:Entity {id: 'x'}) RETURN n",
        "MERGE (n:Entity {id: 'x'}) RETURN n",
        "MATCH (n) SET n.type = 'x' RETURN n",
        "MATCH (n) REMOVE n.properties RETURN n.id",
        "MATCH (n) DETACH DELETE n",
        "MATCH (n:Entity {id: 'absent'}) DELETE n RETURN 1 AS answer",
        "UNWIND [1] AS x CREATE (:Entity {id: 'x'})",
    ] {
        let failed = capable(&*a)?.cypher(query, Metadata::new()).await;
        expect::error(&format!("the query {query:?}"), failed, ErrorKind::InvalidInput)?;
        expect::equal("everything afterwards", &dump(&*b).await?, &before)?;
    }
    let words = "MATCH (n) WHERE n.id <> 'DELETE' RETURN count(n.`set`) AS answer /* CREATE */";
    expect::equal("words of writes as data", &single(&*a, words, Metadata::new()).await?, &json!(0))
}

pub(super) async fn refuses_cypher_that_does_not_parse(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    cypher(&context, &*a).await?;
    populate(&*a, "kept").await?;
    let before = dump(&*b).await?;
    for query in ["", "MATCH (", "MATCH (n) DELETE n RETURN", "RETURN 1 AS answer $$ ) DROP", "RETURN *"] {
        let failed = capable(&*a)?.cypher(query, Metadata::new()).await;
        expect::error(&format!("the query {query:?}"), failed, ErrorKind::InvalidInput)?;
        expect::equal("everything afterwards", &dump(&*b).await?, &before)?;
    }
    for bad in [
        Metadata::new().with("x", "\0"),
        Metadata::new().with("x", "y".repeat(65_536)),
        rich_properties().with("\0", 1),
    ] {
        let failed = capable(&*a)?.cypher("MATCH (n) DETACH DELETE n", bad).await;
        expect::error("bad parameters", failed, ErrorKind::InvalidInput)?;
        expect::equal("everything afterwards", &dump(&*b).await?, &before)?;
    }
    Ok(())
}
