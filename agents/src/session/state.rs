//! The input of a window: the newest messages of a session and its summary.

use std::sync::Arc;

use larder_kernel::check::size;
use larder_kernel::{ChatMessage, HistoryProvider, Origin, Reach, Result, Seq, StoredMessage, Thread};

use super::flush::{Mark, unmarked};
use super::record::Record;
use crate::compaction::{MessageMark, StoredSummary, Summary, SummaryStore};
use crate::context::memory::LimitedWindow;
use crate::lookback::Lookback;
use crate::tokens::{TokenCounter, tokens_of};

/// The number of messages in the first page of a backward scan. Each page is twice as large as the previous
/// one, up to a maximum.
const FIRST_PAGE: usize = 32;
const LAST_PAGE: usize = 1_024;

/// The amount of data read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) messages: u64,
    pub(crate) pages: u64,
}

/// The extent of a backward scan. The scan continues until every condition is satisfied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    pub(crate) reach: Reach,
    /// Continues until the number of tokens exceeds this.
    pub(crate) tokens: Option<u64>,
    /// Reads only messages before this position.
    pub(crate) before: Option<Seq>,
    /// Reads only messages after this position.
    pub(crate) after: Option<Seq>,
}

/// The valid summary of a session.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) up_to: Seq,
    pub(crate) text: String,
    pub(crate) tokens: u64,
    pub(crate) messages: u64,
}

impl Held {
    pub(crate) fn summary(&self) -> Summary {
        let Self { up_to, text, tokens, messages } = self.clone();
        Summary { up_to, text, tokens, messages, strategy: String::new(), covers: None }
    }
}

impl From<Summary> for Held {
    fn from(Summary { up_to, text, tokens, messages, .. }: Summary) -> Self {
        Self { up_to, text, tokens, messages }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// The newest messages after the summary, oldest first.
    pub(crate) messages: Vec<StoredMessage>,
    pub(crate) summary: Option<Held>,
    /// The mark of the replacement that wrote the thread, if any.
    pub(crate) mark: Option<Mark>,
    /// The first message that a new summary covers.
    pub(crate) first: Option<MessageMark>,
    /// The last message covered by a summary that was made since the read.
    pub(crate) covered_last: Option<MessageMark>,
    /// The position of the first message in the thread.
    pub(crate) thread_first: Option<Seq>,
    /// The position before which no messages were read.
    pub(crate) unread_before: Option<Seq>,
    /// `true` if the agent's view left messages out, apart from the reach.
    pub(crate) limited: bool,
    /// The stored summary, whether it is valid or not. The next write of a summary must name its revision.
    pub(crate) stored: Option<StoredSummary>,
    /// The number of messages and pages read.
    pub(crate) read: Count,
}

impl State {
    /// Replaces the covered messages with a new summary.
    pub(crate) fn take_in(&mut self, held: Held) {
        let left = self.messages.partition_point(|stored| stored.seq <= held.up_to);
        let covered = self.messages.drain(..left);
        self.covered_last = covered.as_slice().last().map(MessageMark::from);
        self.summary = Some(held);
    }
}

/// The stored data of a session.
pub(crate) struct Loaded {
    pub(crate) record: Record,
    pub(crate) reader: Reader,
    /// The last position of the thread, if the inference may remove messages.
    pub(crate) seen: Option<Seq>,
    pub(crate) state: State,
}

/// The newest messages of a thread.
struct Walked {
    /// The messages, oldest first.
    messages: Vec<StoredMessage>,
    /// `true` if these are all messages of the thread after the start of the walk.
    whole: bool,
    /// `true` if the view ended the scan or left messages out.
    limited: bool,
    read: Count,
}

/// Reads the messages and the summary of a session.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) history: Arc<dyn HistoryProvider>,
    pub(crate) summaries: SummaryStore,
    pub(crate) counter: Arc<dyn TokenCounter>,
    /// The agent's view of the session.
    pub(crate) view: LimitedWindow,
}

impl Reader {
    /// Reads backwards to the extent that `walk` defines. A walk without limit ends at the thread's summary.
    ///
    /// The messages are read before the summary. If a replacement happens in between, its mark shows it, and
    /// a summary of the replaced messages is not used for the new ones.
    pub(crate) async fn read(&self, thread: &Thread, walk: Walk) -> Result<State> {
        if walk.reach == Reach::Everything && self.sees_all() {
            let kept = self.summaries.get(thread).await?;
            if let Some(up_to) = kept.map(|kept| kept.summary.up_to) {
                let state = self.read_to(thread, Walk { after: Some(up_to), ..walk }).await?;
                // Without a current summary of the skipped messages, they are read too.
                if state.summary.as_ref().is_some_and(|held| held.up_to >= up_to) {
                    return Ok(state);
                }
            }
        }
        self.read_to(thread, walk).await
    }

    async fn read_to(&self, thread: &Thread, walk: Walk) -> Result<State> {
        let walked = self.walk_back(thread, walk).await?;
        let first = match walked.messages.first() {
            Some(first) if walked.whole && walk.after.is_none() && !walked.limited => Some(first.clone()),
            _ => self.history.get_messages(thread, 0, 1).await?.messages.into_iter().next(),
        };
        self.with_summary(thread, walked, first).await
    }

    /// Reads all messages of a session.
    pub(crate) async fn read_all(&self, thread: &Thread) -> Result<(Vec<StoredMessage>, Option<Held>)> {
        let walk = Walk { reach: Reach::Everything, tokens: None, before: None, after: None };
        let all = self.all();
        let walked = all.walk_back(thread, walk).await?;
        let (first, messages) = (walked.messages.first().cloned(), walked.messages.clone());
        let held = all.with_summary(thread, walked, first).await?.summary;
        let messages = messages.into_iter().filter(|stored| !is_summary(&stored.message)).map(unmarked);
        Ok((messages.collect(), held))
    }

