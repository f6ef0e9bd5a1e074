//! The diagnosis of a database. It neither creates nor upgrades anything.

use std::time::{Duration, Instant, SystemTime};

use larder_kernel::Result;
use sqlx::{Connection, PgConnection, Row};

use super::config::{Migrate, PostgresConfig, is_this_machine};
use super::engine::{SERVER_VERSION_MIN, Session, establish, within};
use super::failure::Fallible;
use super::schema::{self, Schema};
use super::session::Mode;
use super::vector::is_new_enough;
use crate::diagnose::{Check, Findings, LOGIN, REACH, clock, failed_to_connect, round_trip};

pub(crate) const OPERATION: &str = "postgres.diagnose";
/// The advised minimum version. Older servers work, but are near the end of their support.
const SERVER_VERSION_ADVISED: i32 = 150_000;
/// The time limit of a query.
const STATEMENT_MAX: Duration = Duration::from_secs(5);
const PINGS: u32 = 9;
const PING_SLOW: Duration = Duration::from_millis(20);

const VERSION: &str = "the schema needs PostgreSQL 14, and unsupported versions get no fixes";
const ENCODING: &str = "texts are UTF-8, and other encodings reject some of them";
const WRITABLE: &str = "the stores need to write";
const SCHEMA: &str = "opening creates or upgrades the schema `larder`, and refuses one that is too old or \
                      newer than this \
     program";
const RIGHTS: &str = "a missing permission causes errors at run time";
const VECTORS: &str = "pgvector stores and searches the vectors; the other contracts do not need it";
const DURABLE: &str = "determines what an acknowledged write survives";
const SUMS: &str = "without checksums, silent disk corruption is not detected";
const USER: &str = "a compromised program has the permissions of its user";
const CONNECTIONS: &str = "a server without a free connection rejects the program";
const POOLER: &str = "a pooler in transaction mode changes the server connection between transactions";
const TLS: &str = "without TLS, anyone on the network can read and change the stored data";

/// Diagnoses the database and returns the connection for further queries.
pub(crate) async fn diagnose(config: &PostgresConfig, vectors: bool, findings: &Findings) -> Option<Session> {
    let mut session = match connect(config).await {
        Ok(session) => session,
        Err(error) => {
            failed_to_connect(findings, &error);
            return None;
        }
    };
    findings.add(Check::ok("reach", "the server responds", REACH));
    findings.add(Check::ok("login", "the server accepts this user", LOGIN));
    findings.add(pooler(session.mode));
    let s = &mut session;
    // Only queries and no session settings: behind a pooler, other programs would inherit the settings.
    let writable = add(findings, "writable", WRITABLE, writable(s.question().await)).await;
    add(findings, "server_version", VERSION, server(s.question().await)).await;
    let there = add(findings, "schema", SCHEMA, version(s.question().await, config.migrate)).await;
    add(findings, "rights", RIGHTS, rights(s.question().await, there.is_some())).await;
    if vectors {
        add(findings, "pgvector", VECTORS, pgvector(s.question().await)).await;
    }
    add(findings, "durability", DURABLE, durability(s.question().await)).await;
    add(findings, "superuser", USER, user(s.question().await)).await;
    add(findings, "connections", CONNECTIONS, connections(s.question().await, config.pool_size)).await;
    add(findings, "tls", TLS, tls(s.question().await, is_this_machine(&config.connect))).await;
    add(findings, "clock", REACH, times(s.question().await)).await;
    writable.map(|()| session)
}

/// Connects as the stores do, in a single attempt.
async fn connect(config: &PostgresConfig) -> Result<Session> {
    let config = PostgresConfig {
        statement_timeout: STATEMENT_MAX,
        lock_timeout: STATEMENT_MAX,
        idle_in_transaction_timeout: STATEMENT_MAX,
        ..config.clone()
    };
    let connected = within(config.acquire_timeout, OPERATION, establish(&config)).await?;
    connected.map_err(|failure| failure.into_error(OPERATION))
}

