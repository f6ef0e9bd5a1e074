//! Calls that search for the server of their key while a cluster or a primary changes.

use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{Error, ErrorKind, Outcome};
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::node::NodeConnections;
use super::{OPEN, Topology};
use crate::redis::decode;
use crate::redis::failure::{Failure, Fallible, Remedy};

/// The time limit of a call that searches.
const SEARCH_MAX: Duration = Duration::from_secs(5);
/// The pause of such a call between two attempts.
const SEARCH_PAUSE: Duration = Duration::from_millis(50);

impl Topology {
    /// Sends a command to the server that holds the key.
    pub(super) async fn exchange(&self, key: &[u8], command: &Cmd) -> Fallible<Value> {
        self.exchange_confirmed(key, command, 0).await
    }

    /// As `exchange`, and waits until this many replicas confirm that they received the writes of the
    /// command.
    ///
    /// Follows only replies that prove that nothing was done. The caller decides what a lost connection
    /// means.
    pub(super) async fn exchange_confirmed(
        &self,
        key: &[u8],
        command: &Cmd,
        confirmed_by: u32,
    ) -> Fallible<Value> {
        if let Self::Single(node) = self {
            return node.send(command).await;
        }
        let until = Instant::now() + SEARCH_MAX;
        let mut asked: Option<String> = None;
        loop {
            let number = self.number();
            let answer = match self.target(key, asked.as_deref()).await {
                Err(failure) => Err(failure),
                Ok(node) if asked.is_some() => node.send_asking(command).await,
                Ok(node) if confirmed_by > 0 => node.send_confirmed(command, confirmed_by).await,
                Ok(node) => node.send(command).await,
            };
            asked = None;
            let failure = match answer {
                Err(failure) => failure,
                answer => return answer,
            };
            let remedy =
                if self.lost_replicas(&failure, key, number).await { Remedy::Wait } else { failure.remedy() };
            if Instant::now() >= until {
                // Connecting to a lost server may have used all the time; the next call must find its
                // successor.
                if remedy == Remedy::Moved {
                    let _ = self.refresh(number).await;
                }
                return Err(failure);
            }
            match remedy {
                Remedy::None => return Err(failure),
                Remedy::Ask(address) => asked = Some(address),
                Remedy::Wait => tokio::time::sleep(SEARCH_PAUSE).await,
                Remedy::Moved => {
                    let moved_in_answer = matches!(failure, Failure::Sent(_));
                    if self.refresh(number).await.is_err() || !moved_in_answer {
                        tokio::time::sleep(SEARCH_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Returns the server that a redirection names, or the one that is believed to hold the key.
    pub(super) async fn target(&self, key: &[u8], asked: Option<&str>) -> Fallible<Arc<NodeConnections>> {
        match (self, asked) {
            (Self::Cluster(cluster), Some(address)) => return cluster.named(address),
            (Self::Sentinel(sentinels), _) => {
                sentinels.check_soon();
                sentinels.ready().await?;
            }
            _ => {}
        }
        self.holder(key)
    }

    /// Returns true if a primary without its replicas refused a write because another server is the primary.
    async fn lost_replicas(&self, failure: &Failure, key: &[u8], number: u64) -> bool {
        if !matches!(self, Self::Sentinel(_)) || !failure.is_without_replicas() {
            return false;
        }
        let address = |topology: &Self| topology.holder(key).ok().map(|node| node.address().clone());
        let before = address(self);
        self.refresh(number).await.is_ok() && address(self) != before
    }

    fn number(&self) -> u64 {
        match self {
            Self::Single(_) => 0,
            Self::Cluster(cluster) => cluster.number(),
            Self::Sentinel(sentinels) => sentinels.number(),
        }
    }

    /// Finds the servers again, unless another call did since the search `number`.
    pub(super) async fn refresh(&self, number: u64) -> Fallible<()> {
        match self {
            Self::Single(_) => Ok(()),
            Self::Cluster(cluster) => cluster.refresh(number).await,
            Self::Sentinel(sentinels) => sentinels.refresh(number).await,
        }
    }

    /// Finds the servers again.
    pub(super) async fn search(&self) {
        let _ = self.refresh(self.number()).await;
    }
}

impl NodeConnections {
    /// Sends a command, and waits until this many replicas confirm its writes. Fails with an unknown outcome
    /// if they do not in time: the server has the write, and a replica that takes over may lack it.
    async fn send_confirmed(&self, command: &Cmd, replicas: u32) -> Fallible<Value> {
        let mut wait = redis::cmd("WAIT");
        wait.arg(replicas).arg(self.confirmation_ms());
        let (reply, confirmed) = self.send_followed(command, [&self.mark(), &wait]).await?;
        match confirmed.and_then(|[_, confirmed]| Ok(decode::count(confirmed)?)) {
            Ok(count) if count >= u64::from(replicas) => Ok(reply),
            // An error whose remedy is another attempt would repeat the write.
            _ => Err(unconfirmed().into()),
        }
    }

    /// Returns a command that servers send to their replicas and that changes nothing. `WAIT` waits for the
    /// last such command of its connection. A script that repeats the result of an earlier write is not one.
    pub(super) fn mark(&self) -> Cmd {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.prefix().channel_of_marks()).arg("");
        publish
    }
}

fn unconfirmed() -> Error {
    let message = "the server stored the write, and fewer replicas than its `min-replicas-to-write` \
                   confirmed it in time; read before you write again";
    Error::new(ErrorKind::Timeout, OPEN, message).with_outcome(Outcome::Unknown)
}
