//! `larder window`: its documents, its models, and its errors for a faulty document or model.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use larder::compaction::{Summary, SummaryStore};
use larder::model::{ScriptedModelServer, ScriptedReply};
use larder_kernel::{Document, Embedding, Metadata, Namespace, PutMode, Seq, Thread};
use serde_json::Value;
use tempfile::TempDir;

/// The documents as they are printed.
const DOCUMENTS: [&str; 7] = [
    concat!(
        r#"{ "short_term_memory_strategy": [ { "memory_strategy_id": "max_tokens", "memory_max_tokens": "#,
        r#"8000 } ]}"#,
    ),
    concat!(
        r#"{ "long_term_memory_strategy": [ { "long_term_memory_id": "summarizer", "#,
        r#""interaction_threshold_qty": 20, "interaction_threshold_tokens": 20000, "cod_max_loops": 5, "#,
        r#""interaction_keep": 3, "instructions": "Focus on action items and decisions made.", "#,
        r#""knowledge_base": { "collection_id": "session-summaries", "search_mode": "always" } } ]}"#,
    ),
    concat!(
        r#"{ "long_term_memory_strategy": [ { "long_term_memory_id": "neuralyzer", "#,
        r#""interaction_threshold_qty": 30, "interaction_keep": 5 } ]}"#,
    ),
    concat!(
        r#"{ "profile": { "short_term_memory_strategy": [ { "memory_strategy_id": "max_tokens", "#,
        r#""memory_max_tokens": 8000 } ], "long_term_memory_strategy": [ { "long_term_memory_id": "#,
        r#""summarizer", "interaction_threshold_qty": 20, "cod_max_loops": 3, "interaction_keep": 2 } ] "#,
        r#"}}"#,
    ),
    r#"{ "type": "rolling_window", "max_tokens": 4096, "summarization_threshold": 3000 }"#,
    concat!(
        r#"{ "pipeline": [ { "type": "tool_result_truncation" }, { "type": "selective_tool_call" }, { "#,
        r#""type": "sliding_window", "max_messages": 40 } ] }"#,
    ),
    r#"{ "agent": { "memory": { "enabled": true, "limited-window": { "max-size": "156KiB" } } } }"#,
];
/// Summarizes past three questions and keeps the last.
const SUMMARIZER: &str = concat!(
    r#"{"long_term_memory_strategy": [{"long_term_memory_id": "summarizer", "interaction_threshold_qty": "#,
    r#"3, "cod_max_loops": 1, "interaction_keep": 1}]}"#,
);
const ROLLING: &str = r#"{"type": "rolling_window", "max_tokens": 200, "summarization_threshold": 60}"#;
const TURNS: usize = 6;

struct Place {
    folder: TempDir,
}

impl Place {
    /// A thread of six questions, each with its answer.
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let lines = (0..TURNS).fold(String::new(), |mut lines, turn| {
            let said = "and so on and so forth ".repeat(4);
            writeln!(lines, r#"{{"role":"user","content":"question {turn} {said}"}}"#).unwrap();
            writeln!(lines, r#"{{"role":"assistant","content":"answer {turn} {said}"}}"#).unwrap();
            lines
        });
        let file = place.file("thread.jsonl", &lines);
        let imported =
            place.run(&["import", file.to_str().unwrap(), "--to", &place.url(), "--thread", "a/s"], &[]);
        assert_eq!(imported.status.code(), Some(0), "{imported:?}");
        place
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("larder.db").display())
    }

    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn window(&self, profile: &str, more: &[&str]) -> Output {
        let file = self.file("profile.json", profile);
        let base = [
            "window",
            "--from",
            &self.url(),
            "--thread",
            "a/s",
            "--format",
            "json",
            "--explain",
            "--profile",
        ];
        let arguments = [&base[..], &[file.to_str().unwrap()], more].concat();
        self.run(&arguments, &[("LARDER_MODEL_KEY", "canary")])
    }

    fn shown(&self, profile: &str, more: &[&str]) -> Value {
        let output = self.window(profile, more);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the only line on standard error, after exit code 2 and with an empty standard output.
    fn refusal(&self, profile: &str, more: &[&str]) -> String {
        let output = self.window(profile, more);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains("canary") && !text.contains("question"), "{text}");
        text
    }

