//! Properties of every window. The tests of contexts are in `tests/scenarios/everywhere`, for every backend.

use std::sync::Arc;

use larder_kernel::{
    AgentContextProtocol, AgentId, AgentRole, AppendOptions, ChatMessage, HistoryProvider,
    HistoryProviderExt, Seq, SessionId, Thread, ToolCall, ToolResult, Window,
};

use super::memory::{LimitedWindow, MemoryFilter};
use super::testing::CountingHistory;
use super::{AgentContext, ContextConfig};
use crate::compaction::{
    MaxTokens, MaxTokensConfig, Pipeline, SlidingWindow, Summary, SummaryStore, ToolResultTruncation,
    Truncation,
};
use crate::tokens::TokenCounter;
use crate::{InMemoryHistoryProvider, InMemoryKeyValueStore};

mod properties;
mod refusals;

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn thread() -> Thread {
    Thread::new("default", "s").unwrap()
}

fn open() -> (Arc<CountingHistory>, ContextConfig) {
    let history = Arc::new(CountingHistory::new(Arc::new(InMemoryHistoryProvider::new())));
    (history.clone(), ContextConfig::new(history))
}

fn max_tokens(tokens: usize, counter: Arc<dyn TokenCounter>) -> MaxTokens {
    let memory_max_tokens = i64::try_from(tokens).unwrap();
    MaxTokens::new(&MaxTokensConfig { memory_max_tokens, ..MaxTokensConfig::default() }, counter).unwrap()
}

fn summaries() -> SummaryStore {
    SummaryStore::new(Arc::new(InMemoryKeyValueStore::new())).unwrap()
}

#[tokio::test]
async fn a_window_of_more_than_one_page_is_complete() {
    let whole = LimitedWindow::new().without_max_bytes();
    let others = MemoryFilter::new().exclude_agent(AgentId::new("other").unwrap());
    for (memory, expected) in
        [(whole.clone(), 12), (whole.clone().read_last(11), 11), (whole.filtered(others), 12)]
    {
        let (history, config) = open();
        for _ in 0..12 {
            history.append(&thread(), ChatMessage::user("x".repeat(3 << 20))).await.unwrap();
        }
        let config = config.with_memory(memory).with_pipeline(Pipeline::new());
        let window = AgentContext::new(config).unwrap().get_prompt_window(&session()).await.unwrap();
        assert_eq!(window.messages.len(), expected);
    }
}

fn summary(up_to: i64) -> Summary {
    Summary {
        up_to: Seq::new(up_to),
        text: "before".into(),
        tokens: 9,
        messages: 3,
        strategy: "summarization".into(),
        covers: None,
    }
}
