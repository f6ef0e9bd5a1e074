//! Serving over standard input and output.

use larder_kernel::{Error, ErrorKind, Result};
use rmcp::ServiceExt as _;
use rmcp::service::{QuitReason, ServerInitializeError};

use super::server::McpServer;

const OPERATION: &str = "mcp.serve_stdio";

/// Serves one client over this process's standard input and output until it closes the input.
///
/// One message is a line of at most 16 MiB. Nothing else may be written to standard output meanwhile.
///
/// ```no_run
/// # async fn run() -> larder::Result<()> {
/// use larder::Stores;
/// use larder::adapters::mcp::{McpServer, serve_stdio};
///
/// serve_stdio(McpServer::new(larder::open("sqlite:./larder.db").await?)).await
/// # }
/// ```
///
/// # Errors
/// `Unavailable` where standard output cannot be written; `InvalidInput` where the client's first message is none of
/// MCP.
///
/// # Cancellation
/// Dropping the future ends the service; calls under way are dropped, and their writes are whole or absent.
pub async fn serve_stdio(server: McpServer) -> Result<()> {
    let running = match server.serve(rmcp::transport::stdio_pipes()).await {
        Ok(running) => running,
        // A client that leaves before it begins wants nothing.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(ServerInitializeError::TransportError { .. }) => {
            return Err(Error::new(
                ErrorKind::Unavailable,
                OPERATION,
                "the client does not read the answers",
            ));
        }
        Err(_) => {
            return Err(Error::invalid(OPERATION, "initialize", "the client did not begin as MCP says"));
        }
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(_)) | Err(_) => {
            Err(Error::new(ErrorKind::Unexpected, OPERATION, "the service ended before its client did"))
        }
        Ok(_) => Ok(()),
    }
}