/// Returns the check of a pooler between the program and the server.
fn pooler(mode: Mode) -> Check {
    match mode {
        Mode::Direct => Check::ok("pooler", "none, or one that keeps sessions", POOLER),
        Mode::Pooled => Check::warn(
            "pooler",
            "a pooler in transaction mode: each call is a transaction of several round trips, changes are \
             found by polling, and no index is built",
            POOLER,
            "name the server itself for fewer round trips and notifications",
        ),
    }
}

/// Adds the check of a query and returns its result. A failed query adds a check of the failure and returns
/// `None`.
pub(crate) async fn add(
    findings: &Findings,
    name: &'static str,
    why: &'static str,
    question: impl Future<Output = Fallible<Vec<Check>>>,
) -> Option<()> {
    let answer: Result<Vec<Check>> = match within(STATEMENT_MAX, OPERATION, question).await {
        Ok(answer) => answer.map_err(|failure| failure.into_error(OPERATION)),
        Err(error) => Err(error),
    };
    match answer {
        Ok(checks) => {
            checks.into_iter().for_each(|check| findings.add(check));
            Some(())
        }
        Err(error) => {
            findings.add(Check::unknown(name, &error, why));
            None
        }
    }
}

async fn writable(connection: &mut PgConnection) -> Fallible<Vec<Check>> {
    let row =
        sqlx::query("SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool")
            .fetch_one(connection)
            .await?;
    let check = match (row.try_get(0)?, row.try_get(1)?) {
        (true, _) => {
            let advice = "name the primary server, for reads too, because a standby lags behind";
            Check::fail("writable", "the server is a standby", WRITABLE, advice)
        }
        (false, true) => {
            let advice =
                "unset `default_transaction_read_only` for the user and the database, or name another user";
            Check::fail("writable", "sessions are read-only", WRITABLE, advice)
        }
        (false, false) => Check::ok("writable", "the primary server; sessions can write", WRITABLE),
    };
    Ok(vec![check])
}

async fn server(connection: &mut PgConnection) -> Fallible<Vec<Check>> {
    let row =
        sqlx::query("SELECT current_setting('server_version_num')::int, current_setting('server_encoding')")
            .fetch_one(connection)
            .await?;
    let (number, encoding): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    let seen = format!("PostgreSQL {}.{}", number / 10_000, number % 10_000);
    let version = if number < SERVER_VERSION_MIN {
        Check::fail("server_version", seen, VERSION, "upgrade the server to PostgreSQL 15 or newer")
    } else if number < SERVER_VERSION_ADVISED {
        Check::warn("server_version", seen, VERSION, "plan the upgrade to PostgreSQL 15 or newer")
    } else {
        Check::ok("server_version", seen, VERSION)
    };
    let encoding = if encoding == "UTF8" {
        Check::ok("encoding", "UTF8", ENCODING)
    } else {
        Check::fail("encoding", "not UTF8", ENCODING, "create a database with `ENCODING 'UTF8'`")
    };
    Ok(vec![version, encoding])
}

async fn version(connection: &mut PgConnection, migrate: Migrate) -> Fallible<Vec<Check>> {
    let (found, formats) = (schema::version(connection).await?, Schema::CURRENT.formats());
    let seen = if found == 0 {
        "none yet".to_owned()
    } else {
        format!("version {found} of {newest}, format number {found}", newest = formats.newest)
    };
    let check = match migrate {
        _ if found > formats.newest => {
            let seen = format!("{seen}: newer than this program supports");
            Check::fail("schema", seen, SCHEMA, formats.message(found))
        }
        _ if found == formats.newest => Check::ok("schema", seen, SCHEMA),
        _ if found != 0 && found < formats.oldest => {
            Check::fail("schema", format!("{seen}: too old"), SCHEMA, formats.message(found))
        }
        Migrate::Check => {
            let advice = "back the database up, then open it once with `migrate=auto`";
            Check::fail("schema", format!("{seen}, and the URL says `migrate=check`"), SCHEMA, advice)
        }
        Migrate::Auto if found == 0 => Check::warn(
            "schema",
            seen,
            SCHEMA,
            "nothing if the database is new, because opening creates the schema; otherwise check its name",
        ),
        Migrate::Auto => {
            let advice = "back the database up, then open it once with this version; older programs refuse \
                          it afterwards";
            Check::warn("schema", format!("{seen}: older"), SCHEMA, advice)
        }
    };
    Ok(vec![check])
}

