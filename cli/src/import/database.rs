//! SQLite databases of other programs: sessions of the OpenAI Agents SDK and checkpoints of LangGraph.

mod agents;
mod langgraph;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use larder_kernel::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::format::Format;

/// The start of every SQLite database.
pub(super) const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const WAIT: Duration = Duration::from_secs(5);

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
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut database = Connection::open_with_flags(path, flags).map_err(unreadable)?;
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
        let file =
            tempfile::tempfile().map_err(|error| format!("cannot create a temporary file: {error}"))?;
        Ok(Self(BufWriter::new(file)))
    }

    fn push(&mut self, message: &str) -> Result<(), String> {
        // A line break between the parts of the JSON would end the line.
        writeln!(self.0, "{}", message.replace(['\n', '\r'], " ")).map_err(|error| unwritable(&error))
    }

    fn finish(self) -> Result<File, String> {
        self.0.into_inner().map_err(|error| unwritable(error.error()))
    }
}

fn unwritable(error: &std::io::Error) -> String {
    format!("cannot write a temporary file: {error}")
}
