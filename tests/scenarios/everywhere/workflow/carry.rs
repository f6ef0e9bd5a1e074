//! Data that one state hands to the next.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use larder_kernel::{ChatMessage, Error, ErrorKind, LanguageModel, LanguageModelRequest, Result};

use super::bench::{Bench, FaultyState, PING_PONG, Puts, ROUTER, ask, texts, turn, user};
use crate::test_backend::TestBackend as Backend;
use larder_agents::workflow::{
    CarryFailure, CarryForward, Summarizer, TransientConversations, WorkflowOptions,
};

/// Repeats its input.
fn echo() -> Summarizer {
    Summarizer::function(|state, earlier, messages| {
        let said: Vec<_> = messages.iter().map(|message| message.text.as_str()).collect();
        Ok(format!("<{state}|{}|{}>", earlier.unwrap_or("-"), said.join("+")))
    })
}

fn failing() -> Summarizer {
    Summarizer::function(|_, _, _| Err(Error::new(ErrorKind::Unavailable, "model.generate", "no model")))
}

async fn bench(backend: &Backend, json: &str, carry_forward: CarryForward) -> Bench {
    Bench::new(backend, json).await.with(WorkflowOptions::default().with_carry_forward(carry_forward))
}

#[derive(Debug)]
struct Scribe(Mutex<Vec<LanguageModelRequest>>);

#[async_trait]
impl LanguageModel for Scribe {
    fn name(&self) -> &str {
        "scribe"
    }
    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage> {
        self.0.lock().unwrap().push(request);
        Ok(ChatMessage::assistant("The customer wants a refund."))
    }
}

/// Proves: PK-9
pub(crate) async fn a_models_summary_of_the_state_that_was_left_opens_the_next_conversation(
    backend: &Backend,
) {
    let scribe = Arc::new(Scribe(Mutex::default()));
    let bench = bench(backend, ROUTER, CarryForward::new(Summarizer::Model(scribe.clone()))).await;
    let mut workflow = bench.open().await;
    turn(&mut workflow, "I was charged twice", None).await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Routed").await;
    assert!(scribe.0.lock().unwrap().is_empty(), "within a chain there is nothing to hand on yet");
    ask(&mut workflow, "ToBilling").await;
    workflow.end_turn(user("please refund me")).await.unwrap();
    let asked = std::mem::take(&mut *scribe.0.lock().unwrap());
    assert_eq!(asked.len(), 1);
    let given = &asked[0].messages[1].text;
    assert!(given.contains("I was charged twice") && given.contains("please refund me"));
    // The data is part of the run: another process finds it.
    let opened = bench.resume().await.unwrap().begin_turn().await.unwrap();
    assert_eq!(opened.state, "billing");
    let seen = texts(&opened);
    assert_eq!(seen.len(), 1);
    assert!(seen[0].contains("## triage (summary)\nThe customer wants a refund."), "{}", seen[0]);
}

/// Proves: PK-9
pub(crate) async fn without_carry_forward_the_next_state_gets_nothing(backend: &Backend) {
    let bench = Bench::new(backend, PING_PONG).await;
    let mut workflow = bench.open().await;
    turn(&mut workflow, "1", Some("Go")).await;
    assert!(texts(&workflow.begin_turn().await.unwrap()).is_empty());
}

/// Proves: PK-9
pub(crate) async fn a_state_that_is_visited_again_is_summarized_on(backend: &Backend) {
    let bench = bench(backend, PING_PONG, CarryForward::new(echo())).await;
    let mut workflow = bench.open().await;
    turn(&mut workflow, "1", None).await;
    turn(&mut workflow, "2", Some("Go")).await;
    let pong = turn(&mut workflow, "3", Some("Go")).await;
    assert!(texts(&pong)[0].contains("<ping|-|1+2>"));
    let ping = turn(&mut workflow, "4", Some("Go")).await;
    let seen = texts(&ping);
    assert!(seen[0].contains("<pong|-|3>") && !seen[0].contains("<ping"), "its own conversation follows");
    assert_eq!(seen[1..], ["1", "2"]);
    let pong = workflow.begin_turn().await.unwrap();
    assert!(texts(&pong)[0].contains("<ping|<ping|-|1+2>|4>"), "{}", texts(&pong)[0]);
}

