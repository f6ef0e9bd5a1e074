//! Summaries: one per thread, made once. A failed summary loses no message.

use std::sync::Arc;
use std::time::Duration;

use crate::everywhere::support::{
    Bench, ScriptedModel, Shaky, Words, marks_of, seqs, settings, summary_text,
};
use crate::test_backend::TestBackend as Backend;
use larder_agents::compaction::{
    CombinedMemory, LongTermMemory, OnFailure, SUMMARY_BUCKET, Summarization, SummarizationConfig,
    Summarizer, SummarizerConfig, SummaryMaker, SummarySettings, SummaryStore,
};
use larder_kernel::random::Random;
use larder_kernel::{
    BucketName, ChatMessage, CompactionStrategy, Error, ErrorKind, HistoryProviderExt, KeyValueStoreExt,
    LanguageModel, Metadata, Origin, PageRequest, Reach, Result, ToolCall, ToolResult, Window, WindowMessage,
};

pub(crate) fn maker(bench: &Bench, model: &Arc<ScriptedModel>, settings: SummarySettings) -> SummaryMaker {
    let model: Arc<dyn LanguageModel> = model.clone();
    SummaryMaker::new(model, Arc::new(Words), bench.summaries(), settings).unwrap()
}

fn summarization(bench: &Bench, model: &Arc<ScriptedModel>, settings: SummarySettings) -> Summarization {
    let config = SummarizationConfig::default()
        .with_recent_token_budget(40)
        .with_min_old_tokens(40)
        .with_instructions("Dates.");
    Summarization::new(maker(bench, model, settings), config).unwrap()
}

fn failing() -> SummarySettings {
    settings().with_on_failure(OnFailure::Fail)
}

/// Proves: RAVI-9, RAVI-4
pub(crate) async fn the_newest_messages_stay_and_the_summary_is_updated_not_stacked(backend: &Backend) {
    let (bench, model) = (Bench::new(backend).await, ScriptedModel::marks());
    let strategy = summarization(&bench, &model, settings());
    assert_eq!(
        (strategy.name(), strategy.reach(), strategy.drops()),
        ("summarization", Reach::Everything, false)
    );

    bench.turns(0..3).await;
    let window = strategy.compact(bench.window().await).await.unwrap();
    assert_eq!((window, model.calls()), (bench.raw_window().await, 0), "20 old tokens are under the minimum");

    bench.turns(3..5).await;
    let before = bench.transcript().await;
    let window = strategy.compact(bench.window().await).await.unwrap();
    assert_eq!(seqs(&window), [7, 8, 9, 10]);
    assert_eq!(window.messages[0].origin, Origin::Summary(larder_kernel::Seq::new(6)));
    assert!(summary_text(&window).unwrap().ends_with("m0,m1,m2,m3,m4,m5"));

    bench.turns(5..7).await;
    let again = strategy.compact(bench.window().await).await.unwrap();
    assert_eq!(seqs(&again), [11, 12, 13, 14]);
    assert!(summary_text(&again).unwrap().ends_with("m0,m1,m2,m3,m4,m5,m6,m7,m8,m9"));
    assert_eq!(model.calls(), 2);
    let asked = model.requests.lock().unwrap()[1].messages[1].text.clone();
    assert!(asked.contains("m0,m1,m2,m3,m4,m5") && !asked.contains("m4 and"), "only what is new is read");
    assert!(model.requests.lock().unwrap()[1].messages[0].text.ends_with("Dates."));

    let kept = bench.summaries().get(&bench.thread).await.unwrap().unwrap().summary;
    assert_eq!((kept.up_to.get(), kept.messages, kept.strategy.as_str()), (10, 10, "summarization"));
    assert_eq!(&bench.transcript().await[..before.len() - 1], &before[..before.len() - 1]);
    // The strategy receives all messages and uses the stored summary.
    assert_eq!(strategy.compact(bench.raw_window().await).await.unwrap(), again);
    assert_eq!(model.calls(), 2);
}

