//! The checks of one server, from its `INFO` and its settings.

use larder_kernel::Durability;

use super::super::config::RedisConfig;
use super::super::engine::{Info, SERVER_VERSION_MAJOR_MIN, durability, replicated};
use crate::diagnose::Check;

const VERSION: &str = "the scripts need Redis 7.0";
const WRITABLE: &str = "the stores need to write, and a replica rejects writes";
const MEMORY: &str = "a full server evicts keys or rejects writes";
const DURABLE: &str = "determines what an acknowledged write survives";
const DISK: &str = "a server that cannot write its files loses its data when it stops";
const REPLICAS: &str = "a replica replaces a failed server, without the writes that it had not yet received";
const CONNECTIONS: &str = "a server without a free connection rejects the program";
const TLS: &str = "without TLS, anyone on the network can read and change the stored data and the password";

pub(super) fn number(info: &Info<'_>, name: &str) -> u64 {
    info.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub(super) fn version(info: &Info<'_>) -> Check {
    let numbers = |name| -> Vec<u64> {
        info.get(name).unwrap_or_default().split('.').map_while(|n| n.parse().ok()).collect()
    };
    // Valkey also reports the version of Redis with which it is compatible.
    let (product, own) = match numbers("valkey_version") {
        own if own.is_empty() => ("Redis", numbers("redis_version")),
        own => ("Valkey", own),
    };
    let shown: Vec<String> = own.iter().map(u64::to_string).collect();
    let seen = format!("{product} {}", shown.join("."));
    if numbers("redis_version").first().copied().unwrap_or(0) < SERVER_VERSION_MAJOR_MIN {
        Check::fail("server_version", seen, VERSION, "upgrade the server to Redis 7.0 or newer")
    } else {
        Check::ok("server_version", seen, VERSION)
    }
}

pub(super) fn writable(info: &Info<'_>) -> Check {
    if number(info, "loading") == 1 {
        let advice = "wait until the server has loaded its files";
        return Check::fail("writable", "the server is reading its files", WRITABLE, advice);
    }
    match info.get("role") {
        Some("master") => Check::ok("writable", "the primary server", WRITABLE),
        _ => Check::fail("writable", "the server is a replica", WRITABLE, "name the primary server"),
    }
}

pub(super) fn memory(info: &Info<'_>) -> Check {
    let (most, keeps) = (number(info, "maxmemory"), info.get("maxmemory_policy") == Some("noeviction"));
    let advice = "set `maxmemory-policy noeviction`, and `maxmemory` below the machine's memory";
    match (most, keeps) {
        (0, true) => Check::ok("eviction", "no limit, noeviction", MEMORY),
        (0, false) => {
            Check::warn("eviction", "no limit, and with a limit the server would evict keys", MEMORY, advice)
        }
        (_, true) => {
            Check::ok("eviction", "noeviction: a full server rejects writes and keeps its keys", MEMORY)
        }
        (_, false) => {
            Check::fail("eviction", "the server evicts keys when its memory is full", MEMORY, advice)
        }
    }
}

pub(super) fn full(info: &Info<'_>) -> Option<Check> {
    let (used, most) = (number(info, "used_memory"), number(info, "maxmemory"));
    let percent = used.saturating_mul(100).checked_div(most)?;
    let seen = format!("{percent} % of maxmemory in use");
    let advice = "raise `maxmemory`, erase data, or use a cluster";
    Some(match percent {
        ..80 => Check::ok("memory", seen, MEMORY),
        80..95 => Check::warn("memory", seen, MEMORY, advice),
        _ => Check::fail("memory", seen, MEMORY, advice),
    })
}

/// With sentinels, the durability is that of a primary which one of the replicas that they have seen may
/// replace.
pub(super) fn survives(info: &Info<'_>, settings: &[(String, String)], of_sentinels: Option<u32>) -> Check {
    let setting = |name: &str| settings.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value);
    let log = info.get("aof_enabled") == Some("1");
    let flush = setting("appendfsync")
        .and_then(|flush| ["always", "everysec", "no"].into_iter().find(|word| *word == flush));
    let of_files = durability(log, flush, setting("no-appendfsync-on-rewrite"));
    let files = format!(
        "appendonly {}, appendfsync {}",
        if log { "yes" } else { "no" },
        flush.unwrap_or("cannot be read")
    );
    if let Some(seen) = of_sentinels {
        let needed = setting("min-replicas-to-write").and_then(|text| text.parse().ok()).unwrap_or(0);
        let connected = u32::try_from(number(info, "connected_slaves")).unwrap_or(u32::MAX);
        let replicas = connected.max(seen);
        let survives = replicated(of_files, needed, replicas);
        let seen = format!("{files}, min-replicas-to-write {needed}, {replicas} replicas: {survives}");
        let advice = "set `min-replicas-to-write` to the number of replicas, `appendonly yes` and \
                      `appendfsync always` on every server, or store only data that a failover may lose";
        return match survives {
            Durability::None => Check::warn("durability", seen, DURABLE, advice),
            _ => Check::ok("durability", seen, DURABLE),
        };
    }
    let (survives, seen) = (of_files, format!("{files}: {of_files}"));
    let advice = "set `appendonly yes` and `appendfsync always`, or store only data that may be lost";
    match survives {
        Durability::Power => Check::ok("durability", seen, DURABLE),
        _ => Check::warn("durability", seen, DURABLE, advice),
    }
}

