//! The servers of a URL.

use larder_kernel::Result;

use super::invalid;

/// The port of a server if the URL names none.
const PORT_DEFAULT: u16 = 6379;
/// The port of a sentinel if the URL names none.
const SENTINEL_PORT_DEFAULT: u16 = 26_379;

/// The host and port of a server.
pub(crate) type Address = (String, u16);

/// The servers that hold the data.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Servers {
    /// One server and a database number.
    Single(Address, i64),
    /// A cluster, given by some of its servers.
    Cluster(Vec<Address>),
    /// The primary that sentinels watch under a name, and a database number.
    Sentinel { sentinels: Vec<Address>, name: String, database: i64 },
}

impl Servers {
    pub(super) fn single(hosts: &str, path: &str) -> Result<Self> {
        if hosts.contains(',') {
            return Err(invalid(
                "names several servers; write `redis+cluster://` for a cluster and `redis+sentinel://` for \
                 sentinels",
            ));
        }
        Ok(Self::Single(read_address(hosts, PORT_DEFAULT)?, read_database(path)?))
    }

    pub(super) fn cluster(hosts: &str, path: &str) -> Result<Self> {
        if !matches!(path, "" | "0") {
            return Err(invalid("names a database; a cluster has only `/0`"));
        }
        Ok(Self::Cluster(read_addresses(hosts, PORT_DEFAULT)?))
    }

    /// Reads the sentinels, and `name` or `name/database`.
    pub(super) fn sentinel(hosts: &str, path: &str) -> Result<Self> {
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        // The signs that a sentinel accepts.
        let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || !name.chars().all(clean) {
            return Err(invalid(
                "has no name of a primary after the sentinels; write `/name`, as in `sentinel monitor \
                 name ...`",
            ));
        }
        let sentinels = read_addresses(hosts, SENTINEL_PORT_DEFAULT)?;
        Ok(Self::Sentinel { sentinels, name: name.to_owned(), database: read_database(database)? })
    }

    /// Returns the number of the database.
    pub(crate) fn database(&self) -> i64 {
        match self {
            Self::Single(_, database) | Self::Sentinel { database, .. } => *database,
            Self::Cluster(_) => 0,
        }
    }

    /// Returns true if sentinels name the server.
    pub(crate) fn is_sentinel(&self) -> bool {
        matches!(self, Self::Sentinel { .. })
    }
}

fn read_database(path: &str) -> Result<i64> {
    let database = match path {
        "" => Some(0),
        number => number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse::<u32>().ok()).flatten(),
    };
    let malformed = || invalid("has a path that is not the number of a database, such as `/0`");
    database.map(i64::from).ok_or_else(malformed)
}

fn read_addresses(hosts: &str, port_default: u16) -> Result<Vec<Address>> {
    hosts.split(',').map(|host| read_address(host, port_default)).collect()
}

/// Reads `host`, `host:port`, `[::1]` or `[::1]:port`.
fn read_address(text: &str, port_default: u16) -> Result<Address> {
    let malformed = || invalid("has a server that is not `host:port`");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(malformed)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| malformed())?;
            (host, port)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port {
        "" => port_default,
        port => port
            .strip_prefix(':')
            .and_then(|port| port.parse().ok())
            .filter(|port| *port != 0)
            .ok_or_else(malformed)?,
    };
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(clean) {
        return Err(malformed());
    }
    Ok((host.to_owned(), port))
}
