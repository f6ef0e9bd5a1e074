//! The memory graph: written by one server, read by it and by a program on the same data.

use std::sync::Arc;

use larder_kernel::EntityId;
use serde_json::{Value, json};

use super::client::{Client, Place};

pub(crate) async fn run(place: Arc<Place>) {
    let client = place.stdio(&[]).await;
    let people = json!({ "entities": [
        { "id": "ann", "entity_type": "person", "observations": ["speaks Czech"] },
        { "id": "bob", "entity_type": "person", "properties": { "age": 41, "likes": { "drink": "Tea" } } },
        { "id": "acme", "entity_type": "company" },
    ] });
    let written = client.ok("graph_upsert_entities", people.clone()).await;
    assert_eq!((&written["created"], &written["replaced"]), (&json!(3), &json!(0)));
    let relation = |source: &str, kind: &str, target: &str| {
        let ends = (source, target);
        json!({ "source": ends.0, "relationship_type": kind, "target": ends.1 })
    };
    let relations = json!({ "relationships": [
        relation("ann", "knows", "bob"),
        relation("bob", "works_at", "acme"),
        relation("ann", "works_at", "acme"),
    ] });
    let first = client.ok("graph_upsert_relationships", relations.clone()).await;
    assert_eq!(first["created"], 3);
    let again = client.ok("graph_upsert_relationships", relations).await;
    assert_eq!((&again["created"], &again["replaced"]), (&json!(0), &json!(3)), "the same ids");
    assert_eq!(first["made_ids"], again["made_ids"]);
    described(&client, relation("ann", "works_at", "acme")).await;
    let dangling = json!({ "relationships": [relation("ann", "knows", "nobody")] });
    assert_eq!(client.refused("graph_upsert_relationships", dangling).await, "NotFound");

    observed(&client).await;
    found(&client).await;
    deleted(&client, &first["made_ids"]).await;

    let graph = place.stores().await.graph().unwrap();
    let ann = graph.get_entities(&[EntityId::new("ann").unwrap()]).await.unwrap().pop().flatten().unwrap();
    assert!(ann.properties.get("observations").unwrap().as_array().unwrap().len() >= 20);
    client.end().await;
}

/// Checks that a relationship keeps the properties that a call does not name, unless the call replaces it.
async fn described(client: &Client, relation: Value) {
    for (mode, given, expected) in [
        (None, json!({ "since": 2020 }), json!({ "since": 2020 })),
        (None, json!({ "role": "lead" }), json!({ "since": 2020, "role": "lead" })),
        (Some("replace"), json!({ "role": "lead" }), json!({ "role": "lead" })),
    ] {
        let mut relation = relation.clone();
        relation["properties"] = given;
        let mut call = json!({ "relationships": [relation] });
        if let Some(mode) = mode {
            call["mode"] = json!(mode);
        }
        client.ok("graph_upsert_relationships", call).await;
        let found = client.ok("graph_relationships", json!({ "source": "ann", "target": "acme" })).await;
        assert_eq!(found["relationships"][0]["properties"], expected, "{mode:?}");
    }
}

async fn observed(client: &Client) {
    let add = |text: String| {
        client.ok("graph_add_observations", json!({ "entity": "ann", "observations": [text] }))
    };
    // Concurrent writes: none may be lost.
    futures_util::future::join_all((0..20).map(|n| add(format!("saw {n}")))).await;
    let ann = client.ok("graph_get", json!({ "entities": ["nobody", "ann"] })).await;
    assert_eq!(ann["missing"], json!(["nobody"]));
    assert_eq!(ann["entities"][0]["observations"].as_array().unwrap().len(), 21);
    let twice = json!({ "entity": "ann", "observations": ["saw 1", "saw 1"] });
    let same = client.ok("graph_add_observations", twice.clone()).await;
    assert_eq!(same["observations"].as_array().unwrap().len(), 21);
    let fewer = client.ok("graph_remove_observations", twice).await;
    assert_eq!(fewer["observations"].as_array().unwrap().len(), 20);
    let nobody = json!({ "entity": "nobody", "observations": ["x"] });
    assert_eq!(client.refused("graph_add_observations", nobody).await, "NotFound");
}