pub(super) fn files(info: &Info<'_>) -> Check {
    let bad: Vec<&str> = ["aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"]
        .into_iter()
        .filter(|name| info.get(name).is_some_and(|status| status != "ok"))
        .collect();
    if bad.is_empty() {
        Check::ok("files", "the last writes of the server's files succeeded", DISK)
    } else {
        let advice = "check the server's log: its disk is full, or its folder cannot be written";
        Check::fail("files", format!("failed: {}", bad.join(", ")), DISK, advice)
    }
}

pub(super) fn replicas(info: &Info<'_>) -> Check {
    match number(info, "connected_slaves") {
        0 => Check::ok("replicas", "none: only the server's files remain after a failure", REPLICAS),
        count => {
            let seen = format!("{count} replicas connected");
            let advice =
                "expect a failover to lose the last writes; `min-replicas-to-write 1` limits how many";
            Check::warn("replicas", seen, REPLICAS, advice)
        }
    }
}

pub(super) fn connections(info: &Info<'_>, settings: &[(String, String)]) -> Option<Check> {
    let most = settings
        .iter()
        .find(|(name, _)| name == "maxclients")
        .and_then(|(_, value)| value.parse::<u64>().ok());
    let (used, most) =
        (number(info, "connected_clients"), most.or_else(|| info.get("maxclients")?.parse().ok())?);
    let seen = format!("{used} of {most} in use; this program takes 1, and 1 more while it watches");
    Some(if used.saturating_add(2) > most.saturating_mul(9) / 10 {
        Check::warn("connections", seen, CONNECTIONS, "raise `maxclients`, or close unused connections")
    } else {
        Check::ok("connections", seen, CONNECTIONS)
    })
}

pub(super) fn tls(config: &RedisConfig, this_machine: bool) -> Check {
    match (config.tls, this_machine) {
        (true, _) => Check::ok("tls", "TLS, and the certificate is valid for the name", TLS),
        (false, true) => Check::ok("tls", "none, within this machine", TLS),
        (false, false) => Check::warn(
            "tls",
            "none, over a network",
            TLS,
            "enable TLS on the server, and write `rediss:` for `redis:`",
        ),
    }
}

pub(super) fn password(config: &RedisConfig, this_machine: bool) -> Option<Check> {
    const WHY: &str = "a server without a password accepts every client that reaches it";
    if config.password.is_some() {
        return None;
    }
    let advice = "give the server's user a password with `requirepass` or an ACL, and write it into the URL";
    let seen = if this_machine { "none, within this machine" } else { "none, over a network" };
    Some(if this_machine {
        Check::warn("password", seen, WHY, advice)
    } else {
        Check::fail("password", seen, WHY, advice)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::CheckStatus;
    use CheckStatus::{Fail, Ok as Fine, Warn};

    fn settings(flush: &str) -> Vec<(String, String)> {
        vec![
            ("appendfsync".to_owned(), flush.to_owned()),
            ("no-appendfsync-on-rewrite".to_owned(), "no".to_owned()),
        ]
    }

    #[test]
    fn the_info_of_a_server_decides_the_checks() {
        for (text, expected) in [
            (
                "role:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nredis_version:7.4.1\r\n",
                [Fine, Fine, Fine],
            ),
            (
                "role:slave\r\nmaxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\nredis_version:6.2.0\r\n",
                [Fail, Fail, Fail],
            ),
            (
                "role:master\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\nredis_version:7.0.15\r\n",
                [Fine, Warn, Fine],
            ),
            (
                "loading:1\r\nrole:master\r\nmaxmemory:9\r\nmaxmemory_policy:noeviction\r\n\
                 redis_version:8.0\r\n",
                [Fail, Fine, Fine],
            ),
        ] {
            let info = Info(text);
            assert_eq!(
                [writable(&info).status, memory(&info).status, version(&info).status],
                expected,
                "{text}"
            );
        }
        assert_eq!(full(&Info("used_memory:96\r\nmaxmemory:100\r\n")).map(|check| check.status), Some(Fail));
        assert_eq!(full(&Info("used_memory:96\r\nmaxmemory:0\r\n")), None);
        let valkey = Info("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n");
        assert_eq!((version(&valkey).status, &*version(&valkey).seen), (Fine, "Valkey 8.1.1"));
        assert_eq!(files(&Info("aof_last_write_status:err\r\n")).status, Fail);
    }

    #[test]
    fn only_a_log_with_a_flush_per_write_is_ok() {
        for (log, flush, status) in [("1", "always", Fine), ("1", "everysec", Warn), ("0", "always", Warn)] {
            let text = format!("aof_enabled:{log}\r\n");
            let check = survives(&Info(&text), &settings(flush), None);
            assert_eq!(check.status, status, "{check:?}");
        }
        // A setting is never repeated as the server wrote it.
        let check = survives(&Info("aof_enabled:1\r\n"), &settings("s3cret"), None);
        assert!(!check.seen.contains("s3cret") && check.status == Warn, "{check:?}");
    }

    #[test]
    fn sentinels_keep_what_every_replica_confirms() {
        let cases =
            [("0", 1, 1, Warn), ("1", 1, 1, Fine), ("1", 2, 1, Warn), ("1", 1, 2, Warn), ("2", 2, 2, Fine)];
        for (needed, connected, seen, status) in cases {
            let text = format!("aof_enabled:1\r\nconnected_slaves:{connected}\r\n");
            let mut settings = settings("always");
            settings.push(("min-replicas-to-write".to_owned(), needed.to_owned()));
            let check = survives(&Info(&text), &settings, Some(seen));
            assert_eq!(check.status, status, "{check:?}");
        }
    }
}
