//! The live services that backends are checked against, as `conformance/services` starts them.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// One service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Its name in reports and after `--require`.
    pub name: &'static str,
    /// Its script in `conformance/services`, and its name there.
    pub script: &'static str,
    /// The environment variable with its URL.
    pub variable: &'static str,
    /// The scheme of that URL.
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

/// All of them, in the order of reports.
pub const SERVICES: [Service; 7] = [
    Service::new("postgres", "postgres", "LARDER_POSTGRES_URL", "postgres"),
    Service::new("redis", "redis", "LARDER_REDIS_URL", "redis"),
    Service::new("redis-cluster", "redis-cluster", "LARDER_REDIS_CLUSTER_URL", "redis+cluster"),
    Service::new("s3-garage", "garage", "LARDER_S3_GARAGE_URL", "s3"),
    Service::new("s3-s3s", "s3s", "LARDER_S3_S3S_URL", "s3"),
    Service::new("s3-moto", "moto", "LARDER_S3_MOTO_URL", "s3"),
    Service::new("age", "age", "LARDER_AGE_URL", "age"),
];

/// The folder of the services' scripts, which is there where the command was built from the repository.
#[must_use]
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/services")
}

/// The first of so many ports in a row for a server of one's own, that nobody listens on, nor on those that are 100 above,
/// by which the servers of a Redis Cluster speak to each other. They are below those from which connections are made: while
/// a server is down, one of those could be given its port, and the server could not come back.
///
/// # Errors
/// The system's, where there are none.
pub fn free_ports(count: u16) -> io::Result<u16> {
    /// No two servers of this process get the same, however soon they listen; those of others hardly ever.
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
