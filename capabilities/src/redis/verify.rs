//! Verification of a server or cluster: every key is read.
//!
//! One thread, one bucket or the boards of one conversation are seen in one state: they are read again if
//! a writer changed them. Different ones may be seen at different times, because the server has no snapshot.
//! Keys that a cluster moves from one server to another during the verification may be missed.

use std::collections::{BTreeMap, BTreeSet};

use larder_kernel::{AgentId, BucketName, Namespace, Result, SessionId};

use super::config::RedisConfig;
use super::engine::Engine;
use super::key::KeyPrefix;
use super::reader::{Hash, Place, Reader, text_of};
use super::script::FORMAT;
use super::{history, index, key_value, task};
use crate::verify::{Fault, FaultKind, Faults, OPERATION, Verified};

/// The number of readings of data that other programs change.
const ATTEMPTS_MAX: u32 = 8;

/// Verifies the server or cluster.
///
/// # Errors
/// The errors of opening and reading it.
pub(super) async fn verify(config: &RedisConfig, faults: &Faults) -> Result<()> {
    let engine = Engine::open(config.clone(), FORMAT).await.map_err(|error| error.in_operation(OPERATION))?;
    let looked = all(&engine, faults).await;
    engine.close().await;
    looked
}

/// The content of a hash tag.
enum Kind {
    Thread(Namespace, AgentId, SessionId),
    Bucket(Namespace, BucketName),
    Conversation(Namespace, SessionId),
    /// The index of a kind of data in a namespace: `threads`, `kv` or `tasks`.
    Index(String),
}

async fn all(engine: &Engine, faults: &Faults) -> Result<()> {
    let mut places: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for key in engine.scan(OPERATION, &[&engine.prefix().begin()[..], b"*"].concat()).await? {
        match split(&key) {
            Some((tag, part)) => _ = places.entry(tag.to_vec()).or_default().insert(part.to_vec()),
            None => faults.add(foreign(&key)),
        }
    }
    for (tag, parts) in places {
        let Some((kind, name)) = kind(engine.prefix(), &tag) else {
            faults.add(foreign(&tag));
            continue;
        };
        check(engine, &kind, &Place { tag, parts, name }, faults).await?;
    }
    Ok(())
}

/// Reads a place until no other program changed it during the reading.
async fn check(engine: &Engine, kind: &Kind, place: &Place, faults: &Faults) -> Result<()> {
    let mut looked = Verified::default();
    let mut was_quiet = false;
    for _ in 0..ATTEMPTS_MAX {
        let found = Faults::default();
        let reader = Reader { engine, faults: &found };
        let before = state(&reader, kind, place).await?;
        match kind {
            Kind::Thread(namespace, agent, session) => {
                let index = engine.prefix().entity("threads", &[namespace.as_str()]);
                let name = format!("{}\0{}", agent.as_str(), session.as_str());
                history::verify::check(&reader, place, &index, &name, &before).await?;
            }
            Kind::Bucket(namespace, bucket) => {
                let index = engine.prefix().entity("index", &["kv", namespace.as_str()]);
                key_value::verify::check(&reader, place, &index, bucket.as_str(), &before).await?;
            }
            Kind::Conversation(namespace, conversation) => {
                let index = engine.prefix().entity("index", &["tasks", namespace.as_str()]);
                task::verify::check(&reader, place, &index, conversation.as_str(), &before).await?;
            }
            Kind::Index(kind) => index::verify::check(&reader, place, kind == "threads").await?,
        }
        looked = found.take();
        was_quiet = state(&reader, kind, place).await? == before;
        if was_quiet {
            break;
        }
    }
    // Counters that were read at different times do not match. Records are never changed in place.
    let is_certain = |fault: &Fault| was_quiet || fault.kind == FaultKind::Record;
    faults.read(looked.records);
    looked.faults.into_iter().filter(is_certain).for_each(|fault| faults.add(fault));
    Ok(())
}

