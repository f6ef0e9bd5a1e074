//! Transitions, conversations and forks of a run.

use larder_kernel::{ErrorKind, PageRequest};

use super::bench::{Bench, PING_PONG, ROUTER, ask, texts, turn, user};
use crate::test_backend::TestBackend as Backend;
use larder_agents::workflow::{TransientConversations, Workflow, WorkflowOptions, WorkflowSpec};

const DESK: &str = r#"{"states": {
    "intake": {"prompt_task": "greeting", "persistence": "transient", "on_event": {"Next": "desk"}},
    "desk": {"prompt_task": "desk", "persistence": "persistent", "on_event": {"Back": "intake"}}
}}"#;

/// Proves: PK-7
pub(crate) async fn a_run_has_a_current_state_a_history_with_times_and_a_conversation_per_state(
    backend: &Backend,
) {
    let bench = Bench::new(backend, PING_PONG).await;
    let mut workflow = bench.open().await;
    let before = larder_kernel::Timestamp::now();
    assert_eq!(workflow.current_state(), "ping");
    assert!(workflow.transitions().is_empty());
    turn(&mut workflow, "1", None).await;
    turn(&mut workflow, "2", Some("Go")).await;
    let first = turn(&mut workflow, "3", Some("Go")).await;
    assert_eq!((first.state.as_str(), first.system_prompt.as_str()), ("pong", "say pong"));
    assert!(texts(&first).is_empty(), "the next state has a separate conversation");
    let again = turn(&mut workflow, "4", None).await;
    assert_eq!(texts(&again), ["1", "2"], "a persistent conversation continues");

    let steps: Vec<_> = workflow.transitions().iter().map(|t| (&*t.from, &*t.event, &*t.to)).collect();
    assert_eq!(steps, [("ping", "Go", "pong"), ("pong", "Go", "ping")]);
    assert!(workflow.transitions().iter().all(|transition| transition.at >= before));
    assert_eq!(workflow.current_visit().number, 2);
    assert_eq!(bench.said_in(&workflow, "ping").await, ["1", "2", "4"]);
    assert_eq!(bench.said_in(&workflow, "pong").await, ["3"]);
}

/// Proves: PK-7
pub(crate) async fn a_transient_conversation_restarts_at_each_entry_and_is_not_stored(backend: &Backend) {
    let bench = Bench::new(backend, DESK).await;
    let mut workflow = bench.open().await;
    turn(&mut workflow, "hello", None).await;
    assert_eq!(texts(&turn(&mut workflow, "move on", Some("Next")).await), ["hello"]);
    turn(&mut workflow, "at the desk", Some("Back")).await;
    assert!(texts(&turn(&mut workflow, "me again", Some("Next")).await).is_empty());
    assert_eq!(texts(&turn(&mut workflow, "back", Some("Back")).await), ["at the desk"]);

    turn(&mut workflow, "kept by this handle", None).await;
    assert!(texts(&bench.open().await.begin_turn().await.unwrap()).is_empty());
    let threads = bench.history().list_threads(None, PageRequest::default()).await.unwrap();
    let stored: Vec<_> = threads.items.into_iter().map(|info| info.thread).collect();
    assert_eq!(stored, [workflow.thread("desk").unwrap().unwrap()]);
    assert_eq!(workflow.thread("intake").unwrap(), None);
}

/// Proves: PK-7, PK-8
pub(crate) async fn a_transient_conversation_kept_until_left_is_shared_and_then_cleared(backend: &Backend) {
    let options = WorkflowOptions::default().with_transient(TransientConversations::UntilLeft);
    let bench = Bench::new(backend, DESK).await.with(options);
    let mut workflow = bench.open().await;
    turn(&mut workflow, "hello", None).await;
    let mut other = bench.resume().await.unwrap();
    assert_eq!(texts(&other.begin_turn().await.unwrap()), ["hello"]);
    let first = workflow.thread("intake").unwrap().unwrap();
    turn(&mut workflow, "move on", Some("Next")).await;
    assert!(bench.texts(&first).await.is_empty());
    // The other worker's turn belongs to a conversation that has ended.
    other.end_turn(user("late")).await.unwrap();
    assert!(bench.texts(&first).await.is_empty());
    turn(&mut workflow, "at the desk", Some("Back")).await;
    assert!(texts(&workflow.begin_turn().await.unwrap()).is_empty());
    assert_ne!(workflow.thread("intake").unwrap().unwrap(), first);
}