    async fn with_summary(
        &self,
        thread: &Thread,
        walked: Walked,
        first: Option<StoredMessage>,
    ) -> Result<State> {
        let Walked { messages, whole, limited, read } = walked;
        let mark = first.as_ref().and_then(|first| Mark::of(&first.message));
        let stored = self.summaries.look(&*self.history, thread).await?;
        let kept = stored.clone().filter(|(_, current)| *current).map(|(stored, _)| stored.summary);
        let kept = kept.filter(|summary| holds(&summary.strategy, mark.as_ref()));
        // A summary covers messages of all authors, so an agent that may not see all of them does not get it.
        let sees_all = self.sees_all();
        let kept = kept.filter(|_| sees_all);
        let covered = kept.as_ref().and_then(|kept| kept.covers).map(|covers| covers.first);
        let first_mark = covered.or_else(|| first.as_ref().map(MessageMark::from));
        let thread_first = first.as_ref().map(|first| first.seq);
        let summary = match (kept, first, &mark) {
            (Some(kept), ..) => Some(Held::from(kept)),
            (None, Some(first), Some(mark)) if mark.summary && sees_all => Some(Held {
                up_to: first.seq,
                tokens: self.tokens(&first.message),
                text: first.message.text.clone(),
                messages: mark.covers,
            }),
            _ => None,
        };
        let after = summary.as_ref().map_or(Seq::MIN, |held| held.up_to);
        let oldest = messages.first().map(|stored| stored.seq);
        let messages =
            messages.into_iter().filter(|stored| stored.seq > after && !is_summary(&stored.message));
        Ok(State {
            messages: messages.map(unmarked).collect(),
            summary,
            mark,
            first: first_mark,
            covered_last: None,
            thread_first,
            unread_before: match sees_all {
                true => oldest.filter(|_| !whole).or(limited.then_some(Seq::MAX)),
                false => Some(Seq::MAX),
            },
            limited,
            stored: stored.map(|(stored, _)| stored),
            read,
        })
    }

    fn sees_all(&self) -> bool {
        self.view.reads() && self.view.filter().is_empty()
    }

    /// Returns a reader without limits on the view.
    fn all(&self) -> Self {
        Self { view: LimitedWindow::new().without_max_bytes(), ..self.clone() }
    }

    async fn walk_back(&self, thread: &Thread, walk: Walk) -> Result<Walked> {
        let mut newest_first: Vec<StoredMessage> = Vec::new();
        let (mut lookback, mut further, mut read) =
            (Lookback::default(), Lookback::default(), Count::default());
        if !self.view.reads() {
            return Ok(Walked { messages: newest_first, whole: false, limited: true, read });
        }
        let tokens = walk.tokens.map(Reach::Tokens);
        let (mut before, mut limit, mut bytes) = (walk.before, FIRST_PAGE, 0);
        let (whole, limited) = 'pages: loop {
            let page = match self.view.filter().is_empty() {
                true => self.history.tail(thread, before, limit).await?,
                false => self.history.tail_matching(thread, self.view.filter(), before, limit).await?,
            };
            let previous = page.previous(limit);
            read.pages += 1;
            read.messages += size(page.messages.len());
            for stored in page.messages.into_iter().rev() {
                if walk.after.is_some_and(|after| stored.seq <= after) {
                    break 'pages (true, false);
                }
                bytes += size(stored.message.size_bytes());
                let is_full = self.view.last().is_some_and(|last| newest_first.len() >= last);
                if is_full || self.view.max_bytes().is_some_and(|max| bytes > max) {
                    break 'pages (false, true);
                }
                let origin = Origin::Stored(stored.seq);
                lookback.add(walk.reach, &*self.counter, origin, &stored.message);
                if let Some(tokens) = tokens {
                    further.add(tokens, &*self.counter, origin, &stored.message);
                }
                newest_first.push(stored);
            }
            if previous.is_none() {
                break (true, false);
            }
            if lookback.is_enough(walk.reach) && tokens.is_none_or(|tokens| further.is_enough(tokens)) {
                break (false, false);
            }
            before = previous;
            limit = (limit * 2).min(LAST_PAGE);
        };
        newest_first.reverse();
        let limited = limited || !self.view.filter().is_empty();
        Ok(Walked { messages: newest_first, whole, limited, read })
    }

    pub(crate) fn tokens(&self, message: &ChatMessage) -> u64 {
        tokens_of(&*self.counter, message)
    }
}

/// Returns the name of a summary's maker, which also identifies the replacement that wrote the thread.
pub(crate) fn made_by(maker: &str, mark: Option<&Mark>) -> String {
    mark.map_or_else(|| maker.to_owned(), |mark| format!("{maker}@{}", mark.id))
}

/// Returns `true` if a summary describes the thread's current messages.
fn holds(made_by: &str, mark: Option<&Mark>) -> bool {
    replacement_of(made_by) == mark.map(|mark| &*mark.id)
}

/// Returns the replacement that wrote the thread, from the name of a summary's maker.
fn replacement_of(made_by: &str) -> Option<&str> {
    made_by.split_once('@').map(|(_, id)| id)
}

/// Returns `true` if a summary covers what another one covers, and more.
pub(crate) fn extends(new: &Summary, other: &Summary) -> bool {
    let first = |summary: &Summary| summary.covers.map(|covers| covers.first);
    new.up_to > other.up_to
        && first(new).is_some()
        && first(new) == first(other)
        && replacement_of(&new.strategy) == replacement_of(&other.strategy)
}

fn is_summary(message: &ChatMessage) -> bool {
    Mark::of(message).is_some_and(|mark| mark.summary)
}
