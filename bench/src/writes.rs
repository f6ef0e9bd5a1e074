//! A `write` of twelve keys under one condition, compared with one transaction written by hand for the same
//! keys on the same server or with the same settings.

use std::sync::Arc;
use std::time::Instant;

use larder::Stores;
use larder_kernel::{
    BucketName, Key, KeyValueCondition, KeyValuePutOptions, KeyValueStore, KeyValueWrite, Namespace, Revision,
};
use rusqlite::{Connection, TransactionBehavior, params};

use super::figure::{Figure, MORE, Subject, Target, Unit, in_rounds};
use super::postgres::{VARIABLE, connect, settings};
use super::window::micros_each;
use super::{Outcome, Plan, redis, sqlite};

/// The keys of a write.
const KEYS: usize = 12;
/// The size of a value in bytes.
const VALUE: usize = 512;
/// The greatest part of the peer's time that a write may take.
const TARGET: Target = Target::AtMost(1.3);

/// The bucket of one run: twelve keys, the first of which is at a known revision.
struct Writer {
    stores: Stores,
    store: Arc<dyn KeyValueStore>,
    bucket: BucketName,
    keys: Vec<Key>,
    head: Option<Revision>,
}

impl Writer {
    async fn open(url: &str) -> Outcome<Self> {
        let namespace = Namespace::new(format!("bench-writes-{}", std::process::id()))?;
        let stores = Stores::builder().namespace(namespace).url(url).open().await?;
        let keys = (0..KEYS).map(|number| Key::new(name(number))).collect::<larder_kernel::Result<_>>()?;
        let store = stores.set().key_value()?;
        Ok(Self { store, stores, bucket: BucketName::new("bench")?, keys, head: None })
    }

    /// Makes this number of writes, each at the revision of the one before, and returns the microseconds of
    /// one.
    async fn round(&mut self, calls: u32) -> Outcome<f64> {
        let begun = Instant::now();
        for call in 0..calls {
            let condition = match self.head {
                Some(head) => KeyValueCondition::AtRevision(head),
                None => KeyValueCondition::Absent,
            };
            let writes = self.keys.iter().enumerate().map(|(number, key)| {
                let condition = if number == 0 { condition } else { KeyValueCondition::None };
                let options = KeyValuePutOptions::default().with_condition(condition);
                KeyValueWrite::put(key.clone(), value(call), options)
            });
            let given = self.store.write(&self.bucket, writes.collect()).await?;
            self.head = given.first().copied().flatten();
        }
        Ok(micros_each(begun, calls))
    }
}

fn name(number: usize) -> String {
    format!("key-{number:02}")
}

fn value(call: u32) -> Vec<u8> {
    vec![b'a' + u8::try_from(call % 26).unwrap_or(0); VALUE]
}

fn subject(name: &'static str, peer: String, settings: String) -> Subject {
    Subject {
        name,
        what: format!("write of {KEYS} keys of {VALUE} bytes at a revision, one caller"),
        peer,
        settings,
        unit: Unit::Micros,
        target: Some(TARGET),
    }
}

/// SQLite: the peer checks the version of the first key, and replaces the rows.
pub(super) async fn sqlite(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = format!("sqlite:{}?synchronous=full", plan.scratch.join("writes.db").display());
    let mut writer = Writer::open(&url).await?;
    let mut peer = Connection::open(plan.scratch.join("writes-plain.db"))?;
    peer.execute_batch(
        "PRAGMA journal_mode = wal; PRAGMA synchronous = full;
         CREATE TABLE entries (bucket TEXT, key TEXT, version INTEGER NOT NULL, value BLOB NOT NULL,
            PRIMARY KEY (bucket, key));",
    )?;
    let calls = plan.size(300, 50);
    let rounds =
        in_rounds(plan.rounds, async |_| writer.round(calls).await, async |_| by_hand(&mut peer, calls))
            .await?;
    let peer = format!("SQLite {}, one transaction of {KEYS} prepared upserts", rusqlite::version());
    Ok(vec![subject("sqlite-write-12", peer, sqlite::SETTINGS.to_owned()).figure(&rounds)])
}