/// Proves: PK-8
pub(crate) async fn a_run_is_resumed_by_its_id_through_new_handles(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let mut workflow = bench.start().await.unwrap();
    turn(&mut workflow, "1", Some("Go")).await;
    turn(&mut workflow, "2", None).await;
    let history = workflow.transitions().to_vec();
    drop(workflow);
    let mut resumed = bench.resume_later(backend).await;
    assert_eq!((resumed.id(), resumed.current_state()), ("w", "pong"));
    assert_eq!(resumed.transitions(), history);
    assert_eq!(texts(&turn(&mut resumed, "3", Some("Go")).await), ["2"]);
    assert_eq!(texts(&resumed.begin_turn().await.unwrap()), ["1"]);
}

/// Proves: PK-8
pub(crate) async fn an_id_has_one_run_and_a_missing_or_foreign_one_is_an_error(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    assert_eq!(bench.resume().await.unwrap_err().kind(), ErrorKind::NotFound);
    bench.start().await.unwrap();
    assert_eq!(bench.start().await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let other = WorkflowSpec::from_json(ROUTER).unwrap();
    let options = WorkflowOptions::default();
    let resumed = Workflow::resume(bench.history(), bench.state(), other.clone(), options.clone(), "w").await;
    assert_eq!(resumed.unwrap_err().field(), Some("states"));
    for id in ["", "a\0b", &"x".repeat(257)] {
        let opened = Workflow::open(bench.history(), bench.state(), other.clone(), options.clone(), id).await;
        assert_eq!(opened.unwrap_err().field(), Some("workflow"));
    }
    // Ids with a common prefix, and ids with separators, name other runs.
    for id in ["w/", "w/p", "ww", "W"] {
        let opened = Workflow::open(bench.history(), bench.state(), other.clone(), options.clone(), id).await;
        assert_eq!(opened.unwrap().current_state(), "triage");
    }
}

/// Proves: PK-7
pub(crate) async fn firing_with_an_event_id_moves_once_through_whichever_handle(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let (mut one, mut two) = (bench.open().await, bench.open().await);
    let done = one.fire("Go", "e1").await.unwrap();
    assert_eq!(one.fire("Go", "e1").await.unwrap(), done);
    assert_eq!(two.fire("Go", "e1").await.unwrap(), done);
    assert_eq!(two.current_state(), "pong");
    two.fire("Go", "e2").await.unwrap();
    assert_eq!(one.fire("Go", "e1").await.unwrap(), done, "remembered when the run has moved on");
    assert_eq!(one.transitions().len(), 2);

    let error = one.fire("Stop", "e3").await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some("event")));
    assert_eq!(one.fire("Stop", "e1").await.unwrap_err().kind(), ErrorKind::Conflict);
    for id in ["", "a\0", &"x".repeat(513)] {
        assert_eq!(one.fire("Go", id).await.unwrap_err().field(), Some("event_id"));
    }
    one.begin_turn().await.unwrap();
    assert_eq!(one.fire("Go", "e4").await.unwrap_err().kind(), ErrorKind::Conflict);
    one.abandon_turn();
    one.refresh().await.unwrap();
    assert_eq!((one.current_state(), one.transitions().len()), ("ping", 2), "nothing changed");
}

/// Proves: PK-7
pub(crate) async fn a_run_ends_its_loops_at_the_most_transitions(backend: &Backend) {
    let bench = Bench::new(backend, &PING_PONG.replacen('{', r#"{"max_transitions": 3,"#, 1)).await;
    let mut workflow = bench.open().await;
    for id in ["1", "2", "3"] {
        workflow.fire("Go", id).await.unwrap();
    }
    let error = workflow.fire("Go", "4").await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::ResourceExhausted, Some("max_transitions")));
    assert_eq!(workflow.fire("Go", "3").await.unwrap().to, "pong", "a repetition is still answered");
    workflow.begin_turn().await.unwrap();
    assert!(ask(&mut workflow, "Go").await.is_error);
    workflow.end_turn(user("stay")).await.unwrap();
    assert_eq!(workflow.transitions().len(), 3);
}

