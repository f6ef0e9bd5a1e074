//! The document `report.json`.

use std::collections::BTreeMap;

use larder_kernel::Timestamp;
use serde::{Serialize, Serializer};

use super::waiver::WaiverUse;
use super::{AbsentBackend, BackendReport, CaseReport, Report, Standing, Summary};
use crate::latency::Latency;
use crate::level::{LevelReport, Verdict};

/// The version of the document's schema. It increases if a field is removed or changes its meaning, not for a
/// new field.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    suite_version: &'a str,
    seed: u64,
    started_at: Timestamp,
    elapsed_us: u64,
    jobs: usize,
    build: &'static str,
    exit_code: u8,
    summary: Summary,
    standings: Vec<Standing>,
    backends: &'a [BackendReport],
    absent: &'a [AbsentBackend],
    waivers: &'a [WaiverUse],
    again: &'a BTreeMap<String, String>,
    levels: Vec<Level<'a>>,
    latencies: &'a [Latency],
    cases: &'a [CaseReport],
}

#[derive(Serialize)]
struct Level<'a> {
    verdict: Verdict,
    #[serde(flatten)]
    report: &'a LevelReport,
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let level = |report| Level { verdict: LevelReport::verdict(report), report };
        let document = Document {
            schema_version: SCHEMA_VERSION,
            suite_version: self.suite_version,
            seed: self.seed,
            started_at: self.started_at,
            elapsed_us: self.elapsed_us,
            jobs: self.jobs,
            build: build(),
            exit_code: self.exit_code(),
            summary: self.summary,
            standings: self.standings(),
            backends: &self.backends,
            absent: &self.absent,
            waivers: &self.waivers,
            again: &self.again,
            levels: self.levels.iter().map(level).collect(),
            latencies: &self.latencies,
            cases: &self.cases,
        };
        document.serialize(serializer)
    }
}

/// Returns the build profile of the suite. Times of different profiles are not comparable.
pub(super) const fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "release" }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::report::sample;

    /// Returns the paths of a document, such as `cases[].clause string`. Paths below `free` are left out,
    /// because their keys are data.
    fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        let free = [".capabilities", ".waived"];
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(items) => {
                items.iter().for_each(|item| paths(item, &format!("{path}[]"), found));
                "array"
            }
            Value::Object(fields) => {
                let free = (path == "again" || free.iter().any(|end| path.ends_with(end)))
                    && !path.starts_with("cases");
                for (name, value) in fields.iter().filter(|_| !free) {
                    let dot = if path.is_empty() { "" } else { "." };
                    paths(value, &format!("{path}{dot}{name}"), found);
                }
                "object"
            }
        };
        if !path.is_empty() && !path.ends_with("[]") {
            found.insert(format!("{path} {kind}"));
        }
    }

    #[test]
    fn the_document_has_exactly_the_documented_fields() {
        let document = serde_json::to_value(sample::everything()).unwrap();
        let mut found = BTreeSet::new();
        paths(&document, "", &mut found);
        let page = include_str!("../../../guide/src/reports.md");
        let table = page.split_once("<!-- fields of report.json -->").unwrap().1;
        let table = table.split_once("<!-- end -->").unwrap().0;
        // | `cases[].clause` | string | ... |
        let row = |line: &str| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let field = cells.next()?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
            Some(cells.next()?.split(" or ").map(|kind| format!("{field} {kind}")).collect::<Vec<_>>())
        };
        let written: BTreeSet<String> = table.lines().filter_map(row).flatten().collect();
        assert_eq!(found, written, "guide/src/reports.md must say what report.json holds");
        assert!(page.contains(&format!("`schema_version` {SCHEMA_VERSION}")));
    }

    #[test]
    fn the_figures_are_in_the_document() {
        let report = sample::passing();
        let document = serde_json::to_value(&report).unwrap();
        assert_eq!(document["levels"][0]["verdict"], "proven");
        assert_eq!(document["levels"][0]["executed"], 100_000);
        assert_eq!(document["standings"][0]["levels"][0]["verdict"], "not_proven");
        assert_eq!(
            (&document["exit_code"], &document["schema_version"]),
            (&0.into(), &SCHEMA_VERSION.into())
        );
    }
}
