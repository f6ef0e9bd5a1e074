//! Interrupted runs, and the state that the next process finds.

use larder_kernel::ErrorKind;

use super::bench::{Bench, FaultyState, PING_PONG, Puts, ROUTER, ask, call, texts, turn, user};
use crate::test_backend::TestBackend as Backend;
use larder_agents::workflow::Workflow;

/// Polls a future until its put hangs, and drops it there.
async fn killed<T>(state: &FaultyState, future: impl Future<Output = T>) {
    tokio::select! {
        _ = future => unreachable!("the put answered"),
        () = state.hung() => {}
    }
}

async fn faulty(bench: &Bench) -> (std::sync::Arc<FaultyState>, Workflow) {
    let state = FaultyState::new(bench.state());
    let workflow = bench.open_on(state.clone()).await;
    (state, workflow)
}

/// Proves: PK-8, PK-10
pub(crate) async fn a_crash_before_the_end_of_the_turn_drops_what_waited_for_it(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let mut workflow = bench.open().await;
    turn(&mut workflow, "before", None).await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Go").await;
    drop(workflow);
    let mut resumed = bench.resume().await.unwrap();
    let again = resumed.begin_turn().await.unwrap();
    assert_eq!((again.state.as_str(), texts(&again)), ("ping", vec!["before".to_owned()]));
    assert!(resumed.transitions().is_empty());
    ask(&mut resumed, "Go").await;
    resumed.end_turn(user("after")).await.unwrap();
    assert_eq!(resumed.current_state(), "pong");
}

/// Proves: PK-8, PK-10
pub(crate) async fn a_crash_within_a_chain_resumes_in_the_committed_state_under_the_anchored_prompt(
    backend: &Backend,
) {
    let bench = Bench::new(backend, ROUTER).await;
    let mut workflow = bench.open().await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Routed").await;
    ask(&mut workflow, "ToBilling").await;
    drop(workflow);
    let mut resumed = bench.resume().await.unwrap();
    assert_eq!((resumed.current_state(), resumed.transitions().len()), ("routed", 1));
    let again = resumed.begin_turn().await.unwrap();
    assert_eq!(again.system_prompt, "triage");
    assert!(texts(&again)[0].contains("ToBilling"), "the message repeats the lost result");
    ask(&mut resumed, "ToTechnical").await;
    resumed.end_turn(user("my router")).await.unwrap();
    assert_eq!(resumed.current_state(), "technical");
    assert_eq!(bench.said_in(&resumed, "triage").await, ["my router"]);
}

/// Proves: PK-8, PK-10
pub(crate) async fn a_crash_right_after_the_commit_loses_neither_transition_nor_messages(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let (state, mut workflow) = faulty(&bench).await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Go").await;
    state.set(Puts::Hang);
    killed(&state, workflow.end_turn(user("said"))).await;
    drop(workflow);
    let mut resumed = bench.resume().await.unwrap();
    assert_eq!(resumed.current_state(), "pong");
    assert!(bench.said_in(&resumed, "ping").await.is_empty());
    // Two workers complete it, one after the other, and the messages are stored once.
    let mut other = bench.resume().await.unwrap();
    assert_eq!(resumed.begin_turn().await.unwrap().state, "pong");
    assert_eq!(bench.said_in(&resumed, "ping").await, ["said"]);
    other.begin_turn().await.unwrap();
    assert_eq!(bench.said_in(&resumed, "ping").await, ["said"]);
}

/// Proves: PK-8, PK-10
pub(crate) async fn a_chain_that_crashed_at_its_terminal_state_lands_at_the_next_turn(backend: &Backend) {
    let bench = Bench::new(
        backend,
        r#"{"states": {
            "a": {"prompt_task": "a", "on_event": {"End": "z"}},
            "z": {"prompt_task": "z", "control": "agent", "terminal": true}
        }}"#,
    )
    .await;
    let mut workflow = bench.open().await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "End").await;
    drop(workflow);
    let mut resumed = bench.resume().await.unwrap();
    assert_eq!(resumed.anchor().state, "a");
    assert_eq!(resumed.begin_turn().await.unwrap().system_prompt, "z");
}

/// Proves: PK-8, PK-10
pub(crate) async fn a_dropped_or_failed_call_may_be_repeated_and_moves_once(backend: &Backend) {
    for puts in [Puts::Hang, Puts::LoseAnswer, Puts::Refuse] {
        let bench = Bench::new(backend, ROUTER).await;
        let (state, mut workflow) = faulty(&bench).await;
        workflow.begin_turn().await.unwrap();
        state.set(puts);
        match puts {
            Puts::Hang => killed(&state, workflow.on_tool_call(&call("c", "Routed"))).await,
            _ => {
                let error = workflow.on_tool_call(&call("c", "Routed")).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
        }
        state.set(Puts::Work);
        assert!(!ask(&mut workflow, "Routed").await.is_error);
        assert_eq!(workflow.transitions().len(), 1);
        ask(&mut workflow, "ToBilling").await;
        state.set(puts);
        match puts {
            Puts::Hang => killed(&state, workflow.end_turn(user("said"))).await,
            _ => {
                let error = workflow.end_turn(user("said")).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
        }
        state.set(Puts::Work);
        workflow.end_turn(user("said")).await.unwrap();
        assert_eq!((workflow.current_state(), workflow.transitions().len()), ("billing", 2));
        assert_eq!(bench.said_in(&workflow, "triage").await, ["said"]);
    }
}

/// Proves: PK-8
pub(crate) async fn an_event_with_a_lost_response_is_repeated_without_a_second_effect(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let (state, mut workflow) = faulty(&bench).await;
    state.set(Puts::LoseAnswer);
    assert_eq!(workflow.fire("Go", "e").await.unwrap_err().kind(), ErrorKind::Unavailable);
    state.set(Puts::Work);
    assert_eq!(workflow.fire("Go", "e").await.unwrap().to, "pong");
    assert_eq!((workflow.current_state(), workflow.transitions().len()), ("pong", 1));
}

/// Proves: PK-8
pub(crate) async fn a_corrupt_run_is_refused_and_not_shown(backend: &Backend) {
    use larder_kernel::{BucketName, Key, KeyValueStoreExt};
    let bench = Bench::new(backend, PING_PONG).await;
    let mut workflow = bench.open().await;
    let (bucket, key) = (BucketName::new("larder.workflows").unwrap(), Key::new("w").unwrap());
    bench.state().set(&bucket, &key, "{\"secret\": 1}".into()).await.unwrap();
    let error = workflow.begin_turn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(!format!("{error:?}").contains("secret"));
}

/// Proves: PK-1, PK-8
pub(crate) async fn a_fork_cut_short_gets_the_conversations_as_they_stood(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let (state, mut workflow) = faulty(&bench).await;
    turn(&mut workflow, "before", None).await;
    state.set(Puts::Hang);
    killed(&state, workflow.fork("fork")).await;
    state.set(Puts::Work);
    turn(&mut workflow, "after", None).await;
    let mut fork = bench.open_as("fork").await;
    assert_eq!(texts(&fork.begin_turn().await.unwrap()), ["before"]);
    assert_eq!(bench.said_in(&workflow, "ping").await, ["before", "after"]);
}
