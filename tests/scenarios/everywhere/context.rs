//! Windows over stored conversations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_kernel::{
    AgentContextProtocol, AgentId, AgentRole, AppendOptions, Author, ChatMessage, ErrorKind, HistoryProvider,
    HistoryProviderExt, HistoryRetention, Origin, RunId, Seq, SessionId, Thread, ToolCall, ToolResult,
    Window,
};

use larder_agents::AgentScope;
use larder_agents::compaction::{
    MaxTokens, MaxTokensConfig, Neuralyzer, NeuralyzerConfig, Pipeline, SlidingWindow, Summary, SummaryStore,
    ToolResultTruncation, Truncation,
};
use larder_agents::context::memory::{LimitedWindow, MemoryFilter, MemoryProvider};
use larder_agents::context::{AgentContext, ContextConfig};
use larder_agents::tokens::TokenCounter;

use crate::everywhere::support::Words;
use crate::test_backend::TestBackend as Backend;
use counting::CountingHistory;

#[path = "../../../agents/src/context/testing.rs"]
mod counting;
pub(crate) mod memory;
pub(crate) mod pipelines;

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn thread() -> Thread {
    Thread::new("default", "s").unwrap()
}

async fn open(backend: &Backend) -> (Arc<CountingHistory>, ContextConfig) {
    let history = Arc::new(CountingHistory::new(backend.room().await.history()));
    (history.clone(), ContextConfig::new(history))
}

async fn fill(history: &CountingHistory, messages: usize) {
    let mut left = messages;
    while left > 0 {
        let batch = left.min(1_000);
        let text =
            |number: usize| ChatMessage::user((messages - left + number).to_string()).with_token_count(1);
        history
            .append_many(&thread(), (0..batch).map(text).collect(), AppendOptions::default())
            .await
            .unwrap();
        left -= batch;
    }
    history.take_writes();
}

fn texts(window: &Window) -> Vec<&str> {
    window.messages.iter().map(|message| &*message.message.text).collect()
}

fn max_tokens(tokens: usize, counter: Arc<dyn TokenCounter>) -> MaxTokens {
    let memory_max_tokens = i64::try_from(tokens).unwrap();
    MaxTokens::new(&MaxTokensConfig::default().with_memory_max_tokens(memory_max_tokens), counter).unwrap()
}

async fn summaries(backend: &Backend) -> SummaryStore {
    SummaryStore::new(backend.room().await.key_value()).unwrap()
}

fn summary(up_to: i64) -> Summary {
    Summary::new(Seq::new(up_to), "before").with_tokens(9).with_messages(3).with_strategy("summarization")
}

/// Proves: RAVI-4, RAVI-6
pub(crate) async fn a_default_needs_no_argument_and_is_the_newest_hundred(_: &Backend) {
    let context = AgentContext::default();
    for number in 0..120 {
        context.append(&session(), ChatMessage::user(number.to_string())).await.unwrap();
    }
    let window = context.get_prompt_window(&session()).await.unwrap();
    assert_eq!((window.messages.len(), texts(&window)[0]), (100, "20"));
    assert_eq!(window.thread, Some(thread()));
}

/// Proves: PK-4, RAVI-4
pub(crate) async fn a_window_over_a_long_thread_reads_only_its_reach_and_writes_nothing(backend: &Backend) {
    let (history, config) = open(backend).await;
    fill(&history, 100_000).await;
    let window = async |pipeline: Pipeline| {
        let context = AgentContext::new(config.clone().with_pipeline(pipeline)).unwrap();
        context.get_prompt_window(&session()).await.unwrap().messages.len()
    };
    let sliding = Pipeline::new().then(ToolResultTruncation::default()).then(SlidingWindow::new(40).unwrap());
    assert_eq!(window(sliding).await, 40);
    assert_eq!(history.take(), (40, 1));
    assert_eq!(window(Truncation::chars(100).unwrap().into()).await, 20);
    assert_eq!(history.take(), (100, 1));
    assert_eq!(window(max_tokens(90, Arc::new(CountsCalls::default())).into()).await, 90);
    assert_eq!(history.take(), (32 + 64, 2));
    assert_eq!(window(SlidingWindow::new(2_500).unwrap().into()).await, 2_500);
    assert_eq!(history.take(), (2_500, 3));
    assert_eq!(window(Pipeline::new()).await, 100_000);
    assert_eq!(history.take().0, 100_000);
    assert_eq!(history.take_writes(), 0);
}