/// Proves: PK-9
pub(crate) async fn a_state_left_without_a_word_hands_nothing_on(backend: &Backend) {
    let bench = bench(backend, PING_PONG, CarryForward::new(echo())).await;
    let mut workflow = bench.open().await;
    workflow.fire("Go", "1").await.unwrap();
    assert!(texts(&turn(&mut workflow, "x", None).await).is_empty());
    workflow.fire("Go", "2").await.unwrap();
    assert!(texts(&workflow.begin_turn().await.unwrap())[0].contains("<pong|-|x>"));
    workflow.abandon_turn();
    workflow.fire("Go", "3").await.unwrap();
    workflow.fire("Go", "4").await.unwrap();
    assert!(
        texts(&workflow.begin_turn().await.unwrap())[0].contains("<pong|-|x>"),
        "and what it had said stays"
    );
}

/// Proves: PK-9, PK-7
pub(crate) async fn each_visit_of_a_transient_state_hands_on_what_was_said_in_it(backend: &Backend) {
    let bench = bench(backend, &transient_ping(), CarryForward::new(echo())).await;
    let mut workflow = bench.open().await;
    for text in ["1", "2", "3", "4"] {
        turn(&mut workflow, text, Some("Go")).await;
    }
    let seen = texts(&workflow.begin_turn().await.unwrap());
    let at = |text: &str| seen[0].find(text).unwrap();
    assert!(at("<ping|-|1>") < at("<ping|-|3>") && at("<ping|-|3>") < at("<pong|<pong|-|2>|4>"));
}

