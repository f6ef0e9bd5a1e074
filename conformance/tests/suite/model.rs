//! The level `model` distinguishes faulty stores from correct ones, and says how to reproduce a failure.

// The whole target is a test, including its helpers.
#![allow(clippy::panic, clippy::print_stderr, clippy::unwrap_used)]

use std::sync::Mutex;

use larder_conformance::mutants::{self, Mutant};
use larder_conformance::{Counterexample, Effort, Level, LevelReport, Verdict, model, runner};
use larder_kernel::{Capabilities, Capability, Contract, Durability};

/// Faulty stores that run concurrently.
const AT_ONCE: usize = 3;
/// The maximum number of operations in a shrunk script.
const OPERATIONS_MAX: usize = 7;

/// The defects that no sequence of calls on one namespace shows. They need a race, a dropped future, an
/// expiry, another namespace, an erasure, a signed URL or an open stream, or they are in a store's
/// declarations or the generations of its positions.
const UNSEEN: &[&str] = &[
    "namespaces_are_ignored",
    "a_namespace_joins_the_id_behind_a_colon",
    "namespaces_are_case_folded",
    "namespaces_are_cut_at_40_characters",
    "namespaces_lose_what_is_not_ascii",
    "namespaces_lose_outer_spaces",
    "positions_name_no_generation",
    "the_generation_of_a_position_is_ignored",
    "revisions_name_no_generation",
    "the_generation_of_a_revision_is_ignored",
    "numbers_name_no_generation",
    "the_generation_of_a_number_is_ignored",
    "capabilities_change",
    "durability_is_declared_and_not_kept",
    "an_erasure_takes_namespaces_that_begin_alike",
    "a_dropped_write_is_partly_stored",
    "errors_quote_ids",
    "the_debug_form_shows_ids",
    "a_subscription_sleeps_over_an_erasure",
    "a_watch_sleeps_over_an_erasure",
    "every_subscription_ends_with_an_erasure",
    "every_watch_ends_with_an_erasure",
    "clearing_a_run_reaches_other_namespaces",
    "deleting_reaches_other_namespaces",
];

async fn pressed(mutant: &Mutant, effort: &Effort) -> LevelReport {
    let harness = mutant.harness();
    let probed = runner::probe(&*harness, effort.timeout).await.unwrap();
    model::run_contract(&harness, &probed, mutant.contract, effort).await.unwrap()
}

/// Runs several faulty stores concurrently, because each mostly waits for its clock.
fn all_pressed(mutants: Vec<Mutant>, effort: &Effort) -> Vec<(Mutant, LevelReport)> {
    let left = Mutex::new(mutants.into_iter());
    let next = || left.lock().unwrap().next();
    let press = || {
        let mutants = std::iter::from_fn(next);
        let pressed = mutants.map(|mutant| {
            let report = runtime().block_on(pressed(&mutant, effort));
            (mutant, report)
        });
        pressed.collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let pressing: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(press)).collect();
        pressing.into_iter().flat_map(|pressing| pressing.join().unwrap()).collect()
    })
}

