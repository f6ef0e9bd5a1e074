//! Connects to an in-process MCP server as a client, as a client in any language does over standard input and
//! output: `cargo run --example mcp --features adapter-rmcp-3 -- sqlite:./larder.db`.
#![allow(clippy::print_stdout)]

use larder::adapters::mcp::McpServer;
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let stores = larder::open(&url).await?;
    let server = McpServer::new(stores.clone());
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let serving = tokio::spawn(async move {
        let running = server.serve(ours).await.map_err(std::io::Error::other)?;
        running.waiting().await.map_err(std::io::Error::other)
    });

    let client = ().serve(theirs).await?;
    let calls = [
        ("note_put", json!({ "key": "today", "text": "Water the plants" })),
        (
            "graph_upsert_entities",
            json!({ "entities": [
            { "id": "ann", "entity_type": "person", "observations": ["likes tea"] },
            { "id": "oslo", "entity_type": "city" },
        ] }),
        ),
        (
            "graph_upsert_relationships",
            json!({ "relationships": [
            { "source": "ann", "relationship_type": "lives_in", "target": "oslo" },
        ] }),
        ),
        ("graph_neighbors", json!({ "entity": "oslo" })),
        ("note_get", json!({ "key": "today" })),
    ];
    for (tool, arguments) in calls {
        let Value::Object(arguments) = arguments else { unreachable!("written as objects above") };
        let result = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
        println!("{tool}: {}", result.structured_content.unwrap_or_default());
    }
    client.cancel().await?;
    serving.await??;
    stores.close().await;
    Ok(())
}
