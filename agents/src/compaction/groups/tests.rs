use larder_kernel::{Seq, Window};

use super::*;

fn call(ids: &[&str]) -> ChatMessage {
    ids.iter().fold(ChatMessage::assistant(""), |message, id| {
        message.with_tool_call(ToolCall::new(*id, "tool", "{}"))
    })
}

fn results(ids: &[&str]) -> ChatMessage {
    ChatMessage::tool(ids.iter().map(|id| ToolResult::new(*id, "done")))
}

fn said(text: &str) -> ChatMessage {
    ChatMessage::assistant(text)
}

/// Describes each message by its text, then its calls, then its results.
fn shape(messages: impl IntoIterator<Item = WindowMessage>) -> Vec<String> {
    let shape = |message: &ChatMessage| {
        let calls = message.tool_calls.iter().map(|call| format!("?{}", call.id));
        let results = message.tool_results.iter().map(|result| format!("!{}", result.call_id));
        std::iter::once(message.text.clone()).chain(calls).chain(results).collect::<String>()
    };
    messages.into_iter().map(|message| shape(&message.message)).collect()
}

fn paired(messages: impl IntoIterator<Item = ChatMessage>) -> Vec<String> {
    shape(pair_tool_calls(Window::injected(messages).messages))
}

#[test]
fn parallel_calls_stay_with_results_spread_over_messages() {
    let messages = [call(&["a", "b", "c"]), results(&["b"]), said("wait"), results(&["a", "c"])];
    assert_eq!(paired(messages), ["?a?b?c", "!b", "wait", "!a!c"]);
}

#[test]
fn calls_without_a_result_are_dropped_unless_they_run() {
    assert_eq!(paired([call(&["a", "b"]), results(&["a"]), said("on")]), ["?a", "!a", "on"]);
    assert_eq!(paired([call(&["a", "b"]), results(&["a"])]), ["?a?b", "!a"]);
    assert_eq!(paired([call(&["a"]), call(&["b"])]), ["?b"]);
    assert_eq!(paired([call(&["a"]), ChatMessage::user("stop")]), ["stop"]);
    assert_eq!(paired([call(&["a", "b"]), call(&["c"]), results(&["a"])]), ["?a", "!a"]);
}

#[test]
fn results_without_their_call_are_dropped() {
    assert_eq!(paired([results(&["a"]), call(&["a"])]), ["?a"]);
    assert_eq!(paired([results(&["a", "b"]), call(&["b"]), results(&["b", "z"])]), ["?b", "!b"]);
    let mut human = results(&["gone"]);
    human.role = Role::User;
    human.text = "and another thing".to_owned();
    assert_eq!(paired([human]), ["and another thing"]);
}

#[test]
fn a_repeated_id_belongs_to_the_nearest_call() {
    let messages = [call(&["a"]), results(&["a"]), call(&["a"]), results(&["a"]), results(&["a"])];
    let window = Window::injected(messages).messages;
    assert_eq!(shape(select(window.clone(), |place| place != 2, |_| true)), ["?a", "!a"]);
    assert_eq!(shape(select(window.clone(), |place| place != 0, |_| true)), ["?a", "!a", "!a"]);
    assert_eq!(shape(select(window, |place| place != 4, |_| true)), ["?a", "!a"]);
    // The first call has no result: the second call's result does not belong to it.
    let window = Window::injected([call(&["a"]), call(&["a"]), results(&["a"])]).messages;
    assert!(select(window, |place| place == 0, |_| true).is_empty());
    assert_eq!(paired([call(&["a", "a"]), results(&["a"])]), ["?a?a", "!a"]);
}

#[test]
fn a_model_that_runs_its_own_tools_responds_in_the_same_message() {
    let mut both = call(&["a"]);
    both.tool_results = vec![ToolResult::new("a", "done")];
    assert_eq!(paired([both, said("so")]), ["?a!a", "so"]);
}

#[test]
fn messages_that_lose_nothing_are_not_copied() {
    let window = Window::injected([call(&["a"]), results(&["a", "lost"]), said("x")]).messages;
    let kept = pair_tool_calls(window.clone());
    let shared = |place: usize| std::sync::Arc::ptr_eq(&kept[place].message, &window[place].message);
    assert!(shared(0) && !shared(1) && shared(2));
}

/// Proves: ALQ-2
#[test]
fn an_interaction_begins_with_a_human_turn() {
    let mut in_the_users_name = results(&["a"]);
    in_the_users_name.role = Role::User;
    let user = || ChatMessage::user("q");
    let window =
        Window::injected([said("hello"), user(), call(&["a"]), in_the_users_name, said("x"), user()]);
    assert_eq!(newest_interaction(&window.messages), 5..6);
    assert_eq!(newest_interaction(&window.messages[..5]), 1..5);
    assert_eq!(newest_interaction(&window.messages[..1]), 0..1);
}

#[test]
fn the_summary_at_the_front_is_recognized() {
    let mut messages = Window::injected([said("a"), said("b"), said("c")]).messages;
    assert_eq!(summary_head(&messages), 0);
    messages.insert(0, WindowMessage::summary(Seq::new(1), said("sum")));
    assert_eq!(summary_head(&messages), 1);
    assert_eq!(shape(keep_newest(messages.clone(), 3, true)), ["sum", "c"]);
    assert_eq!(shape(keep_newest(messages.clone(), 3, false)), ["c"]);
    assert_eq!(shape(keep_newest(messages, 0, true)), ["sum", "a", "b", "c"]);
    assert!(summary_stays(5, None, 5) && summary_stays(5, Some(6), 5) && summary_stays(2, Some(3), 5));
    assert!(!summary_stays(6, None, 5) && !summary_stays(3, Some(3), 5));
}
