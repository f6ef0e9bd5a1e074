//! Tools over the key-value store: notes under keys, with versions.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use larder_kernel::storage::key_value::{check_list, check_put};
use larder_kernel::{
    BucketName, Contract, Error, Key, KeyValueCondition, KeyValueEntry, KeyValuePutOptions, Result, Revision,
    check, limits,
};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::piece;
use super::argument::{Id, Limit, not_both, page};
use super::registry::{Effect, Entry, Shared, entry};
use super::{OWN_BUCKETS, cursor};

/// The default bucket of notes.
pub const NOTES_BUCKET: &str = "notes";
/// The size of one piece of a note, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// Returns the note tools.
pub(crate) fn entries() -> Vec<Entry> {
    vec![
        entry(
            Contract::KeyValue,
            Effect::Replaces,
            "note_put",
            "Write a note",
            "Writes a text under a key, optionally only if the key does not exist (`if_absent`) or still has \
             the revision that you read (`if_revision`). Example: {\"key\": \"plan\", \"text\": \"Book the \
             train.\"}",
            put,
        ),
        entry(
            Contract::KeyValue,
            Effect::Reads,
            "note_get",
            "Read a note",
            "Reads the text under a key and its revision, in pieces if it is long. Example: \
             {\"key\": \"plan\"}",
            get,
        ),
        entry(
            Contract::KeyValue,
            Effect::Reads,
            "note_list",
            "List notes",
            "Lists the keys that begin with a prefix, with their revisions, in order. Example: \
             {\"prefix\": \"plan/\"}",
            list,
        ),
        entry(
            Contract::KeyValue,
            Effect::Replaces,
            "note_delete",
            "Delete a note",
            "Deletes the text under a key, optionally only at the revision that you read (`if_revision`). \
             Example: {\"key\": \"plan\"}",
            delete,
        ),
    ]
}