/// Proves: RAVI-9
pub(crate) async fn two_summarizers_of_one_thread_ask_the_model_once(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..8).await;
    let model = ScriptedModel::new(Duration::from_secs(1), |_, request| {
        Ok(ChatMessage::assistant(marks_of(request)))
    });
    let (one, two) = (summarization(&bench, &model, settings()), summarization(&bench, &model, settings()));
    let (left, right) = tokio::join!(one.compact(bench.window().await), two.compact(bench.window().await));
    let (left, right) = (left.unwrap(), right.unwrap());
    assert_eq!((&left, model.calls()), (&right, 1));
    assert_eq!(seqs(&left), [13, 14, 15, 16]);

    // A caller that does not wait continues with the whole window.
    bench.turns(8..12).await;
    let hasty = summarization(&bench, &model, settings().with_wait_ms(0));
    let work = async {
        model.asked(2).await;
        hasty.compact(bench.window().await).await
    };
    let (left, right) = tokio::join!(one.compact(bench.window().await), work);
    assert_eq!((seqs(&left.unwrap()), model.calls()), (vec![21, 22, 23, 24], 2));
    assert_eq!(seqs(&right.unwrap()), (13..=24).collect::<Vec<i64>>());
}

/// Proves: RAVI-9
pub(crate) async fn a_summarizer_that_went_away_costs_nothing_but_time(backend: &Backend) {
    let bench = Bench::new(backend).await;
    bench.turns(0..8).await;
    let slow = ScriptedModel::new(Duration::from_secs(9), |_, _| Ok(ChatMessage::assistant("never")));
    let strategy = summarization(&bench, &slow, settings());
    tokio::select! {
        _ = strategy.compact(bench.window().await) => unreachable!("the model has not answered"),
        () = slow.asked(1) => {}
    }

    // A dropped summary releases its claim, so the next caller need not wait.
    let model = ScriptedModel::marks();
    let hasty = failing().with_wait_ms(0);
    let hasty = summarization(&bench, &model, hasty);
    let soon = async {
        while seqs(&hasty.compact(bench.window().await).await.unwrap()) != [13, 14, 15, 16] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), soon).await.unwrap();

    // The claim of a process that ended blocks the others until it expires.
    bench.turns(8..12).await;
    let crashed = bench.summaries().claim(&bench.thread, Duration::from_secs(60)).await.unwrap().unwrap();
    let next = summarization(&bench, &model, failing().with_wait_ms(300));
    let window = next.compact(bench.window().await).await.unwrap();
    assert_eq!((window, model.calls()), (bench.window().await, 1));
    bench.summaries().release(crashed).await.unwrap();
    assert_eq!(seqs(&next.compact(bench.window().await).await.unwrap()), [21, 22, 23, 24]);
}

/// Proves: RAVI-9
pub(crate) async fn a_summary_that_fails_leaves_the_window_complete(backend: &Backend) {
    let cut_off =
        || ChatMessage::assistant("m0").with_metadata(Metadata::new().with("finish_reason", "length"));
    let called = || ChatMessage::assistant("m0").with_tool_call(ToolCall::new("1", "t", "{}"));
    type Answer = Box<dyn Fn() -> Result<ChatMessage> + Send + Sync>;
    let answers: Vec<(Answer, u64, ErrorKind)> = vec![
        (Box::new(|| Err(Error::new(ErrorKind::Unavailable, "model", "away"))), 0, ErrorKind::Unavailable),
        (Box::new(|| Ok(ChatMessage::assistant(" \n"))), 0, ErrorKind::Unexpected),
        (Box::new(|| Ok(ChatMessage::assistant("word ".repeat(500)))), 0, ErrorKind::Unexpected),
        (Box::new(move || Ok(cut_off())), 0, ErrorKind::Unexpected),
        (Box::new(move || Ok(called())), 0, ErrorKind::Unexpected),
        (Box::new(|| Ok(ChatMessage::assistant("late"))), 9, ErrorKind::Timeout),
    ];
    for (answer, latency, kind) in answers {
        let bench = Bench::new(backend).await;
        bench.turns(0..8).await;
        let model = ScriptedModel::new(Duration::from_secs(latency), move |_, _| answer());
        let whole = bench.window().await;
        let soon = if latency > 0 { 500 } else { 10_000 };
        let keep = summarization(&bench, &model, settings().with_timeout_ms(soon));
        assert_eq!(keep.compact(whole.clone()).await.unwrap(), whole);
        assert_eq!(keep.maker().failures(), 1);
        let failing = failing().with_timeout_ms(soon);
        let error = summarization(&bench, &model, failing).compact(whole.clone()).await.unwrap_err();
        assert_eq!((error.kind(), model.calls()), (kind, 2), "the claim was given back");
        assert!(bench.summaries().get(&bench.thread).await.unwrap().is_none());
        assert_eq!(bench.window().await, whole);
    }
}

