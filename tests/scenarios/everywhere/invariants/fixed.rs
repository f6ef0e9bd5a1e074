//! Regression tests: lengths and combinations that once lost conversations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_kernel::{
    AppendOptions, ChatMessage, ErrorKind, HistoryProviderExt, KeyValueStore, Origin, Seq, SessionId,
    WindowMessage, forward,
};

use super::step::Step;
use super::world::World;
use crate::everywhere::support::Words;
use crate::test_backend::TestBackend as Backend;
use larder_agents::compaction::{NeuralyzerConfig, SummarizationConfig, SummarizerConfig};
use larder_agents::session::{
    Ephemeral, InferenceRequest, OnSummaryFailure, Persisted, Persistence, SessionProfile, Sessions,
    SummaryPolicy,
};

fn sessions(world: &World, steps: &[Step]) -> Sessions {
    Sessions::new(world.history.clone(), world.store.clone())
        .unwrap()
        .with_token_counter(Arc::new(Words))
        .with_strategies(steps.iter().map(|step| step.build(world)).collect())
}

async fn with_messages(world: &World, sessions: &Sessions, count: usize) -> SessionId {
    let id = sessions.create(SessionProfile::Everything, "prompt").await.unwrap();
    let all: Vec<usize> = (1..=count).collect();
    for part in all.chunks(1_000) {
        let said = |mark: &usize| match mark % 2 {
            1 => ChatMessage::user(format!("m{mark}")),
            _ => ChatMessage::assistant(format!("m{mark}")),
        };
        let messages = part.iter().map(said).collect();
        world.history.append_many(&sessions.thread(&id), messages, AppendOptions::default()).await.unwrap();
    }
    id
}

fn over_twelve() -> NeuralyzerConfig {
    NeuralyzerConfig::default().with_interaction_threshold_qty(3).with_interaction_keep(1)
}

async fn turn(sessions: &Sessions, id: &SessionId, persistence: Persistence) -> Persisted {
    let request = InferenceRequest::new([ChatMessage::user("new")]).with_persistence(persistence);
    let inference = sessions.begin(id, request).await.unwrap();
    let persisted = inference.complete([ChatMessage::assistant("newer")]).await.unwrap();
    assert_eq!(inference.complete([ChatMessage::assistant("newer")]).await.unwrap(), persisted);
    persisted
}

/// Proves: ALQ-1, ALQ-7
pub(crate) async fn a_turn_is_stored_in_a_thread_of_any_length(backend: &Backend) {
    for count in [0, 10, 998, 999, 1_000, 1_001, 100_000] {
        for persistence in [Persistence::Incremental, Persistence::Flush] {
            let world = World::new(backend).await;
            let sessions = sessions(&world, &[]);
            let id = with_messages(&world, &sessions, count).await;
            turn(&sessions, &id, persistence).await;
            turn(&sessions, &id, persistence).await;
            let stored = world.history.all_messages(&sessions.thread(&id)).await.unwrap();
            assert_eq!(stored.len(), count + 4, "{count} {persistence:?}");
            let last: Vec<_> = stored[count..].iter().map(|stored| stored.text()).collect();
            assert_eq!(last, ["new", "newer", "new", "newer"]);
        }
    }
}

