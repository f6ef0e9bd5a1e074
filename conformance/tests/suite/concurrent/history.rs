//! Faulty history providers.

use std::sync::{Arc, Mutex};

use larder_agents::InMemoryHistoryProvider;
use larder_conformance::{Harness, StoreSet};
use larder_kernel::HistoryProvider as _;
use larder_kernel::storage::history::{check_fence, check_if_last, check_revision, fence_of};
use larder_kernel::{
    AgentId, AppendOptions, Appended, ChatMessage, FencingToken, Forked, HistoryEvents, MessageFilter,
    MessagePage, MessageUpdate, Page, PageRequest, Removal, RemovalTarget, Removed, Replaced, Replacement,
    Result, RunId, Seq, Thread, ThreadInfo, Ttl, Updated,
};

use super::frame::{assert_caught, assert_explained, pause, serve};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Reads the last `Seq`, waits, and writes after it, regardless of other writes in between.
    AppendsAfterARead,
    /// Writes a batch one message at a time.
    BatchInPieces,
    /// Looks up the idempotency key, waits, and appends.
    KeysLate,
    /// Compares the last `Seq` with that of the condition, waits, and appends.
    ChecksTheLastEarly,
    /// Compares the token with that of the thread, waits, and appends.
    ChecksTheFenceEarly,
    /// Ignores the position that a replacement has seen, and replaces the current thread.
    ReplacesBlindly,
    /// Reads the messages, waits, and returns them.
    ReadsLate,
    /// Reads the newest messages, waits, and removes them.
    PopsWhatItRead,
    /// Compares the revision of the message with that of an update, waits, and updates the message as it is.
    ChecksTheRevisionEarly,
    /// Counts, waits, and clears.
    CountsBeforeClear,
    /// Each handle caches the reply of `thread_info` from before the last write through it.
    InfoPerHandle,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    serve(move |place, namespace, _| {
        let inner = InMemoryHistoryProvider::open(place, namespace);
        let wrong = Wrong { inner, defect, info: Mutex::default() };
        StoreSet::default().with_history(Arc::new(wrong))
    })
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryHistoryProvider,
    defect: Defect,
    info: Mutex<Option<ThreadInfo>>,
}

impl Wrong {
    /// Returns the greatest token of the thread.
    async fn greatest(&self, thread: &Thread) -> Result<Option<FencingToken>> {
        let cleared = self.inner.clear_run(thread, &RunId::new("no such run")?, None).await;
        Ok(cleared.err().and_then(|error| fence_of(&error)))
    }
}

