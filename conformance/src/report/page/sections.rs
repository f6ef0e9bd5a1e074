//! The head of the page, its backends, its waivers and its foot.

use std::fmt::Write as _;

use larder_kernel::Contract;

use super::{counted, duration, escape, grouped, mark, verdict_mark};
use crate::case::Level;
use crate::clause::clauses;
use crate::level::Verdict;
use crate::report::waiver::WaiverStatus;
use crate::report::{CaseOutcome, Report, Standing, json};

/// Returns the class, the sign and the words for the whole run.
pub(super) fn headline(report: &Report) -> (&'static str, &'static str, String) {
    let broken = report.broken_clauses().len();
    let waived = if report.waivers.iter().any(|used| used.status == WaiverStatus::Used) {
        ", except for waivers"
    } else {
        ""
    };
    match report.exit_code() {
        0 => ("passed", "✓", format!("Everything that ran holds{waived}")),
        1 if broken == 1 => ("failed", "✗", "1 clause does not hold".to_owned()),
        1 if broken > 1 => ("failed", "✗", format!("{broken} clauses do not hold")),
        1 if report.levels.iter().any(|level| level.exit_code() == 1) => {
            ("failed", "✗", "A level beyond the cases found a counterexample".to_owned())
        }
        1 => ("failed", "✗", "A waiver has expired".to_owned()),
        _ if report.summary.waiting > 0 => {
            ("error", "!", "The store is not complete: methods are missing".to_owned())
        }
        _ => ("error", "!", "The run executed too little to prove anything".to_owned()),
    }
}

pub(super) fn header(page: &mut String, report: &Report) {
    let (class, sign, words) = headline(report);
    let _ = write!(
        page,
        "<header class=\"top\"><h1>Larder conformance</h1>\n\
         <p class=\"verdict\"><span class=\"mark {class}\" aria-hidden=\"true\">{sign}</span>{}</p>\n<div \
         class=\"facts\">",
        escape(&words)
    );
    // 2026-11-21T16:20:00.123456Z, to the minute.
    let started = report.started_at.to_string().replace('T', " ");
    let started: String = started.chars().take(16).collect();
    let mut facts = vec![
        format!("suite {}", report.suite_version),
        format!("seed {}", report.seed),
        counted(report.backends.len(), "backend"),
        format!("{started} UTC"),
    ];
    if report.elapsed_us > 0 {
        facts.push(format!("took {}", duration(report.elapsed_us.saturating_mul(1_000))));
    }
    facts.iter().for_each(|fact| _ = write!(page, "<span>{fact}</span>"));
    page.push_str("</div>\n<ul class=\"tally\">");
    let summary = report.summary;
    for (outcome, count) in [
        (CaseOutcome::Passed, summary.passed),
        (CaseOutcome::Failed, summary.failed),
        (CaseOutcome::Waived, summary.waived),
        (CaseOutcome::Unsupported, summary.unsupported),
        (CaseOutcome::Waiting, summary.waiting),
        (CaseOutcome::Error, summary.errors),
    ] {
        let word = if outcome == CaseOutcome::Error && count != 1 { "errors" } else { outcome.as_str() };
        let class = if count == 0 { "unsupported" } else { outcome.as_str() };
        let number = grouped(u64::try_from(count).unwrap_or(u64::MAX));
        let _ = write!(
            page,
            "<li><span class=\"tag {class}\">{}</span><b>{number}</b> {word}</li>",
            mark(outcome)
        );
    }
    let _ = write!(
        page,
        "<li><b>{}</b> of {} clauses hold</li></ul>\n</header>\n",
        report.held_clauses().len(),
        clauses().len()
    );
}

pub(super) fn navigation(page: &mut String, report: &Report) {
    page.push_str("<nav aria-label=\"Sections\"><ul>");
    let bad = report.exit_code() != 0;
    for (id, word, there) in [
        ("problems", "Problems", bad),
        ("backends", "Backends", true),
        ("matrix", "Clauses", true),
        ("levels", "Levels", !report.levels.is_empty()),
        ("latency", "Latency", !report.latencies.is_empty()),
        ("waivers", "Waivers", !report.waivers.is_empty()),
    ] {
        if there {
            let _ = write!(page, "<li><a href=\"#{id}\">{word}</a></li>");
        }
    }
    page.push_str("</ul></nav>\n");
}