async fn found(client: &Client) {
    let ids = |entities: &[Value]| -> Vec<String> {
        entities.iter().map(|entity| entity["id"].as_str().unwrap().to_owned()).collect()
    };
    let near = client.ok("graph_neighbors", json!({ "entity": "ann", "direction": "out" })).await;
    assert_eq!(ids(near["entities"].as_array().unwrap()), ["ann", "acme", "bob"]);
    assert_eq!(near["relationships"].as_array().unwrap().len(), 2);
    let far = json!({ "entity": "ann", "depth": 2, "relationship_types": ["knows"], "limit": 10 });
    assert_eq!(ids(client.ok("graph_neighbors", far).await["entities"].as_array().unwrap()), ["ann", "bob"]);
    for (query, expected) in [
        (json!({ "query": "CZECH" }), vec!["ann"]),
        (json!({ "query": "tea" }), vec!["bob"]),
        (json!({ "where": { "age": 41.0 } }), vec!["bob"]),
        (json!({ "contains": { "age": [41] } }), vec![]),
        (json!({ "entity_type": "person", "limit": 1 }), vec!["ann", "bob"]),
        (json!({ "query": "nothing like it" }), vec![]),
        (json!({ "limit": 2 }), vec!["acme", "ann", "bob"]),
    ] {
        assert_eq!(ids(&client.all("graph_search", "entities", query.clone()).await), expected, "{query}");
    }
    let works = json!({ "relationship_type": "works_at", "target": "acme", "limit": 1 });
    assert_eq!(client.all("graph_relationships", "relationships", works).await.len(), 2);
}

async fn deleted(client: &Client, ids: &Value) {
    let gone = client.ok("graph_delete_relationship", json!({ "relationship": ids[0] })).await;
    assert_eq!(gone["existed"], true);
    let gone = client.ok("graph_delete_relationship", json!({ "relationship": ids[0] })).await;
    assert_eq!(gone["existed"], false, "a second call changes nothing");
    let gone = client.ok("graph_delete_entity", json!({ "entity": "acme" })).await;
    assert_eq!((&gone["existed"], &gone["relationships"]), (&json!(true), &json!(2)));
}

/// Creating a known entity keeps its properties and observations.
pub(crate) async fn kept(place: Arc<Place>) {
    let client = place.stdio(&[]).await;
    let write = async |entity: Value, mode: Option<&str>| {
        let mut arguments = json!({ "entities": [entity] });
        mode.into_iter().for_each(|mode| arguments["mode"] = mode.into());
        client.ok("graph_upsert_entities", arguments).await
    };
    let read = async || client.ok("graph_get", json!({ "entities": ["ann"] })).await["entities"][0].clone();
    let ann = json!({ "id": "ann", "entity_type": "person", "properties": { "age": 41, "city": "Oslo" },
        "observations": ["likes tea"] });
    assert_eq!(write(ann, None).await["created"], 1);
    let known = json!({ "id": "ann", "entity_type": "person" });
    let written = write(known.clone(), None).await;
    assert_eq!((&written["created"], &written["replaced"]), (&json!(0), &json!(1)));
    assert_eq!(read().await["properties"], json!({ "age": 41, "city": "Oslo" }));
    let more = json!({ "id": "ann", "entity_type": "friend", "properties": { "age": 42 },
        "observations": ["likes tea", "reads Horn"] });
    write(more, None).await;
    let ann = read().await;
    assert_eq!(ann["entity_type"], "friend");
    assert_eq!(ann["properties"], json!({ "age": 42, "city": "Oslo" }));
    assert_eq!(ann["observations"], json!(["likes tea", "reads Horn"]));
    write(known, Some("replace")).await;
    let ann = read().await;
    assert_eq!((ann.get("properties"), ann.get("observations")), (None, None), "{ann}");
    client.end().await;
}

const SERVERS: usize = 4;
const OBSERVATIONS: usize = 200;

/// Four servers on one store change one entity at the same time: what was acknowledged is kept.
pub(crate) async fn four_servers(place: Arc<Place>) {
    let mut clients = Vec::new();
    for _ in 0..SERVERS {
        clients.push(place.stdio(&[]).await);
    }
    observe_together(&clients).await;
    for client in clients {
        client.end().await;
    }
}

/// The same with four sessions of one server, whose data are in memory.
pub(crate) async fn four_sessions(place: Arc<Place>) {
    let server = place.http(&[], None);
    let mut clients = Vec::new();
    for _ in 0..SERVERS {
        clients.push(server.session(None).await);
    }
    observe_together(&clients).await;
    for client in clients {
        client.end().await;
    }
}

async fn observe_together<H: rmcp::ClientHandler>(clients: &[Client<H>]) {
    futures_util::future::join_all(
        clients.iter().enumerate().map(|(server, client)| observe(server, client)),
    )
    .await;
    let ann = clients[0].ok("graph_get", json!({ "entities": ["ann"] })).await;
    let kept: std::collections::BTreeSet<&str> = ann["entities"][0]["observations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
        .collect();
    assert_eq!(kept.len(), SERVERS * OBSERVATIONS, "observations kept of those acknowledged");
}

async fn observe<H: rmcp::ClientHandler>(server: usize, client: &Client<H>) {
    // Each server creates the entity, as a model does that does not know it.
    let person = json!({ "entities": [{ "id": "ann", "entity_type": "person" }] });
    client.ok("graph_upsert_entities", person).await;
    let add = |n: usize| {
        let texts = json!({ "entity": "ann", "observations": [format!("{server} saw {n}")] });
        client.ok("graph_add_observations", texts)
    };
    for start in (0..OBSERVATIONS).step_by(10) {
        futures_util::future::join_all((start..start + 10).map(add)).await;
    }
}