async fn rights(connection: &mut PgConnection, known: bool) -> Fallible<Vec<Check>> {
    if !known || schema::version(connection).await? == 0 {
        let may: bool = sqlx::query_scalar("SELECT has_database_privilege(current_database(), 'CREATE')")
            .fetch_one(connection)
            .await?;
        return Ok(vec![if may {
            Check::ok("rights", "the user can create the schema", RIGHTS)
        } else {
            let advice = "grant the user `CREATE` on the database, or open it once as another user";
            Check::fail("rights", "the user cannot create the schema", RIGHTS, advice)
        }]);
    }
    let row = sqlx::query(
        "SELECT has_schema_privilege('larder', 'USAGE'),
                count(*) FILTER (WHERE NOT has_table_privilege(c.oid, 'SELECT')),
                count(*) FILTER (WHERE NOT (has_table_privilege(c.oid, 'INSERT') AND \
                has_table_privilege(c.oid, 'UPDATE')
                    AND has_table_privilege(c.oid, 'DELETE')))
         FROM pg_catalog.pg_class c WHERE c.relnamespace = 'larder'::regnamespace AND c.relkind IN ('r', \
         'p')",
    )
    .fetch_one(connection)
    .await?;
    let advice = "grant the user `USAGE` on the schema `larder` and all rights on its tables and sequences";
    let (usage, unread, unwritten): (bool, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok(vec![match (usage, unread, unwritten) {
        (true, 0, 0) => Check::ok("rights", "the user can read and write every table", RIGHTS),
        (true, 0, _) => {
            Check::fail("rights", format!("the user cannot write {unwritten} of the tables"), RIGHTS, advice)
        }
        (false, ..) => Check::fail("rights", "the user cannot use the schema", RIGHTS, advice),
        _ => Check::fail("rights", format!("the user cannot read {unread} of the tables"), RIGHTS, advice),
    }])
}

async fn pgvector(connection: &mut PgConnection) -> Fallible<Vec<Check>> {
    let row = sqlx::query(
        "SELECT (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector'),
                (SELECT default_version FROM pg_catalog.pg_available_extensions WHERE name = 'vector')",
    )
    .fetch_one(connection)
    .await?;
    let (installed, available): (Option<String>, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(vec![match (installed, available) {
        (Some(version), _) if !is_new_enough(&version) => {
            let advice = "install 0.8.0 or newer on the server and run `ALTER EXTENSION vector UPDATE`";
            Check::warn("pgvector", format!("{version}, too old for vectors"), VECTORS, advice)
        }
        (Some(version), _) => Check::ok("pgvector", version, VECTORS),
        (None, Some(version)) if is_new_enough(&version) => {
            let seen = format!("{version} on the server, not yet in the database");
            let advice = "nothing, where the user may: opening vectors runs `CREATE EXTENSION vector`";
            Check::warn("pgvector", seen, VECTORS, advice)
        }
        (None, _) => {
            let advice = "install pgvector 0.8.0 or newer on the server if you need vectors";
            Check::warn("pgvector", "missing on the server, or too old", VECTORS, advice)
        }
    }])
}

async fn durability(connection: &mut PgConnection) -> Fallible<Vec<Check>> {
    let row = sqlx::query(
        "SELECT current_setting('fsync')::bool, current_setting('synchronous_commit'),
                current_setting('full_page_writes')::bool, current_setting('data_checksums')::bool",
    )
    .fetch_one(connection)
    .await?;
    let (fsync, commit, pages): (bool, String, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let on = |set: bool| if set { "on" } else { "off" };
    let known =
        ["on", "off", "local", "remote_write", "remote_apply"].into_iter().find(|word| *word == commit);
    let commit = known.unwrap_or("unknown");
    let seen = format!("fsync {}, synchronous_commit {commit}, full_page_writes {}", on(fsync), on(pages));
    let kept = if !fsync || !pages {
        let advice = "set `fsync = on` and `full_page_writes = on`: without them the loss of power can \
                      destroy the database";
        Check::fail("durability", seen, DURABLE, advice)
    } else if commit == "off" {
        let advice =
            "set `synchronous_commit = on`: without it the last writes are lost when the server dies";
        Check::warn("durability", seen, DURABLE, advice)
    } else {
        Check::ok("durability", seen, DURABLE)
    };
    let sums = if row.try_get(3)? {
        Check::ok("checksums", "on", SUMS)
    } else {
        Check::warn(
            "checksums",
            "off",
            SUMS,
            "enable them with `pg_checksums --enable` while the server is stopped",
        )
    };
    Ok(vec![kept, sums])
}

async fn user(connection: &mut PgConnection) -> Fallible<Vec<Check>> {
    let superuser: bool =
        sqlx::query_scalar("SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user")
            .fetch_one(connection)
            .await?;
    Ok(vec![if superuser {
        let advice = "create a user for the program that owns only the schema `larder`";
        Check::warn("superuser", "the user is a superuser", USER, advice)
    } else {
        Check::ok("superuser", "the user is not a superuser", USER)
    }])
}

async fn connections(connection: &mut PgConnection, pool_size: u32) -> Fallible<Vec<Check>> {
    let row = sqlx::query(
        "SELECT current_setting('max_connections')::bigint - \
         current_setting('superuser_reserved_connections')::bigint,
                (SELECT sum(numbackends) FROM pg_catalog.pg_stat_database)::bigint,
                (SELECT rolconnlimit::bigint FROM pg_catalog.pg_roles WHERE rolname = current_user),
                (SELECT datconnlimit::bigint FROM pg_catalog.pg_database WHERE datname = current_database())",
    )
    .fetch_one(connection)
    .await?;
    let (most, used): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let limits: (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
    let most = [limits.0, limits.1].into_iter().filter(|limit| *limit >= 0).fold(most, i64::min);
    // One more connection listens while subscriptions exist.
    let wanted = i64::from(pool_size) + 1;
    let seen = format!("{used} of {most} in use; this program takes up to {wanted}");
    Ok(vec![if wanted > most {
        let advice = "lower `pool_size`, or raise `max_connections` or the limit of the user or the database";
        Check::fail("connections", seen, CONNECTIONS, advice)
    } else if wanted > most.saturating_sub(used) {
        let advice =
            "lower `pool_size`, raise the server's limit, or use a connection pooler in session mode";
        Check::warn("connections", seen, CONNECTIONS, advice)
    } else {
        Check::ok("connections", seen, CONNECTIONS)
    }])
}

async fn tls(connection: &mut PgConnection, this_machine: bool) -> Fallible<Vec<Check>> {
    let row = sqlx::query("SELECT ssl, version FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid()")
        .fetch_optional(connection)
        .await?;
    let version: Option<String> = match &row {
        Some(row) if row.try_get(0)? => row.try_get(1)?,
        _ => None,
    };
    Ok(vec![match (version, this_machine) {
        (Some(version), _) => Check::ok("tls", version, TLS),
        (None, true) => Check::ok("tls", "none, within this machine", TLS),
        (None, false) => {
            let advice =
                "enable TLS on the server, and remove `sslmode` from the URL or set it to `verify-full`";
            Check::warn("tls", "none, over a network", TLS, advice)
        }
    }])
}

async fn times(connection: &mut PgConnection) -> Fallible<Vec<Check>> {
    let mut took = Vec::new();
    for _ in 0..PINGS {
        let begun = Instant::now();
        sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&mut *connection).await?;
        took.push(begun.elapsed());
    }
    let before = SystemTime::now();
    let micros: i64 = sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        .fetch_one(connection)
        .await?;
    let there = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    let mut checks = vec![clock(there, before, Duration::ZERO)];
    checks.extend(round_trip(took, PING_SLOW));
    Ok(checks)
}

/// Closes the connection with a goodbye to the server, within a short time limit.
pub(crate) async fn close(mut session: Session) {
    let goodbye = async {
        session.question().await;
        sqlx::raw_sql("ROLLBACK").execute(&mut session.connection).await?;
        session.connection.close().await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), goodbye).await;
}
