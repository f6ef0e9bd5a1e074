//! The README, the changelog and the guide contain the suite's current figures.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use larder_conformance::{SUITE_VERSION, clauses, mutants, suites};

fn assert_says(page: &str, figure: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join(page)).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(figure), "{page} does not say {figure:?}");
}

#[test]
fn pages_name_the_version_and_the_clauses_of_the_suite() {
    let count = clauses().len();
    assert_says("README.md", &format!("badge/suite-{SUITE_VERSION}-"));
    assert_says("README.md", &format!("lists all {count} clauses"));
    assert_says("CHANGELOG.md", &format!("suite {SUITE_VERSION} with {count} clauses"));
    assert_says("guide/src/reports.md", &format!("suite {SUITE_VERSION};"));
}

#[test]
fn pages_name_the_number_of_faulty_stores() {
    let count = mutants::all().iter().filter(|mutant| !mutant.is_control()).count();
    assert_says("README.md", &format!("{count} faulty stores"));
    assert_says("CHANGELOG.md", &format!("{count} faulty stores"));
    assert_says("guide/src/command/check.md", &format!("{count} stores with one defect each"));
    assert_says("guide/src/command/check.md", &format!("{count} killed, 0 survived"));
}

/// SQLite runs every case of these contracts; memory skips the one that needs durability.
#[test]
fn the_readme_has_the_number_of_cases() {
    let cases = suites::all();
    for contract in ["history", "vectors", "tasks"] {
        let count = cases.iter().filter(|case| case.contract.to_string() == contract).count();
        let row = format!("| {contract} | {} passed, 1 unsupported | {count} passed |", count - 1);
        assert_says("README.md", &row);
    }
}

#[test]
fn the_rows_of_the_readme_are_rows_of_the_benchmarks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, section) = readme.split_once("## Benchmarks").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: Vec<&str> = rows.collect();
    assert_eq!(rows.len(), 6, "{rows:?}");
    rows.iter().for_each(|row| assert_says("BENCHMARKS.md", &format!("| {row} |")));
}
