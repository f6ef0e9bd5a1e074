//! Every setting and every argument that a context refuses: the error names the field, and no store is asked.

use larder_kernel::limits::{BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX};
use larder_kernel::{Error, ErrorKind, HistoryRetention, LanguageModel, LanguageModelRequest, Result, RunId};

use super::*;
use crate::compaction::{
    Neuralyzer, NeuralyzerConfig, Summarization, SummarizationConfig, SummaryMaker, SummarySettings,
};
use crate::context::memory::{MemoryProvider, SessionMemory};
use crate::tokens::EstimatedTokenCounter;

/// A model and a memory that no refused call reaches.
#[derive(Debug)]
struct Unasked;

#[async_trait::async_trait]
impl LanguageModel for Unasked {
    fn name(&self) -> &str {
        "unasked"
    }

    async fn generate(&self, _: LanguageModelRequest) -> Result<ChatMessage> {
        panic!("a refused call asks no model")
    }
}

#[async_trait::async_trait]
impl SessionMemory for Unasked {
    async fn read(&self, _: &Thread) -> Result<Window> {
        panic!("a refused call reads nothing")
    }

    async fn write(
        &self,
        _: &Thread,
        _: Vec<ChatMessage>,
        _: AppendOptions,
    ) -> Result<Option<larder_kernel::Appended>> {
        panic!("a refused call writes nothing")
    }

    async fn clear_run(&self, _: &Thread, _: &RunId) -> Result<u64> {
        panic!("a refused call removes nothing")
    }
}

fn summarization() -> Summarization {
    let counter = Arc::new(EstimatedTokenCounter);
    let settings = SummarySettings::default();
    let maker = SummaryMaker::new(Arc::new(Unasked), counter, summaries(), settings).unwrap();
    Summarization::new(maker, SummarizationConfig::default()).unwrap()
}

fn neuralyzer() -> Neuralyzer {
    let counter = Arc::new(EstimatedTokenCounter);
    let config = NeuralyzerConfig::default();
    Neuralyzer::new(Arc::new(InMemoryHistoryProvider::new()), counter, &config).unwrap()
}

/// Proves: RAVI-4, AKKA-2, AKKA-3, AKKA-4
#[test]
fn a_setting_that_cannot_work_is_refused_by_its_name() {
    let agent = |number: usize| AgentId::new(format!("agent-{number}")).unwrap();
    let too_many = (0..65).fold(MemoryFilter::new(), |filter, number| filter.include_agent(agent(number)));
    let internal = MemoryFilter::new().exclude_role(AgentRole::new("internal").unwrap());
    let memory = |memory: LimitedWindow| open().1.with_memory(memory);
    let everything = || LimitedWindow::new().without_max_bytes();
    let pipeline = |pipeline: Pipeline| open().1.with_pipeline(pipeline);
    let table = [
        (open().1.with_scan_messages_max(0), "scan_messages_max", Some(1)),
        (memory(LimitedWindow::new().read_last(0)), "read_last", Some(1)),
        (memory(LimitedWindow::new().with_max_bytes(0)), "max_bytes", Some(1)),
        (memory(LimitedWindow::new().write_only().read_last(3)), "read", None),
        (memory(LimitedWindow::new().write_only().filtered(internal.clone())), "read", None),
        (memory(LimitedWindow::new().filtered(too_many)), "filter", Some(64)),
        (pipeline(neuralyzer().into()), "pipeline", None),
        (pipeline(Pipeline::new().then(Pipeline::new().then(neuralyzer()))), "pipeline", None),
        (memory(LimitedWindow::new()).with_pipeline(summarization()), "memory", None),
        (memory(everything().read_last(3)).with_pipeline(summarization()), "memory", None),
        (memory(everything().filtered(internal)).with_pipeline(summarization()), "memory", None),
    ];
    for (number, (config, field, limit)) in table.into_iter().enumerate() {
        let error = AgentContext::new(config).unwrap_err();
        let told = (error.kind(), error.field(), error.limit());
        assert_eq!(told, (ErrorKind::InvalidInput, Some(field), limit), "row {number}");
    }
    // The neighbors of the refused settings work.
    let works = [
        open().1.with_scan_messages_max(1),
        memory(LimitedWindow::new().read_last(1).with_max_bytes(1)),
        memory(LimitedWindow::new().write_only()),
        pipeline(neuralyzer().without_erasing().into()),
        memory(everything()).with_pipeline(summarization()),
        memory(everything().read_only()).with_pipeline(summarization()),
    ];
    for config in works {
        AgentContext::new(config).unwrap();
    }
}

/// Proves: RAVI-3, RAVI-4
#[tokio::test]
async fn an_invalid_argument_is_refused_before_any_store_is_called() {
    let long = || ChatMessage::user("x".repeat(MESSAGE_BYTES_MAX + 1));
    let unnamed = || ChatMessage::assistant("").with_tool_call(ToolCall::new("", "look", "{}"));
    let many = || vec![ChatMessage::user("x"); BATCH_MESSAGES_MAX + 1];
    let said = || vec![ChatMessage::user("x")];
    for retention in [HistoryRetention::Permanent, HistoryRetention::Run, HistoryRetention::None] {
        let (history, config) = open();
        let context = AgentContext::new(config.with_retention(retention)).unwrap();
        let append = async |messages| {
            context.append_many(&session(), messages, AppendOptions::default()).await.unwrap_err()
        };
        let mut refused: Vec<(Error, &str)> = vec![
            (append(Vec::new()).await, "messages"),
            (append(many()).await, "messages"),
            (append(vec![long()]).await, "message"),
            (append(vec![unnamed()]).await, "message.tool_calls.id"),
            (context.window_with(&session(), vec![long()]).await.unwrap_err(), "message"),
            (context.window_with(&session(), vec![unnamed()]).await.unwrap_err(), "message.tool_calls.id"),
            (context.explain_window_with(&session(), vec![long()]).await.unwrap_err(), "message"),
        ];
        if retention == HistoryRetention::Run {
            refused.push((append(said()).await, "run"));
        }
        let mut run = context.begin_run(&session(), RunId::new("run").unwrap());
        refused.push((run.append(long()).await.unwrap_err(), "message"));
        for (error, field) in refused {
            assert_eq!(
                (error.kind(), error.field()),
                (ErrorKind::InvalidInput, Some(field)),
                "{retention:?}"
            );
        }
        assert_eq!((history.take(), history.take_writes()), ((0, 0), 0), "{retention:?}");
    }
}

/// Proves: AKKA-3
#[tokio::test]
async fn a_custom_memory_is_not_cleared_and_wrong_messages_do_not_reach_it() {
    let (history, config) = open();
    let context = config.with_memory(MemoryProvider::custom(Unasked));
    let context = AgentContext::new(context).unwrap();
    assert_eq!(context.clear(&session()).await.unwrap_err().kind(), ErrorKind::Unsupported);
    let long = ChatMessage::user("x".repeat(MESSAGE_BYTES_MAX + 1));
    assert_eq!(context.append(&session(), long).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!((history.take(), history.take_writes()), ((0, 0), 0));
}
