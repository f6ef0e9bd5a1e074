//! The problems of a run, each with the command that reproduces it.

use std::fmt::Write as _;

use super::matrix::sentence;
use super::{again, counted, escape, mark, verdict_mark};
use crate::clause::{Clause, clauses};
use crate::level::{LevelReport, Verdict};
use crate::report::waiver::WaiverStatus;
use crate::report::{CaseOutcome, CaseReport, Report};

/// The number of listed problems; the matrix shows all of them.
const SHOWN_MAX: usize = 60;
/// The number of problems that are expanded initially.
const OPEN_MAX: usize = 3;

pub(super) fn section(page: &mut String, report: &Report) {
    let all = clauses();
    let bad = |case: &&CaseReport| matches!(case.outcome, CaseOutcome::Failed | CaseOutcome::Error);
    let mut problems: Vec<Problem> = Vec::new();
    for used in report.waivers.iter().filter(|used| used.status == WaiverStatus::Expired) {
        let (waiver, matched) = (&used.waiver, used.matched);
        let about =
            format!("It ended on {}; failures that need it: {matched}. {}", waiver.expires, waiver.reason);
        problems.push(Problem::plain("failed", "✗ EXPIRED waiver", &waiver.subject(), &about));
    }
    for absent in report.absent.iter().filter(|absent| absent.required) {
        problems.push(Problem::plain("error", "! missing", &absent.name, &absent.reason));
    }
    let levels = report.levels.iter();
    let levels = levels.filter(|level| !matches!(level.verdict(), Verdict::Proven | Verdict::Waived));
    problems.extend(levels.map(|level| of_level(report, level)));
    let mut cases: Vec<&CaseReport> = report.cases.iter().filter(bad).collect();
    cases.sort_by_key(|case| case.outcome != CaseOutcome::Failed);
    problems.extend(cases.into_iter().map(|case| of_case(report, &all, case)));
    if problems.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<section id=\"problems\" aria-labelledby=\"problems-title\"><h2 id=\"problems-title\">{}</h2>\n",
        counted(problems.len(), "problem")
    );
    for (index, problem) in problems.iter().take(SHOWN_MAX).enumerate() {
        problem.write(page, index < OPEN_MAX);
    }
    if let Some(more @ 1..) = problems.len().checked_sub(SHOWN_MAX) {
        let _ = write!(page, "<p class=\"muted\">and {more} more in the matrix</p>");
    }
    page.push_str("</section>\n");
}

/// A problem; `facts` are names with markup.
struct Problem {
    class: &'static str,
    tag: String,
    title: String,
    about: String,
    facts: Vec<(&'static str, String)>,
}

impl Problem {
    fn plain(class: &'static str, tag: &str, title: &str, about: &str) -> Self {
        let (tag, title) = (tag.to_owned(), title.to_owned());
        Self { class, tag, title, about: about.to_owned(), facts: Vec::new() }
    }

    fn write(&self, page: &mut String, open: bool) {
        let open = if open { " open" } else { "" };
        let _ = write!(
            page,
            "<details class=\"problem is-{0}\"{open}><summary><span class=\"tag {0}\">{1}</span><b>{2}</b>\
             <span class=\"muted\">{3}</span></summary>",
            self.class,
            escape(&self.tag),
            escape(&self.title),
            sentence(&self.about)
        );
        if !self.facts.is_empty() {
            page.push_str("<div class=\"body\"><dl class=\"facts-of\">");
            self.facts.iter().for_each(|(name, markup)| _ = write!(page, "<dt>{name}</dt><dd>{markup}</dd>"));
            page.push_str("</dl></div>");
        }
        page.push_str("</details>\n");
    }
}

fn pre(text: &str) -> String {
    format!("<pre>{}</pre>", escape(text))
}

fn of_case(report: &Report, clauses: &[Clause], case: &CaseReport) -> Problem {
    let clause = clauses.iter().find(|clause| clause.id == case.clause);
    let mut facts = vec![("case", format!("<code>{}</code>", escape(&case.case)))];
    if case.outcome == CaseOutcome::Failed {
        facts.extend([("expected", pre(&case.expected)), ("got", pre(&case.got))]);
    } else {
        facts.push(("reason", pre(&case.reason)));
    }
    facts.extend(report.again_case(case).map(|command| ("again", again(&command))));
    Problem {
        class: case.outcome.as_str(),
        tag: format!("{} {}", mark(case.outcome), case.outcome.as_str()),
        title: format!("{} on {}", case.clause, case.backend),
        about: clause.map_or_else(String::new, |clause| clause.sentence.clone()),
        facts,
    }
}

fn of_level(report: &Report, level: &LevelReport) -> Problem {
    let verdict = level.verdict();
    let (sign, class) = verdict_mark(verdict);
    let contract = level.contract.map_or_else(String::new, |contract| format!(" {contract}"));
    let mut facts = Vec::new();
    facts.extend(level.trouble.iter().map(|trouble| ("trouble", pre(trouble))));
    for found in level.counterexamples.iter().filter(|found| !level.waived.contains_key(found.clause)) {
        facts.push(("found", pre(&format!("{} {}", found.clause, found.finding))));
        facts.push(("how to reproduce it", pre(&found.script)));
        facts.extend(report.again_level(level, found.seed).map(|command| ("again", again(&command))));
    }
    if level.counterexamples.is_empty() {
        facts.extend(report.again_level(level, report.seed).map(|command| ("again", again(&command))));
    }
    Problem {
        class,
        tag: format!("{sign} {}", verdict.as_str()),
        title: format!("{}{contract} on {}", level.level.as_str(), level.backend),
        about: format!(
            "{} of {} {} were executed and judged.",
            super::grouped(level.executed),
            super::grouped(level.required),
            level.unit
        ),
        facts,
    }
}
