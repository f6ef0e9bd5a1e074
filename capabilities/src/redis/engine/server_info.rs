//! The version and settings that a server must have, and the durability that follows from them.

use larder_kernel::{Durability, Error, ErrorKind};
use redis::{Cmd, RedisResult, Value};

use crate::redis::decode;
use crate::redis::failure::{Failure, Fallible};

const OPERATION: &str = "redis.open";
/// The oldest supported major version. From this version on, a script sees one clock and replicates as a
/// whole, and a server without free memory rejects it before its first write.
pub(crate) const SERVER_VERSION_MAJOR_MIN: u64 = 7;

/// The facts about a server that the stores need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    pub(crate) durability: Durability,
    /// True if the server is part of a cluster.
    pub(crate) clustered: bool,
    /// True if the server is a primary, and not a replica.
    pub(crate) primary: bool,
    /// The number of replicas that must be connected for a write: `min-replicas-to-write`.
    pub(crate) replicas_needed: u32,
    /// The number of connected replicas.
    pub(crate) replicas: u32,
}

/// A connection that sends one command at a time.
pub(crate) trait SendCommand {
    /// Returns the reply; an error reply is an error.
    fn send_command(&mut self, command: &Cmd) -> impl Future<Output = RedisResult<Value>> + Send;
}

/// Reads a server's settings, and rejects a server that could drop stored data.
pub(crate) async fn examine(connection: &mut impl SendCommand) -> Fallible<ServerInfo> {
    let mut info = Cmd::new();
    info.arg("INFO");
    let answer = connection.send_command(&info).await.map_err(Failure::Connect)?;
    let info = String::from_utf8_lossy(&decode::bytes(answer)?).into_owned();
    let info = Info(&info);
    info.check()?;
    let mut ask = Cmd::new();
    ask.arg("CONFIG").arg("GET").arg("appendfsync").arg("no-appendfsync-on-rewrite");
    ask.arg("min-replicas-to-write");
    // Without the right to read them, as on most hosted servers, the weakest durability is assumed.
    let settings = match connection.send_command(&ask).await {
        Ok(answer) => decode::pairs(answer)?,
        Err(error) if error.code().is_some() => Vec::new(),
        Err(error) => return Err(Failure::Connect(error)),
    };
    let setting = |name: &str| settings.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value);
    Ok(ServerInfo {
        durability: durability(
            info.get("aof_enabled") == Some("1"),
            setting("appendfsync"),
            setting("no-appendfsync-on-rewrite"),
        ),
        clustered: info.get("cluster_enabled") == Some("1"),
        primary: info.get("role") == Some("master"),
        replicas_needed: number(setting("min-replicas-to-write")).unwrap_or(0),
        replicas: number(info.get("connected_slaves")).unwrap_or(u32::MAX),
    })
}

/// The reply to `INFO`.
pub(crate) struct Info<'a>(pub(crate) &'a str);

impl<'a> Info<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    fn check(&self) -> Result<(), Error> {
        let major = self.get("redis_version").and_then(|version| version.split('.').next()?.parse().ok());
        let major: u64 = major.unwrap_or(0);
        if major < SERVER_VERSION_MAJOR_MIN {
            return Err(Error::new(
                ErrorKind::Unsupported,
                OPERATION,
                "the server is older than Redis 7.0; upgrade it",
            )
            .with_context("server_version", major));
        }
        let bounded = self.get("maxmemory") != Some("0");
        if bounded && self.get("maxmemory_policy") != Some("noeviction") {
            return Err(Error::new(
                ErrorKind::Unsupported,
                OPERATION,
                "the server may evict keys when its memory is full; set its `maxmemory-policy` to \
                 `noeviction`",
            ));
        }
        Ok(())
    }
}

fn number(text: Option<&str>) -> Option<u32> {
    text?.parse().ok()
}

/// Returns the durability of a primary that sentinels may replace with one of its replicas. Only a write that
/// every replica confirmed is certain to be on the next primary. So `min-replicas-to-write` must be the
/// number of replicas or more, and each write waits for as many. A replica confirms data that it has
/// received and not yet flushed. The server may restart before the sentinels notice, so its files count too.
pub(crate) fn replicated(of_files: Durability, needed: u32, connected: u32) -> Durability {
    if needed > 0 && connected <= needed { of_files.min(Durability::Process) } else { Durability::None }
}

/// Returns the durability for these settings. With `everysec`, the server holds acknowledged writes back from
/// the operating system for up to two seconds while a flush is running. So they are lost if its process
/// crashes. With `no` and `always` it never holds them back.
pub(crate) fn durability(log: bool, flush: Option<&str>, skip_in_rewrite: Option<&str>) -> Durability {
    match (log, flush, skip_in_rewrite) {
        (true, Some("always"), Some("no")) => Durability::Power,
        (true, Some("always" | "no"), _) => Durability::Process,
        _ => Durability::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weakest_that_is_proven_is_declared() {
        for (log, flush, rewrite, expected) in [
            (true, Some("always"), Some("no"), Durability::Power),
            (true, Some("always"), Some("yes"), Durability::Process),
            (true, Some("always"), None, Durability::Process),
            (true, Some("no"), Some("no"), Durability::Process),
            (true, Some("everysec"), Some("no"), Durability::None),
            (true, None, None, Durability::None),
            (false, Some("always"), Some("no"), Durability::None),
        ] {
            assert_eq!(durability(log, flush, rewrite), expected);
        }
    }

    #[test]
    fn a_failover_loses_writes_unless_every_replica_confirms_them() {
        use Durability::{None, Power, Process};
        for (of_files, needed, connected, expected) in [
            (Power, 0, 0, None),
            (Power, 0, 2, None),
            (Power, 1, 2, None),
            (Power, 1, 1, Process),
            (Process, 2, 2, Process),
            // No write succeeds until a replica is back.
            (Power, 1, 0, Process),
            (None, 1, 1, None),
            (Power, 1, u32::MAX, None),
        ] {
            assert_eq!(replicated(of_files, needed, connected), expected, "{of_files} {needed} {connected}");
        }
    }

    #[test]
    fn a_server_that_is_old_or_drops_keys_is_refused() {
        for (info, message) in [
            ("redis_version:6.2.1\r\nmaxmemory:0\r\n", Some("Redis 7.0")),
            ("redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", None),
            ("redis_version:7.0.15\r\nmaxmemory:9\r\nmaxmemory_policy:noeviction\r\n", None),
            ("redis_version:7.0.15\r\nmaxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n", Some("`noeviction`")),
            ("redis_version:7.0.15\r\n", Some("`noeviction`")),
            ("", Some("Redis 7.0")),
        ] {
            match (Info(info).check(), message) {
                (Ok(()), None) => {}
                (Err(error), Some(message)) => assert!(error.message().contains(message), "{error}"),
                (result, _) => panic!("{info}: {result:?}"),
            }
        }
    }
}
