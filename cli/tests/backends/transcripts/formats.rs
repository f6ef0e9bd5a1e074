//! Exports of chat programs, sessions in databases, and the choice of a format.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::wild::{fixture, piped};
use super::{Place, exported, import, larder, refusal, succeeded, values};

/// Two conversations of ChatGPT, with another branch and an image.
const CHATGPT: &str = r#"[
 {"title": "one", "id": "c-1", "conversation_id": "c-1", "current_node": "n1", "mapping": {
  "n0": {"id": "n0", "message": null, "parent": null, "children": ["n1"]},
  "n1": {"id": "n1", "parent": "n0", "children": [], "message": {"id": "n1",
   "author": {"role": "user", "name": null, "metadata": {}}, "create_time": 1700000000.123456,
   "content": {"content_type": "text", "parts": ["Which platform for Basel?"]}, "recipient": "all"}}}},

 {"title": "two", "id": "c-2", "conversation_id": "c-2", "current_node": "d", "mapping": {
  "a": {"id": "a", "parent": null, "message": {"id": "a", "author": {"role": "user"}, "create_time": null,
   "content": {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer",
    "asset_pointer": "file-service://f", "size_bytes": 9}, "And this?"]}}},
  "b": {"id": "b", "parent": "a", "message": {"id": "b", "author": {"role": "assistant"},
   "recipient": "python", "content": {"content_type": "code", "language": "unknown", "text": "look()"}}},
  "c": {"id": "c", "parent": "b", "message": {"id": "c", "author": {"role": "tool", "name": "python"},
   "content": {"content_type": "execution_output", "text": "Platform 7"}}},
  "d": {"id": "d", "parent": "c", "message": {"id": "d", "author": {"role": "assistant"}, "recipient": "all",
   "content": {"content_type": "text", "parts": ["Platform 7."]}}},
  "e": {"id": "e", "parent": "a", "message": {"id": "e", "author": {"role": "assistant"}, "recipient": "all",
   "content": {"content_type": "text", "parts": ["I cannot see it."]}}}}}
]
"#;
const CLAUDE: &str = concat!(
    r#"[{"uuid":"u-1","name":"n","summary":"","created_at":"2024-05-06T07:08:09.123456Z","#,
    r#""account":{"uuid":"a"},"chat_messages":[{"uuid":"m-1","text":"Hello","content":[{"type":"text","#,
    r#""text":"Hello","citations":[]}],"sender":"human","created_at":"2024-05-06T07:08:09.123456Z","#,
    r#""attachments":[{"file_name":"a.txt","extracted_content":"x"}],"files":[]},{"uuid":"m-2","text":"Hi","#,
    r#""content":[{"type":"text","text":"Hi"}],"sender":"assistant","attachments":[],"files":[]}]}]"#,
);
const SHAREGPT: &str =
    r#"{"id":"x","conversations":[{"from":"human","value":"Hello"},{"from":"gpt","value":"Hi"}]}"#;

fn run(file: &Path, place: &Place, namespace: &str, options: &[&str]) -> String {
    succeeded(&import(file, &place.url(), namespace).args(options).output().unwrap())
}

fn refused(file: &Path, place: &Place, options: &[&str]) -> String {
    let mut command = import(file, &place.url(), "refused");
    command.args(options);
    refusal(command)
}

