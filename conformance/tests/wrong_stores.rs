//! The clauses that name a defect catch the store with that defect, and each control passes.
#![allow(clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;

use larder_conformance::mutants::{self, Mutant, Scope};
use larder_conformance::{clauses, suites};
use larder_kernel::Contract;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

/// The minimum number of mutants, in total and per contract.
const ALL_MIN: usize = 60;
const EACH_MIN: usize = 20;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The stores mostly wait for leases and times to live to pass.
    arguments.test_threads.get_or_insert(4 * std::thread::available_parallelism().map_or(1, usize::from));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let runtime = Arc::new(runtime);
    let mut trials: Vec<_> = mutants::all().into_iter().map(|mutant| trial(&runtime, mutant)).collect();
    trials.push(Trial::test("names_are_distinct_and_clauses_bind_the_contract", names_and_clauses));
    trials.push(Trial::test("every_contract_has_mutants_enough", enough));
    trials.push(Trial::test("every_sin_that_the_page_lists_has_its_mutants", listed));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(runtime: &Arc<Runtime>, mutant: Mutant) -> Trial {
    let runtime = Arc::clone(runtime);
    Trial::test(mutant.name.replace('.', "::"), move || {
        let options = mutants::options();
        let judged = runtime.block_on(mutants::evaluate(&mutant, Scope::Own, &options));
        let judged = judged.map_err(|error| Failed::from(format!("{error:?}")))?;
        if judged.is_right() {
            return Ok(());
        }
        Err(Failed::from(format!(
            "{:?}, not noticed by {:?}, but by {:?}: {}",
            judged.verdict, judged.unnoticed_by, judged.also, judged.reason
        )))
    })
}

fn names_and_clauses() -> Result<(), Failed> {
    let all = mutants::all();
    let names: BTreeSet<_> = all.iter().map(|mutant| mutant.name.as_str()).collect();
    if names.len() != all.len() {
        return Err("a name appears twice".into());
    }
    let clauses = clauses();
    // Made once, because making all cases is slow.
    let proved: BTreeSet<_> = suites::all().iter().map(|case| (case.contract, case.clause)).collect();
    for mutant in &all {
        for id in mutant.clauses {
            let clause = clauses.iter().find(|clause| clause.id == *id);
            let binds = clause.is_some_and(|clause| clause.contracts().contains(&mutant.contract));
            if !binds || !proved.contains(&(mutant.contract, *id)) {
                return Err(format!("{}: no case of {} binds its contract", mutant.name, id).into());
            }
        }
    }
    Ok(())
}

fn enough() -> Result<(), Failed> {
    let mut counts: BTreeMap<Contract, usize> = BTreeMap::new();
    for mutant in mutants::all().iter().filter(|mutant| !mutant.is_control()) {
        *counts.entry(mutant.contract).or_default() += 1;
    }
    let few =
        Contract::ALL.iter().copied().any(|contract| counts.get(&contract).copied().unwrap_or(0) < EACH_MIN);
    if few || counts.values().sum::<usize>() < ALL_MIN { Err(format!("{counts:?}").into()) } else { Ok(()) }
}

/// The mutants in the list of the module's documentation exist, and the list has mutants of all six
/// contracts.
fn listed() -> Result<(), Failed> {
    let page = include_str!("../src/mutants.rs");
    let names: BTreeSet<String> = mutants::all().into_iter().map(|mutant| mutant.name).collect();
    let list =
        page.split("accept\n//!\n").nth(1).and_then(|rest| rest.split("\n//!\n").next()).unwrap_or_default();
    let list = list.replace("\n//!   ", " ");
    let mut rows_found = 0;
    for row in list.lines() {
        rows_found += 1;
        let Some((_, names_listed)) = row.trim_start_matches("//! - ").split_once(": ") else {
            return Err(format!("not a defect and its mutants: {row}").into());
        };
        for name in names_listed.split('`').skip(1).step_by(2) {
            let wanted: Vec<String> = match name.contains('.') {
                true => vec![name.to_owned()],
                false => Contract::ALL.iter().map(|contract| format!("{contract}.{name}")).collect(),
            };
            if let Some(missing) = wanted.iter().find(|name| !names.contains(*name)) {
                return Err(format!("the mutant `{missing}` does not exist").into());
            }
        }
    }
    if rows_found < 20 { Err(format!("only {rows_found} rows").into()) } else { Ok(()) }
}