/// Writes a card for each backend: its URL and its proven levels.
pub(super) fn backends(page: &mut String, report: &Report) {
    page.push_str(
        "<section id=\"backends\" aria-labelledby=\"backends-title\"><h2 id=\"backends-title\">Proven levels \
         of each backend</h2>\n<div class=\"cards\">\n",
    );
    for (backend, standing) in report.backends.iter().zip(report.standings()) {
        let contracts: Vec<&str> = Contract::ALL
            .iter()
            .filter(|contract| backend.capabilities.contains_key(contract))
            .map(|contract| contract.as_str())
            .collect();
        let _ = write!(
            page,
            "<article class=\"card\"><h3>{}<small>{}</small></h3><p class=\"url mono\" title=\"{}\">{}</p>",
            escape(&backend.name),
            counted(standing.cases_executed, "case"),
            escape(&contracts.join(", ")),
            escape(&backend.url)
        );
        chips(page, &standing);
        page.push_str("</article>\n");
    }
    for absent in &report.absent {
        let required = if absent.required { "required but missing" } else { "missing" };
        let class = if absent.required { "error" } else { "unsupported" };
        let _ = write!(
            page,
            "<article class=\"card\"><h3>{}<span class=\"tag {class}\">{required}</span></h3><p \
             class=\"muted\">{}</p></article>\n",
            escape(&absent.name),
            escape(&absent.reason)
        );
    }
    page.push_str("</div></section>\n");
}

fn chips(page: &mut String, standing: &Standing) {
    page.push_str("<ul class=\"chips\">");
    for &level in Level::ALL {
        let name = level.as_str();
        let _ = match standing.level(level) {
            Some(own) => {
                let (sign, class) = verdict_mark(own.verdict);
                let figures = format!(
                    "{}: {} of {} {}",
                    own.verdict.as_str(),
                    grouped(own.executed),
                    grouped(own.required),
                    own.unit
                );
                write!(
                    page,
                    "<li class=\"chip {class}\" title=\"{figures}\"><i aria-hidden=\"true\">{sign}</i>{name}\
                     <small>{}</small><span class=\"hidden\">{figures}</span></li>",
                    if own.verdict == Verdict::Proven {
                        short(own.executed)
                    } else {
                        own.verdict.as_str().to_owned()
                    }
                )
            }
            None => write!(
                page,
                "<li class=\"chip not_run\"><i aria-hidden=\"true\">·</i>{name}<small>not run</small></li>"
            ),
        };
    }
    page.push_str("</ul>");
}

/// Returns a number in a form that is short enough for a chip.
fn short(number: u64) -> String {
    match number {
        0..10_000 => grouped(number),
        10_000..1_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}.{}M", number / 1_000_000, number % 1_000_000 / 100_000),
    }
}

pub(super) fn waivers(page: &mut String, report: &Report) {
    if report.waivers.is_empty() {
        return;
    }
    page.push_str(
        "<section id=\"waivers\" aria-labelledby=\"waivers-title\"><h2 id=\"waivers-title\">Waivers</h2>\n\
         <div class=\"scroll\"><table><thead><tr><th scope=\"col\">what</th><th scope=\"col\">status</th>\
         <th scope=\"col\">failures</th><th scope=\"col\">until</th><th \
         scope=\"col\">reason</th></tr></thead><tbody>",
    );
    for used in &report.waivers {
        let (class, sign) = match used.status {
            WaiverStatus::Used => ("waived", "~"),
            WaiverStatus::Unused => ("unused", "○"),
            WaiverStatus::Expired => ("expired", "✗"),
            WaiverStatus::NotInRun => ("not_in_run", "·"),
        };
        let _ = write!(
            page,
            "<tr><th scope=\"row\">{}</th><td><span class=\"tag {class}\">{sign} {}</span></td><td \
             class=\"number\">{}</td>\
             <td class=\"number\">{}</td><td>{}</td></tr>\n",
            escape(&used.waiver.subject()),
            used.status.as_str(),
            used.matched,
            used.waiver.expires,
            escape(&used.waiver.reason)
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

pub(super) fn footer(page: &mut String, report: &Report) {
    let jobs = if report.jobs > 0 {
        format!(
            ", up to {} concurrent \
                                             cases",
            report.jobs
        )
    } else {
        String::new()
    };
    let _ = write!(
        page,
        "<footer>Suite {} in a {} build{jobs}. The same results for programs: report.json and junit.xml. \
         <noscript>Without JavaScript, the page shows everything except the details of the \
         cells.</noscript></footer>\n",
        report.suite_version,
        json::build()
    );
}
