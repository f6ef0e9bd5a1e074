//! `report.html`: the whole run on one self-contained page that needs no network.
//!
//! The tables are in the markup, so the page can be read, searched and printed without the script. The script
//! filters the matrix and shows the details of a cell. All text of a run is escaped here or inserted as text.

// The markup determines the ends of the lines.
#![allow(clippy::write_with_newline)]

mod data;
mod figures;
mod matrix;
mod problems;
mod sections;

use std::fmt::Write as _;

use super::{CaseOutcome, Report};
use crate::level::Verdict;

/// Returns the report as a page.
pub(super) fn html(report: &Report) -> String {
    let mut page = String::with_capacity(1 << 20);
    let title = format!("{} · Larder conformance", sections::headline(report).2);
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; \
         script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        escape(&title),
        include_str!("page/page.css"),
    );
    sections::header(&mut page, report);
    sections::navigation(&mut page, report);
    page.push_str("<main>\n");
    problems::section(&mut page, report);
    sections::backends(&mut page, report);
    matrix::section(&mut page, report);
    figures::levels(&mut page, report);
    figures::latency(&mut page, report);
    sections::waivers(&mut page, report);
    page.push_str("</main>\n");
    sections::footer(&mut page, report);
    let _ = write!(
        page,
        "<dialog aria-labelledby=\"of\"><header><h2 id=\"of\"></h2>\
         <button class=\"close\" type=\"button\" aria-label=\"Close\">✕</button></header>\
         <div class=\"body\"></div></dialog>\n\
         <script type=\"application/json\" \
         id=\"data\">{}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
        data::json(report),
        include_str!("page/page.js"),
    );
    page
}

/// Escapes text for an element or a quoted attribute. Characters that no document may contain become a
/// replacement sign.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(char),
            char if char.is_control() => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

/// Returns the sign of an outcome, with the same meaning as its color.
fn mark(outcome: CaseOutcome) -> &'static str {
    match outcome {
        CaseOutcome::Passed => "✓",
        CaseOutcome::Failed => "✗",
        CaseOutcome::Unsupported => "–",
        CaseOutcome::Error => "!",
        CaseOutcome::Waived => "~",
        CaseOutcome::Waiting => "…",
    }
}

/// Returns the sign and the class of a verdict.
fn verdict_mark(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Proven => ("✓", "proven"),
        Verdict::NotProven => ("?", "not_proven"),
        Verdict::Broken => ("✗", "broken"),
        Verdict::Waived => ("~", "waived"),
        Verdict::Error => ("!", "error"),
    }
}

/// Returns a number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a number and its noun.
fn counted(number: usize, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", grouped(u64::try_from(number).unwrap_or(u64::MAX)))
}

/// The limit, in nanoseconds, above which times are shown in minutes: two minutes.
const MINUTES: u64 = 120_000_000_000;

/// Returns a duration in a readable unit.
fn duration(nanos: u64) -> String {
    let (unit, per) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        MINUTES.. => {
            let seconds = nanos / 1_000_000_000;
            return format!("{} min {} s", seconds / 60, seconds % 60);
        }
        _ => ("s", 1_000_000_000),
    };
    let tenths = nanos / (per / 10);
    if tenths >= 1_000 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// Returns a command with a button that copies it.
fn again(command: &str) -> String {
    let command = escape(command);
    format!(
        "<div class=\"again\"><code>{command}</code><button type=\"button\" \
         data-copy=\"{command}\">Copy</button></div>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Counts the page's script and style elements. Their content is not markup.
    fn scripts(page: &str) -> usize {
        page.matches("<script").count()
    }

    #[test]
    fn results_of_stores_stay_text() {
        let page = html(&sample::everything());
        assert_eq!(
            (scripts(&page), page.matches("</script").count()),
            (2, 2),
            "a store's text became a script"
        );
        assert!(!page.contains("<img"), "a store's text became markup");
        assert!(page.contains("&lt;/script&gt;&lt;script&gt;") && page.contains("&quot;quoted&quot;"));
        let json = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(json).unwrap();
        let entry = &data["cases"]["KV-001"][0];
        assert_eq!(entry[5]["got"], sample::HOSTILE);
        assert_eq!(entry[5]["again"], "cargo larder check mine: --filter key_value.one --seed 1");
        assert!(page.chars().all(|char| !char.is_control() || char == '\n'), "a control character");
    }

    #[test]
    fn the_page_has_no_external_reference() {
        let page = html(&sample::everything());
        for outside in ["http://", "https://", "src=\"", "@import", "url(", "<link"] {
            let clean = page.replace("http-equiv", "");
            assert!(!clean.contains(outside), "the page has {outside}");
        }
    }

    #[test]
    fn the_page_shows_every_clause_backend_level_waiver_and_method() {
        let report = sample::everything();
        let page = html(&report);
        for clause in crate::clauses() {
            assert!(page.contains(&format!("<tr class=\"row\" id=\"{}\">", clause.id)), "{}", clause.id);
        }
        for part in ["put", "1.5 µs", "2.5 ms", "100,000 of 100,000", "EXPIRED", "2027-01-31", "missing"] {
            assert!(page.contains(part), "no {part}");
        }
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(1_000), grouped(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        let times = [7, 1_500, 999_999, 2_500_000, 150_000_000, 3_000_000_000, 1_279_100_000_000];
        let words = ["7 ns", "1.5 µs", "999 µs", "2.5 ms", "150 ms", "3.0 s", "21 min 19 s"];
        assert_eq!(times.map(duration), words);
        assert_eq!([counted(1, "case"), counted(0, "case")], ["1 case", "0 cases"]);
    }
}
