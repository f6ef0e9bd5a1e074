//! The README, the changelog and the guide contain the suite's current figures.
#![allow(clippy::panic, clippy::unwrap_used)]

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

/// Memory and SQLite run all cases, and files those of blobs.
#[test]
fn the_readme_has_the_total_of_cases() {
    let cases = suites::all();
    let blobs = cases.iter().filter(|case| case.contract.to_string() == "blobs").count();
    let readme = readme();
    let (_, rest) = readme.split_once("which ends with `").unwrap();
    let total = rest.split('`').next().unwrap().split(", ");
    let total: usize = total.map(|part| part.split(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    assert_eq!(total, 2 * cases.len() + blobs);
}

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap()
}

/// Returns the number at the start of a cell of a table.
fn number(cell: &str) -> f64 {
    let digits = cell.trim().trim_start_matches("< ").replace(',', "");
    digits.split([' ', '/']).next().unwrap().parse().unwrap()
}

#[test]
fn the_benchmarks_of_the_readme_are_rows_of_the_benchmarks() {
    let readme = readme();
    let measured =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../BENCHMARKS.md")).unwrap();
    let (_, section) = readme.split_once("## Benchmarks").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), 6, "{rows:?}");
    for row in rows {
        let cells: Vec<&str> = row.split('|').collect();
        let name = format!("| {} |", cells[1].trim().trim_matches('`'));
        let line = measured.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{name}"));
        let figures: Vec<&str> = line.split('|').collect();
        for (shown, figure) in [(3, 2), (4, 3)] {
            assert!((number(cells[shown]) - number(figures[figure])).abs() < 0.01, "{row}\n{line}");
        }
        let ratio = number(figures[4]);
        assert!(
            (number(cells[5]) - ratio).abs() < 0.005 || cells[5].contains("< 0.01") && ratio < 0.01,
            "{line}"
        );
    }
}
