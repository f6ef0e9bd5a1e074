//! Verification of graphs in AGE, on the server that `LARDER_AGE_URL` names: planted corruptions, each found
//! by name.

use larder_capabilities::age::AgeDriver;
use larder_capabilities::verify::FaultKind::{self, Counter, Index, Record, Reference};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::filled::{assert_found, fill, found};

/// Statements with `GRAPH` for the schema of the graph, and `NAMESPACE` for the namespace.
const PLANTED: &[(&str, FaultKind, &str)] = &[
    (
        r#"UPDATE GRAPH."Entity" SET properties = '{"id": "e1"}'::agtype
           WHERE agtype_object_field_text(properties, 'id') = 'e1'"#,
        Record,
        "entity e1 in the graph",
    ),
    (
        r#"UPDATE GRAPH."Entity" SET properties = properties || '{"revision": 999999999}'::agtype"#,
        Counter,
        "entity e2 in the graph",
    ),
    (
        r#"DELETE FROM GRAPH."Entity" WHERE agtype_object_field_text(properties, 'id') = 'e2'"#,
        Reference,
        "relationship r in the graph",
    ),
    (
        r#"UPDATE GRAPH."Relationship" SET properties = '{"id": "r"}'::agtype"#,
        Record,
        "relationship r in the graph",
    ),
    ("DROP INDEX GRAPH.larder_entities_by_type", Index, "index larder_entities_by_type"),
    ("UPDATE larder.age_graphs SET namespace = 'other' WHERE namespace = 'NAMESPACE'", Reference, "of other"),
    ("DELETE FROM larder.age_graphs WHERE namespace = 'NAMESPACE'", Reference, "graph larder_"),
];

/// The server may have one database and one session, so the test uses a separate namespace, and drops
/// its graph at the end.
pub(crate) async fn planted_corruptions_of_graphs_are_found_by_name() {
    let age = std::env::var("LARDER_AGE_URL").unwrap();
    let url = age.replacen("age:", "postgres:", 1);
    let run = async |sql: String| {
        let mut planter = PgConnection::connect(&url).await.unwrap();
        let set = format!("SET search_path = ag_catalog, public; {sql}");
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut planter).await.unwrap();
        planter.close().await.unwrap();
    };
    for (number, (sql, kind, place)) in PLANTED.iter().enumerate() {
        let namespace = format!("verify-{}-{number}", std::process::id());
        fill(&AgeDriver, &age, &namespace).await;
        let mut planter = PgConnection::connect(&url).await.unwrap();
        let graph: String = sqlx::query_scalar("SELECT graph FROM larder.age_graphs WHERE namespace = $1")
            .bind(&namespace)
            .fetch_one(&mut planter)
            .await
            .unwrap();
        planter.close().await.unwrap();
        let before = found(&AgeDriver, &age).await;
        assert!(before.records >= 3, "{}", before.records);
        assert!(!before.faults.iter().any(|fault| fault.place.contains(&graph)), "{:#?}", before.faults);
        run(sql.replace("GRAPH", &graph).replace("NAMESPACE", &namespace)).await;
        let mut verified = found(&AgeDriver, &age).await;
        verified.faults.retain(|fault| fault.place.contains(&graph));
        assert_found(&verified, *kind, place, sql);
        run(format!(
            "DELETE FROM larder.age_graphs WHERE graph = '{graph}'; SELECT drop_graph('{graph}', true)"
        ))
        .await;
    }
}