#[derive(Debug, Default)]
struct CountsCalls(AtomicU64);

impl TokenCounter for CountsCalls {
    fn name(&self) -> &str {
        "calls"
    }

    fn count(&self, text: &str) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst);
        larder_kernel::check::size(text.len())
    }
}

/// Proves: RAVI-4
pub(crate) async fn the_tokens_of_a_message_are_counted_once_when_it_is_appended(backend: &Backend) {
    let (history, config) = open(backend).await;
    fill(&history, 10_000).await;
    let counter = Arc::new(CountsCalls::default());
    let tokens = max_tokens(50, counter.clone());
    let context = AgentContext::new(config.with_counter(counter.clone()).with_pipeline(tokens)).unwrap();
    context.append(&session(), ChatMessage::user("four")).await.unwrap();
    assert_eq!(counter.0.load(Ordering::SeqCst), 1);
    context.append(&session(), ChatMessage::user("four").with_token_count(7)).await.unwrap();
    let last = history.last_messages(&thread(), 2).await.unwrap();
    assert_eq!(last.iter().map(|stored| stored.message.token_count).collect::<Vec<_>>(), [Some(4), Some(7)]);
    context.get_prompt_window(&session()).await.unwrap();
    assert_eq!(counter.0.load(Ordering::SeqCst), 1);
}

/// Proves: RAVI-3
pub(crate) async fn retention_determines_the_remaining_messages_of_a_run(backend: &Backend) {
    for (retention, during, after) in
        [(HistoryRetention::Permanent, 3, 3), (HistoryRetention::Run, 3, 1), (HistoryRetention::None, 1, 1)]
    {
        let (history, config) = open(backend).await;
        history.append(&thread(), ChatMessage::user("before")).await.unwrap();
        let context = AgentContext::new(config.with_retention(retention)).unwrap();
        let mut run = context.begin_run(&session(), RunId::new("r").unwrap());
        let seq = run.append(ChatMessage::user("question")).await.unwrap();
        assert_eq!(seq.is_some(), retention != HistoryRetention::None);
        run.append(ChatMessage::assistant("answer")).await.unwrap();
        assert_eq!(history.count_messages(&thread()).await.unwrap(), during);
        let window = run.window().await.unwrap();
        assert_eq!(texts(&window), ["before", "question", "answer"], "{retention:?}");
        let removed = run.end().await.unwrap();
        assert_eq!(removed, during - after);
        assert_eq!(history.count_messages(&thread()).await.unwrap(), after);
        assert_eq!(context.end_run(&session(), &RunId::new("r").unwrap()).await.unwrap(), 0);
    }
}

/// Proves: RAVI-3
pub(crate) async fn a_message_that_could_never_be_cleared_is_refused_and_none_writes_nothing_but_checks(
    backend: &Backend,
) {
    let (history, config) = open(backend).await;
    let context = AgentContext::new(config.clone().with_retention(HistoryRetention::Run)).unwrap();
    let error = context.append(&session(), ChatMessage::user("x")).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("run")));
    let context = AgentContext::new(config.with_retention(HistoryRetention::None)).unwrap();
    let batch = context.append_many(&session(), Vec::new(), AppendOptions::default()).await;
    assert_eq!(batch.unwrap_err().field(), Some("messages"));
    assert_eq!(history.take_writes(), 0);
}

