//! Formatting of a survey as text.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};
use larder_kernel::{TaskStatus, Timestamp};

use super::survey::{BoardRow, Survey};
use crate::thread::printable;

/// Formats the whole survey, with one table per contract.
pub(crate) fn table(url: &str, survey: &Survey) -> String {
    let mut text = format!("{}, namespace {}\n", printable(url), printable(&survey.namespace));
    if let Some(history) = &survey.history {
        let messages: u64 = history.items.iter().map(|row| row.messages).sum();
        heading(&mut text, "threads", history.items.len(), history.cut, &format!("{messages} messages"));
        let mut rows = rows(&["agent", "session", "messages", "bytes", "last message"]);
        for row in &history.items {
            let cells = [
                row.agent.clone(),
                row.session.clone(),
                row.messages.to_string(),
                bytes(row.bytes),
                at(row.last_at),
            ];
            add(&mut rows, &cells);
        }
        finish(&mut text, &rows);
    }
    if let Some(vectors) = &survey.vectors {
        let documents: u64 = vectors.items.iter().map(|row| row.documents).sum();
        heading(
            &mut text,
            "collections",
            vectors.items.len(),
            vectors.cut,
            &format!("{documents} documents"),
        );
        let mut rows = rows(&["collection", "dimensions", "documents"]);
        for row in &vectors.items {
            add(&mut rows, &[row.collection.clone(), row.dimensions.to_string(), row.documents.to_string()]);
        }
        finish(&mut text, &rows);
    }
    if let Some(graph) = &survey.graph {
        let _ = write!(text, "\ngraph: {} entities, {} relationships\n", graph.entities, graph.relationships);
    }
    if let Some(blobs) = &survey.blobs {
        let more = if blobs.cut { ", and more" } else { "" };
        let _ = write!(text, "\nblobs: {}, {}{more}\n", blobs.count, bytes(blobs.bytes));
    }
    if let Some(tasks) = &survey.tasks {
        let count: u64 = tasks.items.iter().map(|row| row.tasks.total()).sum();
        heading(&mut text, "boards", tasks.items.len(), tasks.cut, &format!("{count} tasks"));
        let mut rows = rows(&["conversation", "agent", "tasks"]);
        for row in &tasks.items {
            add(&mut rows, &[row.conversation.clone(), row.agent.clone(), statuses(row)]);
        }
        finish(&mut text, &rows);
    }
    if let Some(buckets) = &survey.key_value {
        let keys: u64 = buckets.items.iter().map(|row| row.keys).sum();
        heading(&mut text, "buckets", buckets.items.len(), buckets.cut, &format!("{keys} keys"));
        let mut rows = rows(&["bucket", "keys", "bytes"]);
        for row in &buckets.items {
            let more = if row.cut { " and more" } else { "" };
            add(
                &mut rows,
                &[row.bucket.clone(), row.keys.to_string(), format!("{}{more}", bytes(row.bytes))],
            );
        }
        finish(&mut text, &rows);
    }
    text.trim_end().to_owned()
}

fn heading(text: &mut String, what: &str, count: usize, cut: bool, more: &str) {
    let cut = if cut { ", and more than --limit allows" } else { "" };
    let _ = write!(text, "\n{what}: {count}{cut}, {more}\n");
}

fn rows(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header.iter().map(Cell::new));
    table
}

fn add<const N: usize>(table: &mut Table, cells: &[String; N]) {
    let number = |text: &str| text.starts_with(|char: char| char.is_ascii_digit());
    table.add_row(cells.iter().enumerate().map(|(at, text)| {
        let cell = Cell::new(printable(text));
        if at > 0 && number(text) { cell.set_alignment(CellAlignment::Right) } else { cell }
    }));
}

fn finish(text: &mut String, table: &Table) {
    if !table.is_empty() {
        let _ = writeln!(text, "{table}");
    }
}

/// Formats the number of tasks in each status.
pub(super) fn statuses(row: &BoardRow) -> String {
    let mut counts = row.tasks;
    let named = TaskStatus::ALL.iter().copied().map(|status| (status.as_str(), *counts.of_mut(status)));
    let met = named.filter(|(_, count)| *count > 0).map(|(status, count)| format!("{count} {status}"));
    let text: Vec<String> = met.collect();
    if text.is_empty() { "none".to_owned() } else { text.join(", ") }
}

/// Formats a size for people.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (mut whole, mut unit) = (count, 0);
    while whole >= 1024 * 1024 && unit + 1 < UNITS.len() {
        (whole, unit) = (whole / 1024, unit + 1);
    }
    let tenths = (whole * 10).div_euclid(1024);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// Formats a time to the second.
pub(super) fn at(time: Option<Timestamp>) -> String {
    let Some(time) = time else { return "–".to_owned() };
    let text = time.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down_to_a_tenth() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1023.9 KiB"),
            (5 * 1024 * 1024 * 1024, "5.0 GiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
