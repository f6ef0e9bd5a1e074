//! Conversations.

use std::fmt;
use std::sync::Arc;

use larder_kernel::{
    AgentId, AppendOptions, Error, HistoryProvider, HistoryProviderExt, Result, Role, StoredMessage, Thread,
};
use rig_core::completion::Message;
use rig_core::id::ConversationId;
use rig_core::memory::{ConversationMemory, MemoryError};
use rig_core::wasm_compat::WasmBoxedFuture;

use super::message::{Reader, written};

/// A [`HistoryProvider`] as a [`ConversationMemory`]: a conversation is the thread of one agent, and the
/// session has the conversation's id.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use larder::{Stores, adapters::rig_0_44::HistoryMemory};
/// use larder::AgentId;
/// use rig_core::{completion::Message, memory::ConversationMemory};
///
/// let stores = larder::open("memory:").await?;
/// let memory = HistoryMemory::new(stores.history()?, AgentId::new("assistant")?);
/// memory.append(&"session-1".into(), vec![Message::user("My name is Alice.")]).await?;
/// assert_eq!(memory.load(&"session-1".into()).await?.len(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Stored messages
/// Messages are loaded exactly as they were appended. Each message is stored as a
/// [`ChatMessage`](larder_kernel::ChatMessage) that all other Larder programs can read, with its text, tool
/// calls and tool results in order. If that does not preserve the whole message (images, reasoning,
/// citations, a provider's own items), the message is also kept in metadata under `rig`. If it is too large
/// for metadata, over about 60 KiB, the text is the message as JSON.
///
/// Messages that other programs wrote to the thread are loaded as text, calls and results, without the files
/// that they name.
///
/// # Errors
/// `MemoryError::Backend`, whose source is a [`larder_kernel::Error`]: `InvalidInput` if the id is not a
/// valid session id, for more than 1,000 messages in one append, or for a message over 4 MiB; `Corrupt` for a
/// message that cannot be decoded.
///
/// # Cancellation
/// An append stores all of its messages, or none.
#[derive(Clone)]
pub struct HistoryMemory {
    history: Arc<dyn HistoryProvider>,
    agent: AgentId,
    newest: Option<usize>,
}

impl HistoryMemory {
    /// Creates the memory of this agent, which loads whole conversations.
    #[must_use]
    pub fn new(history: impl Into<Arc<dyn HistoryProvider>>, agent: AgentId) -> Self {
        Self { history: history.into(), agent, newest: None }
    }

    /// Loads only the newest messages: at most `messages`, up to 10,000. The cost does not depend on the
    /// length of the conversation. Tool results whose calls are not loaded are omitted, because models refuse
    /// them.
    #[must_use]
    pub fn with_newest(mut self, messages: usize) -> Self {
        self.newest = Some(messages);
        self
    }

    fn thread(&self, conversation: &ConversationId) -> Result<Thread> {
        Thread::new(self.agent.as_str(), conversation.as_str())
    }

    async fn read(&self, conversation: &ConversationId) -> Result<Vec<Message>> {
        let thread = self.thread(conversation)?;
        let stored = match self.newest {
            Some(newest) => {
                let tail = self.history.last_messages(&thread, newest).await?;
                let result = |stored: &StoredMessage| stored.message.role == Role::Tool;
                tail.into_iter().skip_while(result).collect()
            }
            None => self.history.all_messages(&thread).await?,
        };
        let mut reader = Reader::default();
        stored.iter().map(|stored| reader.read(&stored.message)).collect()
    }

    async fn write(&self, conversation: &ConversationId, messages: &[Message]) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let thread = self.thread(conversation)?;
        let mut reader = Reader::default();
        let written = messages.iter().map(|message| written(message, &mut reader)).collect::<Result<_>>()?;
        self.history.append_many(&thread, written, AppendOptions::default()).await.map(drop)
    }
}

impl ConversationMemory for HistoryMemory {
    fn load<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
    ) -> WasmBoxedFuture<'a, Result<Vec<Message>, MemoryError>> {
        Box::pin(async move { self.read(conversation_id).await.map_err(failed) })
    }

    fn append<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
        messages: Vec<Message>,
    ) -> WasmBoxedFuture<'a, Result<(), MemoryError>> {
        Box::pin(async move { self.write(conversation_id, &messages).await.map_err(failed) })
    }

    fn clear<'a>(
        &'a self,
        conversation_id: &'a ConversationId,
    ) -> WasmBoxedFuture<'a, Result<(), MemoryError>> {
        Box::pin(async move {
            let thread = self.thread(conversation_id).map_err(failed)?;
            self.history.clear(&thread, None).await.map(drop).map_err(failed)
        })
    }
}

fn failed(error: Error) -> MemoryError {
    MemoryError::backend(error)
}

impl fmt::Debug for HistoryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryMemory")
            .field("history", &self.history)
            .field("newest", &self.newest)
            .finish_non_exhaustive()
    }
}
