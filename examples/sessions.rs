//! Keeps the sessions of an `axum` application in any backend that provides key-value data: `cargo run
//! --features adapter-tower-sessions --example sessions -- sqlite:./larder.db`.
#![allow(clippy::print_stdout)]

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::routing::get;
use larder::Stores;
use larder::adapters::tower_sessions::KeyValueSessions;
use larder::{BucketName, Namespace};
use tower::ServiceExt;
use tower_sessions::{Expiry, Session, SessionManagerLayer};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let urls = std::env::args().skip(1).fold(Stores::builder(), |builder, url| builder.url(url));
    let stores = urls.namespace(Namespace::new("example-sessions")?).open().await?;
    let sessions = KeyValueSessions::new(stores.key_value()?, BucketName::new("sessions")?);
    let layer =
        SessionManagerLayer::new(sessions).with_expiry(Expiry::OnInactivity(time::Duration::hours(8)));
    let app = Router::new().route("/", get(visit)).layer(layer);

    // Simulates a browser with three requests; `axum::serve` would take the requests from a socket.
    let (mut cookie, mut said) = (None::<String>, String::new());
    for _ in 0..3 {
        let mut request = Request::get("/");
        if let Some(cookie) = &cookie {
            request = request.header(header::COOKIE, cookie);
        }
        let response = app.clone().oneshot(request.body(Body::empty())?).await?;
        if let Some(given) = response.headers().get(header::SET_COOKIE) {
            cookie = given.to_str()?.split(';').next().map(str::to_owned);
        }
        let body = axum::body::to_bytes(response.into_body(), 1_024).await?;
        said = String::from_utf8(body.to_vec())?;
    }
    println!("{said}");
    stores.key_value()?.erase().await?;
    stores.close().await;
    Ok(())
}

async fn visit(session: Session) -> Result<String, StatusCode> {
    let unavailable = |_| StatusCode::SERVICE_UNAVAILABLE;
    let visits = session.get::<u32>("visits").await.map_err(unavailable)?.unwrap_or_default() + 1;
    session.insert("visits", visits).await.map_err(unavailable)?;
    Ok(format!("visit {visits}"))
}
