//! Every line is restored exactly, whatever the store does to numbers and the order of keys.
//!
//! `LARDER_PROPERTY_CASES` sets the number of lines. A failure prints its seed, and `LARDER_PROPERTY_SEED`
//! runs only that seed.

use std::collections::BTreeMap;

use larder_kernel::random::Random;
use larder_kernel::{AgentId, BlobKey, BlobRef, Metadata, RunId, Timestamp, ToolCall};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;

/// JSON with numbers in their original spelling.
#[derive(Debug, PartialEq)]
pub(super) enum Exact {
    Object(BTreeMap<String, Exact>),
    Array(Vec<Exact>),
    Number(String),
    Other(Value),
}

pub(super) fn exact(json: &str) -> Exact {
    let json = json.trim();
    match json.as_bytes()[0] {
        b'{' => {
            let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(json).unwrap();
            Exact::Object(fields.into_iter().map(|(name, value)| (name, exact(value.get()))).collect())
        }
        b'[' => {
            let items: Vec<Box<RawValue>> = serde_json::from_str(json).unwrap();
            Exact::Array(items.iter().map(|item| exact(item.get())).collect())
        }
        b'-' | b'0'..=b'9' => Exact::Number(json.to_owned()),
        _ => Exact::Other(serde_json::from_str(json).unwrap()),
    }
}

/// Simulates the most lossy store: numbers lose their spelling. (Metadata never keeps the order of keys.)
pub(super) fn stored(mut message: ChatMessage) -> ChatMessage {
    message.metadata = message
        .metadata
        .iter()
        .map(|(name, value)| (name.to_owned(), canonical(value)))
        .collect::<Metadata>();
    message
}

pub(super) fn round_trip(line: &str) -> Vec<String> {
    let message = parse_line(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines = to_lines(&message).unwrap();
    assert_eq!(lines, to_lines(&stored(message)).unwrap());
    lines
}

#[test]
fn hostile_lines_are_exported_unchanged() {
    let lines = [
        concat!(
            r#"{"role":"user","content":"","a":null,"b":{"c":[null,{"d":-0.0}]},"n":1e16,"z":0.0,"m":-0,"#,
            r#""i":1.0}"#,
        ),
        concat!(
            r#"{"role":"user","content":"x","big":123456789012345678901234567890,"#,
            r#""u":18446744073709551615,"s":-9223372036854775808}"#,
        ),
        concat!(
            r#"{"role":"user","content":"x","f":0.1,"g":1e-7,"h":1.5E+2,"e":2.5e300,"#,
            r#""d":1234567890.12345678,"s":["-1.50",1.50]}"#,
        ),
        r#"{"role":"user","content":"a\u0000b","nul":"\u0000","nul\u0000key":{"\u0000":1}}"#,
        concat!(
            r#"{"content":"\ud83d\ude00 é e\u0301 \u2028\u000b","role":"user","ключ":"значение","":"","#,
            r#""a.b":1,"$ref":"x"}"#,
        ),
        r#"{"role":"system","content":"s","name":"boss"}"#,
        r#"{"role":"developer","content":[{"type":"text","text":"d"}]}"#,
        concat!(
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","#,
            r#""function":{"name":"f","arguments":"{\"a\":1e16"}}]}"#,
        ),
        concat!(
            r#"{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"f","#,
            r#""arguments":{"a":-0.0}}},{"index":1,"id":"c2","type":"function","function":{"name":"g","#,
            r#""strict":null}}]}"#,
        ),
        r#"{"role":"assistant","content":"","tool_calls":[],"refusal":null,"annotations":[],"audio":null}"#,
        r#"{"role":"assistant","refusal":"No."}"#,
        r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}"#,
        r#"{"role":"user","content":"x","tool_calls":null,"tool_call_id":null}"#,
        r#"{"role":"tool","content":"","tool_call_id":"c1","name":"f"}"#,
        r#"{"role":"tool","content":null,"tool_call_id":"c1","is_error":true}"#,
        concat!(
            r#"{"role":"tool","content":[{"type":"text","text":"a\nb"},{"type":"text","text":""}],"#,
            r#""tool_call_id":"c1","is_error":"no"}"#,
        ),
        r#"{"role":"user","content":[]}"#,
        concat!(
            r#"{"role":"user","content":["a",{"type":"text","text":"b","#,
            r#""cache_control":{"type":"ephemeral"}},{"type":"image_url","#,
            r#""image_url":{"url":"https://example.org/x.png","detail":1e0}},{"type":"text","text":null},"#,
            r#"{"text":"no type"}]}"#,
        ),
        r#"{"role":"user","content":"x","larder":{"created_at":"yesterday"},"larder.line":"{}"}"#,
        concat!(
            r#"{"role":"user","content":"x","larder":{"created_at":"2026-01-02T03:04:05+00:00","#,
            r#""metadata":{"a":1}}}"#,
        ),
        concat!(
            r#"{"role":"user","content":"x","larder":null,"larder.line":null,"text":"y","#,
            r#""metadata":{"larder.line":1}}"#,
        ),
        r#"{"role":"user","content":"x","larder":{"created_at":"2026-01-02T03:04:05Z","is_error":false}}"#,
    ];
    for line in lines {
        let returned = round_trip(line);
        assert_eq!(returned.len(), 1);
        assert_eq!(exact(&returned[0]), exact(line), "{}", returned[0]);
        assert!(!returned[0].contains(['\n', '\r']));
        // The written line is itself a valid line.
        assert_eq!(round_trip(&returned[0]), returned);
    }
    let spaced = "{ \"role\" : \"user\" ,\r \"content\": [ \"a  \\\" b\" ] , \"x\" : [ 1e5 ,\r\t{ } ] }";
    let returned = r#"{"role":"user","content":["a  \" b"],"x":[1e5,{}]}"#;
    assert_eq!(round_trip(spaced), [returned]);
}

