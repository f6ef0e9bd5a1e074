//! Threads in order, each with its messages.

use std::sync::Arc;

use larder_kernel::{HistoryProvider, Page, Result, Seq, StoredMessage, Thread, ThreadInfo};

use super::pages::Pages;
use crate::transfer::record::{MessageRecord, Record};

const THREADS: usize = 500;
/// The number of messages in memory; each may have 4 MiB.
const MESSAGES: usize = 100;

pub(crate) struct HistoryScan {
    store: Arc<dyn HistoryProvider>,
    threads: Pages<ThreadInfo, Thread>,
    current: Option<Current>,
}

struct Current {
    thread: Thread,
    index: u64,
    messages: Pages<StoredMessage, Seq>,
}

impl HistoryScan {
    pub(super) fn new(store: &Arc<dyn HistoryProvider>) -> Self {
        let listed = Arc::clone(store);
        let threads = Pages::new(THREADS, move |page| {
            let store = Arc::clone(&listed);
            Box::pin(async move { store.list_threads(None, page).await })
        });
        Self { store: Arc::clone(store), threads, current: None }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(stored) = current.messages.next().await? {
                    let (thread, index) = (current.thread.clone(), current.index);
                    current.index += 1;
                    return Ok(Some(Record::Message(MessageRecord {
                        thread,
                        index,
                        message: stored.message,
                    })));
                }
                self.current = None;
            }
            let Some(info) = self.threads.next().await? else { return Ok(None) };
            let messages = messages(&self.store, &info.thread);
            self.current = Some(Current { thread: info.thread, index: 0, messages });
        }
    }
}

fn messages(store: &Arc<dyn HistoryProvider>, thread: &Thread) -> Pages<StoredMessage, Seq> {
    let (store, thread) = (Arc::clone(store), thread.clone());
    Pages::new(MESSAGES, move |page| {
        let (store, thread) = (Arc::clone(&store), thread.clone());
        Box::pin(async move {
            let items = store.page_after(&thread, page.after.unwrap_or(Seq::MIN), page.limit).await?;
            let next = items.last().filter(|_| items.len() == page.limit).map(|last| last.seq);
            Ok(Page::new(items, next))
        })
    })
}
