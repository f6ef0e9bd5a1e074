//! A database whose schema was dropped, and one that was restored.

use std::sync::Arc;

use larder_capabilities::driver::{BackendUrl, Driver};
use larder_capabilities::postgres::{Postgres, PostgresDriver};
use larder_kernel::{ChatMessage, ErrorKind, HistoryProvider, HistoryProviderExt, Namespace, Thread};
use sqlx::{Connection, PgConnection};

use super::{open, with_database};
use crate::emptied::{Stores, readers_from_before_are_refused};

fn stores(postgres: &Postgres) -> Stores {
    let namespace = Namespace::new("n").unwrap();
    Stores {
        history: Arc::new(postgres.history(namespace.clone())),
        values: Arc::new(postgres.key_value(namespace.clone())),
        tasks: Arc::new(postgres.tasks(namespace)),
    }
}

pub(crate) async fn readers_from_before_a_dropped_schema_are_refused() {
    with_database("emptied", async |url: String| {
        let running = readers_from_before_are_refused(
            async || stores(&open(&url).await.unwrap()),
            async || {
                let mut admin = PgConnection::connect(&url).await.unwrap();
                sqlx::raw_sql("DROP SCHEMA larder CASCADE").execute(&mut admin).await.unwrap();
                // The next opening creates the schema.
                open(&url).await.unwrap().close().await;
            },
        )
        .await;
        running.ended().await;
    })
    .await;
}

pub(crate) async fn new_generations_refuse_positions_from_before() {
    with_database("renewed", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let history = postgres.history(Namespace::new("n").unwrap());
        let thread = Thread::new("a", "s").unwrap();
        let seq = history.append(&thread, ChatMessage::user("before")).await.unwrap();
        let location = PostgresDriver.read(&BackendUrl::parse(&url).unwrap()).unwrap();
        assert_eq!(location.renew_generations().await.unwrap(), 1);
        let error = history.page_after(&thread, seq, 10).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::Conflict, Some("after")));
        let again = history.tail(&thread, None, 1).await.unwrap().messages[0].seq;
        assert!(again == seq && again.generation().is_some() && again.generation() != seq.generation());
        postgres.close().await;
    })
    .await;
}
