//! Tools over conversations: listing, reading and searching.

mod read;
mod search;
mod view;

use std::sync::Arc;

use larder_kernel::{AgentId, Contract, Result, Thread, ThreadInfo};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::argument::{Id, Limit, optional, page};
use super::cursor;
use super::registry::{Effect, Entry, Shared, entry};

pub(crate) use read::newest;

/// Returns the conversation tools.
pub(crate) fn entries() -> Vec<Entry> {
    vec![
        entry(
            Contract::History,
            Effect::Reads,
            "conversation_list",
            "List conversations",
            "Lists the conversations of one agent or of all agents, with the number and size of their \
             messages. Example: {\"agent\": \"support\", \"limit\": 20}",
            list,
        ),
        entry(
            Contract::History,
            Effect::Reads,
            "conversation_read",
            "Read a conversation",
            "Reads the newest messages of a conversation, or the messages before or after a position, oldest \
             first. Long texts are cut; conversation_message reads a whole message. Example: \
             {\"agent\": \"support\", \"session\": \"42\", \"limit\": 10}",
            read::read,
        ),
        entry(
            Contract::History,
            Effect::Reads,
            "conversation_message",
            "Read one whole message",
            "Reads one message of a conversation as JSON, in pieces if it is long. Example: \
             {\"agent\": \"support\", \"session\": \"42\", \"seq\": 7}",
            read::message,
        ),
        entry(
            Contract::History,
            Effect::Reads,
            "conversation_search",
            "Search conversations",
            "Finds messages by text and author in one conversation, in the conversations of an agent or in \
             all conversations, newest first in each conversation. One call scans a limited number of \
             messages: if the result has a cursor, call again with it, even if this call found nothing. \
             Example: {\"query\": \"refund\", \"agent\": \"support\"}",
            search::search,
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct ListInput {
    /// List only conversations of this agent.
    agent: Option<Id>,
    /// The maximum number of conversations; the default is 50.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the previous result.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct ListOutput {
    conversations: Vec<ConversationView>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct ConversationView {
    agent: String,
    session: String,
    /// The number of messages.
    messages: u64,
    /// The size of the messages, in bytes.
    bytes: u64,
    /// The highest sequence number of its messages and events.
    last_seq: i64,
}

impl From<ThreadInfo> for ConversationView {
    fn from(info: ThreadInfo) -> Self {
        Self {
            agent: info.thread.agent.into(),
            session: info.thread.session.into(),
            messages: info.messages,
            bytes: info.bytes,
            last_seq: info.last.get(),
        }
    }
}

async fn list(shared: Arc<Shared>, input: ListInput) -> Result<ListOutput> {
    let agent: Option<AgentId> = optional(input.agent.as_ref())?;
    let page = page::<Thread>("mcp.conversation_list", input.cursor.as_deref(), &input.limit)?;
    let page = shared.stores.history()?.list_threads(agent.as_ref(), page).await?;
    Ok(ListOutput {
        conversations: page.items.into_iter().map(Into::into).collect(),
        next_cursor: page.next.as_ref().map(cursor::encode).transpose()?,
    })
}