/// A transient state and a persistent one.
fn transient_ping() -> String {
    PING_PONG.replacen(r#""say ping","#, r#""say ping", "persistence": "transient","#, 1)
}

/// Proves: PK-7, PK-9
pub(crate) async fn a_transient_state_is_carried_forward_in_memory_and_by_no_store(backend: &Backend) {
    for transient in [TransientConversations::Memory, TransientConversations::UntilLeft] {
        for summarizer in [echo(), failing()] {
            let options = WorkflowOptions::default()
                .with_carry_forward(CarryForward::new(summarizer))
                .with_transient(transient);
            let bench = Bench::new(backend, &transient_ping()).await.with(options);
            let mut workflow = bench.open().await;
            turn(&mut workflow, "my secret", Some("Go")).await;
            let pong = turn(&mut workflow, "the answer", Some("Go")).await;
            assert!(texts(&pong)[0].contains("my secret"), "{:?}", texts(&pong));
            let stored = bench.everything_stored().await;
            assert!(!stored.contains("my secret") && stored.contains("the answer"), "{stored}");

            turn(&mut workflow, "another secret", Some("Go")).await;
            let mut fork = workflow.fork("fork").await.unwrap();
            for handle in [&mut workflow, &mut fork] {
                let seen = texts(&handle.begin_turn().await.unwrap());
                let at = |text: &str| seen[0].find(text).unwrap();
                assert!(at("my secret") < at("another secret") && seen[1] == "the answer", "{seen:?}");
            }
            let stored = bench.everything_stored().await;
            assert!(!stored.contains("secret") && stored.contains("the answer"), "{stored}");
            let resumed = bench.resume_later(backend).await.begin_turn().await.unwrap();
            assert_eq!(texts(&resumed), ["the answer"], "a restart forgets what was transient");
        }
    }
}

/// Proves: PK-7, PK-9
pub(crate) async fn a_state_made_transient_is_no_longer_carried_or_stored(backend: &Backend) {
    let bench = bench(backend, PING_PONG, CarryForward::new(echo())).await;
    let mut workflow = bench.open().await;
    turn(&mut workflow, "my secret", Some("Go")).await;
    let thread = workflow.thread("ping").unwrap().unwrap();
    bench.history().clear(&thread, None).await.unwrap();
    assert!(bench.everything_stored().await.contains("my secret"));
    let bench = bench.with_spec(&transient_ping());
    let mut workflow = bench.resume().await.unwrap();
    assert!(texts(&turn(&mut workflow, "the answer", Some("Go")).await).is_empty());
    let stored = bench.everything_stored().await;
    assert!(!stored.contains("my secret") && stored.contains("the answer"), "{stored}");
}

/// Proves: PK-7, PK-9, PK-8
pub(crate) async fn a_transient_state_is_carried_forward_once_despite_a_lost_response(backend: &Backend) {
    let bench = bench(backend, &transient_ping(), CarryForward::new(echo())).await;
    let state = FaultyState::new(bench.state());
    let mut workflow = bench.open_on(state.clone()).await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Go").await;
    state.set(Puts::Refuse);
    workflow.end_turn(user("said")).await.unwrap_err();
    state.set(Puts::LoseAnswer);
    let _ = workflow.end_turn(user("said")).await;
    state.set(Puts::Work);
    let _ = workflow.end_turn(user("said")).await;
    let seen = texts(&workflow.begin_turn().await.unwrap());
    assert_eq!(seen[0].matches("<ping|-|said>").count(), 1, "{seen:?}");

    // The process gives up on the end of the turn after its write.
    let bench = self::bench(backend, &transient_ping(), CarryForward::new(echo())).await;
    let state = FaultyState::new(bench.state());
    let mut workflow = bench.open_on(state.clone()).await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Go").await;
    state.set(Puts::Hang);
    tokio::select! {
        _ = workflow.end_turn(user("said")) => unreachable!("the put returned"),
        () = state.hung() => {}
    }
    state.set(Puts::Work);
    let seen = texts(&workflow.begin_turn().await.unwrap());
    assert_eq!(seen[0].matches("<ping|-|said>").count(), 1, "{seen:?}");

    // The commit of another worker ends the turn without it.
    let mut other = bench.resume().await.unwrap();
    workflow.abandon_turn();
    turn(&mut workflow, "back", Some("Go")).await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Go").await;
    other.fire("Go", "first").await.unwrap();
    workflow.end_turn(user("lost")).await.unwrap_err();
    let seen = texts(&workflow.begin_turn().await.unwrap());
    assert!(!seen.iter().any(|text| text.contains("lost")), "{seen:?}");
}

/// Proves: PK-9
pub(crate) async fn where_no_summary_can_be_had_the_conversation_itself_is_handed_on(backend: &Backend) {
    let nothing = Summarizer::function(|_, _, _| Ok(" ".to_owned()));
    let too_much = Summarizer::function(|_, _, _| Ok("x".repeat(8 * 1024 + 1)));
    for summarizer in [failing(), nothing, too_much] {
        let bench = bench(backend, PING_PONG, CarryForward::new(summarizer)).await;
        let mut workflow = bench.open().await;
        turn(&mut workflow, "first", None).await;
        turn(&mut workflow, "second", Some("Go")).await;
        let seen = texts(&workflow.begin_turn().await.unwrap());
        let told = "## ping (its conversation, not summarized)\nUser: first\nUser: second";
        assert!(seen[0].contains(told), "{}", seen[0]);
    }
}

/// Proves: PK-9
pub(crate) async fn messages_over_the_limit_are_counted_and_the_newest_is_kept(backend: &Backend) {
    let bench = bench(backend, PING_PONG, CarryForward::new(failing()).with_text_bytes_max(256)).await;
    let mut workflow = bench.open().await;
    for number in 0..50 {
        turn(&mut workflow, &format!("message {number}"), None).await;
    }
    turn(&mut workflow, "the last", Some("Go")).await;
    let seen = texts(&workflow.begin_turn().await.unwrap());
    assert!(seen[0].contains("User: message 49\nUser: the last"));
    let left_out = seen[0].lines().find(|line| line.ends_with("earlier entries are left out]")).unwrap();
    let shown = seen[0].lines().filter(|line| line.starts_with("User: ")).count();
    assert_eq!(left_out, format!("[{} earlier entries are left out]", 51 - shown));
    // A single message that is too long keeps its end, cut between characters.
    turn(&mut workflow, &format!("{}the end", "é".repeat(500)), Some("Go")).await;
    let seen = texts(&workflow.begin_turn().await.unwrap());
    assert!(seen[0].contains("the beginning of this are left out]") && seen[0].contains("éthe end"));
}

/// Proves: PK-9
pub(crate) async fn a_summarizer_set_to_fail_stops_the_transition_and_nothing_changes(backend: &Backend) {
    let bench =
        bench(backend, PING_PONG, CarryForward::new(failing()).with_on_failure(CarryFailure::Fail)).await;
    let mut workflow = bench.open().await;
    workflow.begin_turn().await.unwrap();
    ask(&mut workflow, "Go").await;
    assert_eq!(workflow.end_turn(user("x")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let mut other = bench.resume().await.unwrap();
    assert_eq!((other.current_state(), other.transitions().len()), ("ping", 0));
    assert!(bench.said_in(&workflow, "ping").await.is_empty());
    // Without the transition the turn can end.
    workflow.begin_turn().await.unwrap();
    workflow.end_turn(user("x")).await.unwrap();
    assert_eq!(other.fire("Go", "e").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(bench.resume().await.unwrap().current_state(), "ping");
}

/// Proves: PK-9
pub(crate) async fn summaries_beyond_the_most_are_left_out_and_the_window_says_so(backend: &Backend) {
    let json = r#"{"states": {
        "a": {"prompt_task": "a", "on_event": {"Go": "b"}},
        "b": {"prompt_task": "b", "on_event": {"Go": "c"}},
        "c": {"prompt_task": "c", "on_event": {"Go": "d"}}, "d": {"prompt_task": "d"}
    }}"#;
    let bench = bench(backend, json, CarryForward::new(echo()).with_states_max(2)).await;
    let mut workflow = bench.open().await;
    for text in ["1", "2", "3"] {
        turn(&mut workflow, text, Some("Go")).await;
    }
    let seen = texts(&workflow.begin_turn().await.unwrap());
    assert!(seen[0].contains("[1 earlier summaries are left out]"));
    assert!(!seen[0].contains("<a|") && seen[0].contains("<b|-|2>") && seen[0].contains("<c|-|3>"));
}

/// Proves: PK-9
pub(crate) async fn a_bad_setting_is_refused_with_its_name(backend: &Backend) {
    use larder_agents::workflow::{Workflow, WorkflowSpec};
    let bench = Bench::new(backend, PING_PONG).await;
    for (carry_forward, field) in [
        (CarryForward::new(echo()).with_text_bytes_max(255), "text_bytes_max"),
        (CarryForward::new(echo()).with_text_bytes_max(32 * 1024 + 1), "text_bytes_max"),
        (CarryForward::new(echo()).with_states_max(0), "states_max"),
        (CarryForward::new(echo()).with_states_max(33), "states_max"),
    ] {
        let options = WorkflowOptions::default().with_carry_forward(carry_forward);
        let spec = WorkflowSpec::from_json(PING_PONG).unwrap();
        let opened = Workflow::start(bench.history(), bench.state(), spec, options, "w").await;
        assert_eq!(opened.unwrap_err().field(), Some(field));
    }
    assert_eq!(bench.resume().await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Proves: PK-9, PK-1
pub(crate) async fn a_fork_summarizes_on_though_its_messages_have_other_numbers(backend: &Backend) {
    let bench = bench(backend, PING_PONG, CarryForward::new(echo())).await;
    let mut workflow = bench.open().await;
    turn(&mut workflow, "gone", None).await;
    bench.history().clear(&workflow.thread("ping").unwrap().unwrap(), None).await.unwrap();
    turn(&mut workflow, "1", Some("Go")).await;
    let mut fork = workflow.fork("fork").await.unwrap();
    turn(&mut fork, "2", Some("Go")).await;
    turn(&mut fork, "3", Some("Go")).await;
    let seen = texts(&fork.begin_turn().await.unwrap());
    assert!(seen[0].contains("<ping|<ping|-|1>|1+3>"), "{}", seen[0]);
}
