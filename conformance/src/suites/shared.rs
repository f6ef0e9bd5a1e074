//! Cases of [`Store`](larder_kernel::Store): the clauses that all six contracts share, proved for each of
//! them.

mod cancellation;
mod erasure;
pub(crate) mod methods;
mod names;
mod namespaces;
mod options;
mod outage;
mod probe;
mod secrecy;
mod single;
pub(crate) mod sizes;

use std::future::Future;

pub(crate) use probe::{dump, populate};

use larder_kernel::Contract;

use crate::case::{Case, CaseResult, Level};
use crate::context::Context;

/// Returns the shared cases, once for each contract. `STORE-003` for the ids of a contract and `STORE-010`
/// are proved in the contracts' folders.
#[must_use]
pub fn cases() -> Vec<Case> {
    let each = |contract| of(contract).into_iter().chain(methods::cases(contract));
    Contract::ALL.iter().copied().flat_map(each).chain(sizes::cases()).collect()
}

fn of(contract: Contract) -> Vec<Case> {
    vec![
        each(contract, "STORE-001", "namespaces_do_not_see_each_other", namespaces::isolate),
        each(
            contract,
            "STORE-002",
            "writes_of_one_handle_are_visible_to_another",
            namespaces::share_between_handles,
        ),
        each(contract, "STORE-003", "hostile_namespaces_are_distinct", names::are_distinct)
            .at_level(Level::Hostile)
            .with_many_calls(),
        each(contract, "STORE-003", "a_namespace_does_not_merge_with_an_id", names::do_not_merge_with_ids)
            .at_level(Level::Hostile)
            .with_many_calls(),
        each(contract, "STORE-004", "capabilities_are_constant_and_equal", namespaces::agree_on_capabilities),
        each(contract, "STORE-005", "data_survives_its_handles", namespaces::outlive_handles)
            .needing_durability(),
        each(contract, "STORE-006", "an_erased_namespace_is_empty", erasure::empties),
        each(contract, "STORE-007", "an_erasure_stays_in_its_namespace", erasure::stays_within),
        each(contract, "STORE-008", "erasing_nothing_succeeds", erasure::of_nothing),
        each(contract, "STORE-009", "an_erased_namespace_can_be_used_again", erasure::then_use),
        each(contract, "STORE-009", "an_erased_namespace_remembers_nothing", erasure::remembers_nothing),
        each(contract, "STORE-011", "a_dropped_write_is_complete_or_absent", cancellation::whole_or_absent),
        each(contract, "STORE-011", "a_dropped_sequence_leaves_the_store_usable", cancellation::usable_after),
        each(contract, "STORE-012", "errors_and_debug_show_no_stored_text", secrecy::keeps_canaries),
        each(contract, "STORE-013", "a_refused_call_changes_nothing", outage::refusals_change_nothing),
        each(contract, "STORE-014", "a_lost_connection_is_reestablished", outage::works_again),
        each(
            contract,
            "STORE-015",
            "options_have_their_effect_or_are_refused",
            options::have_their_effect_or_are_refused,
        ),
    ]
}

fn each<F, R>(contract: Contract, clause: &'static str, name: &str, run: F) -> Case
where
    F: Fn(Context, Contract) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = CaseResult> + Send + 'static,
{
    Case::new(contract, clause, name, move |context| run(context, contract))
}
