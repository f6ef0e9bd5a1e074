//! The server: its description, tools and resources.

use std::fmt;
use std::sync::Arc;

use larder_kernel::{Error, ErrorKind, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::entries;
use super::failure::Failure;
use super::registry::{Effect, Entry, Shared, provides};
use super::resource;
use larder_kernel::StoreSet;

const INSTRUCTIONS: &str = "Larder stores what agents remember: conversations (conversation_*, to read and \
    search), a graph of entities, observations and relationships (graph_*), notes under keys with \
    revisions (note_*), and boards of tasks that workers claim under leases (board_*, task_*). A refused \
    call names the field and its limit in `error`. To continue after a result with `next_cursor`, call \
    again with it as `cursor`.";

/// An MCP server over the stores of one namespace. Clones share it.
///
/// The server is an [`rmcp::ServerHandler`], so any transport of rmcp can serve it, such as
/// [`serve_stdio`](super::serve_stdio) and [`serve_http`](super::serve_http). A call that the client cancels
/// is dropped: the stores remain usable, and a write is complete or absent.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder::Result<()> {
/// use larder::adapters::mcp::McpServer;
///
/// let server = McpServer::new(larder::open("memory:").await?).reading_only();
/// assert!(server.tools().iter().all(|tool| tool.name != "graph_delete_entity"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct McpServer {
    shared: Arc<Shared>,
    entries: Arc<[Entry]>,
    reading_only: bool,
}

impl McpServer {
    /// Creates a server that offers the tools of these stores.
    #[must_use]
    pub fn new(stores: impl Into<StoreSet>) -> Self {
        let shared = Shared { stores: stores.into(), entities: tokio::sync::Mutex::new(()) };
        Self { shared: Arc::new(shared), entries: entries().into(), reading_only: false }
    }

    /// Offers only the tools that change nothing.
    #[must_use]
    pub fn reading_only(mut self) -> Self {
        self.reading_only = true;
        self
    }

    /// Returns the offered tools, in the order in which clients see them.
    #[must_use]
    pub fn tools(&self) -> Vec<Tool> {
        let offered = self.entries.iter().filter(|entry| self.offers(entry).is_ok());
        offered.map(|entry| entry.tool.clone()).collect()
    }

    /// Checks that a tool is offered, or returns the reason.
    fn offers(&self, entry: &Entry) -> Result<()> {
        if self.reading_only && entry.effect != Effect::Reads {
            let message = "this server is read-only";
            return Err(Error::new(ErrorKind::Unsupported, "mcp.call_tool", message));
        }
        provides(&self.shared.stores, entry.contract)
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("reading_only", &self.reading_only).finish_non_exhaustive()
    }
}

fn no_cursor(request: Option<&PaginatedRequestParams>) -> std::result::Result<(), ErrorData> {
    match request.and_then(|request| request.cursor.as_ref()) {
        Some(_) => Err(ErrorData::invalid_params(
            "`cursor`: is not a cursor of this server; pass one that it returned",
            None,
        )),
        None => Ok(()),
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("larder", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        no_cursor(request.as_ref())?;
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let entry = self.entries.iter().find(|entry| entry.tool.name == name)?;
        self.offers(entry).is_ok().then(|| entry.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let Some(entry) = self.entries.iter().find(|entry| entry.tool.name == request.name) else {
            return Err(ErrorData::invalid_params(
                "the server has no tool with this name; list the tools",
                None,
            ));
        };
        if let Err(error) = self.offers(entry) {
            return Ok(Failure::from(error).into_result().into());
        }
        let call = entry.call(&self.shared, request.arguments.unwrap_or_default());
        let result = tokio::select! {
            // The future is dropped, not awaited: the stores keep a write complete or absent.
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the client cancelled the call", None));
            }
            result = call => result,
        };
        Ok(match result {
            Ok(value) => CallToolResult::structured(value).into(),
            Err(failure) => failure.into_result().into(),
        })
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let listed = resource::list(&self.shared.stores, cursor.as_deref()).await;
        let (resources, next_cursor) = listed.map_err(|error| Failure::from(error).into_protocol())?;
        let mut result = ListResourcesResult::with_all_items(resources);
        result.next_cursor = next_cursor;
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourceTemplatesResult, ErrorData> {
        no_cursor(request.as_ref())?;
        Ok(ListResourceTemplatesResult::with_all_items(resource::templates(&self.shared.stores)))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ReadResourceResponse, ErrorData> {
        let reading = resource::read(&self.shared.stores, &request.uri);
        let read = tokio::select! {
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the client cancelled the call", None));
            }
            read = reading => read,
        };
        let contents = read.map_err(|error| Failure::from(error).into_protocol())?;
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[tokio::test]
    async fn every_tool_has_a_unique_name_a_schema_an_example_and_hints() {
        let tools = McpServer::new(crate::open("memory:").await.unwrap()).tools();
        let mut names = std::collections::BTreeSet::new();
        for tool in &tools {
            assert!(names.insert(tool.name.clone()), "{}", tool.name);
            // The characters and the length that the specification requires of a name.
            let known = |char: char| char.is_ascii_alphanumeric() || "_-.".contains(char);
            assert!((1..=128).contains(&tool.name.len()) && tool.name.chars().all(known), "{}", tool.name);
            let schema = serde_json::to_value(&*tool.input_schema).unwrap();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
            assert!(!schema["properties"].as_object().unwrap().is_empty(), "{}", tool.name);
            let (_, example) = tool.description.as_ref().unwrap().split_once(" Example: ").unwrap();
            let example: serde_json::Map<String, serde_json::Value> = serde_json::from_str(example).unwrap();
            for field in example.keys() {
                assert!(schema["properties"].get(field).is_some(), "{}: {field}", tool.name);
            }
            for field in schema["required"].as_array().into_iter().flatten() {
                assert!(example.contains_key(field.as_str().unwrap()), "{}: {field}", tool.name);
            }
            let output = serde_json::to_value(tool.output_schema.as_deref()).unwrap();
            assert_eq!(output["type"], "object", "{}", tool.name);
            let hints = tool.annotations.as_ref().unwrap();
            assert_eq!(hints.open_world_hint, Some(false));
            assert!(hints.read_only_hint.is_some() && hints.idempotent_hint.is_some());
        }
        assert_eq!(names.len(), 30);
    }

    #[tokio::test]
    async fn tools_without_a_store_are_not_offered() {
        let none = StoreSet::new();
        assert!(McpServer::new(none.clone()).tools().is_empty());
        let memory = crate::open("memory:").await.unwrap();
        let notes = McpServer::new(none.with_key_value(memory.set().key_value().unwrap())).tools();
        assert!(notes.iter().all(|tool| tool.name.starts_with("note_")));
        assert_eq!(notes.len(), 4);
    }
}
