//! The verification of a thread.

use std::collections::BTreeSet;

use larder_kernel::Result;

use super::message::Entry;
use crate::redis::key::Entity;
use crate::redis::reader::{Hash, Place, Reader, number, text_of};
use crate::redis::script::{FORMAT, formats};
use crate::verify::FaultKind::{Counter, Foreign, Format, Index, Record, Reference};

const PARTS: [&str; 7] = ["head", "messages", "runs", "events", "replacements", "refused", "popped"];
/// The messages and runs of forks that are in progress, and the messages that pops keep.
const STAGED: [&str; 3] = ["fork-messages:", "fork-runs:", "popped:"];
/// The scripts add this to the numbers in the index of runs.
const RUN_OFFSET: i64 = 1 << 20;

/// The sums over the messages of a thread.
#[derive(Default)]
struct Sums {
    messages: i64,
    bytes: i64,
    /// The greatest number, and the size of the thread that its message records.
    newest: Option<(i64, u64)>,
    runs: BTreeSet<Vec<u8>>,
}

/// Reads a thread. `head` has its counters, and `name` is its name in the index.
pub(in super::super) async fn check(
    reader: &Reader<'_>,
    place: &Place,
    index: &Entity,
    name: &str,
    head: &Hash,
) -> Result<()> {
    for part in &place.parts {
        let known = PARTS.iter().any(|known| part == known.as_bytes())
            || STAGED.iter().any(|staged| part.starts_with(staged.as_bytes()));
        let key = text_of(&place.key(part));
        reader.expect(known, Foreign, &format!("key {key}"), "the thread has no such part");
    }
    reader.hash(&place.key("head")).await?;
    let sums = messages(reader, place).await?;
    let named = &place.name;
    if head.is_empty() {
        reader.expect(sums.messages == 0, Reference, named, "it has messages and no counters");
        return Ok(());
    }
    if head.contains_key(&b"s"[..])
        && !number(head, "f").is_some_and(|format| formats(FORMAT).supports(format))
    {
        reader.add(Format, named, "its format number is another one, or missing");
    }
    // Tokens are compared as text, so each has one form.
    let fence = number(head, "x").filter(|fence| *fence >= 0).map(|fence| fence.to_string().into_bytes());
    let stored = head.get(&b"x"[..]);
    reader.expect(stored == fence.as_ref(), Record, named, "its fence is not a fencing token");
    let ends = number(head, "e");
    // The server has removed the messages of an expired thread, and the next call notes it.
    let has_expired = ends.is_some() && sums.messages == 0;
    if !has_expired {
        counters(reader, place, head, &sums).await?;
        runs(reader, place, &sums).await?;
    }
    if sums.messages > 0 {
        let expected = ends.map(|ends| ends - 1);
        for key in [place.key("messages"), place.key("runs")] {
            let found = reader.ends_ms(&key).await?;
            let exists = key.ends_with(b":messages") || !sums.runs.is_empty();
            reader.expect(
                !exists || found == expected,
                Index,
                &format!("key {}", text_of(&key)),
                "the server does not remove it at the end of the thread's time to live",
            );
        }
        let listed = reader.has("ZSCORE", &index.part("listed"), name).await?
            && reader.has("HGET", &index.part("tokens"), name).await?
            && head.contains_key(&b"i"[..]);
        reader.expect(listed, Index, named, "it has messages and is not in the list of threads");
    }
    events(reader, place, number(head, "s").unwrap_or(0)).await
}

async fn messages(reader: &Reader<'_>, place: &Place) -> Result<Sums> {
    let (key, mut sums) = (place.key("messages"), Sums::default());
    loop {
        let page = reader.page(&key, sums.messages).await?;
        if page.is_empty() {
            return Ok(sums);
        }
        for (stored, score) in page {
            sums.messages += 1;
            reader.faults.read(1);
            message(reader, place, stored, score, &mut sums);
        }
    }
}

