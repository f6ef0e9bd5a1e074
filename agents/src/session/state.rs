//! What a window is made of: the newest messages of a session and its summary.

use std::sync::Arc;

use larder_kernel::{
    ChatMessage, HistoryProvider, Origin, Reach, Result, Revision, Seq, StoredMessage, Thread,
};

use super::flush::{Mark, unmarked};
use crate::compaction::{MessageMark, SummaryStore};
use crate::lookback::Lookback;
use crate::tokens::{TokenCounter, tokens_of};

/// The name under which summaries of sessions are kept.
const STRATEGY: &str = "session";
/// Messages of the first page of a walk back; each page is twice the one before, up to the last.
const FIRST_PAGE: usize = 32;
const LAST_PAGE: usize = 1_024;

/// How much was read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) messages: u64,
    pub(crate) pages: u64,
}

/// How far a walk back goes: until all that is asked is satisfied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) reach: Reach,
    /// Further, until the tokens add up to more than this.
    pub(crate) tokens: Option<u64>,
    /// Only what stands before this place.
    pub(crate) before: Option<Seq>,
}

/// The summary that holds for a session.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) up_to: Seq,
    pub(crate) text: String,
    pub(crate) tokens: u64,
    pub(crate) messages: u64,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The newest messages after the summary, oldest first.
    pub(crate) messages: Vec<StoredMessage>,
    pub(crate) summary: Option<Held>,
    /// The replacement that wrote the thread, where one did.
    pub(crate) mark: Option<Mark>,
    /// The first message that a new summary covers.
    pub(crate) first: Option<MessageMark>,
    /// The revision that a new summary must name.
    pub(crate) revision: Option<Revision>,
    /// How many messages were read, in how many pages.
    pub(crate) read: Count,
}

/// The newest messages of a thread.
struct Walked {
    /// Oldest first.
    messages: Vec<StoredMessage>,
    /// Whether they are all that the thread holds.
    whole: bool,
    read: Count,
}

/// Reads a session.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) history: Arc<dyn HistoryProvider>,
    pub(crate) summaries: SummaryStore,
    pub(crate) counter: Arc<dyn TokenCounter>,
}

impl Reader {
    /// Reads back as far as `walk` says.
    ///
    /// The messages are read first. A replacement that comes in between is then seen by its mark, and a summary of what
    /// it replaced is not taken for one of what stands there now.
    pub(crate) async fn read(&self, thread: &Thread, walk: Walk) -> Result<State> {
        let Walked { messages, whole, read } = self.walk_back(thread, walk).await?;
        let first = match messages.first() {
            Some(first) if whole => Some(first.clone()),
            _ => self.history.get_messages(thread, 0, 1).await?.into_iter().next(),
        };
        self.with_summary(thread, messages, first, read).await
    }

    /// Reads all messages of a session.
    pub(crate) async fn read_all(&self, thread: &Thread) -> Result<(Vec<StoredMessage>, Option<Held>)> {
        let walk = Walk { reach: Reach::Everything, tokens: None, before: None };
        let Walked { messages, read, .. } = self.walk_back(thread, walk).await?;
        let first = messages.first().cloned();
        let held = self.with_summary(thread, Vec::new(), first, read).await?.summary;
        let messages = messages.into_iter().filter(|stored| !is_summary(&stored.message)).map(unmarked);
        Ok((messages.collect(), held))
    }

    async fn with_summary(
        &self,
        thread: &Thread,
        messages: Vec<StoredMessage>,
        first: Option<StoredMessage>,
        read: Count,
    ) -> Result<State> {
        let mark = first.as_ref().and_then(|first| Mark::of(&first.message));
        let stored = self.summaries.current(&*self.history, thread).await?;
        let revision = stored.as_ref().map(|stored| stored.revision);
        let kept =
            stored.map(|stored| stored.summary).filter(|summary| holds(&summary.strategy, mark.as_ref()));
        let covered = kept.as_ref().and_then(|kept| kept.covers).map(|covers| covers.first);
        let first_mark = covered.or_else(|| first.as_ref().map(MessageMark::from));
        let summary = match (kept, first, &mark) {
            (Some(kept), ..) => Some(Held {
                up_to: kept.up_to,
                text: kept.text,
                tokens: kept.tokens,
                messages: kept.messages,
            }),
            (None, Some(first), Some(mark)) if mark.summary => Some(Held {
                up_to: first.seq,
                tokens: self.tokens(&first.message),
                text: first.message.text.clone(),
                messages: mark.covers,
            }),
            _ => None,
        };
        let after = summary.as_ref().map_or(Seq::MIN, |held| held.up_to);
        let messages =
            messages.into_iter().filter(|stored| stored.seq > after && !is_summary(&stored.message));
        Ok(State {
            messages: messages.map(unmarked).collect(),
            summary,
            mark,
            first: first_mark,
            revision,
            read,
        })
    }

    async fn walk_back(&self, thread: &Thread, walk: Walk) -> Result<Walked> {
        let mut newest_first: Vec<StoredMessage> = Vec::new();
        let (mut lookback, mut further, mut read) =
            (Lookback::default(), Lookback::default(), Count::default());
        let tokens = walk.tokens.map(Reach::Tokens);
        let (mut before, mut limit) = (walk.before, FIRST_PAGE);
        let whole = loop {
            let page = self.history.tail(thread, before, limit).await?;
            let (short, oldest) = (page.len() < limit, page.first().map(|stored| stored.seq));
            read.pages += 1;
            read.messages += larder_kernel::check::size(page.len());
            for stored in page.into_iter().rev() {
                let origin = Origin::Stored(stored.seq);
                lookback.add(walk.reach, &*self.counter, origin, &stored.message);
                if let Some(tokens) = tokens {
                    further.add(tokens, &*self.counter, origin, &stored.message);
                }
                newest_first.push(stored);
            }
            if short {
                break true;
            }
            if lookback.is_enough(walk.reach) && tokens.is_none_or(|tokens| further.is_enough(tokens)) {
                break false;
            }
            before = oldest;
            limit = (limit * 2).min(LAST_PAGE);
        };
        newest_first.reverse();
        Ok(Walked { messages: newest_first, whole, read })
    }

    pub(crate) fn tokens(&self, message: &ChatMessage) -> u64 {
        tokens_of(&*self.counter, message)
    }
}

/// The name of a summary's maker, which tells what was summarized.
pub(crate) fn strategy(mark: Option<&Mark>) -> String {
    mark.map_or_else(|| STRATEGY.to_owned(), |mark| format!("{STRATEGY}@{}", mark.id))
}

/// Whether a summary is one of what the thread holds now.
fn holds(made_by: &str, mark: Option<&Mark>) -> bool {
    match mark {
        Some(_) => made_by == strategy(mark),
        None => !made_by.contains('@'),
    }
}

fn is_summary(message: &ChatMessage) -> bool {
    Mark::of(message).is_some_and(|mark| mark.summary)
}
