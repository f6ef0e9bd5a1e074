//! The data of the page's script: the cases behind each cell of the matrix.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{duration, mark};
use crate::case::Level;
use crate::clause::clauses;
use crate::report::waiver::Waived;
use crate::report::{CaseOutcome, CaseReport, Report};

const OUTCOMES: [CaseOutcome; 6] = [
    CaseOutcome::Passed,
    CaseOutcome::Failed,
    CaseOutcome::Unsupported,
    CaseOutcome::Error,
    CaseOutcome::Waived,
    CaseOutcome::Waiting,
];

#[derive(Serialize)]
#[allow(clippy::type_complexity)]
struct Data<'a> {
    backends: Vec<&'a str>,
    levels: Vec<&'static str>,
    outcomes: Vec<&'static str>,
    marks: BTreeMap<&'static str, &'static str>,
    words: BTreeMap<&'static str, &'static str>,
    /// By clause id: the method and the sentence.
    clauses: BTreeMap<String, (String, String)>,
    /// By clause: backend, name, level, outcome, microseconds, and other facts.
    cases: BTreeMap<&'a str, Vec<(usize, &'a str, usize, usize, u64, Value)>>,
    /// By clause: the findings of the levels beyond the cases.
    found: BTreeMap<&'a str, Vec<Value>>,
}

/// Returns the data as JSON that cannot end the enclosing element.
pub(super) fn json(report: &Report) -> String {
    let backends: Vec<&str> = report.backends.iter().map(|backend| backend.name.as_str()).collect();
    let place = |name: &str| backends.iter().position(|backend| *backend == name);
    let mut cases: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for case in &report.cases {
        let Some(backend) = place(&case.backend) else { continue };
        let level = Level::ALL.iter().position(|level| *level == case.level).unwrap_or(0);
        let outcome = OUTCOMES.iter().position(|outcome| *outcome == case.outcome).unwrap_or(0);
        let row = (backend, case.case.as_str(), level, outcome, case.elapsed_us, more(report, case));
        cases.entry(case.clause).or_default().push(row);
    }
    let data = Data {
        levels: Level::ALL.iter().copied().map(Level::as_str).collect(),
        outcomes: OUTCOMES.map(CaseOutcome::as_str).to_vec(),
        marks: OUTCOMES.map(|outcome| (outcome.as_str(), mark(outcome))).into(),
        words: OUTCOMES.map(|outcome| (outcome.as_str(), outcome.as_str())).into(),
        clauses: clauses().into_iter().map(|clause| (clause.id, (clause.method, clause.sentence))).collect(),
        cases,
        found: found(report, &place),
        backends,
    };
    let text = serde_json::to_string(&data).unwrap_or_else(|_| "{}".to_owned());
    // These characters occur only in strings, where an escape by number is equivalent.
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026").replace('\u{7f}', "\\u007f")
}

fn more(report: &Report, case: &CaseReport) -> Value {
    let mut more = serde_json::Map::new();
    if matches!(case.outcome, CaseOutcome::Failed | CaseOutcome::Waived) {
        more.insert("expected".to_owned(), case.expected.as_str().into());
        more.insert("got".to_owned(), case.got.as_str().into());
    } else if !case.reason.is_empty() {
        more.insert("reason".to_owned(), case.reason.as_str().into());
    }
    if let Some(waived) = &case.waived {
        more.insert("waived".to_owned(), pair(waived));
    }
    if let Some(command) = report.again_case(case) {
        more.insert("again".to_owned(), command.into());
    }
    more.into()
}

fn pair(waived: &Waived) -> Value {
    json!([waived.reason, waived.expires])
}

fn found<'a>(report: &'a Report, place: &dyn Fn(&str) -> Option<usize>) -> BTreeMap<&'a str, Vec<Value>> {
    let mut found: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for level in &report.levels {
        let Some(backend) = place(&level.backend) else { continue };
        for one in &level.counterexamples {
            let waived = level.waived.get(one.clause);
            let outcome = if waived.is_some() { CaseOutcome::Waived } else { CaseOutcome::Failed };
            found.entry(one.clause).or_default().push(json!({
                "backend": backend,
                "name": format!("a counterexample of the level {}", level.level.as_str()),
                "level": level.level.as_str(),
                "outcome": outcome.as_str(),
                "time": format!("the level took {}", duration(level.elapsed_us.saturating_mul(1_000))),
                "reason": format!("{} (seed {})", one.finding, one.seed),
                "script": one.script,
                "waived": waived.map(pair),
                "again": report.again_level(level, one.seed),
            }));
        }
    }
    found
}
