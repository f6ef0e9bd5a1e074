//! The diagnosis of a server or a cluster. It changes no key.

mod checks;
mod sentinels;

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use larder_kernel::{Error, Outcome, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, Value};

use super::config::{Address, RedisConfig, Servers};
use super::decode;
use super::engine::{Connector, Info, parse_slots};
use super::failure::{Failure, Fallible};
use super::script::{FORMAT, formats};
use crate::diagnose::{Check, CheckStatus, Findings, LOGIN, REACH, clock, failed_to_connect, round_trip};
use checks::{connections, files, full, memory, password, replicas, survives, tls, version, writable};

const OPERATION: &str = "redis.diagnose";
const PINGS: u32 = 9;
const PING_SLOW: Duration = Duration::from_millis(20);
/// The number of slots of a whole cluster.
const SLOTS: u32 = 16_384;

const RIGHTS: &str = "a missing permission causes errors at run time";
const REPLICAS: &str = "a replica replaces a failed server, without the writes that it had not yet received";
const CLUSTER: &str = "a slot without a server rejects its keys";
const TOPOLOGY: &str = "one server is `redis:`, part of a cluster `redis+cluster:`, and a primary with \
                        sentinels `redis+sentinel:`";

const FORMATS: &str = "data of another format is refused, and left as it is";

/// A server that accepted the login.
struct Server {
    connection: MultiplexedConnection,
    name: String,
    info: String,
    settings: Vec<(String, String)>,
    this_machine: bool,
}

/// Diagnoses the server, or every server of the cluster that holds slots.
pub(crate) async fn diagnose(config: &RedisConfig, findings: &Findings) {
    let connector = match Connector::new(config.clone()).await {
        Ok(connector) => connector,
        Err(error) => return failed_to_connect(findings, &error),
    };
    let mut of_sentinels = None;
    let (seeds, clustered) = match &config.servers {
        Servers::Single(address, _) => (vec![address.clone()], false),
        Servers::Cluster(seeds) => (seeds.clone(), true),
        Servers::Sentinel { sentinels, name, .. } => {
            let found = sentinels::primary(&connector, sentinels, name, findings).await;
            let Some((primary, replicas)) = found else { return };
            of_sentinels = Some(replicas);
            (vec![primary], false)
        }
    };
    let (mut servers, mut failed) = (Vec::new(), Vec::new());
    for seed in seeds {
        match open(&connector, &seed).await {
            Ok(server) => servers.push((seed, server)),
            Err(error) => failed.push((seed, error)),
        }
    }
    let Some((asked, first)) = servers.first_mut() else {
        if let Some((_, error)) = failed.first() {
            failed_to_connect(findings, error);
        }
        return;
    };
    reached(&servers_named(&failed), findings);
    findings.add(topology(Info(&first.info).get("cluster_enabled") == Some("1"), clustered));
    if clustered {
        match holders(first, asked).await {
            Ok((holders, checks)) => {
                checks.into_iter().for_each(|check| findings.add(check));
                let known: Vec<Address> = servers.iter().map(|(address, _)| address.clone()).collect();
                servers.retain(|(address, _)| holders.contains(address));
                for address in holders.into_iter().filter(|holder| !known.contains(holder)) {
                    match open(&connector, &address).await {
                        Ok(server) => servers.push((address, server)),
                        Err(error) => failed_to_connect(findings, &error),
                    }
                }
            }
            Err(error) => findings.add(Check::unknown("cluster", &error, CLUSTER)),
        }
    }
    let newest = formats(FORMAT).newest;
    let seen = format!("format numbers {FORMAT} to {newest}, in each thread, bucket and board");
    findings.add(Check::ok("format", seen, FORMATS));
    let mut all = Vec::new();
    for (_, server) in servers {
        all.push((server.name.clone(), look(server, config, clustered, of_sentinels).await));
    }
    merge(all).into_iter().for_each(|check| findings.add(check));
}

fn servers_named(failed: &[(Address, Error)]) -> Vec<String> {
    failed.iter().map(|((host, port), error)| format!("{host}:{port} ({})", error.kind())).collect()
}

fn reached(missing: &[String], findings: &Findings) {
    if missing.is_empty() {
        findings.add(Check::ok("reach", "the server responds", REACH));
    } else {
        let advice = "start these servers or remove them from the URL; one reachable server is enough to \
                      find the \
             cluster";
        findings.add(Check::warn("reach", format!("no connection to {}", missing.join(", ")), REACH, advice));
    }
    findings.add(Check::ok("login", "the server accepts this user", LOGIN));
}