fn message(reader: &Reader<'_>, place: &Place, stored: Vec<u8>, score: i64, sums: &mut Sums) {
    let named = format!("message {score} of the {}", place.name);
    let Ok(entry) = Entry::parse(redis::Value::BulkString(stored)) else {
        return reader.add(Record, named, "it cannot be decoded");
    };
    reader.expect(entry.seq == score, Record, &named, "its number is not that of its position");
    let bytes = i64::try_from(entry.bytes).unwrap_or(i64::MAX);
    sums.bytes = sums.bytes.saturating_add(bytes);
    if sums.newest.is_none_or(|(seq, _)| seq < score) {
        sums.newest = Some((score, entry.thread_bytes));
    }
    if !entry.run().is_empty() {
        let end = format!("\0{:016} {bytes}", score.saturating_add(RUN_OFFSET));
        sums.runs.insert([entry.run(), end.as_bytes()].concat());
    }
    if let Err(seen) = entry.check() {
        reader.add(Record, named, seen);
    }
}

async fn counters(reader: &Reader<'_>, place: &Place, head: &Hash, sums: &Sums) -> Result<()> {
    let of = |name| number(head, name).unwrap_or(0);
    let (last, changed, messages, bytes) = (of("s"), of("c"), of("n"), of("b"));
    if messages != sums.messages || bytes != sums.bytes {
        let (n, b) = (sums.messages, sums.bytes);
        let seen = format!("counts {messages} messages of {bytes} bytes; it has {n} of {b}");
        reader.add(Counter, &place.name, seen);
    }
    let newest = sums.newest.map_or(0, |(seq, _)| seq);
    if last < newest || changed > last {
        let seen =
            format!("last number {last}, last change {changed}; the greatest number in use is {newest}");
        reader.add(Counter, &place.name, seen);
    }
    if let Some((seq, thread_bytes)) = sums.newest
        && seq > changed
        && i64::try_from(thread_bytes) != Ok(bytes)
    {
        let seen = format!("message {seq} says that the thread has {thread_bytes} bytes; it counts {bytes}");
        reader.add(Counter, &place.name, seen);
    }
    Ok(())
}

async fn runs(reader: &Reader<'_>, place: &Place, sums: &Sums) -> Result<()> {
    let found: BTreeSet<Vec<u8>> =
        reader.sorted(&place.key("runs")).await?.into_iter().map(|(entry, _)| entry).collect();
    let (missing, surplus) = (sums.runs.difference(&found).count(), found.difference(&sums.runs).count());
    if missing > 0 || surplus > 0 {
        let seen = format!("lacks {missing} messages and has {surplus} that do not exist");
        reader.add(Index, format!("index of the runs of the {}", place.name), seen);
    }
    Ok(())
}

/// Reads the events that are not messages, and the numbers of replacements.
async fn events(reader: &Reader<'_>, place: &Place, last: i64) -> Result<()> {
    let mut replacements = BTreeSet::new();
    for (event, score) in reader.sorted(&place.key("events")).await? {
        reader.faults.read(1);
        let named = format!("event {score} of the {}", place.name);
        let text = text_of(&event);
        let fields: Vec<&str> = text.splitn(7, ' ').collect();
        let numbers: Vec<i64> = fields.iter().take(6).filter_map(|field| field.parse().ok()).collect();
        let [seq, kind @ 1..=6, .., up_to, _, _] = numbers[..] else {
            reader.add(Record, named, "it cannot be decoded");
            continue;
        };
        reader.expect(
            seq == score && fields.len() == 7,
            Record,
            &named,
            "its number is not that of its position",
        );
        reader.expect(seq <= last, Counter, &named, "it is beyond the thread's last number");
        if kind == 3 {
            replacements.insert((score.to_string().into_bytes(), up_to));
        }
    }
    let found: BTreeSet<_> = reader.sorted(&place.key("replacements")).await?.into_iter().collect();
    let named = format!("index of the replacements of the {}", place.name);
    reader.expect(found == replacements, Index, &named, "it does not match the events");
    Ok(())
}
