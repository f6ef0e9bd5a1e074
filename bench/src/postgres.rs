//! Conversations in Postgres, compared with `pgbench` on the same server.

use std::path::{Path, PathBuf};
use std::time::Instant;

use larder_kernel::{ChatMessage, Thread};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, Row};

use super::figure::{Figure, MORE, Subject, Target, Unit, in_rounds};
use super::history::{Beside, Conversations, Names};
use super::pgbench::Pgbench;
use super::window::micros_each;
use super::{Outcome, Plan, payload};

/// The variable that names the service.
pub(super) const VARIABLE: &str = "LARDER_POSTGRES_URL";

/// The settings that decide the cost of a commit.
const SETTINGS: &[&str] = &[
    "fsync",
    "synchronous_commit",
    "wal_sync_method",
    "full_page_writes",
    "wal_compression",
    "shared_buffers",
];

/// Opens a separate connection for the benchmark.
pub(super) async fn connect(url: &str) -> Outcome<PgConnection> {
    let options: PgConnectOptions = url.parse()?;
    Ok(options.disable_statement_logging().connect().await?)
}

/// Returns the server's version, and its settings in one line.
pub(super) async fn settings(connection: &mut PgConnection) -> Outcome<String> {
    let rows = sqlx::query(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = 'server_version' OR name = ANY($1)
         ORDER BY name <> 'server_version', array_position($1, name)",
    )
    .bind(SETTINGS)
    .fetch_all(connection)
    .await?;
    let mut settings = Vec::new();
    for row in &rows {
        settings.push(format!("{}={}", row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?));
    }
    Ok(settings.join(" "))
}

/// The peer's table, named after this process so that two runs do not conflict.
pub(super) struct PeerTable {
    name: String,
    append: PathBuf,
    /// An append that gives the message the next number of its thread, and counts.
    append_counted: PathBuf,
    /// The append to a separate thread per client.
    pub(super) append_own: PathBuf,
    last_50: PathBuf,
    /// The body that Larder writes for a message.
    pub(super) body: String,
}

