//! Valid and invalid documents. The tests of running workflows are in `tests/scenarios/everywhere/workflow`,
//! for every backend.

use larder_kernel::ErrorKind;
use serde_json::Value;

use crate::workflow::{Control, Persistence, WorkflowSpec};

/// The first document of the specification, exactly as published.
const INTAKE: &str = concat!(
    r#"{ "states": { "intake": { "prompt_task": "greeting", "persistence": "transient" }, "specialist": "#,
    r#"{ "prompt_task": "specialist", "persistence": "persistent" } }}"#,
);

/// The second document of the specification, exactly as published.
const ROUTER: &str = concat!(
    r#"{ "states": { "triage": { "prompt_task": "triage", "on_event": { "Routed": "routed" } }, "#,
    r#""routed": { "prompt_task": "routed", "control": "agent", "on_event": { "ToBilling": "billing", "#,
    r#""ToTechnical": "technical" } }, "billing": { "prompt_task": "billing", "terminal": true }, "#,
    r#""technical": { "prompt_task": "technical", "terminal": true } }}"#,
);

/// Proves: PK-11, PK-7
#[test]
fn the_printed_documents_are_read_unchanged_and_round_trip() {
    for json in [INTAKE, ROUTER] {
        let spec = WorkflowSpec::from_json(json).unwrap();
        let again = serde_json::to_string(&spec).unwrap();
        assert_eq!(again.parse::<Value>().unwrap(), json.parse::<Value>().unwrap());
        assert_eq!(again, json.replace(' ', ""), "the order of states and events is kept");
        assert_eq!(serde_json::from_str::<WorkflowSpec>(&again).unwrap(), spec);
    }
    let intake = WorkflowSpec::from_json(INTAKE).unwrap();
    assert_eq!(intake.initial(), "intake");
    assert_eq!(intake.state("intake").unwrap().persistence(), Persistence::Transient);
    assert_eq!(intake.state("specialist").unwrap().persistence(), Persistence::Persistent);
    let router = WorkflowSpec::from_json(ROUTER).unwrap();
    assert_eq!(router.state("triage").unwrap().control(), Control::User);
    assert_eq!(router.state("routed").unwrap().control(), Control::Agent);
    assert_eq!(router.state("routed").unwrap().events().collect::<Vec<_>>(), ["ToBilling", "ToTechnical"]);
    assert!(router.state("billing").unwrap().is_terminal());
}

/// Proves: PK-11
#[test]
fn a_contradiction_is_refused_with_the_path_of_the_field() {
    let long = format!(r#"{{"states": {{"{}": {{"prompt_task": "t"}}}}}}"#, "n".repeat(129));
    let cases = [
        (r#"{}"#, "workflow", "states"),
        (r#"{"states": {}}"#, "states", "states"),
        (r#"{"states": {"a": {"prompt_task": "t"}}, "sates": {}}"#, "workflow", "sates"),
        (
            r#"{"states": {"a": {"prompt_task": "t"}}, "initial": "b"}"#,
            "initial",
            "initial: is not a defined state",
        ),
        (r#"{"states": {"a": {"prompt_task": "t", "terminal": true}}}"#, "initial", "initial"),
        (r#"{"states": {"": {"prompt_task": "t"}}}"#, "states", "is empty"),
        (r#"{"states": {"a\u0000": {"prompt_task": "t"}}}"#, "states", "control character"),
        (&long, "states", "over the limit"),
        (
            r#"{"states": {"a": {"prompt_task": "t"}, "a": {"prompt_task": "t"}}}"#,
            "states",
            "`a` appears twice; remove one of them",
        ),
        (r#"{"states": {"a": {"prompt_task": ""}}}"#, "prompt_task", "states.a.prompt_task"),
        (r#"{"states": {"a": {}}}"#, "states", "states.a: missing field `prompt_task`"),
        (r#"{"states": {"a": {"prompt_task": 1}}}"#, "prompt_task", "states.a.prompt_task"),
        (
            r#"{"states": {"a": {"prompt_task": "t", "contrl": "user"}}}"#,
            "states",
            "states.a.contrl: unknown field",
        ),
        (r#"{"states": {"a": {"prompt_task": "t", "control": "model"}}}"#, "control", "states.a.control"),
        (
            r#"{"states": {"a": {"prompt_task": "t", "persistence": "no"}}}"#,
            "persistence",
            "states.a.persistence",
        ),
        (
            r#"{"states": {"a": {"prompt_task": "t", "on_event": {"E": "b"}}}}"#,
            "on_event",
            "states.a.on_event.E",
        ),
        (
            r#"{"states": {"a": {"prompt_task": "t", "on_event": {"": "a"}}}}"#,
            "on_event",
            "states.a.on_event",
        ),
        (
            r#"{"states": {"a": {"prompt_task": "t", "on_event": {"E": "a", "E": "a"}}}}"#,
            "on_event",
            "states.a.on_event: `E` appears twice; remove one of them",
        ),
    ];
    for (json, field, message) in cases {
        refused(json, field, message);
    }
}

/// Proves: PK-11
#[test]
fn states_that_contradict_each_other_and_bounds_out_of_range_are_refused() {
    let cases = [
        (
            r#"{"states": {"a": {"prompt_task": "t"}, "z": {"prompt_task": "t", "terminal": true}}}"#,
            "terminal",
            "states.z.terminal",
        ),
        (
            r#"{"states": {"a": {"prompt_task": "t", "on_event": {"E": "z"}},
                "z": {"prompt_task": "t", "terminal": true, "on_event": {"E": "a"}}}}"#,
            "on_event",
            "states.z.on_event",
        ),
        (
            concat!(
                r#"{"states": {"a": {"prompt_task": "t", "on_event": {"E": "g"}}, "g": {"prompt_task": "#,
                r#""t", "control": "agent"}}}"#,
            ),
            "control",
            "states.g.control",
        ),
        (r#"{"states": {"a": {"prompt_task": "t"}}, "max_transitions": 0}"#, "max_transitions", "limit 1"),
        (
            r#"{"states": {"a": {"prompt_task": "t"}}, "max_transitions": 1001}"#,
            "max_transitions",
            "limit 1000",
        ),
        (
            r#"{"states": {"a": {"prompt_task": "t"}}, "max_transitions": 5, "max_transitions_per_turn": 6}"#,
            "max_transitions_per_turn",
            "limit 5",
        ),
        (r#"{"states": {"a": {"prompt_task": "t"}}} x"#, "workflow", "trailing"),
    ];
    for (json, field, message) in cases {
        refused(json, field, message);
    }
}

fn refused(json: &str, field: &str, message: &str) {
    let error = WorkflowSpec::from_json(json).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidInput, Some(field)), "{json}: {error}");
    assert!(error.to_string().contains(message), "{json}: {error}");
    assert!(serde_json::from_str::<WorkflowSpec>(json).is_err());
}
