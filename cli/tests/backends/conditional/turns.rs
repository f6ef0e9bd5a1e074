//! A proxy that sends one write at a time, and none during a read.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::header::{CONNECTION, TRANSFER_ENCODING};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::RwLock;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Returns the port of a proxy for the server at that address. It serves as long as the runtime exists.
pub(crate) async fn one_write_at_a_time(address: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (address, turns) = (Arc::<str>::from(address), Arc::new(RwLock::new(())));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (address, turns) = (Arc::clone(&address), Arc::clone(&turns));
            let service =
                service_fn(move |request| answer(request, Arc::clone(&address), Arc::clone(&turns)));
            tokio::spawn(server::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    port
}

async fn answer(
    request: Request<Incoming>,
    address: Arc<str>,
    turns: Arc<RwLock<()>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    // In a separate task: if a client disconnects, the server must not continue to write after its turn.
    let answered = tokio::spawn(async move { pass_on(request, &address, &turns).await }).await;
    Ok(answered.map_err(Failure::from).flatten().unwrap_or_else(|_| {
        let mut broken = Response::new(Full::default());
        *broken.status_mut() = StatusCode::BAD_GATEWAY;
        broken
    }))
}

async fn pass_on(
    request: Request<Incoming>,
    address: &str,
    turns: &RwLock<()>,
) -> Result<Response<Full<Bytes>>, Failure> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let reads = [Method::GET, Method::HEAD].contains(&head.method);
    let (_reading, _writing) =
        if reads { (Some(turns.read().await), None) } else { (None, Some(turns.write().await)) };
    let (mut sender, connection) =
        client::handshake(TokioIo::new(TcpStream::connect(address).await?)).await?;
    tokio::spawn(connection);
    let answer = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
    let (mut head, body) = answer.into_parts();
    for name in [CONNECTION, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    Ok(Response::from_parts(head, Full::new(body.collect().await?.to_bytes())))
}
