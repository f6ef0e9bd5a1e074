//! Serving over standard input and output.

use larder_kernel::{Error, ErrorKind, Result};
use rmcp::ServiceExt as _;
use rmcp::service::{QuitReason, ServerInitializeError};

use super::server::McpServer;

const OPERATION: &str = "mcp.serve_stdio";

/// Serves one client over this process's standard input and output until it closes the input.
///
/// A message is one line of at most 16 MiB. The program must write nothing else to standard output while it
/// serves.
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
/// `Unavailable` if standard output cannot be written; `InvalidInput` if the client's first message is not an
/// MCP message.
///
/// # Cancellation
/// Dropping the future ends the service. Calls in progress are dropped, and their writes are complete or
/// absent.
pub async fn serve_stdio(server: McpServer) -> Result<()> {
    let running = match server.serve(rmcp::transport::stdio_pipes()).await {
        Ok(running) => running,
        // A client that leaves before the handshake is not an error.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(ServerInitializeError::TransportError { .. }) => {
            return Err(Error::new(
                ErrorKind::Unavailable,
                OPERATION,
                "the client does not read the responses",
            ));
        }
        Err(_) => {
            return Err(Error::invalid(
                OPERATION,
                "initialize",
                "the client did not start with the MCP handshake",
            ));
        }
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(_)) | Err(_) => {
            Err(Error::new(ErrorKind::Unexpected, OPERATION, "the server ended before its client"))
        }
        Ok(_) => Ok(()),
    }
}
