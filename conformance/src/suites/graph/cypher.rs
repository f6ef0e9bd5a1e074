//! openCypher: there exactly when declared, and what its queries see.

use larder_kernel::{Capability, Contract, CypherCapable, ErrorKind, GraphStore, Metadata};
use serde_json::{Value, json};

use super::build::{edges, graph_is, nodes, rich_properties, store_all};
use super::dump::{dump, populate};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::harness::OpenOptions;
use crate::suites::ids;

pub(super) async fn cypher_is_there_exactly_when_declared(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    for store in [&a, &b] {
        let declared = store.capabilities().has(Capability::Cypher);
        expect::equal("whether it is there, as declared", &store.as_cypher().is_some(), &declared)?;
    }
    Ok(())
}

async fn cypher(context: &Context, store: &dyn GraphStore) -> CaseResult {
    context.require(Contract::Graph, Capability::Cypher).await?;
    expect::that(store.as_cypher().is_some(), "a store that answers openCypher", "none")
}

fn capable(store: &dyn GraphStore) -> CaseResult<&dyn CypherCapable> {
    expect::some("a store that answers openCypher", store.as_cypher())
}

async fn single(store: &dyn GraphStore, query: &str, parameters: Metadata) -> CaseResult<Value> {
    let rows = capable(store)?.cypher(query, parameters).await?;
    expect::equal(&format!("rows of {query}"), &rows.len(), &1)?;
    expect::some("the column `answer`", rows[0].get("answer").cloned())
}

/// Counts only: how ids and types show in a pattern is the backend's own.
pub(super) async fn queries_see_the_graph_of_their_namespace(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    cypher(&context, &*a).await?;
    let other = context.open_with(&context.sibling("-other")?, &OpenOptions::default()).await?.graph;
    let other = expect::some("the other graph", other)?;
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
    b.delete_entity(&nodes(&["a"])?[0].id).await?;
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

pub(super) async fn refuses_cypher_that_does_not_parse(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    cypher(&context, &*a).await?;
    populate(&*a, "kept").await?;
    let before = dump(&*b).await?;
    for query in ["", "MATCH (", "MATCH (n) DELETE n RETURN", "RETURN 1 AS answer $$ ) DROP"] {
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