/// Returns the bucket that a call names. The adapter's own buckets contain sessions and are refused.
fn bucket(operation: &'static str, name: Option<&Id>) -> Result<BucketName> {
    let bucket = BucketName::new(name.map_or(NOTES_BUCKET, Id::as_ref))?;
    if bucket.as_str().starts_with(OWN_BUCKETS) {
        return Err(Error::invalid(
            operation,
            "bucket",
            "is reserved for the server's sessions; use another key",
        ));
    }
    Ok(bucket)
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct PutInput {
    key: Id,
    /// The text, at most 4 MiB.
    text: String,
    /// The bucket; the default is `notes`.
    bucket: Option<Id>,
    /// Write only if the note has this revision.
    if_revision: Option<u64>,
    /// Write only if the key does not exist.
    #[serde(default)]
    if_absent: bool,
    /// The time to live, in milliseconds; without it, the note does not expire.
    #[schemars(range(min = 1))]
    ttl_ms: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct PutOutput {
    /// The revision of the written note, for `if_revision`.
    revision: u64,
}

async fn put(shared: Arc<Shared>, input: PutInput) -> Result<PutOutput> {
    const OPERATION: &str = "mcp.note_put";
    let (bucket, key) = (bucket(OPERATION, input.bucket.as_ref())?, Key::new(&input.key)?);
    let both = input.if_revision.is_some() && input.if_absent;
    not_both(OPERATION, "if_absent", both, both, "conflicts with `if_revision`; pass one of them")?;
    let condition = match input.if_revision {
        Some(revision) => KeyValueCondition::AtRevision(Revision::new(revision)),
        None if input.if_absent => KeyValueCondition::Absent,
        None => KeyValueCondition::None,
    };
    check::text(OPERATION, "text", &input.text, limits::VALUE_BYTES_MAX)?;
    let options = KeyValuePutOptions { condition, ttl: input.ttl_ms.map(Duration::from_millis) };
    let value = Bytes::from(input.text);
    check_put(&value, &options).map_err(|error| match error.field() {
        Some("ttl") => error.with_field("ttl_ms"),
        _ => error,
    })?;
    let revision = shared.stores.key_value()?.put(&bucket, &key, value, options).await?;
    Ok(PutOutput { revision: revision.get() })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct GetInput {
    key: Id,
    /// The bucket; the default is `notes`.
    bucket: Option<Id>,
    /// The offset, in bytes: the `next_offset` of the previous result.
    #[serde(default)]
    offset: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct GetOutput {
    /// `true` if the key exists.
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<NoteView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct NoteView {
    /// The text from `offset` on; base64 if the bytes are not text.
    text: String,
    /// `utf8` or `base64`.
    encoding: &'static str,
    /// The revision of the note. A piece with another revision belongs to another text.
    revision: u64,
    /// The size of the whole text, in bytes; for base64, in characters.
    bytes: usize,
    /// The offset of the next piece; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
    /// The expiry, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

async fn get(shared: Arc<Shared>, input: GetInput) -> Result<GetOutput> {
    const OPERATION: &str = "mcp.note_get";
    let (bucket, key) = (bucket(OPERATION, input.bucket.as_ref())?, Key::new(&input.key)?);
    let found = shared.stores.key_value()?.get(&bucket, &key).await?;
    let note = found.map(|found| view(OPERATION, &found, input.offset)).transpose()?;
    Ok(GetOutput { found: note.is_some(), note })
}

fn view(operation: &'static str, entry: &KeyValueEntry, offset: usize) -> Result<NoteView> {
    let (whole, encoding) = text(entry);
    let (text, next_offset) = piece(operation, &whole, offset, PIECE_BYTES)?;
    Ok(NoteView {
        text: text.to_owned(),
        encoding,
        revision: entry.revision.get(),
        bytes: whole.len(),
        next_offset,
        expires_at: entry.expires_at.map(|at| at.to_string()),
    })
}

/// Returns the value as text, with its encoding.
fn text(entry: &KeyValueEntry) -> (std::borrow::Cow<'_, str>, &'static str) {
    match std::str::from_utf8(&entry.value) {
        Ok(text) => (text.into(), "utf8"),
        Err(_) => (STANDARD.encode(&entry.value).into(), "base64"),
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct ListInput {
    /// List only keys with this prefix; the default is all keys.
    #[serde(default)]
    #[schemars(length(max = 512))]
    prefix: String,
    /// The bucket; the default is `notes`.
    bucket: Option<Id>,
    /// The maximum number of keys; the default is 50.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the previous result.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct ListOutput {
    notes: Vec<KeyView>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct KeyView {
    key: String,
    revision: u64,
}

async fn list(shared: Arc<Shared>, input: ListInput) -> Result<ListOutput> {
    const OPERATION: &str = "mcp.note_list";
    let bucket = bucket(OPERATION, input.bucket.as_ref())?;
    let request = page::<Key>(OPERATION, input.cursor.as_deref(), &input.limit)?;
    check_list(OPERATION, &input.prefix, Some(&request))?;
    let page = shared.stores.key_value()?.list(&bucket, &input.prefix, request).await?;
    let notes = page.items.into_iter();
    Ok(ListOutput {
        notes: notes.map(|item| KeyView { key: item.key.into(), revision: item.revision.get() }).collect(),
        next_cursor: page.next.as_ref().map(cursor::encode).transpose()?,
    })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct DeleteInput {
    key: Id,
    /// The bucket; the default is `notes`.
    bucket: Option<Id>,
    /// Delete only if the note has this revision.
    if_revision: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct DeleteOutput {
    /// `true` if the key existed.
    existed: bool,
}

async fn delete(shared: Arc<Shared>, input: DeleteInput) -> Result<DeleteOutput> {
    const OPERATION: &str = "mcp.note_delete";
    let (bucket, key) = (bucket(OPERATION, input.bucket.as_ref())?, Key::new(&input.key)?);
    let at = input.if_revision.map(Revision::new);
    let existed = shared.stores.key_value()?.delete(&bucket, &key, at).await?;
    Ok(DeleteOutput { existed })
}
