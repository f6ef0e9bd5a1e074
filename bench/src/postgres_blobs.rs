//! Blobs in Postgres, compared with large objects and with plain rows on the same server.

use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use larder_kernel::BlobKey;
use sqlx::{Connection, PgConnection};

use super::blobs::{Blobs, rate};
use super::figure::{Figure, MORE, Subject, Target, Unit, in_rounds, in_turns};
use super::pgbench::Pgbench;
use super::postgres::{VARIABLE, connect, settings};
use super::window::micros_each;
use super::{Outcome, Plan, payload};

/// The number of small blobs, which the calls use in turns.
const KEYS: u32 = 100;
const SMALL_BYTES: usize = 1_024;

/// Put and get of a large blob and of small ones.
pub(super) async fn blobs(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let pgbench = Pgbench::new(&url)?;
    let mut connection = connect(&url).await?;
    let settings = settings(&mut connection).await?;
    let larder = Blobs::open(&url, &format!("bench-{}", std::process::id())).await?;
    let peer = Peer::create(&mut connection, &plan.scratch).await?;
    let large = large(plan, &mut connection, &larder, &pgbench, &settings).await;
    let small = small(plan, &larder, &pgbench, &peer, &settings).await;
    // Removes the data after a failure, too.
    peer.remove(&mut connection).await?;
    larder.erase().await?;
    connection.close().await?;
    let mut figures = large?;
    figures.extend(small?);
    Ok(figures)
}

/// A large blob, compared with a large object.
async fn large(
    plan: &Plan,
    connection: &mut PgConnection,
    larder: &Blobs,
    psql: &Pgbench,
    settings: &str,
) -> Outcome<Vec<Figure>> {
    let mebibytes = plan.size(64, 16);
    let bytes = payload::blob(mebibytes);
    let (file, copy) = (plan.scratch.join("large.blob"), plan.scratch.join("large.copy"));
    std::fs::write(&file, &bytes)?;
    let subject = |name, what: &str, peer: &str| Subject {
        name,
        what: format!("{what} of {mebibytes} MiB as a stream"),
        peer: format!("psql, a large object, {peer}"),
        settings: settings.to_owned(),
        unit: Unit::MebiBytesPerSecond,
        // In terms of throughput: the time may be 1.25 times the peer's.
        target: Some(Target::AtLeast(0.8)),
    };
    let mut objects = Vec::new();
    let puts = in_turns(
        plan,
        async |_| larder.put(&bytes).await,
        async |_| {
            let begun = Instant::now();
            let said = psql.psql(&format!("\\lo_import {}", file.display()))?;
            objects.push(said.trim().trim_start_matches("lo_import ").to_owned());
            Ok(rate(bytes.len(), begun))
        },
    )
    .await;
    let object = objects.first().cloned().unwrap_or_default();
    let gets = in_turns(
        plan,
        async |_| larder.get(bytes.len()).await,
        async |_| {
            let begun = Instant::now();
            psql.psql(&format!("\\lo_export {object} {}", copy.display()))?;
            Ok(rate(bytes.len(), begun))
        },
    )
    .await;
    for object in &objects {
        let unlink = sqlx::query("SELECT lo_unlink($1::text::oid)").bind(object);
        unlink.execute(&mut *connection).await?;
    }
    Ok(vec![
        subject("postgres-blob-put", "put", "`lo_import`").figure(&puts?),
        subject("postgres-blob-get", "get", "`lo_export`").figure(&gets?),
    ])
}

/// The table of the peer, and the scripts of its writes and reads.
struct Peer {
    table: String,
    put: PathBuf,
    get: PathBuf,
}

impl Peer {
    async fn create(connection: &mut PgConnection, scratch: &Path) -> Outcome<Self> {
        let table = format!("larder_bench_blobs_{}", std::process::id());
        // The body is text. pgbench reads all values as text, and bytes would double in size.
        let create = format!(
            "CREATE TABLE {table} (key text PRIMARY KEY, body text NOT NULL);
             INSERT INTO {table} SELECT 'k' || number, '' FROM generate_series(1, {KEYS}) number"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(connection).await?;
        let script = |file: &str, text: String| {
            let path = scratch.join(file);
            std::fs::write(&path, text).map(|()| path)
        };
        Ok(Self {
            put: script(
                "blob_put.sql",
                format!(
                    "\\set k random(1, {KEYS})\nINSERT INTO {table} (key, body) VALUES ('k' || :k, :body) \
                     ON CONFLICT (key) DO UPDATE SET body = excluded.body;\n"
                ),
            )?,
            get: script(
                "blob_get.sql",
                format!("\\set k random(1, {KEYS})\nSELECT body FROM {table} WHERE key = 'k' || :k;\n"),
            )?,
            table,
        })
    }

    async fn remove(&self, connection: &mut PgConnection) -> Outcome<()> {
        let remove = format!("DROP TABLE {}", self.table);
        sqlx::raw_sql(sqlx::AssertSqlSafe(remove)).execute(connection).await?;
        Ok(())
    }
}

/// Small blobs, compared with rows of the same size.
async fn small(
    plan: &Plan,
    larder: &Blobs,
    pgbench: &Pgbench,
    peer: &Peer,
    settings: &str,
) -> Outcome<Vec<Figure>> {
    let calls = plan.size(500, 100);
    let body = payload::text(0);
    let body: String = body.chars().filter(char::is_ascii_alphanumeric).cycle().take(SMALL_BYTES).collect();
    let bytes = Bytes::from(body.clone());
    let keys: Vec<BlobKey> = (1..=KEYS).map(|k| BlobKey::new(format!("k{k}"))).collect::<Result<_, _>>()?;
    let subject = |name, what: &str, peer: &str| Subject {
        name,
        what: format!("{what} of a 1 KB blob, one caller"),
        peer: format!("{}, one client, {peer}", pgbench.name),
        settings: settings.to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(1.25)),
    };
    let puts = in_rounds(
        plan.rounds * MORE,
        async |_| {
            let begun = Instant::now();
            for key in keys.iter().cycle().take(usize::try_from(calls)?) {
                larder.put_small(key, &bytes).await?;
            }
            Ok(micros_each(begun, calls))
        },
        async |_| pgbench.micros(&peer.put, calls, &[("body", &body)]),
    )
    .await?;
    let gets = in_rounds(
        plan.rounds * MORE,
        async |_| {
            let begun = Instant::now();
            for key in keys.iter().cycle().take(usize::try_from(calls)?) {
                larder.get_small(key, SMALL_BYTES).await?;
            }
            Ok(micros_each(begun, calls))
        },
        async |_| pgbench.micros(&peer.get, calls, &[]),
    )
    .await?;
    Ok(vec![
        subject("postgres-blob-put-1k", "put", "prepared INSERT with ON CONFLICT DO UPDATE of one row")
            .figure(&puts),
        subject("postgres-blob-get-1k", "get", "prepared SELECT of one row").figure(&gets),
    ])
}
