//! URLs of servers, turned to a relay.

use std::net::SocketAddr;
use std::time::Duration;

/// A URL that leads to a relay, and the times that a store opened by it keeps.
pub(crate) struct Through {
    pub(crate) url: String,
    pub(crate) answer_time_max: Duration,
    pub(crate) call_time_max: Duration,
}

/// A kind of URL whose connections can be relayed.
struct Kind {
    scheme: &'static str,
    port: &'static str,
    /// Parameters that keep a client from waiting long for what does not come.
    short: &'static str,
    answer_ms: u64,
    call_ms: u64,
}

/// Postgres waits for an answer as long as a statement may take, and 5 seconds. Redis looks for the answer once more where
/// it reads. The times of S3 are fixed: 30 seconds an attempt, and the same again where the next one meets trouble, too.
const KINDS: [Kind; 4] = [
    Kind {
        scheme: "postgres",
        port: "5432",
        short: "pool_size=4&statement_timeout_ms=500&lock_timeout_ms=2000&idle_in_transaction_timeout_ms=1000\
                &acquire_timeout_ms=2000",
        answer_ms: 5_500,
        call_ms: 20_000,
    },
    Kind {
        scheme: "postgresql",
        port: "5432",
        short: "pool_size=4&statement_timeout_ms=500&lock_timeout_ms=2000&idle_in_transaction_timeout_ms=1000\
                &acquire_timeout_ms=2000",
        answer_ms: 5_500,
        call_ms: 20_000,
    },
    Kind {
        scheme: "redis",
        port: "6379",
        short: "connect_timeout_ms=1000&response_timeout_ms=1000",
        answer_ms: 1_000,
        call_ms: 8_000,
    },
    Kind { scheme: "s3", port: "80", short: "", answer_ms: 30_000, call_ms: 75_000 },
];

fn kind(url: &str) -> Option<&'static Kind> {
    let scheme = url.split_once("://")?.0;
    KINDS.iter().find(|kind| scheme.eq_ignore_ascii_case(kind.scheme))
}

/// Where in a URL the server's `host:port` stands.
fn place(url: &str, kind: &Kind) -> Option<std::ops::Range<usize>> {
    if kind.scheme == "s3" {
        // Under TLS the certificate is for the server's name.
        let start = url.find("endpoint=http://")? + "endpoint=http://".len();
        let length = url[start..].find(['&', '/']).unwrap_or(url.len() - start);
        return Some(start..start + length);
    }
    let (location, query) = url.split_once('?').unwrap_or((url, ""));
    // A host among the parameters goes before the one here.
    if query.split('&').any(|pair| pair.starts_with("host=") || pair.starts_with("port=")) {
        return None;
    }
    let begin = location.find("://")? + 3;
    let end = location[begin..].find('/').map_or(location.len(), |length| begin + length);
    let start = location[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    (start < end).then_some(start..end)
}

/// The server of a URL, `host:port`, where a relay can stand before it.
pub(crate) fn server(url: &str) -> Option<String> {
    let kind = kind(url)?;
    let server = &url[place(url, kind)?];
    let named = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Some(if named { server.to_owned() } else { format!("{server}:{}", kind.port) })
}

/// The URL with a relay in the server's place.
pub(crate) fn through(url: &str, address: SocketAddr) -> Option<Through> {
    let kind = kind(url)?;
    let place = place(url, kind)?;
    let mut turned = format!("{}{address}{}", &url[..place.start], &url[place.end..]);
    if !kind.short.is_empty() {
        turned.push(if turned.contains('?') { '&' } else { '?' });
        turned.push_str(kind.short);
    }
    Some(Through {
        url: turned,
        answer_time_max: Duration::from_millis(kind.answer_ms),
        call_time_max: Duration::from_millis(kind.call_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_place_is_found_and_taken_and_nothing_else_changes() {
        let relay = SocketAddr::from(([127, 0, 0, 1], 9));
        for (url, at, turned) in [
            (
                "redis://default:a%40b@127.0.0.1:56379/0",
                "127.0.0.1:56379",
                "redis://default:a%40b@127.0.0.1:9/0?connect_timeout_ms=1000&response_timeout_ms=1000",
            ),
            (
                "redis://host",
                "host:6379",
                "redis://127.0.0.1:9?connect_timeout_ms=1000&response_timeout_ms=1000",
            ),
            (
                "s3://K:S@files/p?endpoint=http://127.0.0.1:53900&region=garage",
                "127.0.0.1:53900",
                "s3://K:S@files/p?endpoint=http://127.0.0.1:9&region=garage",
            ),
        ] {
            assert_eq!(server(url).as_deref(), Some(at));
            assert_eq!(through(url, relay).unwrap().url, turned);
        }
        let turned = through("postgres://u:p@h:5/d?pool_size=2", relay).unwrap().url;
        assert!(turned.starts_with("postgres://u:p@127.0.0.1:9/d?pool_size=2&pool_size=4&"), "{turned}");
        for url in [
            "memory:",
            "sqlite:/a@b/c.db",
            "redis+cluster://h:1,h:2",
            "rediss://h:1",
            "s3://K:S@files?endpoint=https://h",
            "postgres://u:p@h/d?host=/run",
        ] {
            assert!(server(url).is_none(), "{url}");
        }
    }
}
