//! Resources: conversations, notes, boards and entities under URIs.
//!
//! A URI contains percent-encoded ids between slashes, so any id is one segment.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_kernel::{
    BoardId, BucketName, Contract, EntityId, Error, ErrorKind, Key, PageRequest, Result, TaskQuery, Thread,
    check,
};
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};
use serde::{Deserialize, Serialize};

use super::argument::LIST_ITEMS_DEFAULT;
use super::graph::EntityView;
use super::note::NOTES_BUCKET;
use super::registry::provides;
use super::{answer, conversation, cursor, task};
use larder_kernel::StoreSet;

const LIST: &str = "mcp.list_resources";
const READ: &str = "mcp.read_resource";
const SCHEME: &str = "larder://";
const JSON: &str = "application/json";
/// The maximum length of a URI, in bytes: two ids with every byte encoded.
const URI_BYTES_MAX: usize = 8 * 1024;

/// The position at which a list of resources continues.
#[derive(Serialize, Deserialize)]
enum Place {
    Conversations(Option<Thread>),
    Notes(Option<Key>),
    Boards(Option<BoardId>),
}

/// Returns one page of resources, all of one kind, and the position of the next page.
pub(crate) async fn list(stores: &StoreSet, cursor: Option<&str>) -> Result<(Vec<Resource>, Option<String>)> {
    let mut place = match cursor {
        Some(cursor) => cursor::decode(LIST, cursor)?,
        None => Place::Conversations(None),
    };
    loop {
        let (resources, next) = of_place(stores, place).await?;
        match next {
            // Skips a kind without resources instead of returning an empty page.
            Some(next) if resources.is_empty() => place = next,
            next => return Ok((resources, next.as_ref().map(cursor::encode).transpose()?)),
        }
    }
}

async fn of_place(stores: &StoreSet, place: Place) -> Result<(Vec<Resource>, Option<Place>)> {
    fn page<K>(after: Option<K>) -> PageRequest<K> {
        PageRequest::first(LIST_ITEMS_DEFAULT).with_after(after)
    }
    Ok(match place {
        Place::Conversations(after) => {
            let Ok(history) = stores.history() else {
                return Ok((Vec::new(), Some(Place::Notes(None))));
            };
            let page = history.list_threads(None, page(after)).await?;
            let resources = page.items.iter().map(|info| conversation_resource(&info.thread));
            let next = page.next.map_or(Place::Notes(None), |next| Place::Conversations(Some(next)));
            (resources.collect(), Some(next))
        }
        Place::Notes(after) => {
            let Ok(notes) = stores.key_value() else {
                return Ok((Vec::new(), Some(Place::Boards(None))));
            };
            let page = notes.list(&BucketName::new(NOTES_BUCKET)?, "", page(after)).await?;
            let resources = page.items.iter().map(|item| note_resource(&item.key));
            let next = page.next.map_or(Place::Boards(None), |next| Place::Notes(Some(next)));
            (resources.collect(), Some(next))
        }
        Place::Boards(after) => {
            let Ok(tasks) = stores.tasks() else {
                return Ok((Vec::new(), None));
            };
            let page = tasks.list_boards(None, page(after)).await?;
            let resources = page.items.iter().map(|board| board_resource(&board.id));
            (resources.collect(), page.next.map(|next| Place::Boards(Some(next))))
        }
    })
}

fn conversation_resource(thread: &Thread) -> Resource {
    let (agent, session) = (thread.agent.as_str(), thread.session.as_str());
    Resource::new(uri("conversation", &[agent, session]), format!("{agent} / {session}"))
        .with_description("The newest messages of a conversation")
        .with_mime_type(JSON)
}

fn note_resource(key: &Key) -> Resource {
    Resource::new(uri("note", &[key.as_str()]), key.as_str()).with_description("A note")
}

fn board_resource(board: &BoardId) -> Resource {
    let (conversation, agent) = (board.conversation.as_str(), board.agent.as_str());
    Resource::new(uri("board", &[conversation, agent]), format!("{conversation} / {agent}"))
        .with_description("The tasks of a board")
        .with_mime_type(JSON)
}

/// Returns templates for the kinds of resources that the stores provide.
pub(crate) fn templates(stores: &StoreSet) -> Vec<ResourceTemplate> {
    let kinds = [
        (
            Contract::History,
            "conversation",
            "conversation/{agent}/{session}",
            "The newest messages of a conversation",
        ),
        (Contract::KeyValue, "note", "note/{key}", "A note of the bucket `notes`"),
        (Contract::Tasks, "board", "board/{conversation}/{agent}", "The first tasks of a board"),
        (Contract::Graph, "entity", "entity/{entity}", "An entity of the memory graph"),
    ];
    let there = kinds.into_iter().filter(|(contract, ..)| provides(stores, *contract).is_ok());
    let template = |(contract, name, path, description): (Contract, &str, &str, &str)| {
        let template = ResourceTemplate::new(format!("{SCHEME}{path}"), name).with_description(description);
        if contract == Contract::KeyValue { template } else { template.with_mime_type(JSON) }
    };
    there.map(template).collect()
}

