//! Searching conversations: by author in the store, by text while reading backwards.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_kernel::storage::history::check_tail_matching;
use larder_kernel::{
    AgentId, AgentRole, ChatMessage, Error, HistoryProvider, MessageFilter, PageRequest, Result, Seq,
    StoredMessage, Thread,
};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read::Backwards;
use crate::adapters::mcp::argument::{self, Id, Limit, optional};
use crate::adapters::mcp::cursor;
use crate::adapters::mcp::registry::Shared;

const OPERATION: &str = "mcp.conversation_search";
/// The maximum number of messages that one call scans.
const SCANNED_MESSAGES_MAX: u64 = 2_000;
/// The maximum number of message bytes that one call scans.
const SCANNED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The maximum number of threads that one call scans, and the page size of its thread listing.
const SCANNED_THREADS_MAX: usize = 200;
const THREADS_STEP: usize = 20;
/// The number of context bytes on each side of a match.
const AROUND_BYTES: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchInput {
    /// The text to find in message texts, tool call arguments or tool results, ignoring case. Without it, the
    /// search returns every message by the given authors.
    #[schemars(length(min = 1, max = 1024))]
    query: Option<String>,
    /// Search only conversations of this agent.
    agent: Option<Id>,
    /// Search only this conversation of the agent.
    session: Option<Id>,
    /// Find only messages that one of these agents wrote.
    #[serde(default)]
    authors: Vec<Id>,
    /// Find only messages whose author plays one of these roles, such as `researcher`.
    #[serde(default)]
    author_roles: Vec<Id>,
    /// The maximum number of messages to find; the default is 50.
    #[serde(default)]
    limit: Limit,
    /// The `next_cursor` of the previous result.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct SearchOutput {
    found: Vec<Hit>,
    /// The number of messages that this call scanned.
    scanned: u64,
    /// The cursor for the rest of the search; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct Hit {
    agent: String,
    session: String,
    /// The position of the message, for conversation_read and conversation_message.
    seq: i64,
    /// `system`, `user`, `assistant` or `tool`.
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    created_at: String,
    /// The match with the text around it.
    excerpt: String,
    /// `text`, `tool_call` or `tool_result`.
    part: &'static str,
}

/// The position at which a search continues: a thread, and optionally a message to start before.
#[derive(Serialize, Deserialize)]
struct Place {
    thread: Thread,
    before: Option<Seq>,
}

struct Search<'a> {
    history: &'a dyn HistoryProvider,
    query: Option<String>,
    filter: MessageFilter,
    limit: usize,
    found: Vec<Hit>,
    scanned: u64,
    scanned_bytes: usize,
}

pub(crate) async fn search(shared: Arc<Shared>, input: SearchInput) -> Result<SearchOutput> {
    let agent: Option<AgentId> = optional(input.agent.as_ref())?;
    let only = match (&input.agent, &input.session) {
        (Some(agent), Some(session)) => Some(Thread::new(agent, session)?),
        (None, Some(_)) => {
            return Err(Error::invalid(OPERATION, "agent", "is missing; a session belongs to an agent"));
        }
        _ => None,
    };
    let mut filter = MessageFilter::new();
    for author in &input.authors {
        filter = filter.include_agent(argument::named("authors", AgentId::new(author))?);
    }
    for role in &input.author_roles {
        filter = filter.include_role(argument::named("author_roles", AgentRole::new(role))?);
    }
    let limit = input.limit.items(OPERATION)?;
    check_tail_matching(&filter, limit)?;
    let query = input.query.as_deref().map(|text| argument::query(OPERATION, text)).transpose()?;
    let place: Option<Place> =
        input.cursor.as_deref().map(|word| cursor::decode(OPERATION, word)).transpose()?;
    let history = shared.stores.history()?;
    let mut search =
        Search { history: &*history, query, filter, limit, found: Vec::new(), scanned: 0, scanned_bytes: 0 };
    let rest = match only {
        Some(thread) => search.thread(&thread, place.and_then(|place| place.before)).await?,
        None => search.threads(agent.as_ref(), place).await?,
    };
    let next_cursor = rest.as_ref().map(cursor::encode).transpose()?;
    Ok(SearchOutput { found: search.found, scanned: search.scanned, next_cursor })
}