fn by_hand(connection: &mut Connection, calls: u32) -> Outcome<f64> {
    let begun = Instant::now();
    for call in 0..calls {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut select = transaction
                .prepare_cached("SELECT max(version) FROM entries WHERE bucket = 'bench' AND key = ?1")?;
            let version: Option<i64> = select.query_row([name(0)], |row| row.get(0))?;
            let mut upsert = transaction.prepare_cached(
                "INSERT INTO entries VALUES ('bench', ?1, ?2, ?3) ON CONFLICT (bucket, key)
                 DO UPDATE SET version = excluded.version, value = excluded.value",
            )?;
            for number in 0..KEYS {
                upsert.execute(params![name(number), version.unwrap_or(0) + 1, value(call)])?;
            }
        }
        transaction.commit()?;
    }
    Ok(micros_each(begun, calls))
}

/// Postgres: the peer sends one statement, which is a transaction.
pub(super) async fn postgres(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(VARIABLE)?;
    let mut writer = Writer::open(&url).await?;
    let mut connection = connect(&url).await?;
    let table = format!("larder_bench_writes_{}", std::process::id());
    let create = format!(
        "CREATE TABLE {table} (bucket text COLLATE \"C\", key text COLLATE \"C\", version bigint NOT NULL, \
         value bytea NOT NULL, PRIMARY KEY (bucket, key))"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut connection).await?;
    let upsert = format!(
        "WITH head AS (SELECT version FROM {table} WHERE bucket = 'bench' AND key = $1 FOR UPDATE)
         INSERT INTO {table}
         SELECT 'bench', given.key, coalesce((SELECT version FROM head), 0) + 1, given.value
         FROM unnest($2::text[], $3::bytea[]) AS given (key, value)
         ON CONFLICT (bucket, key) DO UPDATE SET version = excluded.version, value = excluded.value"
    );
    let keys: Vec<String> = (0..KEYS).map(name).collect();
    let calls = plan.size(200, 40);
    let peer = async |_| {
        let begun = Instant::now();
        for call in 0..calls {
            sqlx::query(sqlx::AssertSqlSafe(upsert.as_str()))
                .bind(&keys[0])
                .bind(&keys)
                .bind(vec![value(call); KEYS])
                .execute(&mut connection)
                .await?;
        }
        Ok(micros_each(begun, calls))
    };
    let rounds = in_rounds(plan.rounds * MORE, async |_| writer.round(calls).await, peer).await;
    let settings = settings(&mut connection).await?;
    // Removes the data after a failure, too.
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DROP TABLE {table}"))).execute(&mut connection).await?;
    writer.stores.erase().await?;
    let peer = format!("sqlx, one statement that upserts {KEYS} rows from arrays");
    Ok(vec![subject("postgres-write-12", peer, settings).figure(&rounds?)])
}

/// The peer's script: checks the version, and replaces the fields.
const SCRIPT: &str = "local version = redis.call('HGET', KEYS[1], 'version') or '0'
    if version ~= ARGV[1] then return redis.error_reply('CONFLICT') end
    redis.call('HSET', KEYS[1], 'version', version + 1)
    for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
    return version + 1";

/// Redis: the peer runs a script that it wrote for these keys.
pub(super) async fn redis(plan: &Plan) -> Outcome<Vec<Figure>> {
    let url = plan.url(redis::VARIABLE)?;
    let mut writer = Writer::open(&url).await?;
    let mut connection = ::redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let (script, place) = (::redis::Script::new(SCRIPT), format!("{{larder-bench-{}}}", std::process::id()));
    let (meta, values) = (format!("{place}:meta"), format!("{place}:values"));
    let (calls, mut version) = (plan.size(500, 50), 0_u64);
    let peer = async |_| {
        let begun = Instant::now();
        for call in 0..calls {
            let mut run = script.prepare_invoke();
            run.key(&meta).key(&values).arg(version);
            for number in 0..KEYS {
                run.arg(name(number)).arg(value(call));
            }
            version = run.invoke_async(&mut connection).await?;
        }
        Ok(micros_each(begun, calls))
    };
    let rounds = in_rounds(plan.rounds * MORE, async |_| writer.round(calls).await, peer).await;
    let () = ::redis::cmd("DEL").arg(&meta).arg(&values).query_async(&mut connection).await?;
    writer.stores.erase().await?;
    let peer = format!("a script of {KEYS} HSET and one counter, over the same client library");
    Ok(vec![subject("redis-write-12", peer, String::new()).figure(&rounds?)])
}