fn topology(part_of_cluster: bool, clustered: bool) -> Check {
    let name = "topology";
    match (part_of_cluster, clustered) {
        (true, false) => Check::fail(
            name,
            "part of a cluster",
            TOPOLOGY,
            "write `redis+cluster://` with some of its servers",
        ),
        (false, true) => Check::fail(name, "one server, no cluster", TOPOLOGY, "write `redis://`"),
        (true, true) => Check::ok(name, "a cluster", TOPOLOGY),
        (false, false) => Check::ok(name, "one server", TOPOLOGY),
    }
}

/// Connects as the stores do, but rejects no server for its settings.
async fn open(connector: &Connector, address: &Address) -> Result<Server> {
    let told = |failure: Failure| failure.into_error(OPERATION).with_outcome(Outcome::NotApplied);
    let client = connector.client(address, ProtocolVersion::RESP3).map_err(told)?;
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connector.config().connect_timeout))
        .set_response_timeout(Some(connector.config().response_timeout));
    let connecting = client.get_multiplexed_async_connection_with_config(&settings);
    let mut connection = Box::pin(connecting).await.map_err(|error| told(connector.explain(error)))?;
    let info =
        ask(&mut connection, &["INFO"]).await.and_then(|answer| Ok(decode::bytes(answer)?)).map_err(told)?;
    let names =
        ["CONFIG", "GET", "appendfsync", "no-appendfsync-on-rewrite", "maxclients", "min-replicas-to-write"];
    // Hosted servers often do not reveal their settings.
    let settings =
        ask(&mut connection, &names).await.and_then(|answer| Ok(decode::pairs(answer)?)).unwrap_or_default();
    let (host, port) = address;
    let this_machine = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let info = String::from_utf8_lossy(&info).into_owned();
    Ok(Server { connection, name: format!("{host}:{port}"), info, settings, this_machine })
}

async fn ask(connection: &mut MultiplexedConnection, words: &[&str]) -> Fallible<Value> {
    let mut command = Cmd::new();
    words.iter().for_each(|word| {
        command.arg(*word);
    });
    let answer = connection.send_packed_command(&command).await;
    answer.and_then(Value::extract_error).map_err(Failure::Sent)
}

/// Returns the servers that hold the cluster's slots, and the checks of the whole cluster.
async fn holders(server: &mut Server, asked: &Address) -> Result<(Vec<Address>, Vec<Check>)> {
    let told = |failure: Failure| failure.into_error(OPERATION);
    let slots = ask(&mut server.connection, &["CLUSTER", "SLOTS"]).await.map_err(told)?;
    let slots = parse_slots(slots, asked)?;
    let (holders, held) = slots.holders();
    let state = ask(&mut server.connection, &["CLUSTER", "INFO"]).await.map_err(told)?;
    let state = String::from_utf8_lossy(&decode::bytes(state)?).into_owned();
    let fine = Info(&state).get("cluster_state") == Some("ok") && held == SLOTS;
    let seen = format!("{} servers hold {held} of {SLOTS} slots", holders.len());
    let whole = if fine {
        Check::ok("cluster", format!("{seen}, its state is ok"), CLUSTER)
    } else {
        let advice = "run `redis-cli --cluster check` on one of its servers, and `--cluster fix` if the \
                      check reports \
             errors";
        Check::fail("cluster", format!("{seen}, its state is not ok"), CLUSTER, advice)
    };
    let replicas = if slots.replicated() {
        let advice = "expect a failover to lose the last writes: the stores declare no durability for it";
        Check::warn("replicas", "servers have replicas", REPLICAS, advice)
    } else {
        let advice = "add a replica to each server if the cluster must survive the loss of one; a failover \
                      may lose the last writes";
        Check::warn("replicas", "none: a server that fails makes its slots unavailable", REPLICAS, advice)
    };
    Ok((holders, vec![whole, replicas]))
}

/// Returns the checks of one server. `of_sentinels` is the number of replicas that sentinels have seen.
async fn look(
    mut server: Server,
    config: &RedisConfig,
    clustered: bool,
    of_sentinels: Option<u32>,
) -> Vec<Check> {
    let info = Info(&server.info);
    let mut checks = vec![version(&info), writable(&info), memory(&info)];
    checks.extend(full(&info));
    checks.push(survives(&info, &server.settings, of_sentinels));
    checks.push(files(&info));
    if of_sentinels.is_some() {
        checks.push(sentinels::replicas(&info));
    } else if !clustered {
        checks.push(replicas(&info));
    }
    checks.extend(connections(&info, &server.settings));
    checks.push(tls(config, server.this_machine));
    checks.extend(password(config, server.this_machine));
    checks.push(rights(&mut server.connection, config).await);
    checks.extend(times(&mut server.connection).await);
    checks
}

