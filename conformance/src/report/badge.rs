//! A badge for each backend: its proven levels, in one line of SVG.

use super::page::escape;
use super::{Report, Standing};
use crate::level::Verdict;

/// Returns the badge of a backend.
pub(super) fn svg(report: &Report, standing: &Standing) -> String {
    let label = format!("larder {}", report.suite_version);
    let (words, color, mark) = verdict(standing);
    let value = format!("{mark} {words}");
    let (left, right) = (width(&label), width(&value));
    let (whole, middle, end) = (left + right, left / 2, left + right / 2);
    let title = escape(&standing.to_string());
    let (label, value) = (escape(&label), escape(&value));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole}\" height=\"20\" role=\"img\" \
         aria-label=\"{label}: {value}\">\
         <title>{title}</title>\
         <clipPath id=\"r\"><rect width=\"{whole}\" height=\"20\" rx=\"3\"/></clipPath>\
         <g clip-path=\"url(#r)\"><rect width=\"{left}\" height=\"20\" fill=\"#3d4450\"/>\
         <rect x=\"{left}\" width=\"{right}\" height=\"20\" fill=\"{color}\"/></g>\
         <g fill=\"#fff\" text-anchor=\"middle\" font-family=\"Verdana,DejaVu Sans,sans-serif\" \
         font-size=\"11\">\
         <text x=\"{middle}\" y=\"14\">{label}</text><text x=\"{end}\" y=\"14\">{value}</text></g></svg>\n"
    )
}

/// Returns the words, the color, and a sign with the same meaning as the color.
fn verdict(standing: &Standing) -> (String, &'static str, char) {
    let count = |verdict: Verdict| standing.levels.iter().filter(|level| level.verdict == verdict).count();
    let names = |verdict: Verdict| {
        let of = standing.levels.iter().filter(|level| level.verdict == verdict);
        of.map(|level| level.level.as_str()).collect::<Vec<_>>().join(", ")
    };
    let cases = standing.cases_executed;
    if count(Verdict::Broken) > 0 {
        return (format!("{} broken", names(Verdict::Broken)), "#b3261e", '✗');
    }
    if count(Verdict::Error) > 0 {
        return (format!("{} ended in an error", names(Verdict::Error)), "#8a5300", '!');
    }
    if !standing.holds() {
        return ("not proven".to_owned(), "#5c6470", '–');
    }
    let levels = match count(Verdict::Proven) {
        1 => format!("{} proven", names(Verdict::Proven)),
        count => format!("{count} levels proven"),
    };
    let waived = match count(Verdict::Waived) {
        0 => String::new(),
        count => format!(", {count} waived"),
    };
    let cases = if cases == 0 { String::new() } else { format!(" · {cases} cases") };
    let (color, mark) = if waived.is_empty() { ("#1a7f37", '✓') } else { ("#7a5b00", '~') };
    (format!("{levels}{waived}{cases}"), color, mark)
}

/// Estimates the width of the text at 11 px, with its margins. The badge stays readable in a font of another
/// width.
fn width(text: &str) -> usize {
    let tenths: usize = text.chars().map(|char| if "ijlt.,:·' ".contains(char) { 42 } else { 72 }).sum();
    tenths / 10 + 14
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{LevelStanding, sample};

    #[test]
    fn a_badge_claims_only_proven_levels() {
        let mut report = sample::passing();
        let text = |report: &Report| svg(report, &report.standings()[0]);
        // Two of the suite's cases prove nothing.
        assert!(text(&report).contains(">– not proven<"), "{}", text(&report));
        report.cases.clear();
        assert!(text(&report).contains(">✓ model proven<"), "{}", text(&report));
        assert!(text(&sample::failing()).contains(">✗ contract broken<"));
        assert!(text(&sample::complete()).contains("2 levels proven"));
        report.levels.clear();
        assert!(text(&report).contains("not proven"));
        let mut standing = sample::complete().standings().remove(0);
        let waived = LevelStanding { verdict: Verdict::Waived, ..standing.levels[1].clone() };
        standing.levels.push(waived);
        assert!(svg(&report, &standing).contains("2 levels proven, 1 waived"));
    }

    #[test]
    fn names_are_escaped() {
        let mut report = sample::passing();
        report.backends[0].name = sample::HOSTILE.to_owned();
        let text = svg(&report, &report.standings()[0]);
        assert!(!text.contains("<script>") && text.contains("&lt;script&gt;"), "{text}");
    }
}
