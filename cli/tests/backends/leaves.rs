//! The files that each command leaves behind: complete ones, no log, no folder that nobody asked for.
//! Commands that only read leave nothing and change nothing.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

const THREAD: [&str; 2] = ["--thread", "a/s"];
const LARDER: &str = env!("CARGO_BIN_EXE_larder");

pub(crate) fn group(arguments: &Arguments) -> bool {
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let trials = vec![
        trial("a_copied_main_file_is_complete_after_each_command", complete_files),
        trial("the_writes_of_an_mcp_server_are_in_the_main_file_at_the_end_of_its_input", mcp_ends)
            .with_ignored_flag(!cfg!(feature = "mcp")),
        trial("the_export_of_a_thread_that_does_not_exist_is_an_error_and_writes_nothing", absent_thread),
        trial("commands_that_read_leave_every_file_as_it_was", reading_changes_nothing),
        trial("commands_that_read_keep_the_log_of_a_killed_program", reading_keeps_a_log),
        trial("a_store_opened_with_mode_ro_refuses_writes_and_missing_files", mode_ro),
        trial("a_damaged_or_foreign_file_is_named_and_skipped_on_request", damaged),
        trial("a_verification_finds_damage_by_name_and_repairs_only_on_request", verifies),
        trial("commands_that_read_work_on_a_read_only_medium", read_only_medium)
            .with_ignored_flag(!can_mount()),
    ];
    crate::groups::run("leaves", arguments, trials)
}

struct Place(TempDir);

impl Place {
    /// A database with one thread.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::write(place.path("in.jsonl"), "{\"role\":\"user\",\"content\":\"Hello\"}\n").unwrap();
        place.run(&["import", "in.jsonl", "--to", "sqlite:a.db", "--thread", "a/s"], 0);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(LARDER);
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs a command and returns its output and its errors.
    fn run(&self, arguments: &[&str], code: i32) -> (String, String) {
        said(self.command(arguments).output().unwrap(), code)
    }

    /// Returns the names, the sizes and a hash of all files below the folder.
    fn files(&self) -> BTreeMap<PathBuf, (usize, u64)> {
        let (mut found, mut folders) = (BTreeMap::new(), vec![self.0.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).unwrap();
                    let mut hasher = DefaultHasher::new();
                    hasher.write(&bytes);
                    found.insert(path, (bytes.len(), hasher.finish()));
                }
            }
        }
        found
    }

    /// Asserts that the database is one file, and that a copy of this file has the thread.
    fn assert_complete(&self, database: &str, after: &str) {
        for more in ["-wal", "-shm", ".blobs"] {
            assert!(!self.path(&format!("{database}{more}")).exists(), "{after} leaves {database}{more}");
        }
        std::fs::copy(self.path(database), self.path("copied.db")).unwrap();
        let (text, _) = self.run(&["export", "--from", "sqlite:copied.db", THREAD[0], THREAD[1]], 0);
        assert!(text.contains("Hello"), "{after}: {text}");
        std::fs::remove_file(self.path("copied.db")).unwrap();
    }
}

fn said(output: Output, code: i32) -> (String, String) {
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    (out, err)
}

fn complete_files() {
    let place = Place::new();
    place.assert_complete("a.db", "import");
    place.run(&["copy", "sqlite:a.db", "sqlite:b.db"], 0);
    place.assert_complete("a.db", "copy");
    place.assert_complete("b.db", "copy");
    place.run(&["dump", "sqlite:a.db", "archive"], 0);
    place.assert_complete("a.db", "dump");
    place.run(&["load", "archive", "sqlite:c.db"], 0);
    place.assert_complete("c.db", "load");
    place.run(&["erase", "sqlite:c.db", "--namespace", "other", "--yes"], 0);
    place.assert_complete("c.db", "erase");
    place.run(&["window", "--from", "sqlite:c.db", "--thread", "a/s"], 0);
    place.assert_complete("c.db", "window");
    place.run(&["inspect", "sqlite:c.db"], 0);
    place.assert_complete("c.db", "inspect");
    place.run(&["doctor", "sqlite:c.db"], 0);
    place.assert_complete("c.db", "doctor");
}

/// The first lines of a client of an MCP server.
const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
);

fn mcp_ends() {
    use std::io::Write as _;
    let place = Place::new();
    let mut server = place.command(&["mcp", "--store", "sqlite:a.db"]);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = [
        INITIALIZE,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"note_put","#,
        r#""arguments":{"key":"k","text":"kept"}}}"#,
        "\n",
    ];
    let mut input = server.stdin.take().unwrap();
    input.write_all(lines.concat().as_bytes()).unwrap();
    let mut answers = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    assert!(answers.any(|line| line.unwrap().contains("\"id\":2")), "no answer");
    drop(input);
    assert!(server.wait().unwrap().success());
    place.assert_complete("a.db", "mcp");
    assert!(std::fs::read(place.path("a.db")).unwrap().windows(4).any(|bytes| bytes == b"kept"));
}

