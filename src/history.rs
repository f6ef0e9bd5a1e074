//! Conversations.

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::storage::fenced;
use larder_kernel::{
    AgentId, AppendOptions, Appended, ChatMessage, Error, FencingToken, Forked, HistoryProviderExt as _,
    IdempotencyKey, MessageUpdate, PageRequest, Removal, Result, RunId, Seq, StoredMessage, Thread,
    ThreadInfo, Ttl,
};

use crate::handle::{handle, id};

handle!(
    /// Conversations: append messages to a thread, and read the newest.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let stores = larder::open("memory:").await?;
    /// let history = stores.history()?;
    /// let thread = Thread::new("assistant", "session-1")?;
    /// history.append(&thread, ChatMessage::user("Hello")).await?;
    /// for message in history.tail(&thread, 20).await? {
    ///     println!("{}", message.text());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    History,
    HistoryProvider,
    history
);

impl History {
    /// Appends one message and returns its position in the thread. O(message), for a thread of any length.
    ///
    /// # Errors
    /// As [`append_many`](larder_kernel::HistoryProvider::append_many).
    ///
    /// # Cancellation
    /// The message is written or not. To retry safely, use [`append_once`](Self::append_once).
    pub async fn append(&self, thread: &Thread, message: ChatMessage) -> Result<Seq> {
        Ok(self.append_many(thread, vec![message], AppendOptions::default()).await?.last)
    }

    /// Appends up to 1,000 messages, all or none.
    ///
    /// # Errors
    /// As [`append_many`](larder_kernel::HistoryProvider::append_many).
    pub async fn append_all(
        &self,
        thread: &Thread,
        messages: impl IntoIterator<Item = ChatMessage> + Send,
    ) -> Result<Appended> {
        let messages = messages.into_iter().collect();
        self.append_many(thread, messages, AppendOptions::default()).await
    }

    /// Appends messages once: repeating the call with the same key and messages writes nothing and returns
    /// the first result.
    ///
    /// # Errors
    /// As [`append_many`](larder_kernel::HistoryProvider::append_many); `Conflict` if the key was used with
    /// other messages.
    pub async fn append_once(
        &self,
        thread: &Thread,
        key: impl TryInto<IdempotencyKey, Error: Into<Error>> + Send,
        messages: impl IntoIterator<Item = ChatMessage> + Send,
    ) -> Result<Appended> {
        let (key, messages) = (id(key)?, messages.into_iter().collect());
        self.append_many(thread, messages, AppendOptions::default().with_idempotency_key(key)).await
    }

    /// Appends messages if the thread's last position is still `last`, as
    /// [`thread_info`](larder_kernel::HistoryProvider::thread_info) returned it. Of two writers that read the
    /// same state, exactly one succeeds.
    ///
    /// ```
    /// use larder::ErrorKind;
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// # let stores = larder::open("memory:").await?;
    /// let history = stores.history()?;
    /// let thread = Thread::new("assistant", "session-1")?;
    /// let last = history.thread_info(&thread).await?.last;
    /// let seen = history.tail(&thread, 20).await?;
    /// // …decide on an answer to what was seen…
    /// history.append_if_last(&thread, last, [ChatMessage::assistant("Hello")]).await?;
    ///
    /// let lost = history.append_if_last(&thread, last, [ChatMessage::assistant("Hi")]).await;
    /// assert_eq!(lost.unwrap_err().kind(), ErrorKind::Conflict);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`append_many`](larder_kernel::HistoryProvider::append_many); `Conflict` if the thread has changed.
    /// Then read the thread again, `thread_info` first.
    pub async fn append_if_last(
        &self,
        thread: &Thread,
        last: Seq,
        messages: impl IntoIterator<Item = ChatMessage> + Send,
    ) -> Result<Appended> {
        let messages = messages.into_iter().collect();
        self.append_many(thread, messages, AppendOptions::default().with_if_last(last)).await
    }

