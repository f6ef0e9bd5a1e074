use larder_kernel::Window;

use super::*;
use crate::compaction::properties::valid_for_providers;

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
fn closed(messages: impl IntoIterator<Item = ChatMessage>) -> Vec<String> {
    let closed = close_tool_calls(&Window::injected(messages).messages);
    valid_for_providers(&closed).unwrap();
    assert_eq!(close_tool_calls(&closed), closed);
    let shape = |WindowMessage { message, .. }: WindowMessage| {
        let calls = message.tool_calls.iter().map(|call| format!("?{}", call.id));
        let results = message.tool_results.iter().map(|result| format!("!{}", result.call_id));
        std::iter::once(message.text.clone()).chain(calls).chain(results).collect::<String>()
    };
    closed.into_iter().map(shape).collect()
}

#[test]
fn a_result_directly_follows_its_call() {
    let messages = [call(&["a", "b", "c"]), results(&["b"]), said("wait"), results(&["a", "c"])];
    assert_eq!(closed(messages), ["?a?b?c", "!b", "!a!c", "wait"]);
    assert_eq!(closed([call(&["a"]), call(&["b"]), results(&["a", "b"])]), ["?a", "!a", "?b", "!b"]);
    let mut both = call(&["b"]);
    both.tool_results = vec![ToolResult::new("a", "done"), ToolResult::new("b", "done")];
    both.text = "so".to_owned();
    assert_eq!(closed([call(&["a"]), said("x"), both]), ["?a", "!a", "x", "so?b", "!b"]);
}

#[test]
fn calls_without_a_result_and_results_without_a_call_leave() {
    assert_eq!(closed([results(&["gone"]), said("x"), call(&["a"])]), ["x"]);
    assert_eq!(closed([call(&["a", "b"]), results(&["a"])]), ["?a", "!a"]);
    assert_eq!(closed([results(&["a"]), call(&["a"]), said("x")]), ["x"]);
    let mut human = results(&["gone"]);
    human.role = Role::User;
    human.text = "and another thing".to_owned();
    assert_eq!(closed([human]), ["and another thing"]);
    let mut asked_by_a_user = call(&["a"]);
    asked_by_a_user.role = Role::User;
    assert!(closed([asked_by_a_user, results(&["a"])]).is_empty());
}

#[test]
fn the_first_of_several_results_counts() {
    let late = ChatMessage::tool([ToolResult::new("a", "late")]);
    let messages = [call(&["a"]), results(&["a"]), said("x"), late];
    let closed = close_tool_calls(&Window::injected(messages).messages);
    assert_eq!(closed.len(), 3);
    assert_eq!(closed[1].message.tool_results, [ToolResult::new("a", "done")]);
}

#[test]
fn an_id_occurs_once_and_in_the_characters_that_providers_accept() {
    let turn = || [call(&["1"]), results(&["1"])];
    let messages = [turn(), turn(), [call(&["1-2", "1"]), results(&["1", "1-2"])]];
    assert_eq!(
        closed(messages.into_iter().flatten()),
        ["?1", "!1", "?1-2", "!1-2", "?1-2-2?1-3", "!1-3!1-2-2"]
    );
    assert_eq!(closed([call(&["a", "a"]), results(&["a"])]), ["?a", "!a"]);
    assert_eq!(closed([call(&["a", "a"]), results(&["a", "a"])]), ["?a?a-2", "!a!a-2"]);
    let long = "x".repeat(60);
    let ids = ["", "functions.bash:0", &*long, &long];
    let base = "x".repeat(38);
    let shown = format!("?call?functions_bash_0?{base}xx?{base}-2");
    assert_eq!(closed([call(&ids), results(&ids)])[0], shown);
}

#[test]
fn results_under_the_users_role_keep_the_position_of_their_text() {
    let user = |ids: &[&str], text: &str| {
        let mut message = results(ids);
        (message.role, message.text) = (Role::User, text.to_owned());
        message
    };
    assert_eq!(closed([call(&["a"]), user(&["a"], "and?")]), ["?a", "and?!a"]);
    assert_eq!(
        closed([call(&["a", "b"]), user(&["a"], "and?"), results(&["b"])]),
        ["?a?b", "!a", "!b", "and?"]
    );
    assert_eq!(closed([call(&["a"]), said("x"), user(&["a"], "and?")]), ["?a", "!a", "x", "and?"]);
}

#[test]
fn messages_that_are_valid_are_not_copied() {
    let window = Window::injected([call(&["a"]), results(&["a"]), said("x")]).messages;
    let kept = close_tool_calls(&window);
    assert!(
        window
            .iter()
            .zip(&kept)
            .all(|(given, kept)| { std::sync::Arc::ptr_eq(&given.message, &kept.message) })
    );
}
