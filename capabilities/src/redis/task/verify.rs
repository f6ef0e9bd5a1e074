//! The verification of the boards of a conversation.

use std::collections::{BTreeMap, BTreeSet};

use larder_kernel::{AgentId, Result, Task};
use redis::Value;

use super::conversation::BOARD_PARTS;
use super::rows;
use crate::redis::key::Entity;
use crate::redis::reader::{Hash, Place, Reader, number, text_of};
use crate::redis::script::FORMAT;
use crate::verify::FaultKind::{Counter, Foreign, Format, Index, Record, Reference};

/// The scripts order tasks by their status times this number, and then by their position.
const SPAN: i64 = 1 << 50;

/// Reads the boards. `name` is the name of the conversation in the index.
pub(in super::super) async fn check(
    reader: &Reader<'_>,
    place: &Place,
    index: &Entity,
    name: &str,
    _: &Hash,
) -> Result<()> {
    let meta = reader.hash(&place.key("meta")).await?;
    let boards = reader.sorted(&place.key("boards")).await?;
    let boards: BTreeSet<Vec<u8>> = boards.into_iter().map(|(agent, _)| agent).collect();
    for part in &place.parts {
        let (begin, agent) = match part.iter().position(|byte| *byte == b':') {
            Some(at) => (&part[..at], Some(&part[at + 1..])),
            None => (&part[..], None),
        };
        let key = format!("key {}", text_of(&place.key(part)));
        match agent {
            None => {
                let known = ["meta", "erased", "boards"].iter().any(|known| begin == known.as_bytes());
                reader.expect(known, Foreign, &key, "the conversation has no such part");
            }
            Some(agent) => {
                let known = BOARD_PARTS.iter().any(|known| begin == known.as_bytes());
                reader.expect(known, Foreign, &key, "a board has no such part");
                reader.expect(!known || boards.contains(agent), Reference, &key, "its board does not exist");
            }
        }
    }
    if boards.is_empty() {
        return Ok(());
    }
    let named = &place.name;
    let format = number(&meta, "");
    reader.expect(format == Some(FORMAT), Format, named, "its format number is another one, or missing");
    for agent in &boards {
        board(reader, place, agent).await?;
    }
    let registered = reader.has("ZSCORE", &index.part("names"), name).await?
        && reader.has("HGET", &index.part("epochs"), name).await?;
    reader.expect(registered, Index, named, "it is not in the list of conversations");
    Ok(())
}

async fn board(reader: &Reader<'_>, place: &Place, agent: &[u8]) -> Result<()> {
    let key = |part: &str| place.key([part.as_bytes(), b":", agent].concat());
    let named = format!("board of {} in the {}", text_of(agent), place.name);
    let valid = std::str::from_utf8(agent).is_ok_and(|agent| AgentId::new(agent).is_ok());
    reader.expect(valid, Record, &named, "its agent is no valid id");
    let counters = reader.hash(&key("board")).await?;
    if number(&counters, "format") != Some(FORMAT) {
        reader.add(Format, &named, "its counters or its format number are missing or of another program");
    }
    let (fixed, states) = (reader.hash(&key("tasks")).await?, reader.hash(&key("state")).await?);
    let results = reader.hash(&key("results")).await?;
    let task_named = |id: &[u8]| format!("task {} on the {named}", text_of(id));
    let ids: BTreeSet<&Vec<u8>> = fixed.keys().chain(states.keys()).collect();
    for id in results.keys().filter(|id| !ids.contains(id)) {
        reader.add(Reference, task_named(id), "it has a result and does not exist");
    }
    let mut tasks = BTreeMap::new();
    let bulk = |bytes: &Vec<u8>| Value::BulkString(bytes.clone());
    let generation = counters.get(b"generation".as_slice()).map_or(Value::Nil, bulk);
    for id in ids {
        reader.faults.read(1);
        let (Some(fixed), Some(state)) = (fixed.get(id), states.get(id)) else {
            reader.add(Reference, task_named(id), "its fields or its state do not exist");
            continue;
        };
        let result = results.get(id).map_or(Value::Nil, bulk);
        match rows::task(Value::Array(vec![bulk(id), bulk(fixed), bulk(state), result, generation.clone()])) {
            Ok(task) => _ = tasks.insert(id.clone(), task),
            Err(_) => reader.add(Record, task_named(id), "it cannot be decoded"),
        }
    }
    greatest(reader, &named, &counters, &tasks);
    queues(reader, &key, &named, &tasks).await
}

fn greatest(reader: &Reader<'_>, named: &str, counters: &Hash, tasks: &BTreeMap<Vec<u8>, Task>) {
    let tokens = tasks.values().filter_map(|task| task.lease.as_ref()).map(|lease| lease.token.get());
    for (name, used) in [
        ("position", tasks.values().map(|task| task.position.get()).max()),
        ("revision", tasks.values().map(|task| task.revision.get()).max()),
        ("token", tokens.max()),
    ] {
        let (last, used) = (number(counters, name).unwrap_or(0), used.unwrap_or(0));
        if u64::try_from(last).is_ok_and(|last| last >= used) {
            continue;
        }
        reader.add(Counter, named, format!("its last {name} is {last}; the greatest in use is {used}"));
    }
}

/// Compares the queues with the tasks: the order of all tasks, and the tasks with a lease.
async fn queues(
    reader: &Reader<'_>,
    key: &impl Fn(&str) -> Vec<u8>,
    named: &str,
    tasks: &BTreeMap<Vec<u8>, Task>,
) -> Result<()> {
    let order: BTreeMap<Vec<u8>, i64> = reader.sorted(&key("order")).await?.into_iter().collect();
    let leases: BTreeMap<Vec<u8>, i64> = reader.sorted(&key("leases")).await?.into_iter().collect();
    let lapsed: BTreeMap<Vec<u8>, i64> = reader.sorted(&key("lapsed")).await?.into_iter().collect();
    for (id, task) in tasks {
        let place = format!("task {} on the {named}", text_of(id));
        let position = i64::try_from(task.position.get()).unwrap_or(i64::MAX);
        let status = larder_kernel::TaskStatus::ALL.iter().position(|status| *status == task.status);
        let status = status.and_then(|status| i64::try_from(status).ok()).unwrap_or(0);
        let expected = status.saturating_mul(SPAN).saturating_add(position);
        reader.expect(
            order.get(id) == Some(&expected),
            Index,
            &place,
            "the order of the board does not have it at its status and position",
        );
        let ends = task.lease.as_ref().map(|lease| lease.expires_at.as_micros() / 1_000);
        let queued = match (leases.get(id), lapsed.get(id)) {
            (Some(at), None) => ends == Some(*at),
            (None, Some(at)) => ends.is_some() && *at == position,
            (None, None) => ends.is_none(),
            (Some(_), Some(_)) => false,
        };
        reader.expect(queued, Index, &place, "the queue of leases does not match its lease");
    }
    for id in order.keys().chain(leases.keys()).chain(lapsed.keys()).filter(|id| !tasks.contains_key(*id)) {
        let place = format!("task {} on the {named}", text_of(id));
        reader.add(Index, place, "it is queued and cannot be read");
    }
    Ok(())
}
