//! SQLite databases of other programs: sessions of the OpenAI Agents SDK and checkpoints of LangGraph.

mod agents;
mod langgraph;

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_kernel::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use tempfile::TempDir;

use super::format::Format;

/// The start of every SQLite database.
pub(super) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const WAIT: Duration = Duration::from_secs(5);
/// The byte of the file that is 2 if changes go to a write-ahead log.
const READ_VERSION: usize = 19;

/// The messages of a conversation.
pub(super) struct Conversation {
    /// One message per line.
    pub(super) lines: File,
    /// The time of each message, if the database has it.
    pub(super) times: Vec<Option<Timestamp>>,
    /// The number of messages in other branches.
    pub(super) skipped: u64,
    /// The number of values next to the messages.
    pub(super) fields: u64,
}

/// Reads a conversation, chosen by its number from 1 or its id. Without a choice, the database must have one.
///
/// # Errors
/// The reason, without content.
pub(super) fn read(path: &Path, format: Format, wanted: Option<&str>) -> Result<Conversation, String> {
    let Opened { copy: _copy, mut database } = open(path)?;
    database.busy_timeout(WAIT).map_err(unreadable)?;
    // One transaction: all reads see the same conversation.
    let database = database.transaction().map_err(unreadable)?;
    let has = |it: Format| {
        Ok::<_, String>([Format::Auto, it].contains(&format) && has_table(&database, it.table())?)
    };
    if has(Format::OpenaiAgents)? {
        agents::read(&database, wanted)
    } else if has(Format::Langgraph)? {
        langgraph::read(&database, wanted)
    } else {
        let tables = match format {
            Format::Auto => format!("`{}` or `{}`", Format::OpenaiAgents.table(), Format::Langgraph.table()),
            format => format!("`{}`", format.table()),
        };
        let other = "`larder copy` copies databases of Larder";
        Err(format!("a SQLite database without the table {tables} ({other})"))
    }
}

struct Opened {
    /// The folder of a copy, removed after the connection has closed.
    copy: Option<TempDir>,
    database: Connection,
}

/// Opens a database without a change to it and without a new file next to it. To read a write-ahead log,
/// SQLite creates files next to the database. The program of the database may not be able to write these, and
/// a read-only folder refuses them.
fn open(path: &Path) -> Result<Opened, String> {
    let cannot_copy = |error: std::io::Error| format!("cannot copy the SQLite database: {error}");
    // SQLite resolves links, and names the files next to the database after it.
    let path = path.canonicalize().map_err(|error| format!("cannot read the SQLite database: {error}"))?;
    let mut copy = None;
    let mut opened = path.clone();
    if !beside(&path, "-shm").exists() && has_log(&path).map_err(cannot_copy)? {
        // No program uses the database: its log, if any, does not change.
        let folder = tempfile::tempdir().map_err(cannot_copy)?;
        opened = folder.path().join("copy.db");
        std::fs::copy(&path, &opened).map_err(cannot_copy)?;
        let log = beside(&path, "-wal");
        if log.exists() {
            std::fs::copy(log, beside(&opened, "-wal")).map_err(cannot_copy)?;
        }
        if beside(&path, "-shm").exists() {
            return Err("another program opened the SQLite database (run the import again)".to_owned());
        }
        copy = Some(folder);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(opened, flags).map_err(unreadable)?;
    Ok(Opened { copy, database })
}

/// Returns the name of a file that SQLite keeps next to a database.
fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns `true` if the changes of a database go to a write-ahead log.
fn has_log(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(larder_kernel::check::size(READ_VERSION + 1)).read_to_end(&mut start)?;
    Ok(start.get(READ_VERSION) == Some(&2))
}

impl Format {
    /// Returns the table by which a database is recognized.
    fn table(self) -> &'static str {
        if self == Self::Langgraph { "checkpoints" } else { "agent_messages" }
    }
}

/// The error of SQLite may quote a query, which has no stored text.
#[allow(clippy::needless_pass_by_value)]
fn unreadable(error: rusqlite::Error) -> String {
    format!("cannot read the SQLite database: {error}")
}

fn has_table(database: &Connection, name: &str) -> Result<bool, String> {
    let query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    let found = database.query_row(query, [name], |_| Ok(())).optional();
    found.map(|found| found.is_some()).map_err(unreadable)
}

/// Returns the chosen one of the ids that a query returns.
fn choose(database: &Connection, query: &str, wanted: Option<&str>) -> Result<String, String> {
    let mut query = database.prepare(query).map_err(unreadable)?;
    let ids = query.query_map([], |row| row.get::<_, String>(0)).map_err(unreadable)?;
    let ids: Vec<_> = ids.collect::<Result<_, _>>().map_err(unreadable)?;
    let Some(wanted) = wanted else {
        return match &*ids {
            [] => Err("the database has no conversation".to_owned()),
            [id] => Ok(id.clone()),
            _ => Err(format!(
                "{} conversations, and a thread has one (choose it by number or id: `--conversation`)",
                ids.len()
            )),
        };
    };
    let by_number = || wanted.parse::<usize>().ok().and_then(|number| ids.get(number.checked_sub(1)?));
    let id = ids.iter().find(|id| *id == wanted).or_else(by_number);
    id.cloned()
        .ok_or_else(|| format!("no such conversation; the database has {} (`--conversation`)", ids.len()))
}

/// A temporary file with one message per line.
struct Lines(BufWriter<File>);

impl Lines {
    fn new() -> Result<Self, String> {
        Ok(Self(BufWriter::new(temporary_file()?)))
    }

    fn push(&mut self, message: &str) -> Result<(), String> {
        // A line break between the parts of the JSON would end the line.
        writeln!(self.0, "{}", message.replace(['\n', '\r'], " ")).map_err(|error| unwritable(&error))
    }

    fn finish(self) -> Result<File, String> {
        self.0.into_inner().map_err(|error| unwritable(error.error()))
    }
}

/// Creates a file that no other process can open.
pub(super) fn temporary_file() -> Result<File, String> {
    tempfile::tempfile().map_err(|error| format!("cannot create a temporary file: {error}"))
}

fn unwritable(error: &std::io::Error) -> String {
    format!("cannot write a temporary file: {error}")
}
