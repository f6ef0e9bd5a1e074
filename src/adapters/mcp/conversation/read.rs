//! Reading a conversation: the newest messages, a range, or one message in pieces.

use std::sync::Arc;

use larder_kernel::{Error, ErrorKind, HistoryProvider, MessageFilter, Result, Seq, StoredMessage, Thread};
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::view::MessageView;
use crate::adapters::mcp::answer::{Room, piece};
use crate::adapters::mcp::argument::{Id, Limit, not_both};
use crate::adapters::mcp::registry::Shared;

/// The bounds of the number of messages per store call. A message can have 4 MiB, so large messages are read
/// in small steps.
const STEP_MIN: usize = 8;
const STEP_MAX: usize = 64;
/// The number of bytes that one store call should read.
const STEP_BYTES: usize = 1024 * 1024;
/// The size of one piece of a message, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// Reads a thread backwards, from its end or from before a message.
pub(crate) struct Backwards<'a> {
    history: &'a dyn HistoryProvider,
    thread: &'a Thread,
    filter: MessageFilter,
    before: Option<Seq>,
    step: usize,
    ended: bool,
}

impl<'a> Backwards<'a> {
    pub(crate) fn new(
        history: &'a dyn HistoryProvider,
        thread: &'a Thread,
        filter: MessageFilter,
        before: Option<Seq>,
    ) -> Self {
        Self { history, thread, filter, before, step: STEP_MIN, ended: false }
    }

    /// Returns the messages before the previous step's, newest first; empty at the start of the thread.
    pub(crate) async fn next(&mut self) -> Result<Vec<StoredMessage>> {
        if self.ended {
            return Ok(Vec::new());
        }
        let page = self.history.tail_matching(self.thread, &self.filter, self.before, self.step).await?;
        self.before = page.previous(self.step);
        self.ended = self.before.is_none();
        let mut messages = page.messages;
        let bytes: usize = messages.iter().map(|stored| stored.message.size_bytes()).sum();
        let wider = if bytes < STEP_BYTES { self.step * 2 } else { self.step / 2 };
        self.step = wider.clamp(STEP_MIN, STEP_MAX);
        messages.reverse();
        Ok(messages)
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadInput {
    agent: Id,
    session: Id,
    /// The maximum number of messages; the default is 50.
    #[serde(default)]
    limit: Limit,
    /// Read only messages with a smaller `seq`: the `older` of the previous result.
    before: Option<i64>,
    /// Read the first messages with a greater `seq`: the `newer` of the previous result.
    after: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct ReadOutput {
    /// The messages, oldest first.
    messages: Vec<MessageView>,
    /// The value of `before` for the previous messages; absent at the start of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    older: Option<i64>,
    /// The value of `after` for the next messages; absent at the end, and in a read of the newest messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    newer: Option<i64>,
}

pub(crate) async fn read(shared: Arc<Shared>, input: ReadInput) -> Result<ReadOutput> {
    const OPERATION: &str = "mcp.conversation_read";
    let thread = Thread::new(&input.agent, &input.session)?;
    let limit = input.limit.items(OPERATION)?;
    let (before, after) = (input.before.map(Seq::new), input.after.map(Seq::new));
    not_both(
        OPERATION,
        "after",
        after.is_some(),
        before.is_some(),
        "conflicts with `before`; pass one of them",
    )?;
    let history = shared.stores.history()?;
    match after {
        Some(after) => following(&*history, &thread, after, limit).await,
        None => newest(&*history, &thread, before, limit).await,
    }
}

/// Returns the newest messages, or the newest before a position.
pub(crate) async fn newest(
    history: &dyn HistoryProvider,
    thread: &Thread,
    before: Option<Seq>,
    limit: usize,
) -> Result<ReadOutput> {
    let mut walk = Backwards::new(history, thread, MessageFilter::new(), before);
    let (mut messages, mut room, mut older) = (Vec::new(), Room::new(), None);
    'reading: loop {
        let step = walk.next().await?;
        if step.is_empty() {
            break;
        }
        for stored in step {
            let view = MessageView::from(&stored);
            if messages.len() == limit || !room.takes(&view)? {
                older = messages.last().map(|view: &MessageView| view.seq);
                break 'reading;
            }
            messages.push(view);
        }
    }
    messages.reverse();
    Ok(ReadOutput { messages, older, newer: None })
}

async fn following(
    history: &dyn HistoryProvider,
    thread: &Thread,
    after: Seq,
    limit: usize,
) -> Result<ReadOutput> {
    let (mut messages, mut room, mut newer): (Vec<MessageView>, _, _) = (Vec::new(), Room::new(), None);
    let mut after = after;
    'reading: loop {
        let step = history.page_after(thread, after, STEP_MIN).await?;
        let ended = step.next(STEP_MIN).is_none();
        for stored in step.messages {
            let view = MessageView::from(&stored);
            if messages.len() == limit || !room.takes(&view)? {
                newer = messages.last().map(|view| view.seq);
                break 'reading;
            }
            after = stored.seq;
            messages.push(view);
        }
        if ended {
            break;
        }
    }
    Ok(ReadOutput { messages, older: None, newer })
}

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageInput {
    agent: Id,
    session: Id,
    /// The position of the message.
    seq: i64,
    /// The offset in the JSON, in bytes: the `next_offset` of the previous result.
    #[serde(default)]
    offset: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct MessageOutput {
    seq: i64,
    /// The message as JSON, from `offset` on.
    json: String,
    /// The size of the whole JSON, in bytes.
    json_bytes: usize,
    /// The offset of the next piece; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
}

pub(crate) async fn message(shared: Arc<Shared>, input: MessageInput) -> Result<MessageOutput> {
    const OPERATION: &str = "mcp.conversation_message";
    let thread = Thread::new(&input.agent, &input.session)?;
    let before = Seq::new(input.seq.saturating_sub(1));
    let found = match shared.stores.history()?.page_after(&thread, before, 1).await {
        // The number is greater than the thread's last one.
        Err(error) if error.kind() == ErrorKind::Conflict => Vec::new(),
        found => found?.messages,
    };
    let Some(stored) = found.into_iter().find(|stored| stored.seq.get() == input.seq) else {
        return Err(Error::new(
            ErrorKind::NotFound,
            OPERATION,
            "the conversation has no message with this `seq`; read the conversation first",
        ));
    };
    let json = serde_json::to_string(&*stored.message)
        .map_err(|_| Error::new(ErrorKind::Unexpected, OPERATION, "the message cannot be written as JSON"))?;
    let (part, next_offset) = piece(OPERATION, &json, input.offset, PIECE_BYTES)?;
    Ok(MessageOutput { seq: input.seq, json: part.to_owned(), json_bytes: json.len(), next_offset })
}