/// Proves: ALQ-4, ALQ-5, ALQ-6, ALQ-7
pub(crate) async fn a_long_thread_loses_only_what_its_strategies_and_its_persistence_say(backend: &Backend) {
    let long = if backend.name() == "memory" { 100_000 } else { 3_000 };
    // A replacement takes at most 1,000 messages, so the longer threads keep more.
    for (count, keep) in [(1_001, 300), (long, 600)] {
        for (long_term, short_term) in
            [("neuralyzer", false), ("summarizer", false), ("summarizer", true), ("", true)]
        {
            let strategy = format!(
                r#"{{"long_term_memory_id": "{long_term}", "interaction_threshold_qty": 9,
                    "interaction_keep": {keep}}}"#
            );
            let long_terms = if long_term.is_empty() { "" } else { &*strategy };
            let short = r#"{"memory_strategy_id": "max_tokens", "memory_max_tokens": 700}"#;
            let document = format!(
                r#"{{"long_term_memory_strategy": [{long_terms}], "short_term_memory_strategy": [{}]}}"#,
                if short_term { short } else { "" }
            );
            for persistence in [Persistence::Incremental, Persistence::Flush, Persistence::Ephemeral] {
                let told = format!("{count} {document} {persistence:?}");
                let world = World::new(backend).await;
                let sessions = sessions(&world, &[]).with_summarizer(world.model());
                let sessions = sessions.configured(&document).unwrap();
                let id = with_messages(&world, &sessions, count).await;
                turn(&sessions, &id, persistence).await;
                turn(&sessions, &id, persistence).await;
                let session = sessions.get(&id).await.unwrap();
                let texts: Vec<_> = session.messages.iter().map(|stored| stored.text()).collect();
                if persistence == Persistence::Ephemeral {
                    assert_eq!((texts.len(), session.summary), (count, None), "{told}");
                    continue;
                }
                let (kept, turns) = texts.split_at(texts.len() - 4);
                assert_eq!(turns, ["new", "newer", "new", "newer"], "{told}");
                let kept: Vec<usize> = kept.iter().filter_map(|text| text[1..].parse().ok()).collect();
                assert!(kept.windows(2).all(|pair| pair[1] == pair[0] + 1), "{told}: a gap");
                assert_eq!(kept.last(), Some(&count), "{told}");
                let erases = long_term == "neuralyzer" || persistence == Persistence::Flush;
                assert_eq!(kept[0] == 1, !erases, "{told}: {}", kept[0]);
                if long_term == "summarizer" && !short_term {
                    let summary = session.summary.unwrap();
                    let up_to: usize = summary.rsplit('m').next().unwrap().parse().unwrap();
                    assert!(summary.contains("m1,") && kept[0] <= up_to + 1, "{told}: a gap after {up_to}");
                }
            }
        }
    }
}

/// Proves: ALQ-4, ALQ-7
pub(crate) async fn a_flush_keeps_the_summary_of_a_long_thread(backend: &Backend) {
    for keep in [0, 700] {
        let world = World::new(backend).await;
        let config = SummarizerConfig::default().with_interaction_keep(keep).with_cod_max_loops(1);
        let sessions = sessions(&world, &[Step::Summarizer(config)]);
        let id = with_messages(&world, &sessions, 2_000).await;
        assert_eq!(turn(&sessions, &id, Persistence::Flush).await, Persisted::Replaced);
        let session = sessions.get(&id).await.unwrap();
        assert_eq!(session.messages.len(), 2 * keep + 2);
        let summary = session.summary.unwrap();
        assert!(summary.contains("m1,") && summary.ends_with(&format!("m{}", 2_000 - 2 * keep)));
        turn(&sessions, &id, Persistence::Flush).await;
        assert!(sessions.get(&id).await.unwrap().summary.unwrap().contains("m1,"));
    }
}

/// Proves: ATH-5
pub(crate) async fn a_large_prompt_leaves_no_gap_between_the_summary_and_the_window(backend: &Backend) {
    for policy in [SummaryPolicy::Once, SummaryPolicy::Rolling] {
        let world = World::new(backend).await;
        let seconds = std::time::Duration::from_secs(1);
        let sessions = sessions(&world, &[]).with_summarizer(world.model()).with_summaries(
            policy,
            OnSummaryFailure::Fail,
            seconds,
        );
        let prompt = "word ".repeat(1_500);
        let id = sessions.create(SessionProfile::default(), prompt.trim()).await.unwrap();
        for mark in 1..=120 {
            let message = ChatMessage::user(format!("m{mark}{}", " word".repeat(99)));
            world.history.append(&sessions.thread(&id), message).await.unwrap();
        }
        let request = InferenceRequest::new([ChatMessage::user("new")]);
        let inference = sessions.begin(&id, request).await.unwrap();
        let messages = &inference.window().messages;
        let Origin::Summary(up_to) = messages[1].origin else { panic!("no summary") };
        assert_eq!(messages[2].origin, Origin::Stored(Seq::new(up_to.get() + 1)));
        assert!(messages[1].message.text.ends_with(&format!("m{up_to}")));
        assert!(inference.left_out().iter().all(|left| left.messages.is_empty()));
    }
}