pub(crate) async fn a_summary_that_is_corrupt_is_not_used(backend: &Backend) {
    let (bench, model) = (Bench::new(backend).await, ScriptedModel::marks());
    bench.turns(0..8).await;
    summarization(&bench, &model, settings()).compact(bench.window().await).await.unwrap();
    let (key_value, bucket) = (bench.key_value(), BucketName::new(SUMMARY_BUCKET).unwrap());
    for item in key_value.list(&bucket, "summary/", PageRequest::first(10)).await.unwrap().items {
        key_value.set(&bucket, &item.key, "{}".into()).await.unwrap();
    }
    let whole = bench.raw_window().await;
    let kept = summarization(&bench, &model, settings()).compact(whole.clone()).await.unwrap();
    assert_eq!(kept, whole);
    let error = summarization(&bench, &model, failing()).compact(whole).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

pub(crate) async fn a_long_conversation_is_taken_in_by_parts_and_each_part_that_succeeded_counts(
    backend: &Backend,
) {
    let bench = Bench::new(backend).await;
    bench.turns(0..20).await;
    let model = ScriptedModel::new(Duration::ZERO, |call, request| match call {
        2 => Err(Error::new(ErrorKind::Unavailable, "model", "away")),
        _ => Ok(ChatMessage::assistant(marks_of(request))),
    });
    let settings = settings().with_input_tokens_max(100);
    let strategy = summarization(&bench, &model, settings);
    let window = strategy.compact(bench.window().await).await.unwrap();
    assert_eq!((model.calls(), strategy.maker().failures()), (3, 1));
    assert_eq!(
        seqs(&window),
        (21..=40).collect::<Vec<i64>>(),
        "two parts of ten messages are in the summary"
    );
    let window = strategy.compact(bench.window().await).await.unwrap();
    assert_eq!(seqs(&window), [37, 38, 39, 40]);
    let text = summary_text(&window).unwrap();
    assert!((0..36).all(|mark| text.split(['\n', ',']).any(|word| word == format!("m{mark}"))));
}

/// Proves: ALQ-3, ALQ-4, ALQ-8
pub(crate) async fn profiles_deserialize_unchanged(_: &Backend) {
    let json = r#"{ "long_term_memory_id": "summarizer", "interaction_threshold_qty": 20,
        "interaction_threshold_tokens": 20000, "cod_max_loops": 5, "interaction_keep": 3,
        "instructions": "Focus on action items and decisions made.",
        "knowledge_base": { "collection_id": "session-summaries", "search_mode": "always" } }"#;
    let LongTermMemory::Summarizer(config) = serde_json::from_str(json).unwrap() else {
        unreachable!("a summarizer")
    };
    config.check().unwrap();
    assert_eq!((config.interaction_keep, config.cod_max_loops), (3, 5));
    assert!(serde_json::from_str::<LongTermMemory>(&json.replace("cod_max", "cod")).is_err());
    for (field, config) in [
        ("cod_max_loops", SummarizerConfig::default().with_cod_max_loops(0)),
        ("cod_max_loops", SummarizerConfig::default().with_cod_max_loops(21)),
        ("instructions", SummarizerConfig::default().with_instructions(String::new())),
        ("interaction_threshold_qty", SummarizerConfig::default().with_interaction_threshold_qty(-2)),
    ] {
        assert_eq!(config.check().unwrap_err().field(), Some(field));
    }
    for (field, settings) in [
        ("timeout_ms", settings().with_timeout_ms(0)),
        ("wait_ms", settings().with_wait_ms(u64::MAX)),
        ("input_tokens_max", settings().with_input_tokens_max(0)),
        ("summary_tokens_max", settings().with_summary_tokens_max(1)),
    ] {
        assert_eq!(settings.check().unwrap_err().field(), Some(field));
    }
}

