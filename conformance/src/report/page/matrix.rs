//! The matrix: a row for each clause, a column for each backend.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use larder_kernel::Contract;

use super::{counted, escape, mark};
use crate::clause::{Clause, clauses};
use crate::report::{CaseOutcome, Report};

/// The number of columns from which names are vertical on a narrow screen.
const COLUMNS_MANY: usize = 5;
/// The number of columns from which the table scrolls sideways.
const COLUMNS_WIDE: usize = 12;

/// The name of the group of clauses that bind every contract.
const SHARED: &str = "shared";

/// The result of the run for each clause and backend.
type Cells<'a> = BTreeMap<(&'a str, &'a str), CaseOutcome>;

pub(super) fn section(page: &mut String, report: &Report) {
    let all = clauses();
    let cells = cells(report);
    page.push_str(
        "<section id=\"matrix\" aria-labelledby=\"matrix-title\"><h2 id=\"matrix-title\">Clauses</h2>\n\
         <div class=\"tools\"><label class=\"hidden\" for=\"filter\">Show only clauses that contain</label>\
         <input id=\"filter\" type=\"search\" placeholder=\"Filter by id, method or words  ( / )\" \
         autocomplete=\"off\" spellcheck=\"false\">\
         <fieldset class=\"choices\"><legend class=\"hidden\">Show only clauses with</legend>",
    );
    let choices = [
        ("all", "All"),
        (".failed, .error", "Failed"),
        (".waived", "Waived"),
        (".unsupported", "Unsupported"),
        (".waiting", "Waiting"),
    ];
    for (index, (selector, word)) in choices.into_iter().enumerate() {
        let checked = if index == 0 { " checked" } else { "" };
        let _ = write!(
            page,
            "<label><input type=\"radio\" name=\"outcome\" value=\"{selector}\"{checked}>{word}</label>"
        );
    }
    let _ = write!(
        page,
        "</fieldset><output id=\"shown\" class=\"muted\" role=\"status\" \
         aria-live=\"polite\">{}</output></div>\n\
         <ul class=\"legend\" aria-label=\"Signs\">",
        counted(all.len(), "clause")
    );
    let legend = [
        (CaseOutcome::Passed, "holds"),
        (CaseOutcome::Failed, "does not hold"),
        (CaseOutcome::Error, "error: no result"),
        (CaseOutcome::Waived, "does not hold, waived"),
        (CaseOutcome::Unsupported, "capability not declared"),
        (CaseOutcome::Waiting, "waits for a missing method"),
    ];
    for (outcome, words) in legend {
        let _ = write!(page, "<li><i class=\"{}\">{}</i>{words}</li>", outcome.as_str(), mark(outcome));
    }
    page.push_str("<li><i>·</i>not run</li></ul>\n");
    let many = match report.backends.len() {
        COLUMNS_WIDE.. => " class=\"many wide\"",
        COLUMNS_MANY.. => " class=\"many\"",
        _ => "",
    };
    let _ = write!(
        page,
        "<div class=\"scroll\"><table{many}><thead><tr><th scope=\"col\" class=\"id\">clause</th>\
         <th scope=\"col\" class=\"sentence\">sentence</th>"
    );
    for backend in &report.backends {
        let _ =
            write!(page, "<th scope=\"col\" class=\"column\"><span>{}</span></th>", escape(&backend.name));
    }
    page.push_str("</tr></thead>\n");
    group(page, report, &cells, SHARED, all.iter().filter(|clause| clause.contract.is_none()));
    for &contract in Contract::ALL {
        let own = all.iter().filter(|clause| clause.contract == Some(contract));
        group(page, report, &cells, contract.as_str(), own);
    }
    page.push_str("</table></div></section>\n");
}