pub(super) fn conversations_of_exports_are_read_and_counted() {
    let place = Place::new();
    let chatgpt = place.file("conversations.json", CHATGPT);
    let said = refused(&chatgpt, &place, &[]);
    assert!(said.contains(".json:8: ") && said.contains("a second conversation"), "{said}");
    assert!(said.contains("`--conversation`"), "{said}");
    let said = refused(&chatgpt, &place, &["--conversation", "3"]);
    assert!(said.contains("no such conversation; the file has 2"), "{said}");
    assert!(!place.path("larder.db").exists());
    let said = run(&chatgpt, &place, "chatgpt", &["--conversation", "2"]);
    assert_eq!(
        said,
        "imported 4 of 4 messages into a/s/1; the thread has 4; 3 fields next to the messages were skipped; \
         1 part has no field in a message and is kept in the metadata; \
         1 empty message, or message of another branch, was skipped\n"
    );
    // The number and the id are the same import; another conversation is another import.
    let by_id = ["--conversation", "c-2", "--format", "chatgpt"];
    assert!(run(&chatgpt, &place, "chatgpt", &by_id).starts_with("imported 0 of 4"));
    assert!(run(&chatgpt, &place, "chatgpt", &["--conversation", "1"]).starts_with("imported 1 of 1"));
    let lines = values(&exported(&place.url(), "chatgpt"));
    assert_eq!(lines[0]["content"][0]["asset_pointer"], "file-service://f");
    assert_eq!(lines[1]["tool_calls"][0]["function"]["arguments"], "look()");
    assert_eq!(lines[2]["tool_call_id"], "b");
    assert_eq!(
        (&lines[3]["content"], &lines[4]["create_time"]),
        (&"Platform 7.".into(), &1_700_000_000.123_456.into())
    );

    let crlf = format!("\u{feff}{}\r\n\r\n", CHATGPT.replace('\n', "\r\n"));
    let units: Vec<u8> = "\u{feff}"
        .chars()
        .chain(CLAUDE.chars())
        .collect::<String>()
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let claude = "imported 2 of 2 messages into a/s/1; the thread has 2; 5 fields next to the messages were \
                  skipped; 1 part has no field in a message and is kept in the metadata\n";
    let sharegpt =
        "imported 2 of 2 messages into a/s/1; the thread has 2; 1 field next to the messages was skipped\n";
    for (at, (text, options, expected)) in [
        (crlf.into_bytes(), &["--conversation", "c-2"][..], &*said),
        (CLAUDE.into(), &[], claude),
        (units, &["--format", "claude"], claude),
        (SHAREGPT.into(), &["--format", "sharegpt"], sharegpt),
        (format!("\n[\n {SHAREGPT}\n]").into_bytes(), &[], sharegpt),
    ]
    .into_iter()
    .enumerate()
    {
        let file = place.file("export", text);
        assert_eq!(run(&file, &place, &format!("n{at}"), options), expected);
    }
}

/// Runs a dump. Its tables are in the order of their names, so a table may refer to a later one.
fn filled(file: &Path, dump: &str) -> Connection {
    let database = Connection::open(file).unwrap();
    database.pragma_update(None, "foreign_keys", false).unwrap();
    database.execute_batch(dump).unwrap();
    database
}

fn database(place: &Place, name: &str) -> PathBuf {
    let file = place.path(&format!("{name}.db"));
    let dump = String::from_utf8(fixture(&format!("package-openai-agents-{name}.sql"))).unwrap();
    filled(&file, &dump);
    file
}

