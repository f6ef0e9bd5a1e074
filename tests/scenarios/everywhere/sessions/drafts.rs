//! Summaries that a model was paid for and that no turn has stored yet.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_agents::session::{OnSummaryFailure, SessionProfile, Sessions, SummaryPolicy};
use larder_kernel::{
    ChatMessage, ErrorKind, HistoryProvider, HistoryProviderExt, LanguageModel, LanguageModelRequest,
    Replacement, Result, Seq, SessionId,
};

use crate::everywhere::session_support::{Model, Reply, World, texts, turn, user};
use crate::test_backend::TestBackend as Backend;

const TOLD: &str = "They counted.";

/// A model whose session is deleted during the call.
#[derive(Debug)]
struct Deletes(Sessions, SessionId);

#[async_trait]
impl LanguageModel for Deletes {
    fn name(&self) -> &str {
        "deletes"
    }

    async fn generate(&self, _: LanguageModelRequest) -> Result<ChatMessage> {
        assert!(self.0.delete(&self.1).await?);
        Ok(ChatMessage::assistant("my secret"))
    }
}

/// A session just past its threshold of 20 tokens.
async fn six(sessions: &Sessions) -> SessionId {
    let id = sessions.create(SessionProfile::rolling_window(40, 20).unwrap(), "prompt").await.unwrap();
    for number in 1..=3 {
        turn(sessions, &id, &format!("q{number} 1 1 1"), &format!("a{number} 2 2 2")).await;
    }
    id
}

/// Proves: ATH-5
pub(crate) async fn a_summary_that_was_paid_for_is_used_by_the_next_process(backend: &Backend) {
    for policy in [SummaryPolicy::Once, SummaryPolicy::Rolling] {
        for (completes, arrives) in [(true, false), (false, false), (true, true), (false, true)] {
            let world = World::new(backend).await;
            let plain = world.sessions();
            let id = six(&plain).await;
            let model = Model::new(&[Reply::Text(TOLD), Reply::Text("Paid twice.")]);
            // The caches of two processes share nothing.
            let process = || {
                let seconds = Duration::from_secs(5);
                world.sessions().with_summarizer(model.clone()).with_summaries(
                    policy,
                    OnSummaryFailure::Fail,
                    seconds,
                )
            };
            let first = process().begin(&id, user("x")).await.unwrap();
            assert_eq!((model.times(), plain.get(&id).await.unwrap().summary), (1, None));
            if arrives {
                world.probe().append(&plain.thread(&id), ChatMessage::user("more")).await.unwrap();
            }
            let second = process().begin(&id, user("y")).await.unwrap();
            assert_eq!(texts(&second)[1], TOLD);
            match completes {
                true => drop(first.complete([ChatMessage::assistant("answer")]).await.unwrap()),
                false => first.cancel(),
            }
            let third = process().begin(&id, user("z")).await.unwrap();
            assert_eq!(texts(&third)[1], TOLD);
            second.complete([ChatMessage::assistant("answer")]).await.unwrap();
            assert_eq!(plain.get(&id).await.unwrap().summary.as_deref(), Some(TOLD));
            process().begin(&id, user("w")).await.unwrap();
            assert_eq!(model.times(), 1, "{policy:?} {completes} {arrives}");
        }
    }
}

/// Proves: ALQ-4
pub(crate) async fn a_strategys_summary_that_was_paid_for_is_used_by_the_next_process(backend: &Backend) {
    let document = r#"{"long_term_memory_strategy": [{"long_term_memory_id": "summarizer",
        "interaction_threshold_qty": 2, "cod_max_loops": 2, "interaction_keep": 1}]}"#;
    for completes in [true, false] {
        let world = World::new(backend).await;
        let model = Model::new(&[Reply::Text("First."), Reply::Text(TOLD), Reply::Text("Paid twice.")]);
        let process = || world.sessions().with_summarizer(model.clone()).configured(document).unwrap();
        let plain = world.sessions();
        let id = plain.create(SessionProfile::Everything, "prompt").await.unwrap();
        for number in 1..=3 {
            turn(&plain, &id, &format!("q{number} 1 1 1 1 1 1 1"), "a 2 2 2").await;
        }
        let first = process().begin(&id, user("x")).await.unwrap();
        assert_eq!((model.times(), plain.get(&id).await.unwrap().summary), (2, None));
        let second = process().begin(&id, user("y")).await.unwrap();
        assert!(texts(&second)[1].ends_with(TOLD), "{:?}", texts(&second));
        match completes {
            true => drop(first.complete([ChatMessage::assistant("answer")]).await.unwrap()),
            false => first.cancel(),
        }
        second.complete([ChatMessage::assistant("answer")]).await.unwrap();
        assert_eq!(plain.get(&id).await.unwrap().summary.as_deref(), Some(TOLD));
        assert_eq!(model.times(), 2, "{completes}");
    }
}

/// Proves: ATH-5, ATH-1
pub(crate) async fn a_draft_of_removed_messages_is_not_used_and_is_deleted_with_its_session(
    backend: &Backend,
) {
    let world = World::new(backend).await;
    let plain = world.sessions();
    let secret = Reply::Text("my secret");
    // The part that the draft covers is erased, replaced by others, or cleared.
    for changed in 0..3 {
        let id = six(&plain).await;
        let model = Model::new(&[secret, Reply::Text(TOLD), Reply::Text(TOLD)]);
        world.sessions().with_summarizer(model.clone()).begin(&id, user("x")).await.unwrap().cancel();
        let (history, thread) = (world.probe(), plain.thread(&id));
        let end = Seq::new(2);
        match changed {
            0 => drop(history.replace(&thread, Replacement::new(end, Vec::new())).await.unwrap()),
            1 => {
                let other = vec![ChatMessage::user("other"), ChatMessage::assistant("words")];
                history.replace(&thread, Replacement::new(end, other)).await.unwrap();
            }
            _ => drop(history.clear(&thread, None).await.unwrap()),
        }
        for number in 4..=6 {
            turn(&plain, &id, &format!("q{number} 1 1 1"), &format!("a{number} 2 2 2")).await;
        }
        let next = world.sessions().with_summarizer(model.clone()).begin(&id, user("y")).await.unwrap();
        assert_eq!(texts(&next)[1], TOLD, "{changed}");
        let asked: String = (1..model.times()).map(|index| model.prompt(index)).collect();
        assert!(!asked.contains("my secret"), "{changed}: {asked}");
    }
    // Nothing of a draft remains after its session.
    let world = World::new(backend).await;
    let plain = world.sessions();
    let id = six(&plain).await;
    let sessions = world.sessions().with_summarizer(Model::new(&[secret]));
    sessions.begin(&id, user("x")).await.unwrap().cancel();
    plain.delete(&id).await.unwrap();
    let again = Model::new(&[secret]);
    let id = six(&plain).await;
    let turn = world.sessions().with_summarizer(again).begin(&id, user("x")).await.unwrap();
    turn.complete([ChatMessage::assistant("answer")]).await.unwrap();
    assert!(plain.delete(&id).await.unwrap());
    assert!(!world.everything_stored().await.contains("my secret"));

    let id = six(&plain).await;
    let deletes = Arc::new(Deletes(plain.clone(), id.clone()));
    let error = world.sessions().with_summarizer(deletes).begin(&id, user("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(!world.everything_stored().await.contains("my secret"));
}