/// Writes the clauses of a contract, under a row with their counts.
fn group<'a>(
    page: &mut String,
    report: &Report,
    cells: &Cells<'_>,
    name: &str,
    clauses: impl Iterator<Item = &'a Clause>,
) {
    let clauses: Vec<&Clause> = clauses.collect();
    let about = if name == SHARED { " that bind every contract" } else { "" };
    let _ = write!(
        page,
        "<tbody><tr class=\"group\"><th scope=\"rowgroup\"><button type=\"button\" \
         aria-expanded=\"true\">{name}</button></th>\
         <td class=\"sentence\">{}{about}</td>",
        counted(clauses.len(), "clause")
    );
    for backend in &report.backends {
        let of = clauses.iter().filter_map(|clause| cells.get(&(clause.id.as_str(), backend.name.as_str())));
        let (mut hold, mut run) = (0_usize, 0_usize);
        for outcome in of {
            run += 1;
            hold += usize::from(*outcome == CaseOutcome::Passed);
        }
        let text = if run == 0 { "·".to_owned() } else { format!("<b>{hold}</b><span>of {run}</span>") };
        let _ = write!(page, "<td>{text}</td>");
    }
    page.push_str("</tr>\n");
    for clause in clauses {
        let _ = write!(
            page,
            "<tr class=\"row\" id=\"{0}\"><th scope=\"row\" class=\"id\">{0}</th><td class=\"sentence\">{1} \
             <code>{2}</code></td>",
            clause.id,
            sentence(&clause.sentence),
            escape(&clause.method)
        );
        for backend in &report.backends {
            cell(page, cells.get(&(clause.id.as_str(), backend.name.as_str())), &clause.id, &backend.name);
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n");
}

fn cell(page: &mut String, outcome: Option<&CaseOutcome>, clause: &str, backend: &str) {
    let _ = match outcome {
        Some(outcome) => write!(
            page,
            "<td class=\"cell\"><button class=\"{0}\" tabindex=\"-1\" aria-haspopup=\"dialog\" \
             aria-label=\"{clause} on {1}: {0}\">{2}</button></td>",
            outcome.as_str(),
            escape(backend),
            mark(*outcome)
        ),
        None => write!(
            page,
            "<td class=\"cell\"><span aria-hidden=\"true\">·</span><span class=\"hidden\">not run</span></td>"
        ),
    };
}

/// Returns the sentence with text between backticks as code.
pub(super) fn sentence(text: &str) -> String {
    let mut written = String::new();
    for (index, part) in escape(text).split('`').enumerate() {
        if index > 0 {
            written.push_str(if index % 2 == 1 { "<span class=\"mono\">" } else { "</span>" });
        }
        written.push_str(part);
    }
    if text.matches('`').count() % 2 == 1 {
        written.push_str("</span>");
    }
    written
}

/// Returns the worst result of each clause on each backend. A clause holds if one case passes and the other
/// cases need undeclared capabilities.
fn cells(report: &Report) -> Cells<'_> {
    let rank = |outcome: CaseOutcome| match outcome {
        CaseOutcome::Unsupported => 0,
        CaseOutcome::Passed => 1,
        CaseOutcome::Waived => 2,
        CaseOutcome::Waiting => 3,
        CaseOutcome::Error => 4,
        CaseOutcome::Failed => 5,
    };
    let of_cases = report.cases.iter().map(|case| ((case.clause, case.backend.as_str()), case.outcome));
    let of_levels = report.levels.iter().flat_map(|level| {
        level.counterexamples.iter().map(|found| {
            let waived = level.waived.contains_key(found.clause);
            let outcome = if waived { CaseOutcome::Waived } else { CaseOutcome::Failed };
            ((found.clause, level.backend.as_str()), outcome)
        })
    });
    let mut cells = Cells::new();
    for (place, outcome) in of_cases.chain(of_levels) {
        let cell = cells.entry(place).or_insert(outcome);
        if rank(outcome) > rank(*cell) {
            *cell = outcome;
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_cell_shows_the_worst_result_of_its_cases_and_levels() {
        let report = sample::everything();
        let cells = cells(&report);
        let of = |clause| cells[&(clause, "mine")];
        assert_eq!(of("KV-001"), CaseOutcome::Failed);
        assert_eq!(of("KV-002"), CaseOutcome::Waived, "the case passed, the level found something");
        assert_eq!(
            [of("KV-003"), of("KV-004"), of("KV-005"), of("KV-006")],
            [CaseOutcome::Unsupported, CaseOutcome::Error, CaseOutcome::Waived, CaseOutcome::Waiting]
        );
    }

    #[test]
    fn code_in_sentences_is_marked_and_closed() {
        assert_eq!(sentence("a `b<c` d"), "a <span class=\"mono\">b&lt;c</span> d");
        assert_eq!(sentence("a `b"), "a <span class=\"mono\">b</span>");
    }
}