    async fn stores(&self) -> larder::Stores {
        let namespace = Namespace::new("default").unwrap();
        larder::Stores::builder().namespace(namespace).url(self.url()).open().await.unwrap()
    }

    async fn summaries(&self) -> SummaryStore {
        SummaryStore::new(self.stores().await.set().key_value().unwrap()).unwrap()
    }

    fn exported(&self) -> Vec<u8> {
        self.run(&["export", "--from", &self.url(), "--thread", "a/s"], &[]).stdout
    }
}

fn thread() -> Thread {
    Thread::new("a", "s").unwrap()
}

fn texts(document: &Value) -> Vec<&str> {
    document["messages"].as_array().unwrap().iter().map(|message| message["text"].as_str().unwrap()).collect()
}

/// Returns the stored messages that a step dropped.
fn dropped<'a>(document: &'a Value, step: &str) -> Option<&'a Vec<Value>> {
    let steps = document["explanation"]["steps"].as_array().unwrap();
    steps.iter().find(|told| told["name"] == step)?["dropped"].as_array()
}

async fn server(replies: Vec<ScriptedReply>) -> (ScriptedModelServer, String) {
    let server = ScriptedModelServer::start(replies).await.unwrap();
    let url = server.base_url();
    (server, url)
}

#[test]
fn each_printed_document_is_read_unchanged() {
    let place = Place::new();
    for document in DOCUMENTS {
        assert_eq!(texts(&place.shown(document, &[])).len(), 2 * TURNS, "{document}");
    }
}

#[test]
fn the_steps_list_the_dropped_messages_of_each_strategy_and_nothing_is_erased() {
    let place = Place::new();
    let before = place.exported();
    let neuralyzer = r#"{
        "short_term_memory_strategy": [{"memory_strategy_id": "max_tokens", "memory_max_tokens": 100}],
        "long_term_memory_strategy": [
            {"long_term_memory_id": "neuralyzer", "interaction_threshold_qty": 3, "interaction_keep": 2}
        ]
    }"#;
    let shown = place.shown(neuralyzer, &[]);
    assert_eq!(dropped(&shown, "neuralyzer").unwrap().len(), 8);
    assert_eq!(dropped(&shown, "max_tokens").unwrap().len(), 2);
    let agents = r#"{"agent": {"memory": {"limited-window": {"max-size": 250}}}}"#;
    assert_eq!(texts(&place.shown(agents, &[])).len(), 2);
    let off = r#"{"agent": {"memory": {"enabled": false}}}"#;
    assert!(texts(&place.shown(off, &[])).is_empty());
    let pipeline = concat!(
        r#"{"pipeline": [{"type": "sliding_window", "max_messages": 5}, {"type": "truncation", "#,
        r#""max_messages": 3}]}"#,
    );
    let shown = place.shown(pipeline, &[]);
    assert_eq!(dropped(&shown, "truncation").unwrap().len(), 2);
    assert_eq!(texts(&shown).len(), 3);
    let output = place.window(ROLLING, &["--system-prompt", "Be brief."]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(texts(&shown).len() < 2 * TURNS && texts(&shown)[0] == "Be brief.", "{shown}");
    assert!(!dropped(&shown, "rolling_window").unwrap().is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains("without a summary"));
    assert_eq!(place.exported(), before);
}

