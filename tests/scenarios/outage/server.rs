//! Separate servers for a test, from the installation of the shared servers, on other ports.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A server or a cluster for one test. It is removed with its data at the end.
pub(crate) struct Server {
    script: &'static str,
    port: (&'static str, String),
}

impl Server {
    pub(crate) fn start(script: &'static str, port_variable: &'static str) -> Self {
        let server = Self { script, port: (port_variable, free_ports().to_string()) };
        // An earlier run that was killed may have left one behind.
        server.tell("remove");
        server.tell("up");
        server
    }

    fn command(&self, word: &str) -> Command {
        let services = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/services");
        let mut command = Command::new(services.join(self.script));
        command.arg(word).env("LARDER_SERVICES_SET", "weather").env(self.port.0, &self.port.1);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn tell(&self, word: &str) {
        assert!(self.command(word).status().unwrap().success(), "{} {word}", self.script);
    }

    pub(crate) fn url(&self) -> String {
        let answer = self.command("env").stdout(Stdio::piped()).output().unwrap();
        String::from_utf8(answer.stdout).unwrap().trim().split_once('=').unwrap().1.to_owned()
    }

    /// Opens a plain connection to each server.
    pub(crate) async fn connections(&self) -> Vec<redis::aio::MultiplexedConnection> {
        let url = self.url();
        let (_, rest) = url.split_once("://").unwrap();
        let (login, hosts) = rest.rsplit_once('@').unwrap();
        let mut connections = Vec::new();
        for host in hosts.split('/').next().unwrap().split(',') {
            let client = redis::Client::open(format!("redis://{login}@{host}")).unwrap();
            connections.push(client.get_multiplexed_async_connection().await.unwrap());
        }
        connections
    }

    /// Returns the processes of the servers.
    pub(crate) async fn processes(&self) -> Vec<u32> {
        let mut processes = Vec::new();
        for mut connection in self.connections().await {
            let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
            let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
            processes.push(process.trim().parse().unwrap());
        }
        processes
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.command("remove").status();
    }
}

pub(crate) fn signal(name: &str, process: u32) {
    let status = Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap();
    assert!(status.success(), "{name}");
}

/// Returns the first of three consecutive free ports. The ports of the cluster bus are free, too.
fn free_ports() -> u16 {
    // No two servers of this process get the same port, even before they listen.
    static NEXT: AtomicU16 = AtomicU16::new(26_300);
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let first = NEXT.fetch_add(3, Ordering::Relaxed);
        assert!(first < 32_000, "no three free ports in a row");
        if (first..first + 3).all(|port| is_free(port) && is_free(port + 100)) {
            return first;
        }
    }
}