#[test]
fn fields_of_a_line_become_text_calls_and_metadata() {
    let message = parse_line(
        r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"x"},"b"],"tool_calls":
            [{"id":"c1","type":"function","function":{"name":"f","arguments":{"a": 1}}}],
            "score":0.5,"n":{"deep":[1]}}"#,
    )
    .unwrap();
    assert_eq!(message.text, "a\n[x: {\"type\":\"x\"}]\nb");
    assert_eq!(message.tool_calls, [ToolCall::new("c1", "f", r#"{"a":1}"#)]);
    assert_eq!(message.metadata.get("score"), Some(&json!(0.5)));
    assert_eq!(message.metadata.get("n"), Some(&json!({"deep": [1]})));
    let result = parse_line(r#"{"role":"tool","tool_call_id":"c1","content":"x","is_error":true}"#).unwrap();
    assert_eq!(result.tool_results, [ToolResult::error("c1", "x")]);
    assert_eq!(result.text, "");
}

#[test]
fn a_line_that_is_not_a_message_is_refused_by_the_name_of_the_field() {
    let deep = format!(r#"{{"role":"user","content":"x","d":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    let large = format!(r#"{{"role":"user","content":"x","m":"{}"}}"#, "x".repeat(4 * 1024 * 1024));
    let refused = [
        ("", "line"),
        ("{", "line"),
        ("[]", "line"),
        ("null", "line"),
        ("\"secret\"", "line"),
        (r#"{"role":"user","content":"secret"} {}"#, "line"),
        (r#"{"role":"user","role":"user","content":"secret"}"#, "line"),
        (r#"{"content":"secret"}"#, "role"),
        (r#"{"role":"secret","content":"x"}"#, "role"),
        (r#"{"role":1,"content":"x"}"#, "role"),
        (r#"{"role":"user"}"#, "content"),
        (r#"{"role":"assistant"}"#, "content"),
        (r#"{"role":"user","content":1}"#, "content"),
        (r#"{"role":"user","content":{"text":"secret"}}"#, "content"),
        (r#"{"role":"user","content":[1]}"#, "content"),
        (r#"{"role":"user","content":"\ud800 secret"}"#, "content"),
        (r#"{"role":"user","content":"x","a secret":"\ud800"}"#, "line"),
        (r#"{"role":"user","content":"x","n":1e999}"#, "line"),
        (r#"{"role":"tool","content":"secret"}"#, "tool_call_id"),
        (r#"{"role":"tool","content":"secret","tool_call_id":null}"#, "tool_call_id"),
        (r#"{"role":"tool","content":"x","tool_call_id":""}"#, "tool_call_id"),
        (r#"{"role":"user","content":"x","tool_calls":[{"id":"secret"}]}"#, "tool_calls"),
        (r#"{"role":"assistant","content":"x","tool_calls":{}}"#, "tool_calls"),
        (r#"{"role":"assistant","content":"x","tool_calls":[{"id":"c"}]}"#, "tool_calls[].function"),
        (
            r#"{"role":"assistant","content":"x","tool_calls":[{"id":"c","function":{}}]}"#,
            "tool_calls[].function.name",
        ),
        (deep.as_str(), "line"),
        (large.as_str(), "message"),
    ];
    for (line, field) in refused {
        let error = parse_line(line).unwrap_err();
        assert_eq!(error.field(), Some(field), "{error} {line}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
}

#[test]
fn a_message_without_a_line_is_equal_after_a_round_trip() {
    let at: Timestamp = "2026-01-02T03:04:05.000006Z".parse().unwrap();
    let mut message = ChatMessage::user("look")
        .with_created_at(at)
        .with_run(RunId::new("r1").unwrap())
        .with_author(AgentId::new("a1").unwrap(), None)
        .with_token_count(3)
        .with_metadata(
            Metadata::new().with("role", "not this one").with("n", 1.5).with("w", 1e16).with(RECORD, "x"),
        );
    message.blobs.push(BlobRef::new(BlobKey::new("k").unwrap()).with_size_bytes(1));
    let call = ChatMessage::assistant("").with_created_at(at).with_tool_call(ToolCall::new("c", "f", "{"));
    let failed = ChatMessage::tool([ToolResult::error("c", "broke")]).with_created_at(at);
    for message in [message, call, failed] {
        let lines = to_lines(&message).unwrap();
        assert_eq!(lines.len(), 1);
        assert_eq!(parse_line(&lines[0]).unwrap(), message);
    }
    let two = ChatMessage::tool([ToolResult::new("a", "1"), ToolResult::error("b", "2")]).with_created_at(at);
    let lines = to_lines(&two).unwrap();
    assert_eq!(
        lines[0],
        concat!(
            r#"{"role":"tool","content":"1","tool_call_id":"a","#,
            r#""larder":{"created_at":"2026-01-02T03:04:05.000006Z"}}"#,
        )
    );
    assert_eq!(parse_line(&lines[1]).unwrap().tool_results, [ToolResult::error("b", "2")]);
}

#[test]
fn a_rewritten_message_is_written_in_its_current_form() {
    let mut message = parse_line(r#"{"role":"user","content":["a","b"]}"#).unwrap();
    message.text = "rewritten".to_owned();
    assert_eq!(to_lines(&message).unwrap(), [r#"{"role":"user","content":"rewritten"}"#]);
    let mut message = parse_line(r#"{"role":"tool","content":null,"tool_call_id":"c"}"#).unwrap();
    message.tool_results[0].content = "[cut]".to_owned();
    assert_eq!(to_lines(&message).unwrap(), [r#"{"role":"tool","content":"[cut]","tool_call_id":"c"}"#]);
}

/// Random values from a seed.
struct Chance(Random);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        self.0.pick(of)
    }

    fn text(&mut self) -> String {
        let pieces = [
            "a",
            "é",
            "\\u0000",
            "\\n",
            "\\\"",
            "\\\\",
            "\u{1F600}",
            "\\ud83d\\ude00",
            " ",
            "{",
            "\u{2028}",
            "'",
            "\\/",
        ];
        let length = self.below(6);
        let text: String = (0..length).map(|_| self.pick(&pieces)).collect();
        format!("\"{text}\"")
    }

    fn name(&mut self) -> &'static str {
        self.pick(&[
            "name",
            "id",
            "larder",
            "larder.line",
            "is_error",
            "metadata",
            "text",
            "type",
            "function",
            "arguments",
            "x",
            "",
            "a\\u0000b",
            "ü",
            "created_at",
            "refusal",
            "index",
        ])
    }

    fn number(&mut self) -> &'static str {
        self.pick(&[
            "0",
            "-0",
            "-0.0",
            "1",
            "1.0",
            "1.50",
            "1e16",
            "1E2",
            "-1",
            "0.1",
            "2.5e-10",
            "9223372036854775807",
            "1e300",
            "9223372036854775808",
            "18446744073709551616",
            "123456789012345678901234567890",
            "5e-324",
            "-1.5",
        ])
    }

    fn value(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => self.pick(&["null", "true", "false"]).to_owned(),
            1 | 2 => self.number().to_owned(),
            3 | 4 => self.text(),
            5 => {
                let items: Vec<_> = (0..self.below(4)).map(|_| self.value(depth - 1)).collect();
                format!("[{}]", items.join(" ,"))
            }
            6 => (0..self.below(40)).fold("1".to_owned(), |inner, _| format!("[{inner}]")),
            _ => self.object(Vec::new(), depth - 1),
        }
    }

    /// Returns these fields and others, in any order, with unique names.
    fn object(&mut self, mut fields: Vec<(&'static str, String)>, depth: usize) -> String {
        for _ in 0..self.below(4) {
            let (name, value) = (self.name(), self.value(depth));
            if fields.iter().all(|(known, _)| *known != name) {
                fields.insert(self.below(fields.len() + 1), (name, value));
            }
        }
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\" :{value}")).collect();
        format!("{{{}}}", fields.join(", "))
    }

    fn part(&mut self) -> String {
        let kind = |kind: &str| ("type", format!("\"{kind}\""));
        match self.below(9) {
            0 => self.text(),
            1 => format!(r#"{{"type":"text","text":{}}}"#, self.text()),
            4 => {
                let id = self.pick(&["\"c1\"", "\"\"", "null"]).to_owned();
                let call = vec![kind("tool_use"), ("id", id), ("name", r#""f""#.to_owned())];
                let call = call.into_iter().chain([("input", self.value(2))]).collect();
                self.object(call, 1)
            }
            5 => {
                let result = vec![kind("tool_result"), ("tool_use_id", r#""c1""#.to_owned())];
                let result = result.into_iter().chain([("content", self.content())]).collect();
                self.object(result, 1)
            }
            6 => {
                let thought = vec![kind("thinking"), ("thinking", self.text())];
                self.object(thought, 1)
            }
            2 => {
                let fields = vec![("text", self.text())];
                self.object(fields, 2)
            }
            3 => {
                let fields = vec![("text", self.value(1)), ("type", r#""text""#.to_owned())];
                self.object(fields, 2)
            }
            _ => self.object(Vec::new(), 2),
        }
    }

    fn content(&mut self) -> String {
        match self.below(4) {
            0 => "null".to_owned(),
            1 => {
                let parts: Vec<_> = (0..self.below(5)).map(|_| self.part()).collect();
                format!("[{}]", parts.join(","))
            }
            _ => self.text(),
        }
    }

    fn call(&mut self) -> String {
        let mut function = vec![("name", r#""f""#.to_owned())];
        match self.below(4) {
            0 => {}
            1 => function.push(("arguments", self.value(3))),
            _ => function.push(("arguments", self.text())),
        }
        let function = if self.below(3) == 0 {
            self.object(function, 1)
        } else {
            let fields: Vec<_> = function.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            format!("{{{}}}", fields.join(","))
        };
        let fields = vec![("id", r#""c1""#.to_owned()), ("function", function)];
        match self.below(3) {
            0 => self.object(fields, 1),
            _ => format!(r#"{{"id":"c1","type":"function","function":{}}}"#, fields[1].1),
        }
    }

    fn line(&mut self) -> String {
        let role = self.pick(&["system", "developer", "user", "assistant", "tool"]);
        let mut fields = vec![("role", format!("\"{role}\"")), ("content", self.content())];
        if role == "tool" {
            fields.push(("tool_call_id", r#""c1""#.to_owned()));
        }
        if role == "assistant" && self.below(2) == 0 {
            let calls: Vec<_> = (0..self.below(4)).map(|_| self.call()).collect();
            fields.push(("tool_calls", format!("[{}]", calls.join(","))));
            if self.below(3) == 0 {
                fields.remove(1);
            }
        }
        self.object(fields, 3)
    }
}

#[test]
fn random_lines_are_exported_unchanged() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("LARDER_PROPERTY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LARDER_PROPERTY_CASES").unwrap_or(2_000),
    };
    for seed in seeds {
        let line = Chance(Random::new(seed)).line();
        let outcome = std::panic::catch_unwind(|| {
            let returned = round_trip(&line);
            assert_eq!(returned.len(), 1);
            assert_eq!(exact(&returned[0]), exact(&line));
            assert_eq!(round_trip(&returned[0]), returned);
        });
        let again = format!("LARDER_PROPERTY_SEED={seed} cargo test -p larder-agents --lib random_lines");
        assert!(outcome.is_ok(), "seed {seed}: {line}\nagain: {again}");
    }
}
