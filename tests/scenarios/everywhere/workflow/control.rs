//! The author and the time of a transition's commit.

use larder_kernel::{ErrorKind, ToolCall};
use serde_json::json;

use super::bench::{Bench, PING_PONG, ROUTER, ask, call, json, texts, user};
use crate::test_backend::TestBackend as Backend;
use larder_agents::workflow::{TRANSITION_TOOL, WorkflowOptions};

/// Proves: PK-10
pub(crate) async fn an_agent_controlled_state_commits_immediately_and_two_transitions_fit_one_turn(
    backend: &Backend,
) {
    let bench = Bench::new(backend, ROUTER).await;
    let mut workflow = bench.open().await;
    let turn = workflow.begin_turn().await.unwrap();
    assert_eq!(turn.system_prompt, "triage");
    assert_eq!(turn.tools[0].name, "workflow__transition");
    assert_eq!(turn.tools[0].parameters["properties"]["event"]["enum"], json!(["Routed"]));

    let routed = json(&ask(&mut workflow, "Routed").await);
    assert_eq!((&routed["state"], &routed["prompt_task"]), (&json!("routed"), &json!("routed")));
    assert_eq!(routed["events"], json!(["ToBilling", "ToTechnical"]));
    assert_eq!((&routed["control"], &routed["committed"]), (&json!("agent"), &json!(true)));
    assert_eq!(bench.open().await.current_state(), "routed", "another handle sees it within the turn");
    assert_eq!(
        workflow.tools()[0].parameters["properties"]["event"]["enum"],
        json!(["ToBilling", "ToTechnical"])
    );
    assert_eq!(workflow.anchor().state, "triage");

    let billing = json(&ask(&mut workflow, "ToBilling").await);
    assert_eq!((&billing["state"], &billing["terminal"]), (&json!("billing"), &json!(true)));
    assert_eq!(billing["committed"], json!(false));
    assert_eq!(bench.open().await.current_state(), "routed", "it waits for the end of the turn");
    assert_eq!((workflow.pending_state(), workflow.tools().len()), (Some("billing"), 0));

    workflow.end_turn(user("my invoice")).await.unwrap();
    let steps: Vec<_> = workflow.transitions().iter().map(|t| (&*t.from, &*t.to)).collect();
    assert_eq!(steps, [("triage", "routed"), ("routed", "billing")]);
    assert!(workflow.is_complete());
    assert_eq!(bench.said_in(&workflow, "triage").await, ["my invoice"], "the turn belongs to its source");
    assert!(bench.said_in(&workflow, "routed").await.is_empty());

    let landed = workflow.begin_turn().await.unwrap();
    assert_eq!((landed.system_prompt.as_str(), landed.tools.len()), ("billing", 0));
    assert!(texts(&landed).is_empty());
    assert!(
        ask(&mut workflow, "Routed").await.is_error,
        "has events, but the state is terminal; remove one of them"
    );
    workflow.end_turn(user("thanks")).await.unwrap();
    assert_eq!(bench.said_in(&workflow, "billing").await, ["thanks"]);
}