impl Search<'_> {
    /// Searches the threads one by one and returns the position to continue from.
    async fn threads(&mut self, agent: Option<&AgentId>, from: Option<Place>) -> Result<Option<Place>> {
        let mut last = None;
        if let Some(Place { thread, before }) = from {
            if let Some(rest) = self.thread(&thread, before).await? {
                return Ok(Some(rest));
            }
            last = Some(thread);
        }
        let (mut listed, mut ended, mut looked_at) = (VecDeque::new(), false, 0);
        loop {
            if listed.is_empty() && !ended {
                let page = PageRequest::first(THREADS_STEP).with_after(last.clone());
                let page = self.history.list_threads(agent, page).await?;
                ended = page.next.is_none();
                listed.extend(page.items.into_iter().map(|info| info.thread));
            }
            let Some(thread) = listed.pop_front() else {
                return Ok(None);
            };
            looked_at += 1;
            if looked_at > SCANNED_THREADS_MAX {
                return Ok(Some(Place { thread, before: None }));
            }
            if let Some(rest) = self.thread(&thread, None).await? {
                return Ok(Some(rest));
            }
            last = Some(thread);
        }
    }

    /// Searches one thread backwards, from its end or from before a message.
    async fn thread(&mut self, thread: &Thread, before: Option<Seq>) -> Result<Option<Place>> {
        let mut walk = Backwards::new(self.history, thread, self.filter.clone(), before);
        let mut before = before;
        loop {
            let step = walk.next().await?;
            if step.is_empty() {
                return Ok(None);
            }
            for stored in step {
                if self.is_full() {
                    return Ok(Some(Place { thread: thread.clone(), before }));
                }
                before = Some(stored.seq);
                self.scanned += 1;
                self.scanned_bytes += stored.message.size_bytes();
                if let Some((part, excerpt)) = self.finds(&stored.message) {
                    self.found.push(hit(thread, &stored, part, excerpt));
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.found.len() >= self.limit
            || self.scanned >= SCANNED_MESSAGES_MAX
            || self.scanned_bytes >= SCANNED_BYTES_MAX
    }

    /// Returns the part of the message that contains the text, with the text around it.
    fn finds(&self, message: &ChatMessage) -> Option<(&'static str, String)> {
        let Some(query) = &self.query else {
            return Some(("text", around(&message.text, 0, 0)));
        };
        let text = std::iter::once(("text", &message.text));
        let calls = message.tool_calls.iter().map(|call| ("tool_call", &call.arguments));
        let results = message.tool_results.iter().map(|result| ("tool_result", &result.content));
        text.chain(calls)
            .chain(results)
            .find_map(|(part, text)| place_of(text, query).map(|at| (part, around(text, at, query.len()))))
    }
}

fn hit(thread: &Thread, stored: &StoredMessage, part: &'static str, excerpt: String) -> Hit {
    let message = &stored.message;
    Hit {
        agent: thread.agent.to_string(),
        session: thread.session.to_string(),
        seq: stored.seq.get(),
        role: message.role.as_str(),
        author: message.author.as_ref().map(|author| author.agent.to_string()),
        created_at: message.created_at.to_string(),
        excerpt,
        part,
    }
}

/// Returns the byte offset of a lower-case text within a text of any case.
fn place_of(text: &str, query: &str) -> Option<usize> {
    let lower = text.to_lowercase();
    let at = lower.find(query)?;
    // Lower case can change the length in bytes, but rarely in characters. The excerpt is wide enough for
    // both.
    let chars = lower[..at].chars().count();
    Some(text.char_indices().nth(chars).map_or(text.len(), |(byte, _)| byte))
}

fn around(text: &str, at: usize, bytes: usize) -> String {
    let begin = text.floor_char_boundary(at.saturating_sub(AROUND_BYTES));
    let end = text.floor_char_boundary((at + bytes + AROUND_BYTES).min(text.len()));
    text[begin..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_of_any_case_and_length_are_shown() {
        let text = format!("{}ŽLUŤOUČKÝ kůň{}", "İ".repeat(400), "x".repeat(900));
        let at = place_of(&text, &"žluťoučký KŮŇ".to_lowercase()).unwrap();
        let shown = around(&text, at, 20);
        assert!(shown.len() < 450, "{}", shown.len());
        assert!(place_of(&text, "zlutoucky").is_none());
        let at = place_of("The Weather in OSLO", "oslo").unwrap();
        assert_eq!(around("The Weather in OSLO", at, 4), "The Weather in OSLO");
    }
}
