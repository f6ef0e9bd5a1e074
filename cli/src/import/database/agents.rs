//! Sessions of the OpenAI Agents SDK: `SQLiteSession`, `SQLAlchemySession` and `AdvancedSQLiteSession`. Each
//! row has one item of the Responses format.

use larder_kernel::check;
use rusqlite::{Connection, ToSql};

use super::{Conversation, Lines, choose, has_table, unreadable};

/// Sessions are numbered in the order of their first items.
const SESSIONS: &str = "SELECT session_id FROM agent_messages GROUP BY session_id ORDER BY min(id)";
const ITEMS: &str = "SELECT message_data, created_at FROM agent_messages WHERE session_id = ?1 ORDER BY id";
const ITEMS_OF_BRANCH: &str = "SELECT item.message_data, item.created_at FROM agent_messages item
    JOIN message_structure place ON place.message_id = item.id
    WHERE item.session_id = ?1 AND place.branch_id = ?2 ORDER BY place.sequence_number";
/// The branch that a new `AdvancedSQLiteSession` continues.
const MAIN: &str = "main";

pub(super) fn read(database: &Connection, wanted: Option<&str>) -> Result<Conversation, String> {
    let session = choose(database, SESSIONS, wanted)?;
    let count = "SELECT count(*) FROM agent_messages WHERE session_id = ?1";
    let total: i64 = database.query_row(count, [&session], |row| row.get(0)).map_err(unreadable)?;
    let is_branched = has_table(database, "message_structure")? && {
        let query = "SELECT EXISTS (SELECT 1 FROM message_structure WHERE session_id = ?1)";
        database.query_row(query, [&session], |row| row.get(0)).map_err(unreadable)?
    };
    let (query, parameters): (_, &[&dyn ToSql]) =
        if is_branched { (ITEMS_OF_BRANCH, &[&session, &MAIN]) } else { (ITEMS, &[&session]) };
    let (mut lines, mut times) = (Lines::new()?, Vec::new());
    let mut query = database.prepare(query).map_err(unreadable)?;
    let mut rows = query.query(parameters).map_err(unreadable)?;
    while let Some(row) = rows.next().map_err(unreadable)? {
        let item: String = row.get(0).map_err(|_| format!("message {} is not text", times.len() + 1))?;
        lines.push(&item)?;
        let at = row.get::<_, Option<String>>(1).ok().flatten();
        times.push(at.and_then(|at| format!("{}Z", at.replace(' ', "T")).parse().ok()));
    }
    let skipped = u64::try_from(total).unwrap_or(0).saturating_sub(check::size(times.len()));
    Ok(Conversation { lines: lines.finish()?, times, skipped, fields: 0 })
}
