//! Strategies that change the stored conversation: the removed messages, the kept messages, and the winner of
//! a race.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::everywhere::support::{Bench, ScriptedModel, Words, seqs, until};
use crate::test_backend::TestBackend as Backend;
use larder_agents::compaction::{
    CompactionAgent, CompactionAgentConfig, LongTermMemory, Neuralyzer, NeuralyzerConfig, OnFailure, Summary,
};
use larder_kernel::{
    ChatMessage, CompactionStrategy, Error, ErrorKind, HistoryProviderExt, Origin, Reach, Result, Role, Seq,
    ToolCall, ToolResult, Window, WindowMessage,
};

fn neuralyzer(bench: &Bench, config: &NeuralyzerConfig) -> Neuralyzer {
    Neuralyzer::new(bench.history.clone(), Arc::new(Words), config)
        .unwrap()
        .with_summaries(bench.summaries())
        .with_on_failure(OnFailure::Fail)
}

fn over(interactions: i64, keep: usize) -> NeuralyzerConfig {
    NeuralyzerConfig::default().with_interaction_threshold_qty(interactions).with_interaction_keep(keep)
}

/// Proves: ALQ-5
pub(crate) async fn old_interactions_are_erased_from_what_is_stored(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..5).await;
    let strategy = neuralyzer(&bench, &over(5, 2));
    assert_eq!(
        (strategy.name(), strategy.reach(), strategy.drops()),
        ("neuralyzer", Reach::Everything, true)
    );
    assert_eq!(strategy.compact(bench.window().await).await.unwrap(), bench.raw_window().await);

    bench.turns(5..6).await;
    let summary = Summary::new(Seq::new(2), "old").with_tokens(1).with_messages(2).with_strategy("s");
    bench.summaries().put(&bench.thread, None, &summary).await.unwrap();
    let mut given = bench.raw_window().await;
    given.messages.insert(0, WindowMessage::injected(ChatMessage::system("Be kind")));
    let window = strategy.compact(given).await.unwrap();
    assert_eq!((seqs(&window), window.messages[0].origin), (vec![9, 10, 11, 12], Origin::Injected));
    assert_eq!(seqs(&bench.raw_window().await), [9, 10, 11, 12]);
    assert!(bench.summaries().get(&bench.thread).await.unwrap().is_none());
}

/// Proves: ALQ-5
pub(crate) async fn by_default_the_neuralyzer_never_erases(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..200).await;
    let strategy = neuralyzer(&bench, &NeuralyzerConfig::default());
    let whole = bench.raw_window().await;
    assert_eq!(strategy.compact(whole.clone()).await.unwrap(), whole);
    assert_eq!(bench.raw_window().await, whole);
    let json =
        r#"{"long_term_memory_id": "neuralyzer", "interaction_threshold_qty": 30, "interaction_keep": 5}"#;
    assert_eq!(
        serde_json::from_str::<LongTermMemory>(json).unwrap(),
        LongTermMemory::Neuralyzer(over(30, 5))
    );
    assert_eq!(over(-2, 0).check().unwrap_err().field(), Some("interaction_threshold_qty"));
}

/// Proves: ALQ-5
pub(crate) async fn messages_that_arrive_during_a_compaction_stay_and_a_cleared_thread_does_not_change(
    backend: &Backend,
) {
    let bench = Bench::new(backend).await;
    bench.turns(0..4).await;
    let strategy = neuralyzer(&bench, &over(3, 0));
    let seen = bench.window().await;
    bench.turns(4..5).await;
    assert!(seqs(&strategy.compact(seen).await.unwrap()).is_empty());
    assert_eq!(seqs(&bench.raw_window().await), [9, 10]);

    bench.turns(5..10).await;
    let seen = bench.window().await;
    bench.history.clear(&bench.thread, None).await.unwrap();
    bench.turns(10..11).await;
    let after = bench.raw_window().await;
    assert_eq!(strategy.compact(seen.clone()).await.unwrap(), seen);
    assert_eq!(bench.raw_window().await, after);
}

/// Proves: ALQ-3, ALQ-5
pub(crate) async fn tokens_erase_too_and_the_interaction_that_is_not_over_stays(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..3).await;
    for message in [
        ChatMessage::user("book it"),
        ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "book", "{}")),
    ] {
        bench.history.append(&bench.thread, message).await.unwrap();
    }
    let total = 3 * 20 + 4;
    for (config, left) in [
        (NeuralyzerConfig::default().with_interaction_threshold_tokens(total), 8),
        (NeuralyzerConfig::default().with_input_tokens_threshold(total), 8),
        (NeuralyzerConfig::default().with_interaction_threshold_tokens(total - 1), 2),
    ] {
        neuralyzer(&bench, &config).compact(bench.window().await).await.unwrap();
        assert_eq!(bench.raw_window().await.messages.len(), left);
    }
    let window = Window::injected([ChatMessage::user("no thread")]);
    let strategy = neuralyzer(&bench, &over(0, 0));
    assert_eq!(strategy.compact(window.clone()).await.unwrap(), window);
}