/// Reads the resource behind a URI.
pub(crate) async fn read(stores: &StoreSet, uri: &str) -> Result<ResourceContents> {
    check::text(READ, "uri", uri, URI_BYTES_MAX)?;
    let Some(path) = uri.strip_prefix(SCHEME) else {
        return Err(Error::invalid(READ, "uri", "does not begin with `larder:`"));
    };
    let segments: Vec<String> = path.split('/').map(decoded).collect::<Result<_>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let contents = match segments.as_slice() {
        ["conversation", agent, session] => {
            of_conversation(stores, uri, &Thread::new(agent, session)?).await?
        }
        ["note", key] => of_note(stores, uri, &Key::new(key)?).await?,
        ["board", conversation, agent] => of_board(stores, uri, &BoardId::new(conversation, agent)?).await?,
        ["entity", entity] => of_entity(stores, uri, EntityId::new(entity)?).await?,
        _ => return Err(Error::invalid(READ, "uri", "matches no resource template; list the templates")),
    };
    Ok(contents)
}

fn json<T: Serialize>(uri: &str, value: &T) -> Result<ResourceContents> {
    let text = serde_json::to_string(value)
        .map_err(|_| Error::new(ErrorKind::Unexpected, READ, "the value cannot be written as JSON"))?;
    answer::check_size(READ, text.len(), "the resource is too large; read it with the tools")?;
    Ok(ResourceContents::text(text, uri).with_mime_type(JSON))
}

fn absent() -> Error {
    Error::new(ErrorKind::NotFound, READ, "the resource does not exist; list the resources").with_field("uri")
}

async fn of_conversation(stores: &StoreSet, uri: &str, thread: &Thread) -> Result<ResourceContents> {
    let history = stores.history()?;
    if history.thread_info(thread).await?.messages == 0 {
        return Err(absent());
    }
    json(uri, &conversation::newest(&*history, thread, None, LIST_ITEMS_DEFAULT).await?)
}

async fn of_note(stores: &StoreSet, uri: &str, key: &Key) -> Result<ResourceContents> {
    let found = stores.key_value()?.get(&BucketName::new(NOTES_BUCKET)?, key).await?;
    let value = found.ok_or_else(absent)?.value;
    answer::check_size(READ, value.len(), "the note is too large; read it in pieces with note_get")?;
    Ok(match std::str::from_utf8(&value) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(_) => ResourceContents::blob(STANDARD.encode(&value), uri),
    })
}

async fn of_board(stores: &StoreSet, uri: &str, board: &BoardId) -> Result<ResourceContents> {
    let tasks = stores.tasks()?;
    if tasks.get_board(board).await?.is_none() {
        return Err(absent());
    }
    let page = PageRequest::first(LIST_ITEMS_DEFAULT);
    json(uri, &task::tasks(&*tasks, board, &TaskQuery::default(), page).await?)
}

async fn of_entity(stores: &StoreSet, uri: &str, entity: EntityId) -> Result<ResourceContents> {
    let found = stores.graph()?.get_entities(&[entity]).await?.pop().flatten();
    json(uri, &EntityView::from(found.ok_or_else(absent)?))
}

fn uri(kind: &str, ids: &[&str]) -> String {
    let ids: String = ids.iter().map(|id| format!("/{}", encoded(id))).collect();
    format!("{SCHEME}{kind}{ids}")
}

/// Returns the id with all but unreserved characters percent-encoded. It also encodes ids that consist of
/// dots, because clients may take them for path segments.
fn encoded(id: &str) -> String {
    let dots = id.bytes().all(|byte| byte == b'.');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && !dots);
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn decoded(segment: &str) -> Result<String> {
    let refused =
        || Error::invalid(READ, "uri", "contains a `%` escape that is not UTF-8; write `%` as `%25`");
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(refused());
        };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| refused())?);
    }
    String::from_utf8(bytes).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_id_is_one_segment_and_decodes_equal() {
        for id in ["plain", "a/b", "%2F", "é ☃", "..", ".", "?#[]{}", "x.y"] {
            let text = encoded(id);
            assert!(!text.contains('/') && text != ".." && text != ".");
            assert_eq!(decoded(&text).unwrap(), id);
        }
        for bad in ["%", "%4", "%zz", "%FF"] {
            assert_eq!(decoded(bad).unwrap_err().field(), Some("uri"));
        }
    }
}
