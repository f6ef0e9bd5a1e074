//! Every clause has a case and every case a clause, and the written contract is current.

use std::collections::HashSet;

use larder_conformance::{clauses, contract_text, suites};
use larder_kernel::Contract;

#[test]
fn every_clause_has_a_case_for_each_contract_that_it_binds() {
    let proved: HashSet<(Contract, &str)> =
        suites::all().iter().map(|case| (case.contract, case.clause)).collect();
    let missing: Vec<_> = clauses()
        .into_iter()
        .flat_map(|clause| clause.contracts().into_iter().map(move |contract| (contract, clause.id.clone())))
        .filter(|(contract, id)| !proved.contains(&(*contract, id.as_str())))
        .collect();
    assert!(missing.is_empty(), "clauses without a case: {missing:?}");
}

#[test]
fn every_case_proves_a_clause_of_its_contract() {
    let bound: HashSet<(Contract, String)> = clauses()
        .into_iter()
        .flat_map(|clause| clause.contracts().into_iter().map(move |contract| (contract, clause.id.clone())))
        .collect();
    let cases = suites::all();
    let stray: Vec<_> =
        cases.iter().filter(|case| !bound.contains(&(case.contract, case.clause.to_owned()))).collect();
    assert!(stray.is_empty(), "cases without a clause: {stray:?}");
    let names: HashSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "a name appears twice");
}

/// A backend of one contract gets as thorough a test as one of six. `CONTRACT.md` has the exact figures.
#[test]
fn every_contract_is_tested_with_invalid_input() {
    for &contract in Contract::ALL {
        let count = larder_conformance::refusals::count(contract);
        assert!(count >= 400, "{contract}: {count} bad calls");
    }
}

#[test]
fn the_written_contract_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../CONTRACT.md");
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == contract_text(), "CONTRACT.md is not current: cargo larder contract > CONTRACT.md");
}
