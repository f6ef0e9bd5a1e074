//! Tests of the client for OpenAI-compatible servers, with a real server on the loopback interface.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use larder_agents::model::{
    FinishReason, OpenAiConfig, OpenAiEmbedder, OpenAiModel, ScriptedModelServer, ScriptedReply, Usage,
    is_cut_off,
};
use larder_kernel::{
    BlobKey, BlobRef, ChatMessage, Embedder, Error, ErrorKind, LanguageModel, LanguageModelRequest, Outcome,
    ToolCall, ToolResult,
};
use serde_json::json;

const CANARY: &str = "sk-canary-5f2e";

fn config(server: &ScriptedModelServer) -> OpenAiConfig {
    OpenAiConfig::new(server.base_url(), "small")
        .with_api_key(CANARY)
        .with_timeout(Duration::from_secs(20))
        .with_attempts(3, Duration::from_millis(1), Duration::from_secs(1))
}

fn ask() -> LanguageModelRequest {
    LanguageModelRequest::new(vec![ChatMessage::user("private question")])
}

async fn start(replies: impl IntoIterator<Item = ScriptedReply>) -> (ScriptedModelServer, OpenAiModel) {
    let server = ScriptedModelServer::start(replies).await.unwrap();
    let model = OpenAiModel::new(config(&server)).unwrap();
    (server, model)
}

/// Checks that an error and its sources contain neither the key, nor the conversation, nor server text.
fn assert_discreet(error: &Error) {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text.push_str(&format!("{inner} {inner:?}"));
        source = inner.source();
    }
    for secret in [CANARY, "private", "loose tongue", "127.0.0.1"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

async fn assert_fails(replies: Vec<ScriptedReply>, kind: ErrorKind, requests: usize) -> Error {
    let (server, model) = start(replies).await;
    let error = model.generate(ask()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (kind, Outcome::NotApplied), "{error}");
    assert_eq!(server.requests().len(), requests);
    assert_discreet(&error);
    error
}

#[tokio::test]
async fn a_response_has_its_cost() {
    let (server, model) = start([ScriptedReply::answer("Hello"), ScriptedReply::answer("Again")]).await;
    let request = LanguageModelRequest::new(vec![ChatMessage::system("Be short"), ChatMessage::user("Hi")])
        .with_output_tokens_max(64);
    let completion = model.complete(&request).await.unwrap();
    assert_eq!((completion.message.text.as_str(), completion.finish), ("Hello", FinishReason::Stop));
    assert_eq!(model.generate(request).await.unwrap().text, "Again");
    assert_eq!(model.usage(), Usage { input_tokens: 22, output_tokens: 14 });

    let seen = &server.requests()[0];
    assert_eq!(seen.path, "/v1/chat/completions");
    assert_eq!(seen.header("authorization"), Some(&*format!("Bearer {CANARY}")));
    let messages = json!([{"role": "system", "content": "Be short"}, {"role": "user", "content": "Hi"}]);
    assert_eq!(seen.body, json!({"model": "small", "messages": messages, "max_completion_tokens": 64}));
}

/// Proves: AKKA-7
#[tokio::test]
async fn tool_calls_and_results_go_both_ways() {
    let call =
        json!({"id": "c9", "type": "function", "function": {"name": "sum", "arguments": "{\"a\": 1}"}});
    let loose = json!({"function": {"name": "sum", "arguments": {"a": 2}}});
    let answer = json!({"role": "assistant", "content": null, "tool_calls": [call, loose]});
    let server = ScriptedModelServer::start([ScriptedReply::message(&answer, "tool_calls")]).await.unwrap();
    let tools = vec![json!({"type": "function", "function": {"name": "sum", "parameters": {}}})];
    let model = OpenAiModel::new(config(&server).with_tools(tools.clone()).with_json_mode()).unwrap();
    let blob = BlobRef { key: BlobKey::new("a/plan.pdf").unwrap(), content_type: None, size_bytes: None };
    let request = LanguageModelRequest::new(vec![
        ChatMessage::user("Add").with_blob(blob),
        ChatMessage::assistant("").with_tool_call(ToolCall::new("c1", "sum", "{broken")),
        ChatMessage::tool([ToolResult::new("c1", "3"), ToolResult::error("c2", "no")]),
    ]);
    let message = model.generate(request).await.unwrap();
    assert_eq!(
        message.tool_calls,
        [ToolCall::new("c9", "sum", "{\"a\": 1}"), ToolCall::new("call_1", "sum", "{\"a\":2}")]
    );
    let body = &server.requests()[0].body;
    assert_eq!((&body["tools"], &body["response_format"]), (&json!(tools), &json!({"type": "json_object"})));
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": "Add\n[file a/plan.pdf (unknown type)]"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "sum", "arguments": "{broken"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            {"role": "tool", "tool_call_id": "c2", "content": "Error: no"},
        ])
    );
}

#[tokio::test]
async fn a_refused_key_is_final_and_stays_secret() {
    let said = format!("loose tongue: Incorrect API key provided: {CANARY}");
    let refusal = ScriptedReply::json(401, &json!({"error": {"message": said}}));
    assert_fails(vec![refusal], ErrorKind::PermissionDenied, 1).await;
    let (_server, model) = start([]).await;
    assert!(!format!("{model:?}").contains(CANARY));
}