/// Proves: PK-7, PK-4
pub(crate) async fn a_window_is_bounded_and_keeps_calls_and_results_together(backend: &Backend) {
    use larder_kernel::{ChatMessage, ToolCall, ToolResult};
    let bench = Bench::new(backend, PING_PONG).await.with(WorkflowOptions::default().with_window_messages(3));
    let mut workflow = bench.open().await;
    workflow.begin_turn().await.unwrap();
    let called = ChatMessage::assistant("").with_tool_call(ToolCall::new("x", "look", "{}"));
    let lost = ChatMessage::assistant("half").with_tool_call(ToolCall::new("y", "look", "{}"));
    let answered = ChatMessage::tool([ToolResult::new("x", "seen")]);
    workflow.end_turn(vec![called, answered, lost, ChatMessage::assistant("done")]).await.unwrap();
    let window = workflow.begin_turn().await.unwrap().window;
    assert_eq!(window.thread, workflow.thread("ping").unwrap());
    let seen: Vec<_> = window.into_messages();
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[0].text.as_str(), seen[0].tool_calls.len()), ("half", 0));
    assert_eq!(seen[1].text, "done");
}

/// Proves: PK-7
pub(crate) async fn a_bad_turn_or_setting_is_refused_and_changes_nothing(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let mut workflow = bench.open().await;
    assert_eq!(workflow.end_turn(user("x")).await.unwrap_err().kind(), ErrorKind::Conflict);
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Go").await;
    let big = user(&"x".repeat(2 * 1024 * 1024 + 1));
    assert_eq!(workflow.end_turn(big).await.unwrap_err().field(), Some("messages"));
    let escaped = user(&"\u{1}".repeat(1024 * 1024));
    assert_eq!(workflow.end_turn(escaped).await.unwrap_err().field(), Some("messages"));
    assert_eq!(
        workflow.end_turn(vec![user("x").remove(0); 1001]).await.unwrap_err().field(),
        Some("messages")
    );
    assert_eq!(bench.open().await.current_state(), "ping");
    workflow.end_turn(user("x")).await.unwrap();
    assert_eq!(bench.open().await.current_state(), "pong");
    assert_eq!(workflow.thread("nowhere").unwrap_err().field(), Some("state"));

    let spec = WorkflowSpec::from_json(PING_PONG).unwrap();
    for (options, field) in [
        (WorkflowOptions::default().with_window_messages(0), "window_messages"),
        (WorkflowOptions::default().with_window_messages(10_001), "window_messages"),
        (WorkflowOptions::default().with_prompt("say ping", "Say: ping!"), "prompts"),
    ] {
        let opened = Workflow::open(bench.history(), bench.state(), spec.clone(), options, "other").await;
        assert_eq!(opened.unwrap_err().field(), Some(field));
    }
    let opened =
        Workflow::resume(bench.history(), bench.state(), spec, WorkflowOptions::default(), "other").await;
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Proves: PK-1
pub(crate) async fn a_fork_has_the_state_of_its_source_and_is_independent(backend: &Backend) {
    for transient in [TransientConversations::Memory, TransientConversations::UntilLeft] {
        let bench =
            Bench::new(backend, DESK).await.with(WorkflowOptions::default().with_transient(transient));
        let mut workflow = bench.open().await;
        turn(&mut workflow, "1", Some("Next")).await;
        turn(&mut workflow, "2", Some("Back")).await;
        turn(&mut workflow, "3", None).await;
        let mut fork = workflow.fork("fork").await.unwrap();
        assert_eq!(fork.transitions(), workflow.transitions());
        assert_eq!(texts(&turn(&mut fork, "4", Some("Next")).await), ["3"]);
        assert_eq!(texts(&turn(&mut fork, "5", None).await), ["2"]);
        assert_eq!(bench.open_as("fork").await.current_state(), "desk");
        workflow.refresh().await.unwrap();
        assert_eq!((workflow.current_state(), workflow.transitions().len()), ("intake", 2));
        assert_eq!(texts(&turn(&mut workflow, "6", Some("Next")).await), ["3"]);
        assert_eq!(bench.said_in(&workflow, "desk").await, ["2"]);
        assert_eq!(workflow.fork("fork").await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(workflow.fork("").await.unwrap_err().field(), Some("workflow"));
    }
}