impl PeerTable {
    pub(super) async fn create(connection: &mut PgConnection, scratch: &Path) -> Outcome<Self> {
        let name = format!("larder_bench_{}", std::process::id());
        // The body is text. pgbench reads all values as text, and bytes would double in size.
        let create = format!(
            "CREATE TABLE {name} (thread text NOT NULL, seq bigint NOT NULL, body text NOT NULL, \
             PRIMARY KEY (thread, seq));
             CREATE TABLE {name}_threads (thread text PRIMARY KEY, seq bigint NOT NULL, messages bigint NOT \
             NULL, \
             bytes bigint NOT NULL) WITH (fillfactor = 70);
             INSERT INTO {name}_threads VALUES ('counted', 0, 0, 0)"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(connection).await?;
        let script = |file: &str, text: String| {
            let path = scratch.join(file);
            std::fs::write(&path, text).map(|()| path)
        };
        Ok(Self {
            append: script(
                "append.sql",
                format!(
                    "\\set seq :seq + 1\nINSERT INTO {name} (thread, seq, body) VALUES (:thread, :seq, \
                     :body);\n"
                ),
            )?,
            append_counted: script(
                "append_counted.sql",
                format!(
                    "WITH t AS (UPDATE {name}_threads SET seq = seq + 1, messages = messages + 1, \
                     bytes = bytes + :bytes WHERE thread = 'counted' RETURNING seq) \
                     INSERT INTO {name} (thread, seq, body) SELECT 'counted', t.seq, :body FROM t RETURNING \
                     seq;\n"
                ),
            )?,
            append_own: script(
                "append_own.sql",
                format!(
                    "\\set seq :seq + 1\nINSERT INTO {name} (thread, seq, body) VALUES ('own-' || \
                     :client_id, :seq, :body);\n"
                ),
            )?,
            last_50: script(
                "last_50.sql",
                format!("SELECT seq, body FROM {name} WHERE thread = :thread ORDER BY seq DESC LIMIT 50;\n"),
            )?,
            name,
            body: serde_json::to_string(&ChatMessage::user(payload::text(0)))?,
        })
    }

    /// Reads the last 50 rows repeatedly, and returns the mean microseconds per read.
    async fn read_by_hand(&self, connection: &mut PgConnection, calls: u32) -> Outcome<f64> {
        let select =
            format!("SELECT seq, body FROM {} WHERE thread = $1 ORDER BY seq DESC LIMIT 50", self.name);
        let begun = Instant::now();
        for _ in 0..calls {
            let select = sqlx::query(sqlx::AssertSqlSafe(select.as_str())).bind("session");
            let rows = select.fetch_all(&mut *connection).await?;
            let mut messages = Vec::with_capacity(rows.len());
            for row in &rows {
                messages.push((row.try_get::<i64, _>(0)?, row.try_get::<String, _>(1)?));
            }
            if messages.len() != 50 {
                return Err(format!("a read of the last 50 rows returned {}", messages.len()).into());
            }
        }
        Ok(micros_each(begun, calls))
    }

    pub(super) async fn remove(&self, connection: &mut PgConnection) -> Outcome<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DROP TABLE {0}, {0}_threads", self.name)))
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// Append of one message, and the last 50.
pub(super) async fn history(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let pgbench = Pgbench::new(&url)?;
    let mut connection = connect(&url).await?;
    let settings = settings(&mut connection).await?;
    let mut conversations = Conversations::open(&url).await?;
    let table = PeerTable::create(&mut connection, &plan.scratch).await?;
    let figures =
        beside_pgbench(&mut connection, plan, &mut conversations, &pgbench, &table, &settings).await;
    // Removes the data after a failure, too.
    table.remove(&mut connection).await?;
    conversations.erase().await?;
    connection.close().await?;
    figures
}

/// Does the work of autovacuum for both sides: the planner gets the sizes of the tables.
async fn analyse(connection: &mut PgConnection, table: Option<&PeerTable>) -> Outcome<()> {
    let peer = table.map(|table| format!(", {}", table.name)).unwrap_or_default();
    let statement = format!("VACUUM (ANALYZE) larder.threads, larder.messages{peer}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

async fn beside_pgbench(
    connection: &mut PgConnection,
    plan: &Plan,
    conversations: &mut Conversations,
    pgbench: &Pgbench,
    table: &PeerTable,
    settings: &str,
) -> Outcome<Vec<Figure>> {
    let calls = plan.size(500, 100);
    let subject = |name, what: &str, peer: &str| Subject {
        name,
        what: format!("{what}, one caller"),
        peer: format!("{}, one client, {peer}", pgbench.name),
        settings: settings.to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(1.15)),
    };
    let append = async |round: usize| {
        let seq = (round * usize::try_from(calls)?).to_string();
        pgbench.micros(&table.append, calls, &[("thread", "session"), ("body", &table.body), ("seq", &seq)])
    };
    let last_50 = async |_| pgbench.micros(&table.last_50, calls, &[("thread", "session")]);
    let mut figures = super::history::beside(
        plan.rounds * MORE,
        conversations,
        calls,
        Beside {
            subject: subject(
                "postgres-append",
                "append of a 1 KB message",
                "prepared INSERT of one row of the same size",
            ),
            round: append,
        },
        async || analyse(connection, Some(table)).await,
        Beside {
            subject: subject(
                "postgres-last-50",
                "last 50 messages of 1 KB",
                "prepared SELECT of 50 rows of the same size",
            ),
            round: last_50,
        },
    )
    .await?;
    let bytes = table.body.len().to_string();
    let thread = Thread::new("bench", "counted")?;
    let counted = in_rounds(
        plan.rounds * MORE,
        async |_| conversations.append(&thread, calls).await,
        async |_| pgbench.micros(&table.append_counted, calls, &[("body", &table.body), ("bytes", &bytes)]),
    )
    .await?;
    let peer = "a prepared statement that updates the thread's counter and inserts a row of the same size";
    figures.insert(1, subject("postgres-append-counted", "append of a 1 KB message", peer).figure(&counted));
    let thread = Thread::new("bench", "session")?;
    let by_hand = in_rounds(
        plan.rounds * MORE,
        async |_| conversations.last_50(&thread, calls).await,
        async |_| table.read_by_hand(connection, calls).await,
    )
    .await?;
    let peer = "sqlx 0.9 in the same process, the raw prepared SELECT, without parsing the texts";
    let subject = subject("postgres-last-50-sqlx", "last 50 messages of 1 KB", "");
    figures.push(Subject { peer: peer.to_owned(), ..subject }.figure(&by_hand));
    Ok(figures)
}

/// The same in a thread of a hundred messages and in one of a million.
pub(super) async fn long_thread(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let mut connection = connect(&url).await?;
    let settings = settings(&mut connection).await?;
    let mut conversations = Conversations::open(&url).await?;
    let names = Names {
        backend: "Postgres",
        time: "postgres-append-long",
        bytes: "postgres-append-long-wal",
        read: "postgres-last-50-long",
        window: "postgres-window-long",
        log: "write-ahead log",
    };
    let written = async || {
        let select = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
        let position: i64 = sqlx::query_scalar(select).fetch_one(&mut connection).await?;
        Ok(u64::try_from(position).ok())
    };
    let mut other = connect(&url).await?;
    let settled = async || analyse(&mut other, None).await;
    let figures =
        super::history::long_thread(plan, &mut conversations, names, &settings, settled, written).await;
    conversations.erase().await?;
    connection.close().await?;
    figures
}
