//! URLs of servers, redirected to a relay.

use std::net::SocketAddr;
use std::time::Duration;

/// A URL of a relay, and the time limits of a store that it opens.
pub(crate) struct Through {
    pub(crate) url: String,
    pub(crate) answer_time_max: Duration,
    pub(crate) call_time_max: Duration,
}

/// A kind of URL whose connections can be relayed.
struct Kind {
    scheme: &'static str,
    port: &'static str,
    /// Parameters with short timeouts, so that a client does not wait long for a missing response.
    short: &'static str,
    answer_ms: u64,
    call_ms: u64,
}

const POSTGRES: Kind = Kind {
    scheme: "postgres",
    port: "5432",
    short: "pool_size=4&statement_timeout_ms=500&lock_timeout_ms=2000&idle_in_transaction_timeout_ms=1000\
            &acquire_timeout_ms=2000",
    answer_ms: 5_500,
    call_ms: 20_000,
};
const REDIS: Kind = Kind {
    scheme: "redis",
    port: "6379",
    short: "connect_timeout_ms=1000&response_timeout_ms=1000",
    answer_ms: 1_000,
    call_ms: 8_000,
};

/// Postgres waits for a response up to the statement timeout plus 5 seconds. Redis retries a read once, and a
/// cluster waits 5 seconds for the server of a slot. All attempts of a call to S3 take up to three times as
/// long as one attempt, and large transfers take longer.
const KINDS: [Kind; 6] = [
    POSTGRES,
    Kind { scheme: "postgresql", ..POSTGRES },
    Kind { scheme: "age", ..POSTGRES },
    REDIS,
    Kind { scheme: "redis+cluster", call_ms: 15_000, ..REDIS },
    Kind {
        scheme: "s3",
        port: "80",
        short: "connect_timeout_ms=1000&response_timeout_ms=2000&stall_timeout_ms=2000",
        answer_ms: 2_000,
        call_ms: 20_000,
    },
];

fn kind(url: &str) -> Option<&'static Kind> {
    let scheme = url.split_once("://")?.0;
    KINDS.iter().find(|kind| scheme.eq_ignore_ascii_case(kind.scheme))
}

/// Returns the position of the server's `host:port` in a URL.
fn place(url: &str, kind: &Kind) -> Option<std::ops::Range<usize>> {
    if kind.scheme == "s3" {
        // With TLS, the certificate is valid only for the server's name.
        let start = url.find("endpoint=http://")? + "endpoint=http://".len();
        let length = url[start..].find(['&', '/']).unwrap_or(url.len() - start);
        return Some(start..start + length);
    }
    let (location, query) = url.split_once('?').unwrap_or((url, ""));
    // A host in the parameters overrides the host in the URL.
    if query.split('&').any(|pair| pair.starts_with("host=") || pair.starts_with("port=")) {
        return None;
    }
    let begin = location.find("://")? + 3;
    let end = location[begin..].find('/').map_or(location.len(), |length| begin + length);
    let start = location[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    (start < end).then_some(start..end)
}

/// Returns the servers of a URL, each as `host:port`, if a relay can replace them.
pub(crate) fn servers(url: &str) -> Vec<String> {
    let Some((kind, place)) = kind(url).and_then(|kind| Some((kind, place(url, kind)?))) else {
        return Vec::new();
    };
    let named = |server: &str| {
        let port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if port { server.to_owned() } else { format!("{server}:{}", kind.port) }
    };
    url[place].split(',').map(named).collect()
}

/// Returns the URL with the servers replaced by relays.
pub(crate) fn through(url: &str, relays: &[SocketAddr]) -> Option<Through> {
    let kind = kind(url)?;
    let place = place(url, kind)?;
    let relays = relays.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
    let mut turned = format!("{}{relays}{}", &url[..place.start], &url[place.end..]);
    turned.push(if turned.contains('?') { '&' } else { '?' });
    turned.push_str(kind.short);
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
    fn the_servers_address_is_replaced_and_nothing_else_changes() {
        let relay = SocketAddr::from(([127, 0, 0, 1], 9));
        for (url, at, turned) in [
            (
                "redis://default:a%40b@127.0.0.1:27379/0",
                "127.0.0.1:27379",
                "redis://default:a%40b@127.0.0.1:9/0?connect_timeout_ms=1000&response_timeout_ms=1000",
            ),
            (
                "redis://host",
                "host:6379",
                "redis://127.0.0.1:9?connect_timeout_ms=1000&response_timeout_ms=1000",
            ),
            (
                "s3://K:S@files/p?endpoint=http://127.0.0.1:23900&region=garage",
                "127.0.0.1:23900",
                "s3://K:S@files/p?endpoint=http://127.0.0.1:9&region=garage&connect_timeout_ms=1000\
                 &response_timeout_ms=2000&stall_timeout_ms=2000",
            ),
        ] {
            assert_eq!(servers(url), [at]);
            assert_eq!(through(url, &[relay]).unwrap().url, turned);
        }
        let cluster = "redis+cluster://u:p@h:1,h:2";
        assert_eq!(servers(cluster), ["h:1", "h:2"]);
        let turned = through(cluster, &[relay, relay]).unwrap().url;
        assert!(turned.starts_with("redis+cluster://u:p@127.0.0.1:9,127.0.0.1:9?"), "{turned}");
        let turned = through("postgres://u:p@h:5/d?pool_size=2", &[relay]).unwrap().url;
        assert!(turned.starts_with("postgres://u:p@127.0.0.1:9/d?pool_size=2&pool_size=4&"), "{turned}");
        for url in [
            "memory:",
            "sqlite:/a@b/c.db",
            "rediss://h:1",
            "s3://K:S@files?endpoint=https://h",
            "postgres://u:p@h/d?host=/run",
        ] {
            assert!(servers(url).is_empty(), "{url}");
        }
    }
}
