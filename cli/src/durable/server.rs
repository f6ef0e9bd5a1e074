//! A server that nobody else uses.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::service::{Service, free_ports, scripts};

/// How long a server may take to answer a setting.
const SETTING_MAX: Duration = Duration::from_secs(5);

/// A server of its own beside the others, from the same installation. It is removed with its data in the end.
#[derive(Debug, Clone)]
pub(super) struct Server {
    service: Service,
    port: (&'static str, String),
}

impl Server {
    /// Starts one. Blocks.
    pub(super) fn start(service: Service) -> io::Result<Self> {
        let variable = match service.script {
            "postgres" => "LARDER_PG_PORT",
            "redis" => "LARDER_REDIS_PORT",
            "redis-cluster" => "LARDER_REDIS_CLUSTER_PORT",
            "garage" => "LARDER_GARAGE_PORT",
            "s3s" => "LARDER_S3S_PORT",
            "age" => "LARDER_AGE_PORT",
            _ => return Err(io::Error::other("its script starts no second server")),
        };
        let server = Self { service, port: (variable, free_ports(3)?.to_string()) };
        // An earlier run that was ended from outside may have left one behind.
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

    /// Has its script do something. Blocks.
    pub(super) fn tell(&self, word: &str) -> io::Result<()> {
        let status = self.command(word).status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("{} {word} failed", self.service.script)))
        }
    }

    /// Its URL. Blocks.
    pub(super) fn url(&self) -> io::Result<String> {
        let answer = self.command("env").stdout(Stdio::piped()).output()?;
        let text = String::from_utf8(answer.stdout).map_err(io::Error::other)?;
        let url = text.trim().split_once('=').ok_or_else(|| io::Error::other("it has no URL"))?.1;
        // Where Postgres refuses connections, a call waits for it to come back for as long as it may wait for one.
        let postgres = matches!(self.service.scheme, "postgres" | "age");
        Ok(if postgres { format!("{url}?acquire_timeout_ms=500") } else { url.to_owned() })
    }

    /// Has Redis write no log any more. Blocks.
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

    /// Stops it and removes its data. Blocks.
    pub(super) fn remove(&self) {
        let _ = self.command("remove").status();
    }
}

fn script(service: &Service) -> PathBuf {
    scripts().join(service.script)
}