fn absent_thread() {
    let place = Place::new();
    let before = place.files();
    for more in [&[][..], &["--output", "out.jsonl"]] {
        let absent = ["export", "--from", "sqlite:a.db", "--thread", "a/none"];
        let (out, err) = place.run(&[&absent[..], more].concat(), 2);
        assert_eq!(out, "");
        assert!(err.contains("a/none does not exist in the namespace default of sqlite:a.db"), "{err}");
    }
    place.run(&["export", "--from", "sqlite:none.db", "--thread", "a/s"], 2);
    place.run(&["export", "--from", "sqlite:a.db", "--thread", "a/s", "--namespace", "none"], 2);
    assert_eq!(place.files(), before);
}

/// Each command that only reads, with its arguments after the URL.
const READERS: [&[&str]; 6] = [
    &["export", "--thread", "a/s", "--from"],
    &["window", "--thread", "a/s", "--from"],
    &["inspect"],
    &["inspect", "--json"],
    &["dump", "--contract", "history"],
    &["doctor"],
];

fn read_with(place: &Place, reader: &[&str], url: &str) {
    let more: &[&str] = if reader[0] == "dump" { &["/dev/null"] } else { &[] };
    let (out, err) = place.run(&[reader, &[url], more].concat(), 0);
    assert!(reader[0] == "dump" || !out.is_empty(), "{reader:?}: {err}");
}

fn reading_changes_nothing() {
    let place = Place::new();
    let before = place.files();
    for reader in READERS {
        read_with(&place, reader, "sqlite:a.db");
        assert_eq!(place.files(), before, "{reader:?}");
    }
}

fn reading_keeps_a_log() {
    let place = Place::new();
    // The log of a program that was killed: it ends without closing anything.
    let script = "import sqlite3, os\n\
                  db = sqlite3.connect('a.db')\n\
                  db.execute(\"UPDATE threads SET sweep_ms = 4102444800000\")\n\
                  db.commit()\n\
                  os._exit(0)\n";
    let python = Command::new("python3").args(["-c", script]).current_dir(place.0.path()).status();
    assert!(python.unwrap().success());
    let (log, main) =
        (std::fs::read(place.path("a.db-wal")).unwrap(), std::fs::read(place.path("a.db")).unwrap());
    assert!(!log.is_empty());
    for reader in READERS {
        read_with(&place, reader, "sqlite:a.db");
        assert!(std::fs::read(place.path("a.db-wal")).unwrap() == log, "{reader:?}");
        assert!(std::fs::read(place.path("a.db")).unwrap() == main, "{reader:?}");
    }
}

fn mode_ro() {
    let place = Place::new();
    let before = place.files();
    let import = ["import", "in.jsonl", "--thread", "a/other", "--to"];
    let (_, err) = place.run(&[&import[..], &["sqlite:a.db?mode=ro"]].concat(), 2);
    assert!(
        err.contains("the database is open for reading only; open it without `mode=ro` to write"),
        "{err}"
    );
    let (_, err) = place.run(&[&import[..], &["sqlite:none.db?mode=ro"]].concat(), 2);
    assert!(err.contains("the file does not exist, and `mode=ro` does not create it"), "{err}");
    let (_, err) = place.run(&[&import[..], &["sqlite:a.db?mode=rx"]].concat(), 2);
    assert!(err.contains("has a `mode` other than `rw` and `ro`"), "{err}");
    assert_eq!(place.files(), before);
}

/// Runs statements on the database, without the checks of this program.
fn sql(place: &Place, statements: &str) {
    let script = "import sqlite3, sys\n\
                  db = sqlite3.connect('a.db')\n\
                  db.executescript(sys.argv[1])\n\
                  db.close()\n";
    let python =
        Command::new("python3").args(["-c", script, statements]).current_dir(place.0.path()).status();
    assert!(python.unwrap().success());
}

