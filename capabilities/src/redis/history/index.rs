//! The index of a namespace's threads, for listing and erasing.
//!
//! In a cluster the index has a separate slot, so it cannot change in one step with its threads. The order of
//! steps makes up for it:
//!
//! - A thread is registered in the index **before** its first message, and stores that it is registered. So
//!   only the first append costs more than one round trip. The index may contain a thread without messages,
//!   so readers check each thread. A thread with messages is never missing.
//! - Each entry has a token, and the first append presents it. To remove a thread from the listing, a client
//!   first makes the thread forget its registration and reject the entry's token. It then removes the entry
//!   if its token is unchanged. An append in between is rejected, and registers the thread again with a new
//!   token, which stays.
//! - A listing removes the empty threads that it finds, so that its cost depends on the threads with
//!   messages. An erasure visits all threads that ever existed.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use larder_kernel::{AgentId, Error, ErrorKind, Namespace, Outcome, PageRequest, Result, Thread, ThreadInfo};
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::super::decode;
use super::super::engine::Engine;
use super::super::failure::corrupt;
use super::super::key::Entity;
use super::super::script::{Call, Script};
use super::address::{Address, named};
use super::read::{living, untouched};
use super::scripts::{DROP, FORGET, REGISTER, RETIRE};

/// The maximum number of registrations of one append. Each further one means that another client removed the
/// entry in between.
const REGISTRATIONS_MAX: u32 = 16;
/// The time for which a registration may be used after it was requested: a tenth of the time for which its
/// token would stay rejected.
const REGISTRATION_GOOD_FOR: Duration = Duration::from_secs(60);
/// The time for which a token stays rejected.
const REFUSED_MS: u64 = 600_000;
/// The reply of scripts that need the thread registered first.
const UNREGISTERED: i64 = 1;
/// The minimum number of names in one read.
const NAMES_MIN: usize = 64;
/// The maximum number of names in one read.
const NAMES_MAX: usize = 1_000;
/// The number of threads that are checked concurrently.
const SIDE_BY_SIDE: usize = 64;
/// The maximum number of empty threads that one listing removes.
const RETIRED_MAX: usize = 128;

/// The index of one namespace.
#[derive(Clone)]
pub(super) struct Index {
    engine: Engine,
    namespace: Namespace,
    place: Entity,
}

impl Index {
    pub(super) fn new(engine: Engine, namespace: Namespace) -> Self {
        let place = engine.prefix().entity("threads", &[namespace.as_str()]);
        Self { engine, namespace, place }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    fn listed(&self) -> Bytes {
        self.place.part("listed")
    }

    fn tokens(&self) -> Bytes {
        self.place.part("tokens")
    }

    /// Runs a script that may write a thread's first message. Before the arguments of `call` it gets the
    /// channel and a token. It returns a list that begins with a number; 1 means that it needs another token.
    pub(super) async fn write(
        &self,
        operation: &'static str,
        script: &Script,
        address: &Address,
        call: &Call,
    ) -> Result<(i64, Vec<Value>)> {
        let (mut token, mut asked) = (Bytes::new(), Instant::now());
        for _ in 0..=REGISTRATIONS_MAX {
            if asked.elapsed() > REGISTRATION_GOOD_FOR {
                token = Bytes::new();
            }
            let call = call.preceded_by(&[], &[address.channel(), token.clone()]);
            let mut answer = decode::array(self.engine.run(operation, script, &call).await?)?;
            if answer.is_empty() {
                return Err(corrupt(operation));
            }
            let code = decode::integer(answer.remove(0))?;
            if code != UNREGISTERED {
                return Ok((code, answer));
            }
            asked = Instant::now();
            token = self.register(operation, address, &token).await.map_err(untouched)?;
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            operation,
            "the thread was erased during every attempt; try again later",
        )
        .with_outcome(Outcome::NotApplied))
    }

    async fn register(&self, operation: &'static str, address: &Address, refused: &Bytes) -> Result<Bytes> {
        let call = Call::new().key(self.listed()).key(self.tokens()).key(self.place.part("count"));
        let call = call.bytes(address.name().clone()).bytes(refused.clone());
        Ok(decode::bytes(self.engine.repeat(operation, &REGISTER, &call).await?)?.into())
    }

    /// Returns the threads of a page that hold messages, and one more.
    pub(super) async fn page(
        &self,
        operation: &'static str,
        agent: Option<&AgentId>,
        page: &PageRequest<Thread>,
    ) -> Result<Vec<ThreadInfo>> {
        let Some((mut from, to)) = bounds(agent, page.after.as_ref()) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let mut empty = Vec::new();
        while found.len() <= page.limit {
            let count = (page.limit + 1 - found.len()).clamp(NAMES_MIN, NAMES_MAX);
            let names = self.names(operation, &from, &to, count).await?;
            let Some(last) = names.last() else { break };
            from = [b"(", &last[..]].concat();
            let more = names.len() == count;
            let addresses = names.iter().map(|name| self.address(operation, name));
            let addresses = addresses.collect::<Result<Vec<Address>>>()?;
            let looks = addresses.into_iter().map(|address| {
                let engine = self.engine.clone();
                async move { Ok((living(&engine, operation, &address).await?, address)) }
            });
            let seen: Vec<(Option<ThreadInfo>, Address)> = stream::iter(looks)
                .buffered(SIDE_BY_SIDE)
                .try_collect()
                .await
                .map_err(|error: Error| error)?;
            for (info, address) in seen {
                match info {
                    Some(info) => found.push(info),
                    None => empty.push(address),
                }
            }
            if !more {
                break;
            }
        }
        found.truncate(page.limit + 1);
        empty.truncate(RETIRED_MAX);
        // Only cleans up; the next listing tries again.
        let _ = self.retire(operation, empty).await;
        Ok(found)
    }