pub(super) fn sessions_of_the_openai_agents_sdk_are_read() {
    let place = Place::new();
    let plain = database(&place, "plain");
    let said = refused(&plain, &place, &[]);
    assert!(said.contains("2 conversations") && said.contains("`--conversation`"), "{said}");
    assert!(
        refused(&plain, &place, &["--conversation", "3"])
            .contains("no such conversation; the database has 2")
    );
    let said = run(&plain, &place, "plain", &["--conversation", "basel-1"]);
    assert_eq!(said, "imported 5 of 5 messages into a/s/1; the thread has 5\n");
    let by_number = ["--conversation", "1", "--format", "openai-agents"];
    assert!(run(&plain, &place, "plain", &by_number).starts_with("imported 0 of 5"));
    // The items are those of the interface.
    let items = values(std::str::from_utf8(&fixture("package-openai-responses.jsonl")).unwrap());
    assert_eq!(values(&exported(&place.url(), "plain")), items);

    let branched = database(&place, "branched");
    let said = run(&branched, &place, "branched", &[]);
    assert!(
        said.starts_with("imported 6 of 6") && said.contains("1 empty message, or message of another"),
        "{said}"
    );
    let lines = exported(&place.url(), "branched");
    assert!(lines.contains("And for Bern?") && !lines.contains("And for Chur?"), "{lines}");

    // The SDK leaves what it wrote in the write-ahead log as long as it runs.
    let running = Connection::open(&plain).unwrap();
    running.pragma_update(None, "journal_mode", "WAL").unwrap();
    let item = "INSERT INTO agent_messages (session_id, message_data) \
                VALUES ('bern-3', '{\"role\":\"user\",\"content\":\"Now\"}')";
    running.execute_batch(item).unwrap();
    assert!(run(&plain, &place, "bern", &["--conversation", "bern-3"]).starts_with("imported 2 of 2"));
    running.execute_batch(&item.replace(r#""role":"user""#, r#""role":"usher""#)).unwrap();
    let said = refused(&plain, &place, &["--conversation", "2"]);
    assert!(said.contains("plain.db:3: ") && said.contains("`role`"), "{said}");

    let url = place.url();
    let arguments = ["import", "-", "--to", &url, "--thread", "a/s/1"];
    let output = piped(&arguments, &std::fs::read(&branched).unwrap());
    assert!(String::from_utf8(output.stderr).unwrap().contains("give its path"));
    let other = place.path("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(refused(&other, &place, &[]).contains("without the table `agent_messages`"));
    let said = refused(&other, &place, &["--format", "openai-chat"]);
    assert!(said.contains("a SQLite database (choose another `--format`)"), "{said}");
    let text = place.file("chat.jsonl", fixture("package-openai-chat.jsonl"));
    let said = refused(&text, &place, &["--format", "openai-agents"]);
    assert!(said.contains("not a SQLite database"), "{said}");
}

pub(super) fn checkpoints_of_langgraph_are_read() {
    let place = Place::new();
    let file = place.path("langgraph.db");
    let dump = String::from_utf8(fixture("package-langgraph.sql")).unwrap();
    let database = filled(&file, &dump);
    assert!(refused(&file, &place, &[]).contains("2 conversations"));
    let said = run(&file, &place, "basel", &["--conversation", "basel-1", "--format", "langgraph"]);
    assert!(said.starts_with("imported 4 of 4 messages"), "{said}");
    let lines = values(&exported(&place.url(), "basel"));
    let roles: Vec<_> = lines.iter().map(|line| line["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(lines[1]["content"][0]["text"], "I look.");
    // The part of the content with the same call is not a second call.
    assert_eq!(lines[1]["content"].as_array().unwrap().len(), 1);
    assert_eq!(lines[1]["tool_calls"][0]["args"]["to"], "Basel");
    assert_eq!((&lines[2]["tool_call_id"], &lines[2]["content"]), (&"call_1".into(), &"7".into()));
    assert_eq!((&lines[3]["content"], &lines[3]["id"]), (&"Platform 7.".into(), &"a2".into()));
    assert!(run(&file, &place, "bern", &["--conversation", "2"]).starts_with("imported 1 of 1"));

    let said = refused(&file, &place, &["--format", "openai-agents", "--conversation", "1"]);
    assert!(said.contains("without the table `agent_messages`"), "{said}");
    database.execute_batch("UPDATE checkpoints SET checkpoint = X'82'").unwrap();
    let said = refused(&file, &place, &["--conversation", "1"]);
    assert!(said.contains("the newest checkpoint is not valid MessagePack"), "{said}");
    database.execute_batch("UPDATE checkpoints SET type = 'msgpack+aes'").unwrap();
    assert!(refused(&file, &place, &["--conversation", "1"]).contains("or it is encrypted"));
}

/// Returns the names and bytes of a database and the files next to it.
fn files(file: &Path) -> Vec<(String, Vec<u8>)> {
    let name = file.file_name().unwrap().to_str().unwrap();
    let entries = std::fs::read_dir(file.parent().unwrap()).unwrap().map(Result::unwrap);
    let files = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let files = files.filter(|(found, _)| found.starts_with(name));
    let mut files: Vec<_> = files.map(|(found, path)| (found, std::fs::read(path).unwrap())).collect();
    files.sort();
    files
}

pub(super) fn a_database_and_the_files_next_to_it_are_not_changed() {
    let place = Place::new();
    let closed = database(&place, "branched");
    let running = Connection::open(&closed).unwrap();
    running.pragma_update(None, "journal_mode", "WAL").unwrap();
    running.execute_batch("UPDATE agent_messages SET created_at = NULL").unwrap();
    // A copy of a running database has its log and not its index.
    let copied = place.path("copied.db");
    std::fs::copy(&closed, &copied).unwrap();
    std::fs::copy(place.path("branched.db-wal"), place.path("copied.db-wal")).unwrap();
    assert!(run(&closed, &place, "running", &[]).starts_with("imported 6 of 6"));
    running.close().unwrap();
    for (file, count) in [(&closed, 1), (&copied, 2)] {
        let before = files(file);
        assert_eq!(before.len(), count);
        assert!(run(file, &place, &format!("n{count}"), &[]).starts_with("imported 6 of 6"));
        let names: Vec<_> = files(file).into_iter().map(|(name, _)| name).collect();
        assert!(files(file) == before, "{names:?}");
    }
}

/// Returns a database of LangGraph with one checkpoint, which has one message.
fn checkpoint(place: &Place, message: rmpv::Value) -> PathBuf {
    let fields = rmpv::Value::Map(vec![("messages".into(), rmpv::Value::Array(vec![message]))]);
    let packed = packed(&rmpv::Value::Map(vec![("channel_values".into(), fields)]));
    let file = place.path("checkpoint.db");
    let _ = std::fs::remove_file(&file);
    let database = Connection::open(&file).unwrap();
    let table = "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint)";
    database.execute_batch(table).unwrap();
    let row = "INSERT INTO checkpoints VALUES ('1', '', '1', 'msgpack', ?1)";
    database.execute(row, [packed]).unwrap();
    file
}

fn packed(value: &rmpv::Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

pub(super) fn values_of_checkpoints_without_json_are_kept_and_nesting_is_limited() {
    let place = Place::new();
    let text = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        rmpv::decode::read_value(&mut &[&[0xA0 | u8::try_from(bytes.len()).unwrap()], &*bytes].concat()[..])
    };
    let call = |kind: &str, id: &str| {
        let fields = vec![("type".into(), kind.into()), (id.into(), "c".into()), ("caller".into(), 1.into())];
        rmpv::Value::Map(fields)
    };
    let repeated = vec![call("tool_use", "id"), call("tool_call", "id"), call("function_call", "call_id")];
    let named = rmpv::Value::Map(vec![
        ("id".into(), "c".into()),
        ("name".into(), "f".into()),
        ("args".into(), rmpv::Value::Map(Vec::new())),
    ]);
    let message = rmpv::Value::Map(vec![
        ("type".into(), "ai".into()),
        ("content".into(), rmpv::Value::Array(repeated)),
        ("tool_calls".into(), rmpv::Value::Array(vec![named])),
        ("low".into(), f64::NEG_INFINITY.into()),
        ("bytes".into(), text(b"\xFFa").unwrap()),
    ]);
    let file = checkpoint(&place, message);
    assert!(run(&file, &place, "kept", &[]).starts_with("imported 1 of 1"));
    let line = &values(&exported(&place.url(), "kept"))[0];
    assert_eq!((&line["low"], &line["bytes"]["hex"]), (&"-inf".into(), &"ff61".into()));
    assert_eq!(line["content"], serde_json::json!([]));
    let callers: Vec<_> = (0..3).map(|at| &line["repeated_calls"][at]["caller"]).collect();
    assert_eq!(callers, [1, 1, 1]);

    let mut nested = rmpv::Value::Nil;
    for _ in 0..20_000 {
        nested = rmpv::Value::Ext(0, packed(&nested));
    }
    let message = vec![("type".into(), "human".into()), ("content".into(), nested)];
    let said = refused(&checkpoint(&place, rmpv::Value::Map(message)), &place, &[]);
    assert!(said.contains("message 1: nested deeper than 127 levels"), "{said}");
}

pub(super) fn a_format_can_be_chosen_and_the_closest_ones_are_named() {
    let place = Place::new();
    let formats = [
        ("openai-chat", fixture("package-openai-chat.jsonl")),
        ("openai-responses", fixture("package-openai-responses.jsonl")),
        ("anthropic", fixture("package-anthropic.jsonl")),
        ("gemini", fixture("package-gemini.jsonl")),
        ("agent-log", fixture("coding-agent-log.jsonl")),
        ("sharegpt", SHAREGPT.into()),
    ];
    for (format, text) in &formats {
        let file = place.file("chosen", text);
        assert!(run(&file, &place, format, &["--format", format]).starts_with("imported "), "{format}");
        for (other, _) in formats.iter().filter(|(other, _)| other != format) {
            let said = refused(&file, &place, &["--format", other]);
            assert!(said.contains("so the value is not of the format"), "{format} as {other}: {said}");
        }
    }
    let file = place.file("rows.json", "[\n {\"from\": \"human\", \"value\": \"secret\"}\n]");
    let said = refused(&file, &place, &[]);
    let closest = "rows.json:2: no message: `conversations`: no known format; the closest are \
                   ShareGPT (`conversations` is missing), OpenAI chat (`role` is missing), \
                   OpenAI Responses (`type` is missing); nothing was imported\n";
    assert!(said.ends_with(closest), "{said}");
    let help = succeeded(&larder(&["import", "--help"]).output().unwrap());
    for (format, _) in formats {
        assert!(help.contains(format), "{format}: {help}");
    }
    assert_eq!(help.matches("(experimental)").count(), 3, "{help}");
}