#[tokio::test]
async fn without_a_model_a_summary_that_is_due_is_refused_by_its_field_unless_one_serves() {
    let place = Place::new();
    let said = place.refusal(SUMMARIZER, &[]);
    assert!(said.contains("profile.json") && said.contains("`long_term_memory_strategy`"), "{said}");
    assert!(said.contains("--model-url"), "{said}");
    let pipeline =
        r#"{"pipeline": [{"type": "summarization", "recent_token_budget": 20, "min_old_tokens": 20}]}"#;
    assert!(place.refusal(pipeline, &[]).contains("`pipeline`"));

    let text = "They asked and answered.".to_owned();
    let summary =
        Summary::new(Seq::new(10), text).with_tokens(9).with_messages(10).with_strategy("summarizer");
    place.summaries().await.put(&thread(), None, &summary).await.unwrap();
    let shown = place.shown(SUMMARIZER, &[]);
    assert_eq!(texts(&shown).len(), 3);
    assert!(texts(&shown)[0].ends_with("They asked and answered."), "{shown}");
    let shown = place.shown(ROLLING, &[]);
    assert_eq!(texts(&shown)[0], "They asked and answered.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_summarizes_the_window_and_stored_messages_do_not_change() {
    let place = Place::new();
    let before = place.exported();
    for profile in [SUMMARIZER, ROLLING] {
        let (server, url) = server(vec![ScriptedReply::answer("They talked."); 3]).await;
        let shown = place.shown(profile, &["--model-url", &url, "--model", "small"]);
        let texts = texts(&shown);
        assert!(texts[0].ends_with("They talked.") && texts.len() < 2 * TURNS, "{shown}");
        assert!(texts.last().unwrap().starts_with("answer 5"), "{shown}");
        let requests = server.requests();
        assert_eq!(requests[0].header("authorization"), Some("Bearer canary"));
        assert_eq!(requests[0].body["model"], "small");
    }
    assert_eq!(place.exported(), before);
    assert!(place.summaries().await.get(&thread()).await.unwrap().is_none());
}

#[test]
fn the_system_prompt_counts_toward_the_thresholds_of_a_strategy() {
    let place = Place::new();
    let profile = concat!(
        r#"{"long_term_memory_strategy": [{"long_term_memory_id": "neuralyzer", "#,
        r#""interaction_threshold_qty": 50, "input_tokens_threshold": 500, "interaction_keep": 1}]}"#,
    );
    assert_eq!(dropped(&place.shown(profile, &[]), "neuralyzer").map(Vec::len), Some(0));
    let prompt = "word ".repeat(500);
    let shown = place.shown(profile, &["--system-prompt", &prompt]);
    assert_eq!(dropped(&shown, "neuralyzer").map(Vec::len), Some(2 * (TURNS - 1)), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_knowledge_base_is_searched_with_an_embedding_model_and_otherwise_named() {
    let place = Place::new();
    let profile = DOCUMENTS[1];
    let said = String::from_utf8(place.window(profile, &[]).stderr).unwrap();
    assert!(
        said.contains("the knowledge base is not searched") && said.contains("--embedding-model"),
        "{said}"
    );

    let (collection, id) = ("session-summaries".try_into().unwrap(), "old".try_into().unwrap());
    let metadata = Metadata::new().with("agent", "a").with("session", "s").with("up_to", 2);
    let document = Document::new(id, "They met in Oslo.").with_metadata(metadata);
    let document = document.with_embedding(Embedding::new(vec![1.0, 0.0]).unwrap());
    let vectors = place.stores().await.set().vectors().unwrap();
    vectors.put(&collection, vec![document], PutMode::Upsert).await.unwrap();

    let (server, url) = server(vec![ScriptedReply::embeddings(&[vec![1.0, 0.0]])]).await;
    let models = ["--model-url", &url, "--model", "small", "--embedding-model", "tiny"];
    let shown = place.shown(profile, &models);
    assert!(texts(&shown)[0].contains("They met in Oslo."), "{shown}");
    let requests = server.requests();
    assert_eq!((requests.len(), &requests[0].body["model"]), (1, &Value::from("tiny")));
    let documents = vectors.count(&collection, None).await.unwrap();
    assert_eq!(documents, 1);

    // The window is made twice if the model fails; the knowledge base is looked for once.
    let due = SUMMARIZER.replace(
        r#""interaction_keep": 1"#,
        r#""interaction_keep": 1, "knowledge_base": {"collection_id": "c", "search_mode": "always"}"#,
    );
    let nobody = ["--model-url", "http://127.0.0.1:9/v1", "--model", "small", "--model-timeout", "2"];
    let said = String::from_utf8(place.window(&due, &nobody).stderr).unwrap();
    assert!(said.contains("without a new summary"), "{said}");
    assert_eq!(said.matches("is not searched").count(), 1, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_or_is_late_loses_no_message() {
    let place = Place::new();
    let hang = || ScriptedReply::answer("late").after(Duration::from_secs(60));
    let replies: [fn() -> Vec<ScriptedReply>; 4] = [
        || vec![ScriptedReply::answer(" "); 9],
        || vec![ScriptedReply::body(200, "no JSON"); 9],
        || vec![ScriptedReply::answer("and so on ".repeat(4_000).trim()); 9],
        || vec![ScriptedReply::answer("cut off in the mid").cut_at(9); 9],
    ];
    let mut all: Vec<Vec<ScriptedReply>> = replies.iter().map(|replies| replies()).collect();
    all.push(vec![hang(); 9]);
    for profile in [SUMMARIZER, ROLLING] {
        for replies in &all {
            let (_server, url) = server(replies.clone()).await;
            let model = ["--model-url", &url, "--model", "small", "--model-timeout", "1"];
            let output = place.window(profile, &model);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.starts_with("larder: the window is shown without a new summary: "), "{said}");
            let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
            let told = shown["explanation"]["steps"].as_array().unwrap();
            let gone: usize = told.iter().map(|step| step["dropped"].as_array().unwrap().len()).sum();
            assert_eq!(texts(&shown).len() + gone, 2 * TURNS, "{shown}");
            assert!(profile == ROLLING || gone == 0, "{shown}");

            let (_server, url) = server(replies.clone()).await;
            let fail = [
                "--model-url",
                &url,
                "--model",
                "small",
                "--model-timeout",
                "1",
                "--on-model-failure",
                "fail",
            ];
            assert!(place.refusal(profile, &fail).contains("profile.json"));
        }
    }
    let nobody = ["--model-url", "http://127.0.0.1:9/v1", "--model", "small", "--model-timeout", "2"];
    assert_eq!(texts(&place.shown(SUMMARIZER, &nobody)).len(), 2 * TURNS);
    assert!(place.refusal(SUMMARIZER, &["--model-url", "ftp://x", "--model", "m"]).contains("base_url"));
    let no_name = place.window(SUMMARIZER, &["--model-url", "http://127.0.0.1:9/v1"]);
    assert_eq!(no_name.status.code(), Some(2));
}

#[test]
fn a_wrong_profile_is_refused_by_the_name_of_its_field() {
    let place = Place::new();
    let prompt = "Be brief. ".repeat(40);
    let with_prompt = ["--system-prompt", prompt.as_str()];
    let cases: [(&str, &[&str], &str); 14] = [
        (r#"{"short_term_memory_strategy":[{"memory_strategy_id":"psychic"}]}"#, &[], "memory_strategy_id"),
        (r#"{"long_term_memory_strategy":[{"long_term_memory_id":"psychic"}]}"#, &[], "long_term_memory_id"),
        (r#"{"type":"psychic"}"#, &[], "`type`"),
        (r#"{"pipeline":[{"type":"psychic"}]}"#, &[], "`type`"),
        (r#"{"type":"rolling_window","max_tokens":-1}"#, &[], "`max_tokens`"),
        (r#"{"type":"rolling_window","summarization_threshold":-1}"#, &[], "`summarization_threshold`"),
        (
            r#"{"short_term_memory_strategy":[{"memory_strategy_id":"max_tokens","memory_max_tokens":-2}]}"#,
            &[],
            "`memory_max_tokens`",
        ),
        (
            r#"{"long_term_memory_strategy":[{"long_term_memory_id":"neuralyzer","interaction_keep":-1}]}"#,
            &[],
            "`interaction_keep`",
        ),
        (r#"{"pipeline":[{"type":"sliding_window","max_messages":-4}]}"#, &[], "`max_messages`"),
        (r#"{"type":"rolling_window","max_tokens":9}"#, &with_prompt, "`max_tokens`"),
        (
            r#"{"short_term_memory_strategy":[{"memory_strategy_id":"max_tokens","memory_max_tokens":9}]}"#,
            &with_prompt,
            "`memory_max_tokens`",
        ),
        (
            r#"{"pipeline":[{"type":"token_budget_composed","token_budget":9,"strategies":[]}]}"#,
            &with_prompt,
            "`token_budget`",
        ),
        ("[]", &[], "not an object"),
        ("{", &[], "column"),
    ];
    for (profile, more, field) in cases {
        let said = place.refusal(profile, more);
        assert!(said.contains("profile.json: ") && said.contains(field), "{profile}: {said}");
    }
}
