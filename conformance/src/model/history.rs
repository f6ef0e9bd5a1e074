//! The model of [`HistoryProvider`].

mod authors;
mod change;
mod fence;
mod names;
mod operation;
mod read;
mod remove;
mod subscribe;
mod update;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{
    Appended, Capabilities, ChatMessage, Contract, FencingToken, HistoryProvider, IdempotencyKey,
    PageRequest, Revision, RunId, Seq, StoredMessage, Thread, ThreadInfo,
};

use self::authors::Authors;
use self::names::At;
use self::operation::Operation;
use self::remove::Answered;
use super::compare::Checked;
use super::recorder::Recorder;
use super::rng::Rng;
use super::subject::Subject;
use crate::harness::StoreSet;

/// The state that the clauses require of conversations.
#[derive(Debug, Default)]
pub(super) struct History {
    threads: BTreeMap<Thread, Held>,
}

/// The state of one thread.
#[derive(Debug, Clone, Default)]
struct Held {
    messages: Vec<Message>,
    /// The largest assigned number.
    last: i64,
    /// The number of the last event that removed messages.
    cut: i64,
    /// The surviving events that are not messages.
    events: Vec<Event>,
    keys: BTreeMap<IdempotencyKey, ([u8; 32], Appended)>,
    removals: BTreeMap<IdempotencyKey, Answered>,
    /// The greatest fencing token with which a write succeeded.
    fence: Option<FencingToken>,
}

#[derive(Debug, Clone)]
struct Message {
    seq: i64,
    /// The number of the write that gave the message its content.
    revision: i64,
    message: Arc<ChatMessage>,
    /// The thread's size right after an append; unknown for messages of a replacement.
    thread_bytes: Option<u64>,
}

#[derive(Debug, Clone)]
struct Event {
    seq: i64,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    RunCleared {
        run: RunId,
        removed: u64,
    },
    Cleared {
        removed: u64,
    },
    Removed {
        seqs: Vec<i64>,
    },
    /// An update of the message with the number `of`.
    Updated {
        of: i64,
        thread_bytes: u64,
    },
    Rewound {
        after: i64,
        removed: u64,
    },
    /// The part of the replacement at `first` or later remains.
    Replaced {
        first: i64,
        up_to: i64,
        removed: u64,
        thread_bytes: u64,
    },
}

impl Held {
    fn bytes(&self) -> u64 {
        let sizes = self.messages.iter().map(|held| held.message.size_bytes());
        larder_kernel::check::size(sizes.sum())
    }

    fn seq(&self, at: At) -> Seq {
        Seq::new(match at {
            At::FromLast(back) => self.last.saturating_sub(back),
            At::Exactly(seq) => seq,
        })
    }

    fn info(&self, thread: &Thread) -> ThreadInfo {
        ThreadInfo::new(
            thread.clone(),
            larder_kernel::check::size(self.messages.len()),
            self.bytes(),
            Seq::new(self.last),
        )
    }

    /// Assigns the next number to an event.
    fn log(&mut self, kind: Kind) -> i64 {
        self.last += 1;
        self.cut = self.last;
        self.events.push(Event { seq: self.last, kind });
        self.last
    }

    fn append(&mut self, messages: impl IntoIterator<Item = Arc<ChatMessage>>) -> Appended {
        let first = self.last + 1;
        let mut bytes = self.bytes();
        for message in messages {
            self.last += 1;
            bytes += larder_kernel::check::size(message.size_bytes());
            let seq = self.last;
            self.messages.push(Message { seq, revision: seq, message, thread_bytes: Some(bytes) });
        }
        Appended::new(Seq::new(first), Seq::new(self.last))
    }
}

impl Message {
    fn stored(&self) -> StoredMessage {
        let stored = StoredMessage::new(Seq::new(self.seq), Arc::clone(&self.message));
        stored.with_revision(Revision::at(Seq::new(self.revision)))
    }
}

