//! Serving over standard input and output.

use std::sync::Arc;

use larder_kernel::{Error, ErrorKind, Result};
use rmcp::ServiceExt as _;
use rmcp::service::{QuitReason, ServerInitializeError};
use tokio::io::DuplexStream;
use tokio::sync::Mutex;

use super::lines;
use super::server::McpServer;

const OPERATION: &str = "mcp.serve_stdio";
/// The size of the buffers between the standard streams and the service, in bytes.
const PIPE_BYTES: usize = 64 * 1024;

/// Serves one client over this process's standard input and output until it closes the input.
///
/// A message is one line of at most 16 MiB. A line that is not a message gets a JSON-RPC error: -32700 for text
/// that is not JSON, and -32600 for JSON that is not a request, such as a batch. The program must write nothing
/// else to standard output while it serves.
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
    let (input, output) = rmcp::transport::stdio_pipes();
    let output = Arc::new(Mutex::new(output));
    let (to_service, from_client) = tokio::io::duplex(PIPE_BYTES);
    let (to_client, from_service) = tokio::io::duplex(PIPE_BYTES);
    let service = async {
        tokio::join!(
            serve(server, from_client, to_client),
            lines::pass_output(from_service, Arc::clone(&output)),
        )
        .0
    };
    let passing = async {
        lines::pass_input(input, to_service, Arc::clone(&output)).await;
        // The service ends after its last answer.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        served = service => served,
        () = passing => Ok(()),
    }
}

async fn serve(server: McpServer, input: DuplexStream, output: DuplexStream) -> Result<()> {
    let running = match server.serve((input, output)).await {
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
