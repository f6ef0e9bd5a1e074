//! The details of one line of a survey.

use larder::Stores;
use larder_kernel::{
    BlobKey, BoardId, BucketName, CollectionName, EntityQuery, Metadata, PageRequest, RelationshipQuery,
    Result, TaskQuery, Thread,
};

use super::show::{at, bytes};
use super::survey::first;
use crate::thread::printable;

/// The maximum length of a text on one line, in bytes.
const LINE_BYTES: usize = 2_000;
/// The maximum number of items in the details of a line.
pub(crate) const ITEMS: usize = 200;

/// The object whose details are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    Thread(Thread),
    Collection(CollectionName),
    Entities,
    Relationships,
    Blob(BlobKey),
    Board(BoardId),
    Bucket(BucketName),
}

/// The details, ready for a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Detail {
    pub(crate) title: String,
    pub(crate) lines: Vec<String>,
}

/// Reads the details of a line, in parts of a limited size.
pub(crate) async fn load(stores: &Stores, subject: &Subject) -> Result<Detail> {
    let (title, lines, cut) = match subject {
        Subject::Thread(thread) => messages(stores, thread).await?,
        Subject::Collection(collection) => documents(stores, collection).await?,
        Subject::Entities => entities(stores).await?,
        Subject::Relationships => relationships(stores).await?,
        Subject::Blob(key) => blob(stores, key).await?,
        Subject::Board(board) => tasks(stores, board).await?,
        Subject::Bucket(bucket) => keys(stores, bucket).await?,
    };
    let mut lines: Vec<String> = lines.iter().map(|line| shown(line)).collect();
    if lines.is_empty() {
        lines.push("nothing".to_owned());
    }
    if cut {
        lines.push(format!("… and more than these {ITEMS}"));
    }
    Ok(Detail { title: shown(&title), lines })
}

/// Formats one line without control characters.
fn shown(text: &str) -> String {
    let end = (0..=LINE_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let more = if end < text.len() { "…" } else { "" };
    format!("{}{more}", printable(&text[..end]).replace('\t', " "))
}

type Found = (String, Vec<String>, bool);

fn properties(metadata: &Metadata) -> String {
    serde_json::to_string(metadata).unwrap_or_default()
}

async fn messages(stores: &Stores, thread: &Thread) -> Result<Found> {
    let found = stores.set().history()?.tail(thread, None, ITEMS).await?;
    let cut = found.previous(ITEMS).is_some();
    let mut lines = Vec::new();
    for stored in found.messages {
        let message = &stored.message;
        lines.push(format!("{}  {}  {}", stored.seq, at(Some(message.created_at)), message.role.as_str()));
        lines.extend(message.text.lines().map(|line| format!("    {line}")));
        lines.extend(message.tool_calls.iter().map(|call| format!("    calls {}", call.name)));
        if !message.tool_results.is_empty() {
            lines.push(format!("    {} results of tools", message.tool_results.len()));
        }
    }
    Ok((format!("{}/{}, the last messages", thread.agent, thread.session), lines, cut))
}

async fn documents(stores: &Stores, collection: &CollectionName) -> Result<Found> {
    let store = stores.set().vectors()?;
    let found = first(ITEMS, async |page| store.list(collection, page).await).await?;
    let line = |document: &larder_kernel::Document| {
        format!("{}  {}  {}", document.id, properties(&document.metadata), document.content)
    };
    Ok((collection.to_string(), found.items.iter().map(line).collect(), found.cut))
}

async fn entities(stores: &Stores) -> Result<Found> {
    let (store, all) = (stores.set().graph()?, EntityQuery::default());
    let found = first(ITEMS, async |page| store.find_entities(&all, page).await).await?;
    let line = |entity: &larder_kernel::Entity| {
        format!("{}: {}  {}", entity.entity_type, entity.id, properties(&entity.properties))
    };
    Ok(("entities".to_owned(), found.items.iter().map(line).collect(), found.cut))
}

async fn relationships(stores: &Stores) -> Result<Found> {
    let (store, all) = (stores.set().graph()?, RelationshipQuery::default());
    let found = first(ITEMS, async |page| store.find_relationships(&all, page).await).await?;
    let line = |edge: &larder_kernel::Relationship| {
        let (from, to, kind) = (&edge.source, &edge.target, &edge.relationship_type);
        format!("{from} -[{kind}]-> {to}  {}", properties(&edge.properties))
    };
    Ok(("relationships".to_owned(), found.items.iter().map(line).collect(), found.cut))
}

async fn blob(stores: &Stores, key: &BlobKey) -> Result<Found> {
    let info = stores.set().blobs()?.head(key).await?;
    let mut lines = vec![
        format!("size       {} ({} bytes)", bytes(info.size), info.size),
        format!("type       {}", info.content_type.as_deref().unwrap_or("none given")),
        format!("written    {}", at(Some(info.modified_at))),
        format!("tag        {}", info.etag),
    ];
    lines.extend(info.metadata.iter().map(|(name, value)| format!("{name}: {value}")));
    Ok((key.to_string(), lines, false))
}

async fn tasks(stores: &Stores, board: &BoardId) -> Result<Found> {
    let (store, all) = (stores.set().tasks()?, TaskQuery::default());
    let found = first(ITEMS, async |page| store.list_tasks(board, &all, page).await).await?;
    let mut lines = Vec::new();
    for task in &found.items {
        let held = task
            .lease
            .as_ref()
            .map(|lease| format!("  held by {} until {}", lease.worker, at(Some(lease.expires_at))));
        let retries = format!("{} of {} retries", task.retries, task.retries_max);
        let status = task.status.as_str();
        lines.push(format!(
            "{status:<11}  {}  {}  ({retries}){}",
            task.id,
            task.title,
            held.unwrap_or_default()
        ));
        lines.extend(task.result.iter().map(|result| format!("    {result}")));
    }
    Ok((format!("{}/{}", board.conversation, board.agent), lines, found.cut))
}

async fn keys(stores: &Stores, bucket: &BucketName) -> Result<Found> {
    let store = stores.set().key_value()?;
    let page = store.list(bucket, "", PageRequest::first(ITEMS)).await?;
    let mut lines = Vec::new();
    for item in page.items {
        // Skips a key that was deleted after the listing.
        let Some(entry) = store.get(bucket, &item.key).await? else { continue };
        let until = entry.expires_at.map(|time| format!(" until {}", at(Some(time)))).unwrap_or_default();
        let start = entry.value.slice(..entry.value.len().min(LINE_BYTES));
        let value = String::from_utf8_lossy(&start).into_owned();
        let size = entry.value.len();
        lines.push(format!("{}  revision {}{until}, {size} bytes: {value}", item.key, item.revision));
    }
    Ok((bucket.to_string(), lines, page.next.is_some()))
}