impl History {
    fn held(&self, thread: &Thread) -> &Held {
        static EMPTY: Held = Held {
            messages: Vec::new(),
            last: 0,
            cut: 0,
            events: Vec::new(),
            keys: BTreeMap::new(),
            removals: BTreeMap::new(),
            fence: None,
        };
        self.threads.get(thread).unwrap_or(&EMPTY)
    }

    fn held_mut(&mut self, thread: &Thread) -> &mut Held {
        self.threads.entry(thread.clone()).or_default()
    }
}

#[async_trait]
impl Subject for History {
    const CONTRACT: Contract = Contract::History;
    const FIELD: &'static str = "history";
    type Store = dyn HistoryProvider;
    type Operation = Operation;

    fn new(_declared: &Capabilities) -> Self {
        Self::default()
    }

    fn store(stores: &StoreSet) -> larder_kernel::Result<Arc<Self::Store>> {
        stores.history()
    }

    fn draw(rng: &mut Rng<'_>) -> Operation {
        operation::draw(rng)
    }

    async fn step(&mut self, store: &Self::Store, operation: &Operation, recorder: &mut Recorder) -> Checked {
        match operation {
            Operation::Append { thread, messages, times, options, if_last, fence } => {
                let append = (thread, &messages[..], *times, options, *if_last, *fence);
                self.append(store, append, recorder).await?;
                match messages.first().filter(|_| *times > 1) {
                    // Messages that another writer appended come after all of them.
                    Some(one) => {
                        let others =
                            Authors::all_but(one.author.as_ref().map_or(&thread.agent, |by| &by.agent));
                        self.tail_matching(store, (thread, &others, None, 10), recorder).await
                    }
                    None => Ok(()),
                }
            }
            Operation::Get { thread, offset, limit } => {
                self.get(store, (thread, *offset, *limit), recorder).await
            }
            Operation::Tail { thread, before, limit } => {
                self.tail(store, (thread, *before, *limit), recorder).await
            }
            Operation::TailMatching { thread, authors, before, limit } => {
                self.tail_matching(store, (thread, authors, *before, *limit), recorder).await
            }
            Operation::PageAfter { thread, after, limit } => {
                self.page_after(store, (thread, *after, *limit), recorder).await
            }
            Operation::Info { thread } => self.info(store, thread, recorder).await,
            Operation::Clear { thread, fence } => self.clear(store, (thread, *fence), recorder).await,
            Operation::ClearRun { thread, run, fence } => {
                self.clear_run(store, (thread, run, *fence), recorder).await
            }
            Operation::Remove { thread, remove } => self.remove(store, (thread, remove), recorder).await,
            Operation::Update { thread, update } => self.update(store, (thread, update), recorder).await,
            Operation::Fork { source, target, up_to, fence } => {
                self.fork(store, (source, target, *up_to, *fence), recorder).await
            }
            Operation::Replace { thread, up_to, seen, messages, fence } => {
                self.replace(store, (thread, *up_to, *seen, messages, *fence), recorder).await
            }
            Operation::ListThreads { agent, page } => {
                self.list_threads(store, (agent.as_ref(), page), recorder).await
            }
            Operation::SetTtl { thread, ttl, fence } => {
                self.set_ttl(store, (thread, *ttl, *fence), recorder).await
            }
            Operation::Subscribe { thread, after } => self.subscribe(store, (thread, *after), recorder).await,
            Operation::Erase => self.erase(store, recorder).await,
        }
    }

    async fn dump(&mut self, store: &Self::Store, recorder: &mut Recorder) -> Checked {
        self.list_threads(store, (None, &PageRequest::first(10_000)), recorder).await?;
        let threads: Vec<Thread> = self.threads.keys().cloned().collect();
        for thread in threads {
            self.page_after(store, (&thread, At::Exactly(i64::MIN), 10_000), recorder).await?;
            self.info(store, &thread, recorder).await?;
            // Only once: a subscription may cost a connection.
            if recorder.handle == "b" {
                self.subscribe(store, (&thread, At::Exactly(i64::MIN)), recorder).await?;
            }
        }
        Ok(())
    }
}
