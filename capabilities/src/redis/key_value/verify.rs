//! The verification of a bucket.

use std::collections::{BTreeMap, BTreeSet};

use larder_kernel::{Key, Result};

use super::PARTS;
use crate::redis::key::Entity;
use crate::redis::reader::{Hash, Place, Reader, number, text_of};
use crate::redis::script::FORMAT;
use crate::verify::FaultKind::{Counter, Foreign, Format, Index, Record, Reference};

/// The time after which the server removes the values of a bucket whose keys have all expired.
const KEPT_MS: i64 = 60_000;

/// Reads a bucket. `meta` has its counters, and `name` is its name in the index.
pub(in super::super) async fn check(
    reader: &Reader<'_>,
    place: &Place,
    index: &Entity,
    name: &str,
    meta: &Hash,
) -> Result<()> {
    for part in &place.parts {
        let known = ["meta", "erased"].iter().chain(PARTS).any(|known| part == known.as_bytes());
        let key = text_of(&place.key(part));
        reader.expect(known, Foreign, &format!("key {key}"), "the bucket has no such part");
    }
    reader.hash(&place.key("meta")).await?;
    let sorted = async |part| Ok::<_, larder_kernel::Error>(reader.sorted(&place.key(part)).await?);
    let values: BTreeSet<Vec<u8>> = reader.fields(&place.key("values")).await?.into_iter().collect();
    let names: BTreeSet<Vec<u8>> = sorted("names").await?.into_iter().map(|(key, _)| key).collect();
    let (revisions, expiries) = (sorted("revisions").await?, sorted("expiries").await?);
    let (deleted, expired) = (sorted("deleted").await?, sorted("expired").await?);
    reader.faults.read(u64::try_from(names.len()).unwrap_or(u64::MAX));
    let named = &place.name;
    if meta.is_empty() {
        reader.expect(names.is_empty() && values.is_empty(), Reference, named, "it has keys and no counters");
        return Ok(());
    }
    reader.expect(
        number(meta, "format") == Some(FORMAT),
        Format,
        named,
        "its format number is another one, or missing",
    );
    let key_named = |key: &[u8]| format!("key {} of the {named}", text_of(key));
    for key in &names {
        let valid = std::str::from_utf8(key).is_ok_and(|key| Key::new(key).is_ok());
        reader.expect(valid, Record, &key_named(key), "its name is no valid key");
    }
    // The server has removed the values of a bucket in which every key has expired.
    let ended = values.is_empty() && !names.is_empty() && expiries.len() == names.len();
    for key in names.symmetric_difference(&values).filter(|_| !ended) {
        reader.add(Reference, key_named(key), "it has a name without a value, or a value without a name");
    }
    let of_revisions: BTreeSet<Vec<u8>> = revisions.iter().map(|(key, _)| key.clone()).collect();
    for key in names.symmetric_difference(&of_revisions) {
        reader.add(Index, key_named(key), "it is missing in the names or in the revisions");
    }
    for (key, _) in expiries.iter().filter(|(key, _)| !names.contains(key)) {
        reader.add(Index, key_named(key), "it has an expiry and does not exist");
    }
    for (key, _) in deleted.iter().chain(&expired).filter(|(key, _)| names.contains(key)) {
        reader.add(Record, key_named(key), "it is stored and deleted at the same time");
    }
    let last = number(meta, "revision").unwrap_or(0);
    let mut by_revision = BTreeMap::new();
    for (key, revision) in revisions.iter().chain(&deleted).chain(&expired) {
        reader.expect(
            *revision <= last,
            Counter,
            &key_named(key),
            "its revision is beyond the bucket's last one",
        );
        if let Some(other) = by_revision.insert(revision, key) {
            let seen = format!("it has the revision of the key {}", text_of(other));
            reader.add(Record, key_named(key), seen);
        }
    }
    reader.expect(
        number(meta, "forgotten").unwrap_or(0) <= last,
        Counter,
        named,
        "its last revision is before a forgotten one",
    );
    let end = expiries.iter().map(|(_, at)| *at).max().filter(|_| expiries.len() == names.len());
    let found = reader.ends_ms(&place.key("values")).await?;
    let matches = values.is_empty() || found == end.map(|end| end + KEPT_MS);
    reader.expect(matches, Index, named, "the server does not remove its values after the last expiry");
    check_registration(reader, index, name, named).await
}

async fn check_registration(reader: &Reader<'_>, index: &Entity, name: &str, named: &str) -> Result<()> {
    let registered = reader.has("ZSCORE", &index.part("names"), name).await?
        && reader.has("HGET", &index.part("epochs"), name).await?;
    reader.expect(registered, Index, named, "it is not in the list of buckets");
    Ok(())
}
