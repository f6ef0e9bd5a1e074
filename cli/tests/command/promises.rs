//! The table of promises is complete, and names only proofs that exist.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../src/test/table.rs"]
mod table;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use larder_conformance::suites;
use serde::Deserialize;

use table::{Proof, Row};

/// The systems whose promises the workspace keeps, and the number of promises of each.
const PROMISES: [(&str, usize); 5] = [("ATH", 10), ("ALQ", 10), ("PK", 13), ("RAVI", 20), ("AKKA", 9)];

/// Promises whose proofs have not been run against a defect yet.
const WITHOUT_DEFECT: [&str; 4] = ["PK-5", "PK-12", "PK-13", "RAVI-20"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn ids() -> Vec<String> {
    PROMISES.iter().flat_map(|(system, last)| (1..=*last).map(move |id| format!("{system}-{id}"))).collect()
}

fn rows() -> Vec<Row> {
    table::rows(&std::fs::read_to_string(root().join("guide/promises.md")).unwrap()).unwrap()
}

/// Returns all Rust sources below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_promise_is_in_the_table_once_and_in_order() {
    let listed: Vec<String> = rows().into_iter().map(|row| row.id).collect();
    assert_eq!(listed, ids());
    for Row { id, promise, proofs } in rows() {
        assert!(promise.len() > 20, "{id} says nothing");
        assert!(proofs.iter().all(|proof| !proof.is_empty()), "{id} has no proof");
    }
}

/// Finds typing errors early. `larder test` checks at its end that every proof has run and passed.
#[test]
fn every_proof_exists() {
    let cases: HashSet<String> = suites::all().into_iter().map(|case| case.name).collect();
    for Row { id, proofs, .. } in rows() {
        for proof in proofs {
            if let Proof::Case { case, .. } = table::proof(&proof) {
                assert!(cases.contains(case), "{id}: the suite has no case `{case}`");
                continue;
            }
            let (file, function) = proof.split_once("::").unwrap();
            let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            assert!(!source.is_empty(), "{id}: the file `{file}` does not exist");
            let named = [format!("fn {function}("), format!("\"{function}\"")];
            assert!(named.iter().any(|name| source.contains(name)), "{id}: `{file}` has no `{function}`");
        }
    }
}

/// A defect of the toolkit in `tests/mutants.toml`.
#[derive(Deserialize)]
struct Defect {
    id: String,
    file: String,
    text: String,
    test: String,
}

/// The faulty stores of the suite that break a promise.
#[derive(Deserialize)]
struct FaultyStores {
    id: String,
    mutants: Vec<String>,
}

/// A test that shows a fault to the check of a promise.
#[derive(Deserialize)]
struct Checked {
    id: String,
    test: String,
}

#[derive(Deserialize)]
struct Mutants {
    defect: Vec<Defect>,
    stores: Vec<FaultyStores>,
    check: Vec<Checked>,
}

fn mutants() -> Mutants {
    toml::from_str(&std::fs::read_to_string(root().join("tests/mutants.toml")).unwrap()).unwrap()
}

/// Returns the promise of a defect, such as `ALQ-3` of `ALQ-3 tools`.
fn promise_of(id: &str) -> &str {
    id.split(' ').next().unwrap_or(id)
}

/// Returns the last part of a test's name.
fn last(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

#[test]
fn every_promise_has_a_defect_that_one_of_its_proofs_finds() {
    let Mutants { defect, stores, check } = mutants();
    let faulty = larder_conformance::mutants::all();
    let cases = suites::all();
    for Row { id, proofs, .. } in rows() {
        let proves = |test: &str| proofs.iter().any(|proof| last(proof) == last(test));
        let defects: Vec<_> = defect.iter().filter(|defect| promise_of(&defect.id) == id).collect();
        for Defect { test, .. } in &defects {
            assert!(proves(test), "{id}: `{test}` is not one of its proofs");
        }
        let clauses: HashSet<&str> =
            cases.iter().filter(|case| proves(&case.name)).map(|case| case.clause).collect();
        let mut found = defects.len() + check.iter().filter(|check| check.id == id).count();
        for name in stores.iter().filter(|stores| stores.id == id).flat_map(|stores| &stores.mutants) {
            let mutant = faulty.iter().find(|mutant| mutant.name == *name);
            let mutant = mutant.unwrap_or_else(|| panic!("{id}: the suite has no mutant `{name}`"));
            let forbidden = id == "RAVI-19" || mutant.clauses.iter().any(|clause| clauses.contains(clause));
            assert!(forbidden, "{id}: no case of its proofs forbids `{name}`");
            found += 1;
        }
        let needs_one = !WITHOUT_DEFECT.contains(&id.as_str());
        assert_eq!(found > 0, needs_one, "{id} has {found} defects in tests/mutants.toml");
    }
    for Checked { id, test } in check {
        let (file, function) = test.split_once("::").unwrap();
        let source = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(source.contains(&format!("fn {function}(")), "{id}: `{file}` has no `{function}`");
    }
}

#[test]
fn the_text_of_every_defect_is_in_its_file_once() {
    let ids: HashSet<String> = ids().into_iter().collect();
    for Defect { id, file, text, .. } in mutants().defect {
        assert!(id.starts_with("invariant ") || ids.contains(promise_of(&id)), "`{id}` is no promise");
        let source = std::fs::read_to_string(root().join(&file)).unwrap();
        let found = source.matches(&text.replace(['«', '»'], "")).count();
        assert_eq!(found, 1, "{id}: {file}");
    }
}

#[test]
fn tests_name_only_existing_promises() {
    let ids: HashSet<String> = ids().into_iter().collect();
    let mut files = Vec::new();
    for layer in ["kernel", "agents", "capabilities", ".", "conformance"] {
        for folder in ["src", "tests"] {
            sources(&root().join(layer).join(folder), &mut files);
        }
    }
    let mut named = 0;
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        for line in source.lines().filter_map(|line| line.trim().strip_prefix("/// Proves: ")) {
            for id in line.split(", ") {
                assert!(ids.contains(id.trim_end_matches('.')), "{}: `{id}` is no promise", file.display());
                named += 1;
            }
        }
    }
    assert!(named > 100, "only {named} names were found");
}
