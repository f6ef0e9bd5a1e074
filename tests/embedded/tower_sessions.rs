//! Sessions behind the real layer of `tower-sessions`, in an `axum` router.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, Response, StatusCode, header};
use axum::routing::{get, post};
use larder::adapters::tower_sessions::KeyValueSessions;
use larder_kernel::{BucketName, Key, KeyValueStore, KeyValueStoreExt};
use time::{Duration, OffsetDateTime};
use tower::ServiceExt;
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::Error;
use tower_sessions::{Expiry, Session, SessionManagerLayer, SessionStore};

fn bucket() -> BucketName {
    BucketName::new("sessions").unwrap()
}

async fn store() -> (Arc<dyn KeyValueStore>, KeyValueSessions) {
    let store = larder::open("memory:").await.unwrap().set().key_value().unwrap();
    (Arc::clone(&store), KeyValueSessions::new(store, bucket()))
}

fn app(sessions: KeyValueSessions, expiry: Expiry) -> Router {
    async fn read(session: Session) -> String {
        session.get::<String>("name").await.unwrap().unwrap_or_default()
    }
    async fn login(Path(name): Path<String>, session: Session) {
        session.insert("name", name).await.unwrap();
        // A user who gains rights gets a new session id.
        session.cycle_id().await.unwrap();
    }
    async fn logout(session: Session) {
        session.flush().await.unwrap();
    }
    Router::new()
        .route("/", get(read))
        .route("/login/{name}", post(login))
        .route("/logout", post(logout))
        .layer(SessionManagerLayer::new(sessions).with_expiry(expiry))
}

/// Returns the response's text and its cookie.
async fn ask(app: &Router, request: axum::http::request::Builder, cookie: &str) -> (String, String) {
    let request = request.header(header::COOKIE, cookie).body(Body::empty()).unwrap();
    let response: Response<Body> = app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let given = response.headers().get(header::SET_COOKIE).map(|given| given.to_str().unwrap().to_owned());
    let cookie = given.as_deref().and_then(|given| given.split(';').next()).unwrap_or(cookie).to_owned();
    let body = axum::body::to_bytes(response.into_body(), 1_024).await.unwrap();
    (String::from_utf8(body.to_vec()).unwrap(), cookie)
}

fn record(expires_in: Duration) -> Record {
    let data = [("secret".to_owned(), "hunter2".into())].into();
    Record { id: Id::default(), data, expiry_date: OffsetDateTime::now_utc() + expires_in }
}

#[tokio::test]
async fn a_router_separates_its_sessions_and_drops_one_at_logout() {
    let (_, sessions) = store().await;
    let app = app(sessions, Expiry::OnInactivity(Duration::hours(1)));
    let (_, alice) = ask(&app, Request::post("/login/alice"), "").await;
    let (_, bob) = ask(&app, Request::post("/login/bob"), "").await;
    assert_ne!(alice, bob);
    assert_eq!(ask(&app, Request::get("/"), &alice).await.0, "alice");
    assert_eq!(ask(&app, Request::get("/"), &bob).await.0, "bob");

    let (_, carol) = ask(&app, Request::post("/login/carol"), &alice).await;
    assert_ne!(carol, alice, "a login changes the id");
    assert_eq!(ask(&app, Request::get("/"), &carol).await.0, "carol");
    assert_eq!(ask(&app, Request::get("/"), &alice).await.0, "", "and the old one is nobody's");

    ask(&app, Request::post("/logout"), &carol).await;
    assert_eq!(ask(&app, Request::get("/"), &carol).await.0, "");
    assert_eq!(ask(&app, Request::get("/"), &bob).await.0, "bob");
    assert_eq!(ask(&app, Request::get("/"), "id=AAAAAAAAAAAAAAAAAAAAAA").await.0, "");
}

#[tokio::test]
async fn a_session_ends_in_the_router_and_in_the_store() {
    let (store, sessions) = store().await;
    let app = app(sessions, Expiry::OnInactivity(Duration::seconds(1)));
    let (_, alice) = ask(&app, Request::post("/login/alice"), "").await;
    assert_eq!(ask(&app, Request::get("/"), &alice).await.0, "alice");
    let listed = store.list(&bucket(), "", Default::default()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    assert_eq!(ask(&app, Request::get("/"), &alice).await.0, "");
    assert!(store.list(&bucket(), "", Default::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_used_id_stays_with_its_owner() {
    let (_, sessions) = store().await;
    let mut first = record(Duration::hours(1));
    sessions.create(&mut first).await.unwrap();
    let mut second = Record { data: Default::default(), ..first.clone() };
    sessions.create(&mut second).await.unwrap();
    assert_ne!(first.id, second.id);
    assert_eq!(sessions.load(&first.id).await.unwrap(), Some(first));
    assert_eq!(sessions.load(&second.id).await.unwrap(), Some(second));
}

#[tokio::test]
async fn a_session_reads_back_equal_to_the_nanosecond_and_a_save_replaces_it() {
    let (_, sessions) = store().await;
    let mut session = record(Duration::days(400));
    sessions.save(&session).await.unwrap();
    assert_eq!(sessions.load(&session.id).await.unwrap(), Some(session.clone()));
    session.data.insert("more".to_owned(), serde_json::json!({"a": [1, null]}));
    session.expiry_date = OffsetDateTime::now_utc() + Duration::days(365 * 200);
    sessions.save(&session).await.unwrap();
    assert_eq!(sessions.load(&session.id).await.unwrap(), Some(session.clone()));
    session.expiry_date = OffsetDateTime::now_utc() - Duration::seconds(1);
    sessions.save(&session).await.unwrap();
    assert_eq!(sessions.load(&session.id).await.unwrap(), None);
    sessions.create(&mut session).await.unwrap();
    assert_eq!(sessions.load(&session.id).await.unwrap(), None);
    sessions.delete(&session.id).await.unwrap();
}

#[tokio::test]
async fn errors_show_neither_the_session_nor_its_id() {
    let (store, sessions) = store().await;
    let mut large = record(Duration::hours(1));
    large.data.insert("large".to_owned(), "x".repeat(5 * 1024 * 1024).into());
    let error = sessions.create(&mut large).await.unwrap_err();
    assert!(matches!(&error, Error::Backend(text) if text.contains("limit 4194304")), "{error}");

    let id = Id::default();
    for broken in
        ["hunter2", r#"{"expires_at":"hunter2"}"#, r#"{"expires_at":1,"nanos":4000000000,"data":{}}"#]
    {
        let key = Key::new(id.to_string()).unwrap();
        store.set(&bucket(), &key, broken.into()).await.unwrap();
        let error = sessions.load(&id).await.unwrap_err();
        assert!(matches!(error, Error::Decode(_)), "{error}");
        let shown = format!("{error} {error:?} {sessions:?}");
        assert!(!shown.contains("hunter2") && !shown.contains(&id.to_string()), "{shown}");
    }
}