/// Proves: RAVI-9
pub(crate) async fn a_summary_that_an_earlier_step_dropped_is_read_again(backend: &Backend) {
    let world = World::new(backend).await;
    let config = SummarizationConfig::default().with_recent_token_budget(1).with_min_old_tokens(1);
    let first = sessions(&world, &[Step::Summarization(config.clone())]);
    let id = with_messages(&world, &first, 20).await;
    turn(&first, &id, Persistence::Incremental).await;
    let second = sessions(&world, &[Step::Truncation(20), Step::Summarization(config)]);
    for mark in 21..=30 {
        let message = ChatMessage::user(format!("m{mark}"));
        world.history.append(&second.thread(&id), message).await.unwrap();
    }
    let request = InferenceRequest::new([ChatMessage::user("new")]);
    let inference = second.begin(&id, request).await.unwrap();
    let is_summary = |message: &&WindowMessage| matches!(message.origin, Origin::Summary(_));
    let summary = inference.window().messages.iter().find(is_summary).unwrap();
    let Origin::Summary(up_to) = summary.origin else { unreachable!() };
    assert!(up_to > Seq::new(25), "the summary ends at {up_to}");
    let read: Vec<&str> = summary.message.text.split(|c: char| !c.is_alphanumeric()).collect();
    for mark in 1..=25 {
        assert!(read.contains(&&*format!("m{mark}")), "the summary has not read m{mark}: {read:?}");
    }
}

/// Proves: ALQ-5, ALQ-7
pub(crate) async fn nothing_is_erased_before_a_turn_completes(backend: &Backend) {
    let world = World::new(backend).await;
    let sessions = sessions(&world, &[Step::Neuralyzer(over_twelve())]);
    let id = with_messages(&world, &sessions, 12).await;
    let thread = sessions.thread(&id);
    let stored = || world.history.all_messages(&thread);
    let before = stored().await.unwrap();
    let shown = sessions.explain_window(&id).await.unwrap();
    assert_eq!(shown.steps[0].dropped.len(), 10, "{shown}");
    for persistence in [Persistence::Incremental, Persistence::Flush, Persistence::Ephemeral] {
        let request = InferenceRequest::new([ChatMessage::user("new")]).with_persistence(persistence);
        sessions.begin(&id, request).await.unwrap().cancel();
    }
    assert_eq!(turn(&sessions, &id, Persistence::Ephemeral).await, Persisted::Nothing);
    assert_eq!(stored().await.unwrap(), before);
    turn(&sessions, &id, Persistence::Flush).await;
    let left: Vec<_> = stored().await.unwrap().iter().map(|stored| stored.text().to_owned()).collect();
    assert_eq!(left, ["m11", "m12", "new", "newer"]);
}

