//! Servers for one test.

use std::process::{Command, Stdio};

use larder_cli::service::{free_ports, scripts};

/// The servers of one script of `conformance/services`, in a separate set. They are removed with their data
/// at the end.
pub(crate) struct Server {
    script: &'static str,
    set: &'static str,
    port: (&'static str, u16),
}

impl Server {
    /// Starts them on the first of this number of consecutive free ports. The ports that are 100 higher are
    /// also free; the servers of a Redis Cluster use them for the bus.
    pub(crate) fn start(script: &'static str, set: &'static str, variable: &'static str, ports: u16) -> Self {
        let server = Self { script, set, port: (variable, free_ports(ports).unwrap()) };
        // An earlier run that was killed may have left one behind.
        server.tell(&["remove"]);
        server.tell(&["up"]);
        server
    }

    fn command(&self, words: &[&str]) -> Command {
        let script = scripts().join(self.script);
        let mut command = Command::new(script);
        command.args(words).env("LARDER_SERVICES_SET", self.set).env(self.port.0, self.port.1.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    /// Runs a command of its script. Blocks, but no task of the runtime.
    pub(crate) fn tell(&self, words: &[&str]) {
        let status = tokio::task::block_in_place(|| self.command(words).status().unwrap());
        assert!(status.success(), "{} {words:?}", self.script);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.1
    }

    pub(crate) fn url(&self) -> String {
        let answer = self.command(&["env"]).stdout(Stdio::piped()).output().unwrap();
        let text = String::from_utf8(answer.stdout).unwrap();
        text.trim().split_once('=').expect("NAME=value").1.to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.command(&["remove"]).status();
    }
}
