//! The question whether a server is silent.
//!
//! If all connections stay in use, either the calls are many or long, or the server stopped responding to
//! them. The callers without a connection cannot tell, so one of them asks the server on a connection outside
//! of the pool.

use std::time::{Duration, Instant};

use larder_kernel::{Error, ErrorKind, Outcome};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::sync::Mutex;

use super::connect::connect;

/// The time limit of the question.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// The time for which an answer serves other callers.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(1);

/// Asks a server whether it responds.
pub(super) struct Prober {
    connect: PgConnectOptions,
    /// The last answer, and when it came. Other callers wait for the answer of the one that asks.
    silent: Mutex<Option<(Instant, bool)>>,
}

impl Prober {
    pub(super) fn new(connect: PgConnectOptions) -> Self {
        Self { connect, silent: Mutex::default() }
    }

    /// Returns the error for a call that got no connection: `busy` if the server responds.
    pub(super) async fn judge(&self, operation: &'static str, busy: Error) -> Error {
        let mut last = self.silent.lock().await;
        let silent = match *last {
            Some((at, silent)) if at.elapsed() < ANSWER_AGE_MAX => silent,
            _ => {
                let silent = self.is_silent().await;
                *last = Some((Instant::now(), silent));
                silent
            }
        };
        if silent { unreachable_server(operation) } else { busy }
    }

    /// A refused login is a response too. A pooler may respond to a login alone, so a query follows it.
    async fn is_silent(&self) -> bool {
        let options = self.connect.clone();
        let ask = move || {
            let options = options.clone();
            async move {
                let mut connection = PgConnection::connect_with(&options).await?;
                sqlx::raw_sql("SELECT 1").execute(&mut connection).await?;
                connection.close().await
            }
        };
        let answer = connect(PROBE_TIMEOUT, ask).await;
        !matches!(answer, Some(Ok(()) | Err(sqlx::Error::Database(_))))
    }
}

/// Returns the error for a call that reached no server.
pub(super) fn unreachable_server(operation: &'static str) -> Error {
    let message = "the database cannot be reached; check that its server runs and responds, or raise \
                   `acquire_timeout_ms`";
    Error::new(ErrorKind::Unavailable, operation, message).with_outcome(Outcome::NotApplied)
}