#[tokio::test]
async fn a_busy_server_is_retried_after_its_pause() {
    let busy = ScriptedReply::body(429, "").with_header("retry-after-ms", "120");
    let down = ScriptedReply::body(503, "").with_header("Retry-After", "0");
    let (server, model) = start([busy, down, ScriptedReply::answer("at last")]).await;
    let started = std::time::Instant::now();
    assert_eq!(model.generate(ask()).await.unwrap().text, "at last");
    assert!(started.elapsed() >= Duration::from_millis(120));
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_server_that_asks_for_too_long_a_pause_is_abandoned() {
    let busy = ScriptedReply::body(429, "loose tongue").with_header("retry-after", "3600");
    assert_fails(vec![busy], ErrorKind::ResourceExhausted, 1).await;
}

#[tokio::test]
async fn a_server_that_keeps_failing_is_unavailable() {
    let error = assert_fails(vec![], ErrorKind::Unavailable, 3).await;
    assert!(error.is_retryable());
    assert!(error.to_string().contains("status 500") && error.to_string().contains("attempts 3"));
    let refused = ScriptedReply::body(400, "loose tongue");
    assert_fails(vec![refused], ErrorKind::InvalidInput, 1).await;
    assert_fails(vec![ScriptedReply::body(404, "")], ErrorKind::NotFound, 1).await;
    let elsewhere = ScriptedReply::body(307, "").with_header("location", "http://127.0.0.1:1/");
    assert_fails(vec![elsewhere], ErrorKind::Unexpected, 1).await;
}

#[tokio::test]
async fn a_slow_response_is_a_timeout() {
    let slow = ScriptedReply::answer("late").after(Duration::from_secs(30));
    let server = ScriptedModelServer::start([slow]).await.unwrap();
    let model = OpenAiModel::new(config(&server).with_timeout(Duration::from_millis(100))).unwrap();
    let error = model.generate(ask()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(server.requests().len(), 1);
    assert_discreet(&error);
}

#[tokio::test]
async fn an_absent_server_is_unavailable() {
    let (server, model) = start([]).await;
    drop(server);
    tokio::task::yield_now().await;
    let error = model.generate(ask()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_discreet(&error);
}

#[tokio::test]
async fn a_malformed_response_is_unexpected() {
    for body in ["loose tongue", "", "[]", "{\"choices\": []}", "{\"choices\": [{}]}", "\u{1}"] {
        assert_fails(vec![ScriptedReply::body(200, body)], ErrorKind::Unexpected, 1).await;
    }
    let refusal = json!({"role": "assistant", "content": null, "refusal": "loose tongue"});
    assert_fails(vec![ScriptedReply::message(&refusal, "stop")], ErrorKind::PermissionDenied, 1).await;
    let cut = json!({"role": "assistant", "content": "and th"});
    let (_server, model) = start([ScriptedReply::message(&cut, "length")]).await;
    assert!(is_cut_off(&model.generate(ask()).await.unwrap()));
}

#[tokio::test]
async fn an_interrupted_response_is_requested_again() {
    let (server, model) =
        start([ScriptedReply::answer("whole").cut_at(20), ScriptedReply::answer("whole")]).await;
    assert_eq!(model.generate(ask()).await.unwrap().text, "whole");
    assert_eq!(server.requests().len(), 2);
    let cut = || ScriptedReply::answer("whole").cut_at(20);
    assert_fails(vec![cut(), cut(), cut()], ErrorKind::Unavailable, 3).await;
}

#[tokio::test]
async fn a_response_over_the_limit_is_not_read_to_its_end() {
    let server = ScriptedModelServer::start([ScriptedReply::answer(&"x".repeat(100_000))]).await.unwrap();
    let mut config = config(&server);
    config.response_bytes_max = 10_000;
    let error = OpenAiModel::new(config).unwrap().generate(ask()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
}

#[tokio::test]
async fn embeddings_come_one_for_each_text_in_order() {
    let shuffled = json!({"data": [
        {"index": 1, "embedding": [0.0, 1.0]}, {"index": 0, "embedding": [1.0, 0.0]},
    ]});
    let last = ScriptedReply::embeddings(&[vec![1.0, 1.0]]);
    let server = ScriptedModelServer::start([ScriptedReply::json(200, &shuffled), last]).await.unwrap();
    let mut config = config(&server);
    config.batch_texts_max = 2;
    let embedder = OpenAiEmbedder::new(config, 2).unwrap();
    let embeddings = embedder.embed(&["a", "b", "c"]).await.unwrap();
    let numbers: Vec<&[f32]> = embeddings.iter().map(|embedding| embedding.as_slice()).collect();
    assert_eq!(numbers, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]);
    let seen = server.requests();
    assert_eq!((seen[0].path.as_str(), seen.len()), ("/v1/embeddings", 2));
    assert_eq!(seen[0].body, json!({"model": "small", "input": ["a", "b"], "encoding_format": "float"}));
    assert!(embedder.embed(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn embeddings_of_another_number_or_dimension_are_refused() {
    let twice =
        json!({"data": [{"index": 0, "embedding": [1.0, 0.0]}, {"index": 0, "embedding": [1.0, 0.0]}]});
    for reply in [
        ScriptedReply::embeddings(&[vec![1.0, 0.0]]),
        ScriptedReply::embeddings(&[vec![1.0, 0.0], vec![1.0, 0.0], vec![1.0, 0.0]]),
        ScriptedReply::embeddings(&[vec![1.0, 0.0], vec![1.0, 0.0, 0.0]]),
        ScriptedReply::embeddings(&[vec![1.0, 0.0], vec![0.0, 0.0]]),
        ScriptedReply::json(200, &twice),
    ] {
        let server = ScriptedModelServer::start([reply]).await.unwrap();
        let embedder = OpenAiEmbedder::new(config(&server), 2).unwrap();
        let error = embedder.embed(&["private", "b"]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected);
        assert_discreet(&error);
    }
    assert_eq!(
        OpenAiEmbedder::new(OpenAiConfig::new("http://localhost/v1", "m"), 0).unwrap_err().field(),
        Some("dimensions")
    );
}