/// Proves: ALQ-4, ALQ-5
pub(crate) async fn a_summary_that_was_not_stored_is_stored_by_the_next_attempt(backend: &Backend) {
    let world = World::new(backend).await;
    let store = Arc::new(FailsOnce { inner: world.store.clone(), armed: AtomicBool::new(false) });
    let neuralyzer = NeuralyzerConfig::default().with_interaction_threshold_qty(35).with_interaction_keep(30);
    let summarizer = SummarizerConfig::default().with_interaction_keep(3).with_cod_max_loops(1);
    let steps = [Step::Neuralyzer(neuralyzer), Step::Summarizer(summarizer)];
    let sessions = Sessions::new(world.history.clone(), store.clone())
        .unwrap()
        .with_token_counter(Arc::new(Words))
        .with_strategies(steps.iter().map(|step| step.build(&world)).collect());
    let id = with_messages(&world, &sessions, 80).await;
    let request = InferenceRequest::new([ChatMessage::user("new")]);
    let inference = sessions.begin(&id, request).await.unwrap();
    store.armed.store(true, Ordering::Relaxed);
    let failed = inference.complete([ChatMessage::assistant("newer")]).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    assert!(world.history.all_messages(&sessions.thread(&id)).await.unwrap().len() < 80, "it erases first");
    inference.complete([ChatMessage::assistant("newer")]).await.unwrap();
    let session = sessions.get(&id).await.unwrap();
    assert!(session.summary.unwrap().contains("m21,"));
    assert_eq!(session.messages.last().unwrap().text(), "newer");
}

/// Proves: ALQ-4
pub(crate) async fn summarizers_of_one_document_ask_a_question_once(backend: &Backend) {
    let world = World::new(backend).await;
    let document = r#"{"long_term_memory_strategy": [
        {"long_term_memory_id": "summarizer", "input_tokens_threshold": 9, "interaction_threshold_qty": -1,
            "interaction_keep": 3, "cod_max_loops": 1},
        {"long_term_memory_id": "summarizer", "interaction_threshold_qty": 3, "interaction_keep": 3,
            "cod_max_loops": 1}
    ]}"#;
    let sessions = sessions(&world, &[]).with_summarizer(world.model()).configured(document).unwrap();
    let id = with_messages(&world, &sessions, 4).await;
    for _ in 0..6 {
        turn(&sessions, &id, Persistence::Incremental).await;
    }
    assert_eq!(*world.shared.repeated.lock().unwrap(), None);
    assert!(sessions.get(&id).await.unwrap().summary.is_some(), "a summarizer fired");
}

/// A store that fails to write one summary.
#[derive(Debug)]
struct FailsOnce {
    inner: Arc<dyn KeyValueStore>,
    armed: AtomicBool,
}

macro_rules! fails_once {
    ($self:ident KeyValueStore put($bucket:ident, $key:ident, $value:ident, $options:ident)) => {{
        if $key.as_str().starts_with("summary/") && $self.armed.swap(false, Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Unavailable, "key_value.put", "away"));
        }
        $self.inner.put($bucket, $key, $value, $options).await
    }};
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

forward!(Store for FailsOnce);
forward!(KeyValueStore for FailsOnce, fails_once);

/// Proves: ALQ-10
pub(crate) async fn an_ephemeral_inference_can_lose_its_session(backend: &Backend) {
    let world = World::new(backend).await;
    let sessions = sessions(&world, &[]).with_ephemeral(Ephemeral::LosesSession);
    let id = with_messages(&world, &sessions, 4).await;
    let request =
        || InferenceRequest::new([ChatMessage::user("new")]).with_persistence(Persistence::Ephemeral);
    let turn = sessions.begin(&id, request()).await.unwrap();
    assert_eq!(turn.window().messages.len(), 6, "it is read");
    turn.cancel();
    assert_eq!(sessions.get(&id).await.unwrap().messages.len(), 4);
    turn_of(&sessions, &id, request()).await;
    let session = sessions.get(&id).await.unwrap();
    assert_eq!((session.messages.len(), &*session.system_prompt), (0, "prompt"));
}

async fn turn_of(sessions: &Sessions, id: &SessionId, request: InferenceRequest) {
    let inference = sessions.begin(id, request).await.unwrap();
    assert_eq!(inference.complete([]).await.unwrap(), Persisted::Nothing);
}
