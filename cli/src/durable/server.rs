//! A dedicated server for one test.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::service::{Service, free_ports, scripts};

/// The time limit for changing a setting of a server.
const SETTING_MAX: Duration = Duration::from_secs(5);

/// A dedicated server from the same installation as the other services. It is removed with its data at the
/// end.
#[derive(Debug, Clone)]
pub(super) struct Server {
    service: Service,
    port: (&'static str, String),
}

impl Server {
    /// Starts a server. Blocks.
    pub(super) fn start(service: Service) -> io::Result<Self> {
        let variable = match service.script {
            "postgres" => "LARDER_PG_PORT",
            "redis" => "LARDER_REDIS_PORT",
            "redis-cluster" => "LARDER_REDIS_CLUSTER_PORT",
            "valkey" => "LARDER_VALKEY_PORT",
            "garage" => "LARDER_GARAGE_PORT",
            "s3s" => "LARDER_S3S_PORT",
            "age" => "LARDER_AGE_PORT",
            _ => return Err(io::Error::other("its script cannot start a second server")),
        };
        let server = Self { service, port: (variable, free_ports(3)?.to_string()) };
        // An earlier run may have been killed and left a server behind.
        server.tell("remove")?;
        server.tell("up")?;
        Ok(server)
    }

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(script(&self.service));
        command.arg(word).env("LARDER_SERVICES_SET", "durable").env(self.port.0, &self.port.1);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs a command of the server's script. Blocks.
    pub(super) fn tell(&self, word: &str) -> io::Result<()> {
        let status = self.command(word).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("{} {word} failed", self.service.script)))
        }
    }

    /// Returns the server's URL. Blocks.
    pub(super) fn url(&self) -> io::Result<String> {
        let answer = self.command("env").stdout(Stdio::piped()).output()?;
        let text = String::from_utf8(answer.stdout).map_err(io::Error::other)?;
        let url = text.trim().split_once('=').ok_or_else(|| io::Error::other("it has no URL"))?.1;
        // If Postgres refuses connections, a call retries for as long as the acquire timeout.
        let postgres = matches!(self.service.scheme, "postgres" | "age");
        Ok(if postgres { format!("{url}?acquire_timeout_ms=500") } else { url.to_owned() })
    }

    /// Disables the append-only file of Redis. Blocks.
    pub(super) fn forget(&self) -> io::Result<()> {
        let url = self.url()?;
        let login = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(login, _)| login);
        let (user, password) = login.and_then(|login| login.split_once(':')).unwrap_or_default();
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port.1))?;
        stream.set_read_timeout(Some(SETTING_MAX))?;
        stream.write_all(format!("AUTH {user} {password}\r\nCONFIG SET appendonly no\r\n").as_bytes())?;
        let mut answers = [0; 10];
        stream.read_exact(&mut answers)?;
        if &answers == b"+OK\r\n+OK\r\n" { Ok(()) } else { Err(io::Error::other("redis refuses a setting")) }
    }

    /// Stops the server and removes its data. Blocks.
    pub(super) fn remove(&self) {
        let _ = self.command("remove").status();
    }
}

fn script(service: &Service) -> PathBuf {
    scripts().join(service.script)
}