/// Proves: PK-10
pub(crate) async fn a_user_controlled_state_is_committed_at_the_end_of_the_turn(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let mut workflow = bench.open().await;
    workflow.begin_turn().await.unwrap();
    let told = json(&ask(&mut workflow, "Go").await);
    assert_eq!((&told["state"], &told["committed"]), (&json!("pong"), &json!(false)));
    assert_eq!((workflow.current_state(), workflow.pending_state()), ("ping", Some("pong")));
    assert!(ask(&mut workflow, "Go").await.is_error, "one such transition a turn");
    assert_eq!(bench.open().await.current_state(), "ping");
    workflow.end_turn(user("hi")).await.unwrap();
    assert_eq!(bench.open().await.current_state(), "pong");
    assert_eq!(workflow.transitions().len(), 1);

    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Go").await;
    workflow.abandon_turn();
    assert_eq!(workflow.end_turn(user("x")).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(bench.open().await.current_state(), "pong", "given up with its turn");
}

/// Proves: PK-10
pub(crate) async fn the_prompt_stays_anchored_over_turns_until_the_chain_lands(backend: &Backend) {
    let options = ["triage", "routed", "billing", "technical"]
        .into_iter()
        .fold(WorkflowOptions::default(), |options, task| {
            options.with_prompt(task, format!("Text of {task}"))
        });
    let bench = Bench::new(backend, ROUTER).await.with(options);
    let mut workflow = bench.open().await;
    assert_eq!(workflow.begin_turn().await.unwrap().system_prompt, "Text of triage");
    assert_eq!(json(&ask(&mut workflow, "Routed").await)["task"], json!("Text of routed"));
    workflow.end_turn(user("first")).await.unwrap();
    assert_eq!((workflow.current_state(), &*workflow.anchor().state), ("routed", "triage"));

    let turn = workflow.begin_turn().await.unwrap();
    assert_eq!((turn.state.as_str(), turn.system_prompt.as_str()), ("triage", "Text of triage"));
    assert_eq!(turn.tools[0].parameters["properties"]["event"]["enum"], json!(["ToBilling", "ToTechnical"]));
    let seen = texts(&turn);
    assert_eq!(seen[0], "first");
    assert!(seen[1].contains("Text of routed") && seen[1].contains("ToTechnical"));
    ask(&mut workflow, "ToTechnical").await;
    workflow.end_turn(user("second")).await.unwrap();
    assert_eq!(bench.said_in(&workflow, "triage").await, ["first", "second"]);
    assert_eq!(workflow.begin_turn().await.unwrap().system_prompt, "Text of technical");
}

/// Proves: PK-10
pub(crate) async fn a_terminal_state_ends_the_chain_even_under_the_agents_control(backend: &Backend) {
    let bench = Bench::new(
        backend,
        r#"{"states": {
            "plan": {"prompt_task": "plan", "on_event": {"Do": "do"}},
            "do": {
                "prompt_task": "do", "description": "Does it.", "control": "agent",
                "on_event": {"Done": "end"}
            },
            "end": {"prompt_task": "end", "control": "agent", "terminal": true}
        }}"#,
    )
    .await;
    let mut workflow = bench.open().await;
    workflow.begin_turn().await.unwrap();
    assert_eq!(json(&ask(&mut workflow, "Do").await)["description"], json!("Does it."));
    assert_eq!(json(&ask(&mut workflow, "Done").await)["committed"], json!(true));
    assert!(workflow.tools().is_empty());
    assert_eq!(bench.open().await.current_state(), "end");
    workflow.end_turn(user("go")).await.unwrap();
    assert_eq!(workflow.anchor().state, "end");
    assert_eq!(bench.said_in(&workflow, "plan").await, ["go"]);
    assert_eq!(workflow.begin_turn().await.unwrap().system_prompt, "end");
}

/// Proves: PK-10
pub(crate) async fn a_mistake_of_the_model_is_a_tool_result_and_changes_nothing(backend: &Backend) {
    let bench = Bench::new(backend, ROUTER).await;
    let mut workflow = bench.open().await;
    assert_eq!(workflow.on_tool_call(&call("c", "Routed")).await.unwrap_err().kind(), ErrorKind::Conflict);
    workflow.begin_turn().await.unwrap();
    for arguments in
        ["", "{", "[]", "{}", r#"{"event": 1}"#, r#"{"event": "Routed", "x": 1}"#, r#"{"event": "No"}"#]
    {
        let slip = ToolCall::new("c9", TRANSITION_TOOL, arguments);
        let told = workflow.on_tool_call(&slip).await.unwrap();
        assert!(told.is_error && told.call_id == "c9" && told.content.contains("Routed"), "{}", told.content);
    }
    let other = ToolCall::new("c", "weather", "{}");
    assert_eq!(workflow.handle_tool_call(&other).await.unwrap(), None);
    assert_eq!(workflow.on_tool_call(&other).await.unwrap_err().field(), Some("name"));
    assert!(workflow.handle_tool_call(&call("c", "Routed")).await.unwrap().is_some());
    assert_eq!(workflow.transitions().len(), 1);
}

/// Proves: PK-10
pub(crate) async fn a_loop_within_a_turn_ends_at_the_most_transitions_of_a_turn(backend: &Backend) {
    let bench = Bench::new(
        backend,
        r#"{"max_transitions_per_turn": 4, "states": {
            "a": {"prompt_task": "a", "on_event": {"Go": "b"}},
            "b": {"prompt_task": "b", "control": "agent", "on_event": {"Go": "c", "Out": "a"}},
            "c": {"prompt_task": "c", "control": "agent", "on_event": {"Go": "b"}}
        }}"#,
    )
    .await;
    let mut workflow = bench.open().await;
    workflow.begin_turn().await.unwrap();
    // Models may give every call the same id.
    for _ in 0..4 {
        assert!(!ask(&mut workflow, "Go").await.is_error);
    }
    assert!(ask(&mut workflow, "Go").await.is_error);
    assert_eq!(workflow.transitions().len(), 4);
    workflow.end_turn(user("x")).await.unwrap();
    workflow.begin_turn().await.unwrap();
    assert!(!ask(&mut workflow, "Go").await.is_error, "the next turn may go on");
}