fn operations(found: &Counterexample) -> usize {
    let words = found.script.strip_prefix("// ").unwrap();
    words.split(' ').next().unwrap().parse().unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs the level on every mutant of a contract that it can detect, and on the control.
fn assert_sees(contract: Contract, unseen: &[&str]) {
    let effort = Effort { per_mille: 50, ..Effort::default() };
    let mut wrong = Vec::new();
    let named = |mutant: &Mutant, names: &[&str]| {
        names.iter().any(|name| mutant.name == format!("{contract}.{name}"))
    };
    let seen = mutants::all()
        .into_iter()
        .filter(|mutant| mutant.contract == contract && !mutant.is_narrow())
        .filter(|mutant| !named(mutant, UNSEEN) && !named(mutant, unseen));
    let mut caught = 0;
    for (mutant, report) in all_pressed(seen.collect(), &effort) {
        let name = &mutant.name;
        match (mutant.is_control(), report.counterexamples.first()) {
            (true, None) if report.trouble.is_none() => {}
            (false, Some(found)) if operations(found) <= OPERATIONS_MAX => {
                caught += 1;
                let own = mutant.clauses.contains(&found.clause);
                eprintln!("{name}: {} ({own}) in {} operations", found.clause, operations(found));
            }
            (false, Some(found)) => wrong.push(format!("{name} is not shrunk: {}", found.script)),
            (true, Some(found)) => wrong.push(format!("{name}: {}\n{}", found.finding, found.script)),
            (_, None) => wrong.push(format!("{name} is not seen: {report:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(caught >= 3, "{caught} wrong stores of {contract} are seen");
}

#[test]
fn wrong_conversations_are_seen() {
    let of_expiry_of_races_and_of_many_messages = [
        "use_does_not_prolong_life",
        "any_use_prolongs_life",
        "numbers_are_taken_before_the_commit",
        "the_search_for_matches_ends_after_1000_messages",
    ];
    assert_sees(Contract::History, &of_expiry_of_races_and_of_many_messages);
}

#[test]
fn wrong_documents_are_seen() {
    let at_the_edge_of_tolerance_or_among_many =
        ["the_score_floor_excludes_itself", "a_search_returns_nine_of_ten"];
    assert_sees(Contract::Vectors, &at_the_edge_of_tolerance_or_among_many);
}

#[test]
fn wrong_graphs_are_seen() {
    let of_cypher_of_limits_and_of_absent_entities = [
        "cypher_is_declared_but_missing",
        "cypher_is_there_but_undeclared",
        "a_merge_ignores_the_limit",
        "a_merge_of_a_relationship_ignores_the_limit",
        "missing_stored_entities_leave_no_gap",
        "missing_stored_relationships_leave_no_gap",
    ];
    assert_sees(Contract::Graph, &of_cypher_of_limits_and_of_absent_entities);
}

#[test]
fn wrong_files_are_seen() {
    let signed_or_beyond_what_every_store_keeps = [
        "presign_ignores_the_method",
        "presign_signs_for_an_hour_always",
        "signed_writes_are_undeclared_but_given",
        "signed_reads_are_declared_but_unsupported",
        "a_locator_names_another_key",
        "long_keys_are_undeclared_but_kept",
        "long_keys_are_refused_once_they_are_written",
        "reading_a_long_key_is_unsupported",
    ];
    assert_sees(Contract::Blobs, &signed_or_beyond_what_every_store_keeps);
}

#[test]
fn wrong_boards_are_seen() {
    assert_sees(Contract::Tasks, &[]);
}

#[test]
fn wrong_key_values_are_seen() {
    let of_more_deletions_than_are_remembered = ["a_watch_that_looks_late_is_refused"];
    assert_sees(Contract::KeyValue, &of_more_deletions_than_are_remembered);
}

#[test]
fn the_same_seed_finds_the_same_and_replays_it_first() {
    let mutant = mutants::all().into_iter().find(|mutant| mutant.name == "key_value.creating_overwrites");
    let mutant = mutant.unwrap();
    let find = |seed| {
        let effort = Effort { seed, per_mille: 25, ..Effort::default() };
        runtime().block_on(pressed(&mutant, &effort)).counterexamples.remove(0)
    };
    let found = find(11);
    let again = find(found.seed);
    assert_eq!((again.seed, &again.script), (found.seed, &found.script));
    assert!(found.script.contains("#[tokio::test]"), "{}", found.script);
    assert!(found.script.contains("ErrorKind::Conflict"), "{}", found.script);
}

#[test]
fn too_few_operations_prove_nothing() {
    let control = mutants::all().into_iter().find(|mutant| mutant.is_control()).unwrap();
    let effort = Effort { per_mille: 1, ..Effort::default() };
    let report = runtime().block_on(pressed(&control, &effort));
    assert_eq!((report.level, report.verdict()), (Level::Model, Verdict::NotProven));
    assert!(report.executed >= 1_000, "{report:?}");
}

#[test]
fn requirements_follow_from_the_declared_capabilities() {
    let declared = Capabilities::new(Durability::None);
    assert_eq!(model::required(&declared, false), 1_000_000);
    assert_eq!(model::required(&declared, true), 10_000_000);
    let shared = declared.with(Capability::MultiProcess);
    assert_eq!(model::required(&shared, false), 100_000);
    assert_eq!(model::required(&Capabilities::new(Durability::Process), false), 100_000);
}