/// Proves: RAVI-3, RAVI-9
pub(crate) async fn a_summary_does_not_outlive_its_run_or_thread(backend: &Backend) {
    let (_, config) = open(backend).await;
    let store = summaries(backend).await;
    let config = config.with_summaries(store.clone()).with_retention(HistoryRetention::Run);
    let context = AgentContext::new(config).unwrap();
    let mut first = context.begin_run(&session(), RunId::new("1").unwrap());
    first.append(ChatMessage::user("one")).await.unwrap();
    store.put(&thread(), None, &summary(1)).await.unwrap();
    let mut second = context.begin_run(&session(), RunId::new("2").unwrap());
    second.append(ChatMessage::user("two")).await.unwrap();
    second.end().await.unwrap();
    assert!(store.get(&thread()).await.unwrap().is_some(), "it does not mention the second run");
    first.end().await.unwrap();
    assert!(store.get(&thread()).await.unwrap().is_none());

    store.put(&thread(), None, &summary(1)).await.unwrap();
    assert_eq!(context.clear(&session()).await.unwrap(), 0);
    assert!(store.get(&thread()).await.unwrap().is_none());
}

/// Proves: RAVI-9, RAVI-4
pub(crate) async fn a_window_begins_with_the_summary_and_reads_only_what_follows(backend: &Backend) {
    let (history, config) = open(backend).await;
    fill(&history, 5_000).await;
    let store = summaries(backend).await;
    let config = config.with_summaries(store.clone()).with_pipeline(Pipeline::new());
    let context = AgentContext::new(config.clone()).unwrap();
    store.put(&thread(), None, &summary(4_990)).await.unwrap();
    let window = context.get_prompt_window(&session()).await.unwrap();
    assert_eq!(history.take(), (11, 2), "one of them to see that the summary is current");
    assert_eq!(window.messages.len(), 11);
    assert_eq!(window.messages[0].origin, Origin::Summary(Seq::new(4_990)));
    assert_eq!(texts(&window)[1], "4990");

    let sliding = AgentContext::new(config.with_pipeline(SlidingWindow::new(5).unwrap())).unwrap();
    let window = sliding.get_prompt_window(&session()).await.unwrap();
    assert_eq!(texts(&window)[1..], ["4996", "4997", "4998", "4999"]);
    assert!(matches!(window.messages[0].origin, Origin::Summary(_)));
    assert_eq!(history.take().0, 6);
}

/// Proves: RAVI-18, AKKA-1
pub(crate) async fn the_scope_names_the_agent_unless_the_context_does(backend: &Backend) {
    let (history, config) = open(backend).await;
    let context = AgentContext::new(config.clone()).unwrap();
    let planner = AgentScope::new().with_agent(AgentId::new("planner").unwrap());
    planner.run(context.append(&session(), ChatMessage::user("x"))).await.unwrap();
    let of = |agent| Thread::new(agent, "s").unwrap();
    assert_eq!(history.count_messages(&of("planner")).await.unwrap(), 1);

    let author = Author::new(AgentId::new("a").unwrap()).with_role(AgentRole::new("r").unwrap());
    let shared = AgentContext::new(config.with_author(author.clone())).unwrap();
    let shared = shared.for_agent(AgentId::new("team").unwrap());
    shared.append(&session(), ChatMessage::user("x")).await.unwrap();
    let own = ChatMessage::user("y").with_author(AgentId::new("b").unwrap(), None);
    shared.append(&session(), own).await.unwrap();
    let stored = history.all_messages(&of("team")).await.unwrap();
    assert_eq!(stored[0].message.author, Some(author));
    assert_eq!(stored[1].message.author.as_ref().unwrap().agent.as_str(), "b");
}