/// Returns the counters of a place, which every write changes.
async fn state(reader: &Reader<'_>, kind: &Kind, place: &Place) -> Result<Hash> {
    let quiet = Reader { engine: reader.engine, faults: &Faults::default() };
    match kind {
        Kind::Thread(..) => quiet.hash(&place.key("head")).await,
        Kind::Bucket(..) => quiet.hash(&place.key("meta")).await,
        Kind::Conversation(..) => {
            let mut all = quiet.hash(&place.key("meta")).await?;
            let of_boards = place.parts.iter().filter(|part| part.starts_with(b"board:"));
            for part in of_boards {
                for (field, value) in quiet.hash(&place.key(part)).await? {
                    all.insert([&part[..], b"\0", &field].concat(), value);
                }
            }
            Ok(all)
        }
        Kind::Index(_) => Ok(Hash::new()),
    }
}

fn foreign(key: &[u8]) -> Fault {
    let seen = "the name is not one of these stores";
    Fault::new(FaultKind::Foreign, format!("key {}", text_of(key)), seen)
}

/// Splits a key into its hash tag and its part.
fn split(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = key.iter().position(|byte| *byte == b'}')? + 1;
    let (tag, part) = key.split_at_checked(end)?;
    Some((tag, part.strip_prefix(b":")?))
}

/// Returns the content of a hash tag, and its name in words. `None` if these stores do not write the tag.
fn kind(prefix: &KeyPrefix, tag: &[u8]) -> Option<(Kind, String)> {
    let inner = std::str::from_utf8(tag.strip_prefix(&prefix.begin()[..])?.strip_suffix(b"}")?).ok()?;
    let mut fields = inner.split(':');
    let word = fields.next()?;
    let ids = fields.map(unescape).collect::<Option<Vec<String>>>()?;
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (word, kind, name) = match (word, &ids[..]) {
        ("thread", [namespace, agent, session]) => {
            let kind = Kind::Thread(
                Namespace::new(*namespace).ok()?,
                AgentId::new(*agent).ok()?,
                SessionId::new(*session).ok()?,
            );
            ("thread", kind, format!("thread {namespace} {agent}/{session}"))
        }
        ("kv", [namespace, bucket]) => {
            let kind = Kind::Bucket(Namespace::new(*namespace).ok()?, BucketName::new(*bucket).ok()?);
            ("kv", kind, format!("bucket {namespace} {bucket}"))
        }
        ("tasks", [namespace, conversation]) => {
            let kind =
                Kind::Conversation(Namespace::new(*namespace).ok()?, SessionId::new(*conversation).ok()?);
            ("tasks", kind, format!("conversation {namespace} {conversation}"))
        }
        ("threads", [namespace]) => {
            ("threads", Kind::Index("threads".to_owned()), format!("index of the threads of {namespace}"))
        }
        ("index", [kind @ ("kv" | "tasks"), namespace]) => {
            ("index", Kind::Index((*kind).to_owned()), format!("index {kind} of {namespace}"))
        }
        _ => return None,
    };
    // Only the spelling that these stores produce is a name of theirs.
    (prefix.entity(word, &ids).part("") == [tag, b":"].concat()).then_some((kind, name))
}

/// Reverses the escapes of an id.
fn unescape(id: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(id.len());
    let mut parts = id.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_as_it_was_written() {
        for ids in [["n", "a:b", "}{%"], ["n", "é\u{1} x", "%7D"]] {
            let prefix = KeyPrefix::new("test", "app:").unwrap();
            let tag = prefix.entity("thread", &ids).part("head");
            let (tag, part) = split(&tag).unwrap();
            assert_eq!(part, b"head");
            let (_, name) = kind(&prefix, tag).unwrap();
            assert!(kind(&KeyPrefix::default(), tag).is_none());
            assert_eq!(name, format!("thread {} {}/{}", ids[0], ids[1], ids[2]));
        }
        for foreign in
            ["larder:{poem:n:x}", "larder:{kv:n}", "larder:{kv:n:%6b}", "larder:{kv:n:%z}", "larder:{}"]
        {
            assert!(kind(&KeyPrefix::default(), foreign.as_bytes()).is_none(), "{foreign}");
        }
    }
}
