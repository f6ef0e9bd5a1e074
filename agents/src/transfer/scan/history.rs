//! Threads in order, each with its messages.

use std::sync::Arc;

use larder_kernel::{Contract, HistoryProvider, Page, Result, Seq, StoredMessage, Thread, ThreadInfo};

use super::pages::Pages;
use crate::transfer::missing::Skips;
use crate::transfer::record::{MessageRecord, Record};

const THREADS: usize = 500;
/// The number of messages in memory; each may have 4 MiB.
const MESSAGES: usize = 100;

pub(crate) struct HistoryScan {
    store: Arc<dyn HistoryProvider>,
    threads: Pages<ThreadInfo, Thread>,
    current: Option<Current>,
    skips: Skips,
}

struct Current {
    thread: Thread,
    index: u64,
    messages: Pages<StoredMessage, Seq>,
}

impl HistoryScan {
    pub(super) fn new(store: &Arc<dyn HistoryProvider>, skips: &Skips) -> Self {
        let listed = Arc::clone(store);
        let threads = Pages::new(THREADS, move |page| {
            let store = Arc::clone(&listed);
            Box::pin(async move { store.list_threads(None, page).await })
        });
        let threads = threads.skipping(skips, Contract::History, |after: Option<&Thread>| match after {
            Some(thread) => format!("the threads after {}/{}", thread.agent, thread.session),
            None => "all threads".to_owned(),
        });
        Self { store: Arc::clone(store), threads, current: None, skips: skips.clone() }
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
            let messages = messages(&self.store, &info, &self.skips);
            self.current = Some(Current { thread: info.thread, index: 0, messages });
        }
    }
}

fn messages(store: &Arc<dyn HistoryProvider>, info: &ThreadInfo, skips: &Skips) -> Pages<StoredMessage, Seq> {
    let (store, thread, last) = (Arc::clone(store), info.thread.clone(), info.last);
    let name = format!("{}/{}", thread.agent, thread.session);
    let pages = Pages::new(MESSAGES, move |page| {
        let (store, thread) = (Arc::clone(&store), thread.clone());
        Box::pin(async move {
            let found = store.page_after(&thread, page.after.unwrap_or(Seq::MIN), page.limit).await?;
            let next = found.next(page.limit);
            Ok(Page::new(found.messages, next))
        })
    });
    // The numbers of messages begin with 1.
    let number = |after: Option<&Seq>| after.map_or(0, |after| after.get().max(0));
    let place =
        move |after: Option<&Seq>| format!("the message of the thread {name} after number {}", number(after));
    pages.skipping(skips, Contract::History, place).stepping(move |after| {
        let next = Seq::new(number(after).saturating_add(1));
        (next < last).then_some(next)
    })
}

#[cfg(test)]
mod tests {
    use larder_kernel::{ChatMessage, HistoryProviderExt};

    use super::*;
    use crate::InMemoryHistoryProvider;

    #[tokio::test]
    async fn a_scan_continues_after_a_page_of_16_mib() {
        let store: Arc<dyn HistoryProvider> = Arc::new(InMemoryHistoryProvider::new());
        let thread = Thread::new("agent", "session").unwrap();
        for _ in 0..12 {
            store.append(&thread, ChatMessage::user("x".repeat(3 << 20))).await.unwrap();
        }
        let mut scan = HistoryScan::new(&store, &Skips::default());
        for expected in 0..12 {
            let Some(Record::Message(record)) = scan.next().await.unwrap() else { panic!("{expected}") };
            assert_eq!(record.index, expected);
        }
        assert!(scan.next().await.unwrap().is_none());
    }
}
