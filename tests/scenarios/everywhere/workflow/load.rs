//! Conversations of any length, and conversations that cannot be loaded.

use std::sync::atomic::Ordering;

use larder_agents::workflow::{OnLoadError, TransientConversations, Workflow, WorkflowOptions, WorkflowSpec};
use larder_kernel::{ChatMessage, ErrorKind};

use super::bench::{Bench, PING_PONG, texts, turn, user};
use crate::everywhere::session_support::World;
use crate::test_backend::TestBackend as Backend;

/// Proves: PK-12
pub(crate) async fn without_a_limit_a_window_has_the_whole_conversation(backend: &Backend) {
    let transient = PING_PONG.replacen(r#""say ping","#, r#""say ping", "persistence": "transient","#, 1);
    for json in [PING_PONG, &transient] {
        for (most, seen) in [(-1, 1_203), (100, 100), (1_202, 1_202)] {
            let options = WorkflowOptions::default().with_window_messages(most);
            let bench = Bench::new(backend, json).await.with(options);
            let mut workflow = bench.open().await;
            for part in 0..3 {
                workflow.begin_turn().await.unwrap();
                let said = (0..401).map(|number| ChatMessage::user(format!("{}", 401 * part + number)));
                workflow.end_turn(said.collect()).await.unwrap();
            }
            let window = texts(&workflow.begin_turn().await.unwrap());
            assert_eq!(
                (window.len(), &*window[0], &*window[seen - 1]),
                (seen, &*(1_203 - seen).to_string(), "1202")
            );
        }
    }
    let spec = WorkflowSpec::from_json(PING_PONG).unwrap();
    let bench = Bench::new(backend, PING_PONG).await;
    for most in [-2, i64::MIN, i64::MAX] {
        let options = WorkflowOptions::default().with_window_messages(most);
        let opened = Workflow::open(bench.history(), bench.state(), spec.clone(), options, "w").await;
        assert_eq!(opened.unwrap_err().field(), Some("window_messages"));
    }
}

/// Proves: PK-13
pub(crate) async fn a_program_can_continue_without_the_conversation_and_gets_the_error(backend: &Backend) {
    let transient = PING_PONG.replacen(r#""say ping","#, r#""say ping", "persistence": "transient","#, 1);
    for json in [PING_PONG, &transient] {
        let world = World::new(backend).await;
        let probe = world.probe();
        let spec = WorkflowSpec::from_json(json).unwrap();
        let options = WorkflowOptions::default().with_transient(TransientConversations::UntilLeft);
        let open = |options: WorkflowOptions| {
            Workflow::open(probe.clone(), world.key_value(), spec.clone(), options, "w")
        };
        let mut strict = open(options.clone()).await.unwrap();
        let mut lenient = open(options.with_on_load_error(OnLoadError::Empty)).await.unwrap();
        turn(&mut strict, "before", None).await;
        lenient.begin_turn().await.unwrap();
        assert!(lenient.load_failure().is_none());

        probe.is_away.store(true, Ordering::Relaxed);
        assert_eq!(strict.begin_turn().await.unwrap_err().kind(), ErrorKind::Unavailable);
        let window = lenient.begin_turn().await.unwrap();
        assert_eq!((texts(&window).len(), &*window.system_prompt), (0, "say ping"));
        assert_eq!(lenient.load_failure().unwrap().kind(), ErrorKind::Unavailable);
        lenient.end_turn(user("during")).await.unwrap();
        assert!(lenient.load_failure().is_none());

        probe.is_away.store(false, Ordering::Relaxed);
        assert_eq!(texts(&strict.begin_turn().await.unwrap()), ["before", "during"]);
    }
}