/// Keeps the last two messages.
#[derive(Debug)]
struct LastTwo;

#[async_trait::async_trait]
impl CompactionStrategy for LastTwo {
    fn name(&self) -> &'static str {
        "last_two"
    }

    fn reach(&self) -> Reach {
        Reach::Messages(2)
    }

    fn drops(&self) -> bool {
        true
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        window.messages.drain(..window.messages.len().saturating_sub(2));
        Ok(window)
    }
}

/// Proves: ALQ-6
pub(crate) async fn long_term_memory_runs_first_and_its_summary_precedes_the_remaining_messages(
    backend: &Backend,
) {
    let (bench, model) = (Bench::new(backend).await, ScriptedModel::marks());
    bench.turns(0..8).await;
    let long_term: Arc<dyn CompactionStrategy> = Arc::new(summarization(&bench, &model, settings()));
    let memory = CombinedMemory::new(vec![long_term], vec![Arc::new(LastTwo)]);
    assert_eq!((memory.reach(), memory.drops()), (Reach::Everything, true));
    assert_eq!(CombinedMemory::new(vec![], vec![Arc::new(LastTwo)]).reach(), Reach::Messages(2));
    let mut window = bench.window().await;
    window.messages.insert(0, WindowMessage::injected(ChatMessage::system("Be kind")));
    let window = memory.compact(window).await.unwrap();
    assert_eq!(seqs(&window), [15, 16]);
    assert_eq!(window.messages[0].origin, Origin::Injected);
    assert!(matches!(window.messages[1].origin, Origin::Summary(_)));
}

/// Returns a random turn: words, a call with its results, or an open question.
async fn random_turn(bench: &Bench, dice: &mut Random, mark: &mut usize) {
    let mut said = |dice: &mut Random| {
        *mark += 1;
        format!("m{mark} {}", "word ".repeat(3 + usize::try_from(dice.draw() % 12).unwrap()))
    };
    let mut turn = vec![ChatMessage::user(said(dice))];
    for _ in 0..dice.draw() % 3 {
        let ids: Vec<String> = (0..=dice.draw() % 2).map(|id| format!("c{id}")).collect();
        let call = ids.iter().fold(ChatMessage::assistant(said(dice)), |message, id| {
            message.with_tool_call(ToolCall::new(id, "tool", "{}"))
        });
        turn.push(call);
        turn.extend(ids.iter().map(|id| ChatMessage::tool([ToolResult::new(id, said(dice))])));
    }
    if !dice.one_in(4) {
        turn.push(ChatMessage::assistant(said(dice)));
    }
    for message in turn {
        bench.history.append(&bench.thread, message).await.unwrap();
    }
}

/// Asserts that every stored message is in the window or in its summary, in order, and that every result has
/// its call.
async fn assert_nothing_lost(bench: &Bench, window: &Window, seed: u64) {
    let shown = seqs(window);
    assert!(shown.is_sorted(), "seed {seed}");
    let summary = summary_text(window).unwrap_or_default();
    let told: Vec<&str> = summary.split(['\n', ',']).collect();
    for stored in bench.history.all_messages(&bench.thread).await.unwrap() {
        let (message, seq) = (&stored.message, stored.seq.get());
        let text = message.tool_results.first().map_or(&*message.text, |result| &*result.content);
        let mark = text.split(' ').next().unwrap();
        assert!(shown.contains(&seq) != told.contains(&mark), "seed {seed}: message {seq} {mark}");
    }
    let mut open: Vec<&str> = Vec::new();
    for message in &window.messages {
        open.extend(message.message.tool_calls.iter().map(|call| &*call.id));
        for result in &message.message.tool_results {
            assert!(open.contains(&&*result.call_id), "seed {seed}: a result without its call");
        }
    }
}

