//! Tools over conversations: what there is, what was said, and where something was said.

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

/// The tools of this room.
pub(crate) fn entries() -> Vec<Entry> {
    vec![
        entry(
            Contract::History,
            Effect::Reads,
            "conversation_list",
            "List conversations",
            "Lists the stored conversations, of one agent or of all, with the number and size of their messages.",
            list,
        ),
        entry(
            Contract::History,
            Effect::Reads,
            "conversation_read",
            "Read a conversation",
            "Reads messages of a conversation, oldest first: the newest ones, those before a message, or those after \
             one. Long texts are cut; conversation_message reads a message whole.",
            read::read,
        ),
        entry(
            Contract::History,
            Effect::Reads,
            "conversation_message",
            "Read one message whole",
            "Reads one message of a conversation as JSON, in pieces where it is long.",
            read::message,
        ),
        entry(
            Contract::History,
            Effect::Reads,
            "conversation_search",
            "Search conversations",
            "Finds messages by a text in them, and by who wrote them, in one conversation, in those of an agent, or in \
             all. In each conversation the newest come first. One call looks at a bounded number of messages: an answer \
             with a cursor has more to search, even where it found nothing.",
            search::search,
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
struct ListInput {
    /// Only the conversations of this agent.
    agent: Option<Id>,
    /// Most conversations to list; 50 unless said.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the answer before.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct ListOutput {
    conversations: Vec<ConversationView>,
    /// Where the list goes on; absent at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct ConversationView {
    agent: String,
    session: String,
    /// How many messages it holds.
    messages: u64,
    /// Their size.
    bytes: u64,
    /// The greatest number given to a message or an event of it.
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
