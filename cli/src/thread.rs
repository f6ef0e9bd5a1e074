//! The thread that a command works on.

use clap::Args;
use larder::{Registry, Stores};
use larder_kernel::{Contract, Namespace, Thread};

use crate::opening::{self, Access};

/// The conversation that a command works on.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Conversation; the first `/` separates agent and session.
    #[arg(long, value_name = "AGENT/SESSION", value_parser = parse_thread)]
    pub(crate) thread: Thread,
    /// Namespace of the thread.
    #[arg(long, default_value = "default", value_parser = parse_namespace)]
    pub(crate) namespace: Namespace,
}

fn parse_thread(text: &str) -> Result<Thread, String> {
    let (agent, session) = text.split_once('/').ok_or("not AGENT/SESSION")?;
    Thread::new(agent, session).map_err(|error| error.to_string())
}

pub(crate) fn parse_namespace(text: &str) -> Result<Namespace, String> {
    Namespace::new(text).map_err(|error| error.to_string())
}

impl Place {
    /// Opens the stores of these contracts in the namespace at the URL.
    pub(crate) async fn open(
        &self,
        registry: &Registry,
        url: &str,
        contracts: &[Contract],
        access: Access,
    ) -> Result<Stores, String> {
        opening::stores(registry, url, &self.namespace, contracts, access).await
    }

    /// Returns the thread as the user wrote it.
    pub(crate) fn name(&self) -> String {
        printable(&format!("{}/{}", self.thread.agent, self.thread.session))
    }
}

/// Escapes every character that would move a terminal's cursor or color its text.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\t' => shown.push(char),
            _ if char.is_control() => shown.extend(char.escape_default()),
            _ => shown.push(char),
        }
    }
    shown
}