    async fn names(
        &self,
        operation: &'static str,
        from: &[u8],
        to: &[u8],
        count: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let key = self.listed();
        let mut command = redis::cmd("ZRANGE");
        command.arg(&key[..]).arg(from).arg(to).arg("BYLEX").arg("LIMIT").arg(0).arg(count);
        let names = decode::array(self.engine.fetch(operation, &key, &command).await?)?;
        names.into_iter().map(decode::bytes).collect()
    }

    fn address(&self, operation: &'static str, name: &[u8]) -> Result<Address> {
        let thread = named(name).ok_or_else(|| corrupt(operation))?;
        Ok(Address::new(self.engine.prefix(), &self.namespace, &thread))
    }

    /// Removes threads without messages from the listing.
    async fn retire(&self, operation: &'static str, threads: Vec<Address>) -> Result<()> {
        if threads.is_empty() {
            return Ok(());
        }
        let key = self.tokens();
        let mut command = redis::cmd("HMGET");
        command.arg(&key[..]);
        threads.iter().for_each(|thread| _ = command.arg(&thread.name()[..]));
        let tokens = decode::array(self.engine.fetch(operation, &key, &command).await?)?;
        let mut forget = Call::new().key(self.listed()).key(key).arg("listed");
        for (thread, token) in threads.iter().zip(tokens) {
            let Some(token) = decode::optional(token) else { continue };
            let token = Bytes::from(decode::bytes(token)?);
            let call = thread.call().bytes(token.clone());
            if decode::integer(self.engine.repeat(operation, &RETIRE, &call).await?)? == 1 {
                forget = forget.bytes(thread.name().clone()).bytes(token);
            }
        }
        self.engine.repeat(operation, &FORGET, &forget).await.map(drop)
    }

    /// Removes every thread and all its traces.
    pub(super) async fn erase(&self, operation: &'static str) -> Result<()> {
        let key = self.tokens();
        let mut cursor = b"0".to_vec();
        loop {
            let command = scan(&key, &cursor);
            let [next, entries] = decode::tuple(self.engine.fetch(operation, &key, &command).await?)?;
            let mut forget = Call::new().key(self.listed()).key(key.clone()).arg("all");
            let mut drops = Vec::new();
            let mut entries = decode::array(entries)?.into_iter();
            while let (Some(name), Some(token)) = (entries.next(), entries.next()) {
                let (name, token) = (Bytes::from(decode::bytes(name)?), Bytes::from(decode::bytes(token)?));
                let call = self.address(operation, &name)?.call().bytes(token.clone()).number(REFUSED_MS);
                let engine = self.engine.clone();
                drops.push(async move { engine.repeat(operation, &DROP, &call).await.map(drop) });
                forget = forget.bytes(name).bytes(token);
            }
            if !drops.is_empty() {
                stream::iter(drops).buffer_unordered(SIDE_BY_SIDE).try_collect::<()>().await?;
                self.engine.repeat(operation, &FORGET, &forget).await?;
            }
            cursor = decode::bytes(next)?;
            if cursor == b"0" {
                return Ok(());
            }
        }
    }
}

fn scan(key: &[u8], cursor: &[u8]) -> Cmd {
    let mut command = redis::cmd("HSCAN");
    command.arg(key).arg(cursor).arg("COUNT").arg(256);
    command
}

/// Returns the names to list as the bounds of a range; `None` if no name can match.
fn bounds(agent: Option<&AgentId>, after: Option<&Thread>) -> Option<(Vec<u8>, Vec<u8>)> {
    let after = after.map(|after| format!("{}\0{}", after.agent.as_str(), after.session.as_str()));
    let Some(agent) = agent else {
        let from = after.map_or_else(|| b"-".to_vec(), |after| format!("({after}").into_bytes());
        return Some((from, b"+".to_vec()));
    };
    // NUL follows the agent in each of its names. A name of another agent is either smaller, or not below the
    // next byte.
    let (first, end) = (format!("{}\0", agent.as_str()), format!("{}\u{1}", agent.as_str()));
    let from = match after {
        Some(after) if after >= end => return None,
        Some(after) if after >= first => format!("({after}"),
        _ => format!("[{first}"),
    };
    Some((from.into_bytes(), format!("({end}").into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_an_agent_enclose_only_its_threads() {
        let agent = AgentId::new("a").unwrap();
        let after = |agent: &str, session: &str| Thread::new(agent, session).unwrap();
        let range = |after: Option<&Thread>| bounds(Some(&agent), after).map(|(from, _)| from);
        assert_eq!(range(None).unwrap(), b"[a\0");
        assert_eq!(range(Some(&after("A", "z"))).unwrap(), b"[a\0");
        assert_eq!(range(Some(&after("a", "s"))).unwrap(), b"(a\0s");
        assert_eq!(range(Some(&after("a\u{1}", "s"))), None);
        assert_eq!(range(Some(&after("ab", "s"))), None);
        assert_eq!(bounds(None, None).unwrap(), (b"-".to_vec(), b"+".to_vec()));
    }
}
