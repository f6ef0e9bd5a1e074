//! `larder mcp`: serves the stores behind a URL as an MCP server.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use larder::adapters::mcp::{HttpOptions, McpServer, serve_http, serve_stdio};
use larder::{Registry, Stores, StoresBuilder, StoresConfig, redact_url};
use larder_kernel::Namespace;
use tokio::net::TcpListener;

use crate::thread::parse_namespace;
use crate::{interrupt, live, output};

/// The environment variable with the token of HTTP clients, because every user of a machine can see command
/// lines.
const TOKEN: &str = "LARDER_MCP_TOKEN";

/// Arguments of `larder mcp`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL of a backend, such as `sqlite:./larder.db`. With several URLs, each provides the contracts that
    /// the earlier ones lack. The default is `LARDER_URL` and the variables for single contracts, which keep
    /// passwords off the command line.
    #[arg(long = "store", value_name = "URL")]
    stores: Vec<String>,
    /// Namespace to serve.
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<Namespace>,
    /// Offer only the tools that change nothing.
    #[arg(long)]
    read_only: bool,
    /// Serve streamable HTTP on this address, such as 127.0.0.1:8765, instead of standard input and output.
    /// For an address other than loopback, clients need the token in `LARDER_MCP_TOKEN`.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Keep sessions and their stream events in the key-value store, so that clients continue after a
    /// restart.
    #[arg(long, requires = "http")]
    keep_sessions: bool,
    /// Maximum number of sessions over HTTP; a session that is idle for five minutes ends.
    #[arg(long, value_name = "N", requires = "http", value_parser = clap::value_parser!(u32).range(1..))]
    sessions_max: Option<u32>,
    /// Additional host name of the server, as in the `Host` header. Can be given several times.
    #[arg(long = "allow-host", value_name = "HOST", requires = "http")]
    hosts: Vec<String>,
    /// Origin whose web pages may call the server, such as `http://localhost:6274`. Can be given several
    /// times.
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "http")]
    origins: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::on_runtime(Box::pin(serve(registry, args)))
}

async fn serve(registry: &Registry, args: &Args) -> Result<ExitCode, String> {
    let stores = open(registry, args).await?;
    let served = serve_stores(args, &stores).await;
    stores.close().await;
    served
}

async fn serve_stores(args: &Args, stores: &Stores) -> Result<ExitCode, String> {
    let mut server = McpServer::new(stores.set().clone());
    if args.read_only {
        server = server.reading_only();
    }
    if server.tools().is_empty() {
        let there: Vec<_> = stores.contracts().iter().map(|contract| contract.as_str()).collect();
        return Err(format!(
            "no tools for {} (use a backend with history, graph, tasks or key-value)",
            there.join(", ")
        ));
    }
    match args.http {
        None => serve_stdio(server).await.map_err(|error| live::sentence(&error))?,
        Some(address) => over_http(args, address, stores, server).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn open(registry: &Registry, args: &Args) -> Result<Stores, String> {
    let mut builder = if args.stores.is_empty() {
        let config = StoresConfig::from_env().map_err(|error| error.to_string())?;
        StoresBuilder::from_config(&config).registry(registry.clone())
    } else {
        args.stores.iter().fold(registry.builder(), |builder, url| builder.url(url))
    };
    if args.read_only && !args.keep_sessions {
        builder = builder.read_only();
    }
    if let Some(namespace) = &args.namespace {
        builder = builder.namespace(namespace.clone());
    }
    let named: Vec<_> = args.stores.iter().map(|url| redact_url(url)).collect();
    let named = if named.is_empty() { "the stores of the environment".to_owned() } else { named.join(", ") };
    builder.open().await.map_err(|error| format!("cannot open {named}: {}", live::sentence(&error)))
}

async fn over_http(
    args: &Args,
    address: SocketAddr,
    stores: &Stores,
    server: McpServer,
) -> Result<(), String> {
    let mut options = HttpOptions::new();
    options = args.hosts.iter().fold(options, |options, host| options.with_host(host));
    options = args.origins.iter().fold(options, |options, origin| options.with_origin(origin));
    match std::env::var(TOKEN) {
        Ok(token) if token.is_empty() => {
            return Err(format!("{TOKEN} is empty; set a token or unset the variable"));
        }
        Ok(token) => options = options.with_token(&token),
        Err(std::env::VarError::NotPresent) => {}
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(format!("{TOKEN} is not UTF-8; set another token"));
        }
    }
    if let Some(sessions_max) = args.sessions_max {
        options = options.with_sessions_max(usize::try_from(sessions_max).unwrap_or(usize::MAX));
    }
    if args.keep_sessions {
        options = options.with_sessions(stores.set().key_value().map_err(|error| live::sentence(&error))?);
    }
    let stop = interrupt::stopped()?;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("cannot listen on {address}: {error}"))?;
    if !address.ip().is_loopback() && std::env::var_os(TOKEN).is_none() {
        return Err(format!(
            "{address} can be reached from other machines: set {TOKEN}, or listen on 127.0.0.1"
        ));
    }
    output::note(format_args!("serves MCP at http://{address}/mcp"));
    serve_http(listener, server, &options, stop).await.map_err(|error| live::sentence(&error))
}