/// Checks permissions: queues commands in a transaction and discards it. The server rejects a forbidden
/// command when it is queued.
async fn rights(connection: &mut MultiplexedConnection, config: &RedisConfig) -> Check {
    // No store uses this key.
    let key = format!("{}doctor", config.key_prefix.as_str());
    // Without `MULTI`, the server would run the following commands.
    if let Err(failure) = ask(connection, &["MULTI"]).await {
        let error = failure.into_error(OPERATION);
        return Check::fail("rights", "transactions are refused", RIGHTS, error.message().to_owned());
    }
    let mut queue = Pipeline::new();
    queue.cmd("HSET").arg(&key).arg("a").arg("b");
    queue.cmd("DEL").arg(&key);
    queue.cmd("EVALSHA").arg("0".repeat(40)).arg(1).arg(&key);
    queue.cmd("PUBLISH").arg(&key).arg("");
    queue.cmd("DISCARD");
    let answers = match connection.send_packed_commands(&queue, 0, 5).await {
        Ok(answers) => answers,
        Err(error) => return Check::unknown("rights", &Failure::Sent(error).into_error(OPERATION), RIGHTS),
    };
    let refused = answers.into_iter().filter_map(|answer| answer.extract_error().err());
    // A cluster node that does not hold the key's slot redirects only users who may run the command.
    let refused: Vec<Error> = refused
        .filter(|error| error.code() == Some("NOPERM"))
        .map(|error| Failure::Sent(error).into_error(OPERATION))
        .collect();
    match refused.first() {
        None => Check::ok("rights", "the user can read, write, run scripts and publish", RIGHTS),
        Some(error) => {
            let seen = format!("{} of 4 kinds of commands are refused", refused.len());
            Check::fail("rights", seen, RIGHTS, error.message().to_owned())
        }
    }
}

async fn times(connection: &mut MultiplexedConnection) -> Vec<Check> {
    let mut took = Vec::new();
    for _ in 0..PINGS {
        let begun = Instant::now();
        if ask(connection, &["PING"]).await.is_ok() {
            took.push(begun.elapsed());
        }
    }
    let before = SystemTime::now();
    let told = ask(connection, &["TIME"]).await.ok().and_then(|answer| {
        let [seconds, micros] = decode::tuple(answer).ok()?;
        let (seconds, micros) = (decode::count(seconds).ok()?, decode::count(micros).ok()?);
        Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
    });
    let clock = told.map(|there| clock(there, before, Duration::ZERO));
    clock.into_iter().chain(round_trip(took, PING_SLOW)).collect()
}

/// Merges the checks of all servers: one check if all servers agree, otherwise one check for each server.
fn merge(all: Vec<(String, Vec<Check>)>) -> Vec<Check> {
    let several = all.len() > 1;
    let mut groups: Vec<(Check, Vec<String>)> = Vec::new();
    for (server, checks) in all {
        for check in checks {
            // Times differ a little between servers, so only a bad one gets its own line.
            let timed = |check: &Check| matches!(check.name, "latency" | "clock" | "memory" | "connections");
            let same = |(known, _): &&mut (Check, Vec<String>)| {
                known.name == check.name
                    && known.status == check.status
                    && (known.seen == check.seen || timed(&check) && check.status == CheckStatus::Ok)
            };
            match groups.iter_mut().find(same) {
                Some((_, servers)) => servers.push(server.clone()),
                None => groups.push((check, vec![server.clone()])),
            }
        }
    }
    // By name, in the order of first appearance.
    let mut names: Vec<&'static str> = groups.iter().map(|(check, _)| check.name).collect();
    let mut met = std::collections::HashSet::new();
    names.retain(|name| met.insert(*name));
    let place = |check: &Check| names.iter().position(|name| *name == check.name);
    groups.sort_by_key(|(check, _)| place(check));
    let told = |(mut check, servers): (Check, Vec<String>)| {
        if several {
            check.seen = format!("{}: {}", servers.join(", "), check.seen);
        }
        check
    };
    groups.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_servers_share_a_line() {
        let check = |seen: &str| Check::ok("eviction", seen, "why");
        let all = vec![
            ("a:1".to_owned(), vec![check("x"), Check::ok("latency", "1 ms", "why")]),
            ("b:2".to_owned(), vec![check("x"), Check::ok("latency", "2 ms", "why")]),
            ("c:3".to_owned(), vec![check("y"), Check::ok("latency", "3 ms", "why")]),
        ];
        let seen: Vec<String> = merge(all).into_iter().map(|check| check.seen).collect();
        assert_eq!(seen, ["a:1, b:2: x", "c:3: y", "a:1, b:2, c:3: 1 ms"]);
    }
}