    /// Returns a handle whose writes carry this fencing token, such as the token of a task's claim. A thread
    /// remembers the greatest token. A worker whose claim was taken over gets `Conflict` for each write, and
    /// so does a writer without a token. Only an erasure removes the fence of a thread.
    ///
    /// ```
    /// use larder::prelude::*;
    /// use larder::{ErrorKind, FencingToken};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// # let stores = larder::open("memory:").await?;
    /// let history = stores.history()?;
    /// let thread = Thread::new("assistant", "session-1")?;
    /// let old = history.with_fence(FencingToken::new(33));
    /// old.append(&thread, ChatMessage::assistant("Working on it")).await?;
    ///
    /// // Another worker claims the task, and gets a greater token.
    /// let new = history.with_fence(FencingToken::new(34));
    /// new.append(&thread, ChatMessage::assistant("Done")).await?;
    /// let lost = old.append(&thread, ChatMessage::assistant("Done, too")).await;
    /// assert_eq!(lost.unwrap_err().kind(), ErrorKind::Conflict);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_fence(&self, token: FencingToken) -> Self {
        Self(fenced(self.provider().clone(), token))
    }

    /// Removes all messages of a thread, and returns their number.
    ///
    /// # Errors
    /// As [`clear`](larder_kernel::HistoryProvider::clear).
    pub async fn clear(&self, thread: &Thread) -> Result<u64> {
        self.provider().clear(thread, None).await
    }

    /// Removes the messages of one run, and returns their number.
    ///
    /// # Errors
    /// As [`clear_run`](larder_kernel::HistoryProvider::clear_run).
    pub async fn clear_run(&self, thread: &Thread, run: &RunId) -> Result<u64> {
        self.provider().clear_run(thread, run, None).await
    }

    /// Copies a thread's messages, all or those up to a position, into a thread that has no messages.
    ///
    /// # Errors
    /// As [`fork`](larder_kernel::HistoryProvider::fork).
    pub async fn fork(&self, source: &Thread, target: &Thread, up_to: Option<Seq>) -> Result<Forked> {
        self.provider().fork(source, target, up_to, None).await
    }

    /// Sets or removes the time to live of a thread.
    ///
    /// # Errors
    /// As [`set_ttl`](larder_kernel::HistoryProvider::set_ttl).
    pub async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>) -> Result<()> {
        self.provider().set_ttl(thread, ttl, None).await
    }

    /// Removes the newest message and returns it; `None` if the thread has no messages. Of concurrent calls,
    /// no two return the same message.
    ///
    /// If the call fails with an unknown outcome, the message may be lost to you. To retry safely, call
    /// [`remove`](larder_kernel::HistoryProvider::remove) with [`Removal::newest`] and an idempotency key.
    ///
    /// # Errors
    /// As [`remove`](larder_kernel::HistoryProvider::remove).
    pub async fn pop(&self, thread: &Thread) -> Result<Option<StoredMessage>> {
        Ok(self.remove(thread, Removal::newest(1)).await?.messages.pop())
    }

    /// Removes every message after a position, and returns their number.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// # let stores = larder::open("memory:").await?;
    /// let history = stores.history()?;
    /// let thread = Thread::new("assistant", "session-1")?;
    /// let turn = history.append(&thread, ChatMessage::user("Which train?")).await?;
    /// history.append(&thread, ChatMessage::assistant("The 9:14.")).await?;
    /// assert_eq!(history.rewind(&thread, turn).await?, 1);
    /// assert_eq!(history.pop(&thread).await?.unwrap().text(), "Which train?");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`remove`](larder_kernel::HistoryProvider::remove).
    pub async fn rewind(&self, thread: &Thread, after: Seq) -> Result<u64> {
        Ok(self.remove(thread, Removal::after(after)).await?.removed)
    }

    /// Removes the messages with these positions, at most 1,000, and returns the messages that existed.
    ///
    /// # Errors
    /// As [`remove`](larder_kernel::HistoryProvider::remove).
    pub async fn remove_messages(
        &self,
        thread: &Thread,
        positions: impl IntoIterator<Item = Seq> + Send,
    ) -> Result<Vec<StoredMessage>> {
        let removal = Removal::numbers(positions);
        Ok(self.remove(thread, removal).await?.messages)
    }

    /// Updates a message in place, if it is unchanged since it was read: replaces its content under its
    /// position. Returns the stored message with its new revision.
    ///
    /// ```
    /// use larder::ErrorKind;
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// # let stores = larder::open("memory:").await?;
    /// let history = stores.history()?;
    /// let thread = Thread::new("assistant", "session-1")?;
    /// history.append(&thread, ChatMessage::user("My card is 4111 1111 1111 1111")).await?;
    /// let read = history.tail(&thread, 1).await?.remove(0);
    /// history.update_message(&thread, &read, ChatMessage::user("My card is [redacted]")).await?;
    /// assert_eq!(history.tail(&thread, 1).await?[0].text(), "My card is [redacted]");
    ///
    /// // A caller that read the message before the update must read it again.
    /// let lost = history.update_message(&thread, &read, ChatMessage::user("Hello")).await;
    /// assert_eq!(lost.unwrap_err().kind(), ErrorKind::Conflict);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`update`](larder_kernel::HistoryProvider::update).
    pub async fn update_message(
        &self,
        thread: &Thread,
        read: &StoredMessage,
        message: ChatMessage,
    ) -> Result<StoredMessage> {
        let updated = self.update(thread, MessageUpdate::of(read, message.clone())).await?;
        Ok(StoredMessage::new(read.seq, message).with_revision(updated.revision))
    }

    /// Returns the newest `limit` messages, oldest first; at most 10,000. O(limit), for a thread of any
    /// length.
    ///
    /// # Errors
    /// As [`tail`](larder_kernel::HistoryProvider::tail).
    pub async fn tail(&self, thread: &Thread, limit: usize) -> Result<Vec<StoredMessage>> {
        self.provider().tail(thread, None, limit).await
    }

    /// Returns the newest `limit` messages before a position, oldest first: the next page when you read
    /// backwards.
    ///
    /// # Errors
    /// As [`tail`](larder_kernel::HistoryProvider::tail).
    pub async fn tail_before(
        &self,
        thread: &Thread,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        self.provider().tail(thread, Some(before), limit).await
    }

    /// Reads the whole thread into memory, page by page.
    ///
    /// # Errors
    /// As [`page_after`](larder_kernel::HistoryProvider::page_after).
    pub async fn all(&self, thread: &Thread) -> Result<Vec<StoredMessage>> {
        self.all_messages(thread).await
    }

    /// Returns the number of messages in the thread. O(1).
    ///
    /// # Errors
    /// As [`thread_info`](larder_kernel::HistoryProvider::thread_info).
    pub async fn count(&self, thread: &Thread) -> Result<u64> {
        Ok(self.thread_info(thread).await?.messages)
    }

    /// Lists all threads of an agent, page by page.
    ///
    /// # Errors
    /// As [`list_threads`](larder_kernel::HistoryProvider::list_threads).
    pub async fn threads(
        &self,
        agent: impl TryInto<AgentId, Error: Into<Error>> + Send,
    ) -> Result<Vec<ThreadInfo>> {
        let agent = id(agent)?;
        let (mut threads, mut page) = (Vec::new(), PageRequest::first(PAGE_ITEMS_MAX));
        loop {
            let found = self.list_threads(Some(&agent), page).await?;
            threads.extend(found.items);
            match found.next {
                Some(next) => page = PageRequest::after(next, PAGE_ITEMS_MAX),
                None => return Ok(threads),
            }
        }
    }
}
