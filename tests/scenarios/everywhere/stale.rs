//! Summaries of messages that a thread no longer contains.

use std::sync::Arc;
use std::time::Duration;

use larder_agents::compaction::{Pipeline, Summarization, SummarizationConfig, SummaryMaker};
use larder_agents::context::{AgentContext, ContextConfig};
use larder_agents::session::{SessionProfile, Sessions};
use larder_kernel::{
    AgentContextProtocol, ChatMessage, HistoryProviderExt, LanguageModel, Replacement, RunId, Seq, Ttl,
};

use crate::everywhere::session_support::{Model, Reply, turn};
use crate::everywhere::support::{Bench, ScriptedModel, Words, seqs, settings, summary_text};
use crate::test_backend::TestBackend as Backend;

/// A context whose windows begin with a summary of all but the newest four messages.
fn context(bench: &Bench, model: &Arc<ScriptedModel>) -> AgentContext {
    let model: Arc<dyn LanguageModel> = model.clone();
    let maker = SummaryMaker::new(model, Arc::new(Words), bench.summaries(), settings()).unwrap();
    let config = SummarizationConfig::default().with_recent_token_budget(40).with_min_old_tokens(40);
    let pipeline = Pipeline::new().then(Summarization::new(maker, config).unwrap());
    let config = ContextConfig::new(bench.history.clone())
        .with_counter(Arc::new(Words))
        .with_pipeline(pipeline)
        .with_summaries(bench.summaries());
    AgentContext::new(config).unwrap().for_agent(bench.thread.agent.clone())
}

/// A thread of eight turns. Ten of its messages are summarized, and two more follow them.
async fn summarized(backend: &Backend) -> (Bench, AgentContext) {
    let bench = Bench::new(backend).await;
    let context = context(&bench, &ScriptedModel::marks());
    bench.turns(0..7).await;
    let window = context.get_prompt_window(&bench.thread.session).await.unwrap();
    assert_eq!(seqs(&window), [11, 12, 13, 14]);
    bench.turns(7..8).await;
    let window = context.get_prompt_window(&bench.thread.session).await.unwrap();
    assert!(summary_text(&window).unwrap().contains("m0,m1"));
    (bench, context)
}

/// Returns the messages of the next window after a change to the thread, and `true` if a summary covers the
/// first messages.
async fn shown(bench: &Bench, context: &AgentContext) -> (Vec<i64>, bool) {
    let window = context.get_prompt_window(&bench.thread.session).await.unwrap();
    (seqs(&window), summary_text(&window).is_some_and(|text| text.contains("m0")))
}

/// Proves: RAVI-9
pub(crate) async fn a_cleared_thread_is_not_summarized_by_what_was_said_before(backend: &Backend) {
    let (bench, context) = summarized(backend).await;
    bench.room.history().clear(&bench.thread, None).await.unwrap();
    assert_eq!(shown(&bench, &context).await, (vec![], false));
    bench.turns(20..21).await;
    assert_eq!(shown(&bench, &context).await, (vec![18, 19], false));
    assert!(bench.summaries().get(&bench.thread).await.unwrap().is_none());
    // A summary of the new conversation includes nothing of the old one.
    bench.turns(21..25).await;
    let window = context.get_prompt_window(&bench.thread.session).await.unwrap();
    let text = summary_text(&window).unwrap();
    assert!(text.contains("m40") && !text.contains("m0"), "{text}");
}

/// Proves: RAVI-9
pub(crate) async fn an_expired_thread_is_not_summarized_by_what_was_said_before(backend: &Backend) {
    let (bench, context) = summarized(backend).await;
    let history = bench.room.history();
    history.set_ttl(&bench.thread, Some(Ttl::fixed(Duration::from_millis(1))), None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    bench.turns(20..21).await;
    let (shown, told) = shown(&bench, &context).await;
    assert_eq!((shown.len(), told), (2, false));
}

/// Proves: RAVI-9, AKKA-6
pub(crate) async fn a_thread_replaced_in_any_part_is_not_summarized_by_what_was_there(backend: &Backend) {
    let pair = || vec![ChatMessage::user("m90 short"), ChatMessage::assistant("m91 shorter")];
    // Replaces within the summarized part, at its end, beyond it, and by the same number of messages.
    for (up_to, count) in [(4, 2), (10, 2), (12, 2), (2, 2), (10, 0)] {
        let (bench, context) = summarized(backend).await;
        let put = pair().into_iter().take(count).collect();
        let last = bench.history.thread_info(&bench.thread).await.unwrap().last;
        let replacement = Replacement::new(Seq::new(up_to), put).with_seen(last);
        bench.room.history().replace(&bench.thread, replacement).await.unwrap();
        let window = context.get_prompt_window(&bench.thread.session).await.unwrap();
        let text = summary_text(&window).unwrap_or_default();
        assert!(!text.contains("m0"), "{up_to}: {text}");
        let kept = bench.history.all_messages(&bench.thread).await.unwrap();
        let told = |mark: &str| {
            text.split(['\n', ',']).any(|word| word == mark)
                || window.messages.iter().any(|message| message.message.text.starts_with(&format!("{mark} ")))
        };
        for stored in kept {
            let mark = stored.message.text.split(' ').next().unwrap().to_owned();
            assert!(told(&mark), "{up_to}: {mark} is lost");
        }
    }
}

/// Proves: RAVI-9
pub(crate) async fn removals_after_the_summarized_part_keep_the_summary(backend: &Backend) {
    let (bench, context) = summarized(backend).await;
    let run: RunId = "r".parse().unwrap();
    bench.history.append(&bench.thread, ChatMessage::user("x").with_run(run.clone())).await.unwrap();
    bench.history.clear_run(&bench.thread, &run, None).await.unwrap();
    let (shown, told) = shown(&bench, &context).await;
    assert!(told && *shown.last().unwrap() == 16, "{shown:?}");
}

/// Proves: ATH-5
pub(crate) async fn a_session_with_a_cleared_thread_starts_again(backend: &Backend) {
    let room = backend.room().await;
    let model = Model::new(&[Reply::Text("They counted."), Reply::Text("They spelled.")]);
    let words = Arc::new(crate::everywhere::session_support::Words::default());
    let sessions = Sessions::new(room.history(), room.key_value())
        .unwrap()
        .with_token_counter(words)
        .with_summarizer(model);
    let id = sessions.create(SessionProfile::rolling_window(40, 20).unwrap(), "prompt").await.unwrap();
    for (question, answer) in [("1 1 1 1", "2 2 2 2"), ("3 3 3 3", "4 4 4 4"), ("5 5 5 5", "6 6 6 6")] {
        turn(&sessions, &id, question, answer).await;
    }
    turn(&sessions, &id, "new", "newer").await;
    assert_eq!(sessions.get(&id).await.unwrap().summary.as_deref(), Some("They counted."));

    room.history().clear(&sessions.thread(&id), None).await.unwrap();
    assert_eq!(sessions.get(&id).await.unwrap().summary, None);
    for (question, answer) in [("a a a a", "b b b b"), ("c c c c", "d d d d"), ("e e e e", "f f f f")] {
        turn(&sessions, &id, question, answer).await;
    }
    turn(&sessions, &id, "new", "newer").await;
    assert_eq!(sessions.get(&id).await.unwrap().summary.as_deref(), Some("They spelled."));
}
