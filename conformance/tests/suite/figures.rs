//! The figures in the README and in the changelog are those of the suite.

use std::fs;
use std::path::Path;

use larder_conformance::{SUITE_VERSION, clauses};

#[test]
fn pages_name_the_version_and_the_clauses_of_the_suite() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let count = clauses().len();
    for (page, figure) in [
        ("README.md", format!("badge/suite-{SUITE_VERSION}-")),
        ("README.md", format!("lists all {count} clauses")),
        ("CHANGELOG.md", format!("suite {SUITE_VERSION} with {count} clauses")),
        ("guide/src/reports.md", format!("suite {SUITE_VERSION};")),
    ] {
        assert!(read(page).contains(&figure), "{page} does not say {figure:?}");
    }
}
