//! The live services that backends are checked against; `conformance/services` starts them.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A live service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// The name in reports and for `--require`.
    pub name: &'static str,
    /// The script in `conformance/services`, and the name there.
    pub script: &'static str,
    /// The environment variable that contains its URL.
    pub variable: &'static str,
    /// The scheme of the URL.
    pub scheme: &'static str,
}

impl Service {
    const fn new(
        name: &'static str,
        script: &'static str,
        variable: &'static str,
        scheme: &'static str,
    ) -> Self {
        Self { name, script, variable, scheme }
    }
}

/// All services, in the order of reports.
pub const SERVICES: [Service; 8] = [
    Service::new("postgres", "postgres", "LARDER_POSTGRES_URL", "postgres"),
    Service::new("redis", "redis", "LARDER_REDIS_URL", "redis"),
    Service::new("redis-cluster", "redis-cluster", "LARDER_REDIS_CLUSTER_URL", "redis+cluster"),
    Service::new("valkey", "valkey", "LARDER_VALKEY_URL", "redis"),
    Service::new("s3-garage", "garage", "LARDER_S3_GARAGE_URL", "s3"),
    Service::new("s3-s3s", "s3s", "LARDER_S3_S3S_URL", "s3"),
    Service::new("s3-moto", "moto", "LARDER_S3_MOTO_URL", "s3"),
    Service::new("age", "age", "LARDER_AGE_URL", "age"),
];

/// Returns the folder of the services' scripts. It exists if the command was built from the repository.
#[must_use]
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/services")
}

/// Returns the first of `count` free consecutive ports for a dedicated server. The ports 100 above are free
/// too, because the servers of a Redis Cluster use them for their own connections.
///
/// The ports are below the range of outgoing connections. Otherwise, such a connection could take the port of
/// a stopped server, which could then not restart.
///
/// # Errors
/// The error of the system if no such ports exist.
pub fn free_ports(count: u16) -> io::Result<u16> {
    /// Servers of this process never get the same ports, even before they listen. Servers of other processes
    /// rarely do.
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 15_000;
    const PORTS: u32 = 11_000;
    let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    for _ in 0..PORTS {
        let taken = TAKEN.fetch_add(count.into(), Ordering::Relaxed);
        let place = std::process::id().wrapping_mul(64).wrapping_add(taken) % PORTS;
        let port = u16::try_from(FIRST + place).map_err(io::Error::other)?;
        if (0..count).all(|next| free(port + next) && free(port + next + 100)) {
            return Ok(port);
        }
    }
    Err(io::Error::other(format!("no {count} free ports in a row")))
}