wrong! {
    HistoryProvider for Wrong {
        async fn append_many(
            &self,
            thread: &Thread,
            messages: Vec<ChatMessage>,
            options: AppendOptions,
        ) -> Result<Appended> {
            self.info.lock().unwrap().take();
            let unkeyed = options.idempotency_key.is_none();
            match self.defect {
                Defect::AppendsAfterARead if unkeyed => {
                    let last = self.inner.thread_info(thread).await?.last.get();
                    pause().await;
                    let count = i64::try_from(messages.len()).unwrap();
                    if self.inner.thread_info(thread).await?.last.get() == last {
                        self.inner.append_many(thread, messages, options).await?;
                    }
                    Ok(Appended::new(Seq::new(last + 1), Seq::new(last + count)))
                }
                Defect::BatchInPieces if unkeyed => {
                    let mut answers = Vec::new();
                    for message in messages {
                        answers.push(self.inner.append_many(thread, vec![message], options.clone()).await?);
                        pause().await;
                    }
                    let first = answers[0].first;
                    let last = first.get() + i64::try_from(answers.len()).unwrap() - 1;
                    Ok(Appended::new(first, Seq::new(last)))
                }
                Defect::KeysLate if !unkeyed => {
                    let texts: Vec<String> = messages.iter().map(|message| message.text.clone()).collect();
                    let stored = self.inner.get_messages(thread, 0, 10_000).await?.messages;
                    let place = |text: &String| stored.iter().find(|stored| stored.message.text == *text);
                    if let (Some(first), Some(last)) = (place(&texts[0]), place(&texts[texts.len() - 1])) {
                        return Ok(Appended::new(first.seq, last.seq));
                    }
                    pause().await;
                    self.inner.append_many(thread, messages, AppendOptions::default()).await
                }
                Defect::ChecksTheLastEarly if options.if_last.is_some() => {
                    let last = self.inner.thread_info(thread).await?.last;
                    check_if_last("history.append_many", options.if_last, last)?;
                    pause().await;
                    self.inner.append_many(thread, messages, options.with_if_last(None)).await
                }
                Defect::ChecksTheFenceEarly if unkeyed => {
                    let greatest = self.greatest(thread).await?;
                    check_fence("history.append_many", options.fence, greatest)?;
                    pause().await;
                    let fence = options.fence.max(self.greatest(thread).await?);
                    self.inner.append_many(thread, messages, options.with_fence(fence)).await
                }
                _ => self.inner.append_many(thread, messages, options).await,
            }
        }

        async fn get_messages(
            &self,
            thread: &Thread,
            offset: u64,
            limit: usize,
        ) -> Result<MessagePage> {
            if self.defect == Defect::ReadsLate {
                // One page at a time, each from the thread's state at that moment.
                let mut all = self.inner.get_messages(thread, offset, 0).await?;
                for offset in (offset..).take(limit) {
                    let one = self.inner.get_messages(thread, offset, 1).await?.messages;
                    if one.is_empty() {
                        break;
                    }
                    all.messages.extend(one);
                    pause().await;
                }
                return Ok(all);
            }
            self.inner.get_messages(thread, offset, limit).await
        }

        async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
            if self.defect == Defect::InfoPerHandle
                && let Some(known) = &*self.info.lock().unwrap()
            {
                return Ok(known.clone());
            }
            let info = self.inner.thread_info(thread).await?;
            *self.info.lock().unwrap() = Some(info.clone());
            Ok(info)
        }

        async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
            if self.defect == Defect::CountsBeforeClear {
                let count = self.inner.thread_info(thread).await?.messages;
                pause().await;
                self.inner.clear(thread, fence).await?;
                return Ok(count);
            }
            self.inner.clear(thread, fence).await
        }

        async fn remove(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
            if let (Defect::PopsWhatItRead, RemovalTarget::Newest(count)) = (self.defect, &removal.target) {
                let newest = self.inner.tail(thread, None, *count).await?.messages;
                pause().await;
                let last = self.inner.thread_info(thread).await?.last;
                if newest.is_empty() {
                    return Ok(Removed::new(0, last));
                }
                let removal = Removal::numbers(newest.iter().map(|stored| stored.seq));
                let last = self.inner.remove(thread, removal).await?.last;
                return Ok(Removed::new(1, last).with_messages(newest));
            }
            self.inner.remove(thread, removal).await
        }

        async fn update(&self, thread: &Thread, mut update: MessageUpdate) -> Result<Updated> {
            if self.defect == Defect::ChecksTheRevisionEarly {
                let before = Seq::new(update.seq.get() - 1);
                let found = self.inner.page_after(thread, before, 1).await?.messages;
                check_revision(&update, found.first().map_or(0, |stored| stored.revision.get()))?;
                for _ in 0..4 {
                    pause().await;
                }
                let now = self.inner.page_after(thread, before, 1).await?.messages;
                update.revision = now.first().map_or(update.revision, |stored| stored.revision);
            }
            self.inner.update(thread, update).await
        }

        async fn replace(&self, thread: &Thread, mut replacement: Replacement) -> Result<Replaced> {
            if self.defect == Defect::ReplacesBlindly {
                replacement.seen = self.inner.thread_info(thread).await?.last;
            }
            self.inner.replace(thread, replacement).await
        }
    }
    tail(thread: &Thread, before: Option<Seq>, limit: usize) -> MessagePage;
    tail_matching(thread: &Thread, filter: &MessageFilter, before: Option<Seq>, limit: usize)
        -> MessagePage;
    page_after(thread: &Thread, after: Seq, limit: usize) -> MessagePage;
    clear_run(thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> u64;
    fork(source: &Thread, target: &Thread, up_to: Option<Seq>, fence: Option<FencingToken>) -> Forked;
    list_threads(agent: Option<&AgentId>, page: PageRequest<Thread>) -> Page<ThreadInfo, Thread>;
    set_ttl(thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> ();
    subscribe(thread: &Thread, after: Seq) -> HistoryEvents;
}

#[test]
fn the_control_is_explained() {
    assert_explained(&backend(Defect::None));
}

#[test]
fn an_append_that_reads_the_last_seq_and_writes_later_is_caught() {
    assert_caught(&["HIST-004", "HIST-005", "HIST-031"], &backend(Defect::AppendsAfterARead));
}

#[test]
fn a_batch_in_pieces_is_caught() {
    assert_caught(
        &["HIST-004", "HIST-005", "HIST-031", "HIST-034", "HIST-038"],
        &backend(Defect::BatchInPieces),
    );
}

#[test]
fn an_idempotency_key_that_is_read_first_and_stored_later_is_caught() {
    assert_caught(&["HIST-004", "HIST-008", "HIST-011", "HIST-031"], &backend(Defect::KeysLate));
}

#[test]
fn a_condition_on_the_last_number_that_is_checked_early_is_caught() {
    assert_caught(&["HIST-106", "HIST-109"], &backend(Defect::ChecksTheLastEarly));
}

#[test]
fn a_fence_that_is_checked_early_is_caught() {
    assert_caught(&["HIST-137"], &backend(Defect::ChecksTheFenceEarly));
}

#[test]
fn a_replacement_that_ignores_its_condition_is_caught() {
    assert_caught(&["HIST-053"], &backend(Defect::ReplacesBlindly));
}

#[test]
fn a_pop_that_reads_first_and_removes_later_is_caught() {
    assert_caught(&["HIST-116"], &backend(Defect::PopsWhatItRead));
}

#[test]
fn an_update_whose_revision_is_checked_early_is_caught() {
    assert_caught(&["HIST-144"], &backend(Defect::ChecksTheRevisionEarly));
}

#[test]
fn a_window_read_message_by_message_is_caught() {
    assert_caught(&["HIST-004"], &backend(Defect::ReadsLate));
}

#[test]
fn a_clear_that_counts_first_and_clears_later_is_caught() {
    assert_caught(&["HIST-034", "HIST-038", "HIST-031", "HIST-004"], &backend(Defect::CountsBeforeClear));
}

#[test]
fn counts_kept_for_each_handle_are_caught() {
    assert_caught(&["HIST-031"], &backend(Defect::InfoPerHandle));
}