/// Proves: RAVI-4, RAVI-7
pub(crate) async fn an_explanation_says_what_each_step_did(backend: &Backend) {
    let (_, config) = open(backend).await;
    let store = summaries(backend).await;
    let pipeline =
        Pipeline::new().then(ToolResultTruncation::new(10).unwrap()).then(SlidingWindow::new(4).unwrap());
    let context = AgentContext::new(config.with_pipeline(pipeline).with_summaries(store.clone())).unwrap();
    for message in [
        ChatMessage::user("gone"),
        ChatMessage::assistant("").with_tool_call(ToolCall::new("1", "t", "{}")),
        ChatMessage::tool([ToolResult::new("1", "x".repeat(100))]),
        ChatMessage::assistant("said"),
    ] {
        context.append(&session(), message).await.unwrap();
    }
    store.put(&thread(), None, &summary(1)).await.unwrap();
    let told = context.explain_window_with(&session(), vec![ChatMessage::user("new")]).await.unwrap();
    assert_eq!(told.window, {
        let mut window = context.window_with(&session(), vec![ChatMessage::user("new")]).await.unwrap();
        let last = told.window.messages.last().unwrap().clone();
        *window.messages.last_mut().unwrap() = last;
        window
    });
    assert_eq!((told.messages_read, told.pages_read), (4, 1));
    assert_eq!(told.began_with_summary_up_to, Some(Seq::new(1)));
    assert_eq!(told.read.messages, 5);
    let [cut, slide] = &*told.steps else { panic!("{told}") };
    assert_eq!((cut.name, slide.name), ("tool_result_truncation", "sliding_window"));
    assert_eq!(cut.shortened.len(), 1);
    assert_eq!((cut.shortened[0].seq, cut.shortened[0].bytes_before), (Seq::new(3), 101));
    assert_eq!(slide.before, cut.after);
    assert!(
        slide.dropped == [Seq::new(2), Seq::new(3)] && slide.drops,
        "the call and its result leave together"
    );
    assert_eq!(told.result, slide.after);
    let text = told.to_string();
    assert!(text.contains("dropped 2: #2-#3") && text.contains("changed #3: 101 -> "), "{text}");
    assert!(!text.contains("said") && !text.contains("xxx"), "{text}");
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!(json["reach"], "the newest 4 messages");
    assert_eq!(json["steps"][1]["dropped"], serde_json::json!([2, 3]));
}

/// Proves: RAVI-5
pub(crate) async fn results_without_calls_and_calls_without_results_do_not_reach_the_model(
    backend: &Backend,
) {
    let (_, config) = open(backend).await;
    let context = AgentContext::new(config.with_pipeline(Pipeline::new())).unwrap();
    let call = |id| ChatMessage::assistant("").with_tool_call(ToolCall::new(id, "t", "{}"));
    for message in [
        ChatMessage::tool([ToolResult::new("0", "orphan")]),
        call("lost"),
        ChatMessage::user("q"),
        call("running"),
    ] {
        context.append(&session(), message).await.unwrap();
    }
    let told = context.explain_window(&session()).await.unwrap();
    // No provider accepts a call without a result.
    assert_eq!(told.window.messages.len(), 1);
    let last = told.steps.last().unwrap();
    assert_eq!((last.name, &*last.dropped), ("pair_tool_calls", &[1, 2, 4].map(Seq::new)[..]));
    let answer = ChatMessage::tool_result("running", "done");
    let window = context.window_with(&session(), vec![answer]).await.unwrap();
    assert_eq!(window.messages.len(), 3);
    assert_eq!(window.messages[1].message.tool_calls[0].id, "running");
}

pub(crate) async fn settings_are_checked_by_name(_: &Backend) {
    let check = |config: ContextConfig| AgentContext::new(config).unwrap_err().field();
    assert_eq!(check(ContextConfig::default().with_scan_messages_max(0)), Some("scan_messages_max"));
    let memory = LimitedWindow::new().read_last(0);
    assert_eq!(check(ContextConfig::default().with_memory(memory)), Some("read_last"));
    let history = Arc::new(larder_agents::InMemoryHistoryProvider::new());
    let erasing = Neuralyzer::new(history, Arc::new(Words), &NeuralyzerConfig::default()).unwrap();
    assert_eq!(check(ContextConfig::default().with_pipeline(erasing)), Some("pipeline"));
    let debug = format!("{:?}", AgentContext::default().for_agent(AgentId::new("secret-agent").unwrap()));
    assert!(!debug.contains("secret-agent"), "{debug}");
}