/// Proves: RAVI-4, RAVI-9, ALQ-4
pub(crate) async fn whatever_model_and_store_do_nothing_is_lost(backend: &Backend) {
    let mut shortened = 0;
    for seed in 0..200 {
        shortened += summarize_at_random(backend, seed).await;
    }
    assert!(shortened > 300, "only {shortened} windows had a summary");
}

/// Runs a random strategy on a growing thread, with a model and a store that fail at random. Returns the
/// number of windows with a summary.
async fn summarize_at_random(backend: &Backend, seed: u64) -> u64 {
    let mut dice = Random::new(seed);
    let bench = Bench::new(backend).await;
    let trouble = std::sync::Mutex::new(Random::new(seed + 1_000));
    let model = ScriptedModel::new(Duration::from_millis(1), move |_, request| {
        match trouble.lock().unwrap().draw() % 8 {
            0 => Err(Error::new(ErrorKind::Unavailable, "model", "away")),
            1 => Ok(ChatMessage::assistant("")),
            2 => Ok(ChatMessage::assistant("far too long ".repeat(1_000))),
            _ => Ok(ChatMessage::assistant(marks_of(request))),
        }
    });
    let (on_failure, input_tokens_max) =
        (if dice.one_in(2) { OnFailure::Keep } else { OnFailure::Fail }, 16 + dice.draw() % 200);
    let settings = settings().with_on_failure(on_failure).with_input_tokens_max(input_tokens_max);
    let summaries =
        SummaryStore::new(Arc::new(Shaky::new(bench.key_value(), seed, 4 + dice.draw() % 40))).unwrap();
    let maker = SummaryMaker::new(model, Arc::new(Words), summaries, settings).unwrap();
    let strategy: Arc<dyn CompactionStrategy> = if dice.one_in(2) {
        let config = SummarizationConfig::default()
            .with_recent_token_budget(dice.draw() % 60)
            .with_min_old_tokens(1 + dice.draw() % 60);
        Arc::new(Summarization::new(maker, config).unwrap())
    } else {
        let config = SummarizerConfig::default()
            .with_interaction_threshold_qty(i64::try_from(dice.draw() % 4).unwrap())
            .with_interaction_keep(usize::try_from(dice.draw() % 3).unwrap())
            .with_cod_max_loops(1 + u32::try_from(dice.draw() % 3).unwrap());
        Arc::new(Summarizer::new(maker, config).unwrap())
    };
    let (mut mark, mut shortened) = (0, 0);
    for _ in 0..10 {
        random_turn(&bench, &mut dice, &mut mark).await;
        let before = bench.transcript().await;
        let given = if dice.one_in(3) { bench.raw_window().await } else { bench.window().await };
        if let Ok(window) = strategy.compact(given).await {
            assert_nothing_lost(&bench, &window, seed).await;
            let up_to = window.messages.iter().find_map(|message| match message.origin {
                Origin::Summary(up_to) => Some(up_to),
                _ => None,
            });
            let kept = bench.summaries().get(&bench.thread).await.unwrap();
            let kept = kept.map(|kept| kept.summary.up_to);
            assert!(up_to <= kept, "seed {seed}: the window's summary is not kept");
            shortened += u64::from(up_to.is_some());
        }
        assert_nothing_lost(&bench, &bench.window().await, seed).await;
        assert_eq!(bench.transcript().await, before, "seed {seed}: the stored conversation changed");
    }
    shortened
}