const SHORT: &str = r#"{"userMessage": "Which trip?", "aiMessage": "Oslo, booked."}"#;

fn agent(bench: &Bench, model: &Arc<ScriptedModel>) -> CompactionAgent {
    let config = CompactionAgentConfig::default().with_bytes_threshold(600).with_timeout_ms(3_000);
    CompactionAgent::new(bench.history.clone(), model.clone(), config).unwrap()
}

fn answers(text: &'static str) -> Arc<ScriptedModel> {
    ScriptedModel::new(Duration::from_secs(1), move |_, _| Ok(ChatMessage::assistant(text)))
}

/// Proves: AKKA-8
pub(crate) async fn the_agent_reads_text_and_keeps_no_memory(backend: &Backend) {
    let bench = Bench::new(backend).await;
    let model = answers(SHORT);
    let agent = agent(&bench, &model);
    bench.turns(0..4).await;
    assert_eq!(
        (agent.compact(&bench.thread).await.unwrap(), model.calls()),
        (None, 0),
        "under the threshold"
    );
    for message in [
        ChatMessage::user("Book it"),
        ChatMessage::assistant("Now").with_tool_call(ToolCall::new("c1", "book", r#"{"to":"Oslo"}"#)),
        ChatMessage::tool([ToolResult::new("c1", "seat 12")]),
        ChatMessage::assistant("x".repeat(300)),
        ChatMessage::user("And a hotel?"),
    ] {
        bench.history.append(&bench.thread, message).await.unwrap();
    }
    let compacted = agent.compact(&bench.thread).await.unwrap().unwrap();
    assert_eq!((compacted.removed, compacted.up_to), (12, Seq::new(12)));
    let stored = bench.history.all_messages(&bench.thread).await.unwrap();
    let read: Vec<(i64, Role, &str)> =
        stored.iter().map(|stored| (stored.seq.get(), stored.message.role, &*stored.message.text)).collect();
    assert_eq!(
        read,
        [
            (11, Role::User, "Which trip?"),
            (12, Role::Assistant, "Oslo, booked."),
            (13, Role::User, "And a hotel?")
        ]
    );
    let requests = model.requests.lock().unwrap();
    assert_eq!(requests[0].output_tokens_max, Some(1_000), "as documented");
    assert_eq!(CompactionAgentConfig::default().bytes_threshold, 100_000);
    let [system, question] = &requests[0].messages[..] else { unreachable!("two messages") };
    assert_eq!((system.role, question.role), (Role::System, Role::User));
    assert!(system.text.contains("userMessage") && system.text.contains("aiMessage"));
    assert!(system.text.contains("at most 1000 tokens"), "{}", system.text);
    let tail = "\n\nUSER:\nBook it\n\nAI:\nNow\n\tTOOL_CALL_REQUEST: id=c1, name=book, \
                args={\"to\":\"Oslo\"}\n\
        \n\nTOOL_CALL_RESPONSE: id=c1\nseat 12\n\nAI:\nxxx";
    assert!(question.text.starts_with("\n\nUSER:\nm0 and") && question.text.contains(tail));
    assert!(!question.text.contains("hotel"));
}

/// Proves: AKKA-6
pub(crate) async fn messages_that_arrive_while_the_model_works_stay_behind_the_two(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..10).await;
    let model = answers(SHORT);
    let agent = agent(&bench, &model);
    let work = async {
        model.asked(1).await;
        bench.turns(10..12).await;
    };
    let (compacted, ()) = tokio::join!(agent.compact(&bench.thread), work);
    assert_eq!(compacted.unwrap().unwrap().removed, 20);
    assert_eq!(seqs(&bench.raw_window().await), [19, 20, 21, 22, 23, 24]);
}

/// Proves: AKKA-6
pub(crate) async fn of_two_agents_one_compacts_and_a_cleared_thread_stays_cleared(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..10).await;
    let model = answers(SHORT);
    let (one, two) = (agent(&bench, &model), agent(&bench, &model));
    let (left, right) = tokio::join!(one.compact(&bench.thread), two.compact(&bench.thread));
    assert!(left.is_ok() != right.is_ok());
    assert_eq!(left.and(right).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(bench.history.count_messages(&bench.thread).await.unwrap(), 2);

    bench.turns(10..20).await;
    let clear = async {
        model.asked(3).await;
        bench.history.clear(&bench.thread, None).await.unwrap();
    };
    let (lost, ()) = tokio::join!(one.compact(&bench.thread), clear);
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(bench.history.count_messages(&bench.thread).await.unwrap(), 0);
    // The thread's last event is not a message. It must not block the strategy.
    bench.turns(20..30).await;
    bench
        .history
        .append(&bench.thread, ChatMessage::user("run").with_run("r".parse().unwrap()))
        .await
        .unwrap();
    bench.history.clear_run(&bench.thread, &"r".parse().unwrap(), None).await.unwrap();
    assert!(one.compact(&bench.thread).await.unwrap().is_some());
}

/// Proves: AKKA-8
pub(crate) async fn a_response_without_the_requested_json_changes_nothing(backend: &Backend) {
    let long = format!(r#"{{"userMessage": "a", "aiMessage": "{}"}}"#, "b".repeat(5_000));
    let fenced = format!("```json\n{SHORT}\n```");
    for (answer, good) in [
        ("", false),
        ("Here is the JSON:", false),
        (r#"{"userMessage": "a"}"#, false),
        (r#"{"userMessage": "a", "aiMessage": " "}"#, false),
        (r#"{"userMessage": "a", "aiMessage": "b", "more": 1}"#, false),
        (r#"{"user_message": "a", "ai_message": "b"}"#, false),
        (&*long, false),
        (&*fenced, true),
    ] {
        let bench = Bench::new(backend).await;
        bench.turns(0..10).await;
        let before = bench.transcript().await;
        let said = answer.to_owned();
        let model = ScriptedModel::new(Duration::ZERO, move |_, _| Ok(ChatMessage::assistant(said.clone())));
        let outcome = agent(&bench, &model).compact(&bench.thread).await;
        match outcome {
            Ok(compacted) => assert!(good && compacted.is_some(), "{answer}"),
            Err(error) => {
                assert_eq!((error.kind(), good), (ErrorKind::Unexpected, false), "{answer}");
                assert_eq!(bench.transcript().await, before);
            }
        }
    }
    let bench = Bench::new(backend).await;
    bench.turns(0..10).await;
    let slow = ScriptedModel::new(Duration::from_secs(9), |_, _| Ok(ChatMessage::assistant(SHORT)));
    assert_eq!(agent(&bench, &slow).compact(&bench.thread).await.unwrap_err().kind(), ErrorKind::Timeout);
}

/// Proves: AKKA-8
pub(crate) async fn of_a_large_thread_the_oldest_interactions_are_taken(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..1_200).await;
    let model = answers(SHORT);
    let config = CompactionAgentConfig::default().with_bytes_threshold(600).with_input_bytes_max(100_000);
    let agent = CompactionAgent::new(bench.history.clone(), model.clone(), config).unwrap();
    let mut rounds = 0;
    while agent.compact(&bench.thread).await.unwrap().is_some() {
        rounds += 1;
        assert!(rounds < 10);
    }
    assert_eq!((rounds, bench.history.count_messages(&bench.thread).await.unwrap()), (2, 2));
    for request in model.requests.lock().unwrap().iter() {
        assert!(request.messages[1].text.len() < 130_000);
    }

    // One interaction that is too large is removed in parts, between a call's results and the next call.
    bench.history.clear(&bench.thread, None).await.unwrap();
    bench.history.append(&bench.thread, ChatMessage::user("do it all")).await.unwrap();
    for _ in 0..600 {
        let call = ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "step", "{}"));
        bench.history.append(&bench.thread, call).await.unwrap();
        let result = ChatMessage::tool([ToolResult::new("c", "x".repeat(300))]);
        bench.history.append(&bench.thread, result).await.unwrap();
    }
    bench.history.append(&bench.thread, ChatMessage::assistant("done")).await.unwrap();
    agent.compact(&bench.thread).await.unwrap().unwrap();
    let stored = bench.history.all_messages(&bench.thread).await.unwrap();
    assert!(stored.len() > 2 && !stored[2].message.tool_calls.is_empty());
}

/// Proves: AKKA-5, AKKA-8
pub(crate) async fn the_watch_compacts_when_a_response_makes_the_thread_too_large(backend: &Backend) {
    let bench = Bench::new(backend).await;
    let model = ScriptedModel::new(Duration::ZERO, |call, _| match call {
        0 => Err(Error::new(ErrorKind::Unavailable, "model", "away")),
        _ => Ok(ChatMessage::assistant(SHORT)),
    });
    let agent = agent(&bench, &model);
    let reports: Arc<Mutex<Vec<Result<u64, ErrorKind>>>> = Arc::default();
    let (told, thread) = (reports.clone(), bench.thread.clone());
    let watching = tokio::spawn(async move {
        let report = |outcome: Result<larder_agents::compaction::Compacted>| {
            let short = outcome.map(|compacted| compacted.removed).map_err(|error| error.kind());
            told.lock().unwrap().push(short);
        };
        agent.watch(&thread, Seq::MIN, report).await
    });
    for turn in 0..8 {
        bench.turns(turn..turn + 1).await;
    }
    until(|| reports.lock().unwrap().len() >= 2).await;
    assert_eq!(reports.lock().unwrap()[..2], [Err(ErrorKind::Unavailable), Ok(16)]);
    assert_eq!(bench.history.count_messages(&bench.thread).await.unwrap(), 2);
    watching.abort();
    let config = CompactionAgentConfig::default().with_input_bytes_max(0);
    assert_eq!(config.check().unwrap_err().field(), Some("input_bytes_max"));
}