fn damaged() {
    let place = Place::new();
    std::fs::write(
        place.path("more.jsonl"),
        "{\"role\":\"user\",\"content\":\"two\"}\n{\"role\":\"user\",\"content\":\"three\"}\n",
    )
    .unwrap();
    place.run(&["import", "more.jsonl", "--to", "sqlite:a.db", "--thread", "a/s"], 0);
    sql(&place, "UPDATE messages SET body = x'00' WHERE seq IN (1, 3)");
    for folder in ["locks", "tmp", "trash"] {
        std::fs::create_dir_all(place.path("a.db.blobs/.larder").join(folder)).unwrap();
    }
    std::fs::create_dir(place.path("a.db.blobs/default=")).unwrap();
    std::fs::write(place.path("a.db.blobs/default=/notes.txt"), "foreign").unwrap();
    let before = place.files();
    for command in [&["dump", "sqlite:a.db", "archive"][..], &["inspect", "sqlite:a.db"]] {
        let (_, err) = place.run(command, 2);
        assert!(err.contains("message 3 of the thread default a/s: its body is damaged"), "{err}");
        assert!(err.contains("a.db.blobs/default=/notes.txt (key notes.txt)"), "{err}");
        assert_eq!(place.files(), before);
    }
    let lines = [
        "missing in the archive: history: the message of the thread a/s after number 0",
        "missing in the archive: history: the message of the thread a/s after number 2",
        "missing in the archive: blobs: the blob notes.txt",
    ];
    let (_, err) = place.run(&["dump", "sqlite:a.db", "archive", "--skip-damaged"], 1);
    assert!(lines.iter().all(|line| err.contains(line)), "{err}");
    let (_, err) = place.run(&["load", "archive", "sqlite:b.db"], 1);
    assert!(lines.iter().all(|line| err.contains(line)), "{err}");
    let (text, _) = place.run(&["export", "--from", "sqlite:b.db", "--thread", "a/s"], 0);
    assert!(text.lines().count() == 1 && text.contains("two"), "{text}");
    // An archive without missing data stays as it was.
    place.run(&["dump", "sqlite:b.db", "whole", "--skip-damaged"], 0);
    place.run(&["load", "whole", "sqlite:c.db"], 0);
}

fn verifies() {
    let place = Place::new();
    let (text, _) = place.run(&["verify", "sqlite:a.db"], 0);
    assert!(text.contains("0 faults"), "{text}");
    sql(&place, "UPDATE threads SET messages = 7; DROP INDEX messages_by_run");
    let before = place.files();
    let (text, _) = place.run(&["verify", "sqlite:a.db"], 1);
    assert!(text.contains("counter    thread default a/s: counts 7 messages"), "{text}");
    assert!(text.contains("index      index messages_by_run: is missing"), "{text}");
    assert!(text.contains("2 faults (--repair removes 2)"), "{text}");
    let (json, _) = place.run(&["verify", "sqlite:a.db", "--json"], 1);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["faults"][0]["kind"], "index");
    assert_eq!(place.files(), before);
    let (text, _) = place.run(&["verify", "sqlite:a.db", "--repair"], 0);
    assert!(text.contains("the copy from before is a.db.before-repair-"), "{text}");
    place.assert_complete("a.db", "verify --repair");
    place.run(&["verify", "sqlite:none.db"], 2);
    // A URL of memory names a new backend.
    let (text, _) = place.run(&["verify", "memory:"], 0);
    assert!(text.contains("0 records read, 0 faults"), "{text}");
    let (_, err) = place.run(&["verify", "memory:", "--repair"], 0);
    assert_eq!(err, "");
}

/// Mounts the folder read-only, for the command alone.
const MOUNT: &str = "mount --bind . . && mount -o remount,bind,ro . && cd . && cd \"$PWD\" && exec \"$@\"";

fn mounted(folder: &Path, program: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", MOUNT, "sh"]).args(program);
    command.current_dir(folder).stdin(Stdio::null());
    command
}

fn can_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let tried = mounted(folder.path(), &["sh", "-c", "! touch x"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

fn read_only_medium() {
    let place = Place::new();
    let before = place.files();
    for reader in READERS {
        let more: &[&str] = if reader[0] == "dump" { &["/dev/null"] } else { &[] };
        let program = [&[LARDER], reader, &["sqlite:a.db?mode=ro"], more].concat();
        let (out, err) = said(mounted(place.0.path(), &program).output().unwrap(), 0);
        assert!(reader[0] == "dump" || !out.is_empty(), "{reader:?}: {err}");
        assert_eq!(place.files(), before, "{reader:?}");
    }
    if cfg!(feature = "mcp") {
        mcp_reads(&place);
        assert_eq!(place.files(), before);
    }
}

/// Reads through an MCP server, on a read-only medium.
fn mcp_reads(place: &Place) {
    use std::io::Write as _;
    let program = [LARDER, "mcp", "--read-only", "--store", "sqlite:a.db"];
    let mut server = mounted(place.0.path(), &program);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let call = concat!(
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"note_get","#,
        r#""arguments":{"key":"k"}}}"#
    );
    let mut input = server.stdin.take().unwrap();
    input.write_all([INITIALIZE, call, "\n"].concat().as_bytes()).unwrap();
    let answers = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    let answer = answers.map(Result::unwrap).find(|line| line.contains("\"id\":2")).expect("no answer");
    assert!(answer.contains("found") && !answer.contains("\"isError\":true"), "{answer}");
    drop(input);
    assert!(server.wait().unwrap().success());
}
