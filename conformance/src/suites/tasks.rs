//! Cases of the contract `tasks`.

mod adding;
mod boards;
mod claims;
pub(crate) mod dump;
mod fields;
mod generation;
mod hostile;
mod leases;
pub(crate) mod many;
mod places;
mod reading;
mod removal;
mod retries;
mod settling;
mod steps;
mod support;

use crate::case::{Case, case};

/// Returns all cases of the contract.
#[must_use]
pub fn cases() -> Vec<Case> {
    let all = [on_boards(), on_steps(), on_retries(), on_claims(), places::cases(), hostile::cases()];
    all.into_iter().flatten().collect()
}

fn on_boards() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-001", boards::a_board_reads_back_with_its_tasks),
        case!(Tasks, "TASK-001", boards::a_board_may_have_no_tasks),
        case!(Tasks, "TASK-001", boards::a_board_of_a_thousand_tasks_reads_back),
        case!(Tasks, "TASK-002", boards::an_existing_board_does_not_change),
        case!(Tasks, "TASK-003", boards::boards_are_separate),
        case!(Tasks, "TASK-004", boards::a_parent_need_not_exist),
        case!(Tasks, "TASK-005", boards::one_of_concurrent_creations_succeeds),
        case!(Tasks, "TASK-006", adding::added_tasks_follow_in_order),
        case!(Tasks, "TASK-006", adding::retries_are_three_by_default),
        case!(Tasks, "TASK-007", adding::a_batch_with_an_existing_id_adds_nothing),
        case!(Tasks, "TASK-008", adding::adding_to_an_absent_board_is_not_found),
        case!(Tasks, "TASK-009", adding::concurrent_additions_lose_no_task),
        case!(Tasks, "TASK-009", adding::of_concurrent_additions_of_one_task_one_succeeds),
        case!(Tasks, "TASK-010", reading::an_absent_board_is_none),
        case!(Tasks, "TASK-011", reading::counts_are_those_of_the_tasks),
        case!(Tasks, "TASK-012", reading::a_task_reads_back_as_it_was_written),
        case!(Tasks, "TASK-001", fields::every_label_reads_back),
        case!(Tasks, "TASK-012", fields::every_field_reads_back_by_every_method),
        case!(Tasks, "TASK-027", fields::every_result_reads_back),
        case!(Tasks, "TASK-012", reading::texts_at_their_limits_read_back),
        case!(Tasks, "TASK-012", reading::an_absent_task_is_none),
        case!(Tasks, "TASK-013", reading::tasks_in_the_statuses_are_listed_in_board_order),
        case!(Tasks, "TASK-014", reading::paging_returns_each_task_once),
        case!(Tasks, "TASK-014", reading::paging_during_changes_returns_matching_tasks_once),
        case!(Tasks, "TASK-015", reading::an_absent_board_lists_nothing),
        case!(Tasks, "TASK-016", boards::boards_are_listed_once_in_order),
        case!(Tasks, "TASK-016", boards::boards_of_one_conversation_are_listed),
        case!(Tasks, "TASK-050", removal::a_deleted_board_no_longer_exists_and_others_remain),
        case!(Tasks, "TASK-051", removal::a_board_created_again_is_empty),
        case!(Tasks, "TASK-051", removal::tokens_and_revisions_continue),
        case!(Tasks, "TASK-052", generation::every_number_of_a_board_names_its_generation),
        case!(Tasks, "TASK-053", generation::a_page_after_a_position_of_another_generation_conflicts),
        case!(Tasks, "TASK-054", generation::a_step_with_a_number_of_another_generation_conflicts),
    ]
}

fn on_steps() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-020", steps::transitions_in_the_table_succeed),
        case!(Tasks, "TASK-021", steps::transitions_outside_the_table_conflict),
        case!(Tasks, "TASK-022", steps::a_transition_at_another_revision_conflicts),
        case!(Tasks, "TASK-022", steps::a_transition_at_the_revision_succeeds),
        case!(Tasks, "TASK-023", steps::each_change_gives_a_greater_revision),
        case!(Tasks, "TASK-024", steps::one_of_concurrent_transitions_succeeds),
        case!(Tasks, "TASK-025", leases::a_task_under_a_lease_moves_only_with_its_token),
        case!(Tasks, "TASK-026", leases::a_transition_out_of_in_progress_ends_the_lease),
        case!(Tasks, "TASK-027", steps::a_result_is_stored_and_kept),
        case!(Tasks, "TASK-028", steps::a_transition_of_a_missing_task_is_not_found),
    ]
}

fn on_retries() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-030", retries::a_retry_is_counted_and_plans_the_task_again),
        case!(Tasks, "TASK-030", retries::a_retry_ends_the_lease),
        case!(Tasks, "TASK-031", retries::a_task_without_retries_left_is_exhausted),
        case!(Tasks, "TASK-032", retries::only_begun_and_failed_tasks_are_retried),
        case!(Tasks, "TASK-033", retries::concurrent_increments_stay_within_the_limit),
        case!(Tasks, "TASK-034", retries::a_retry_under_a_lease_needs_the_token),
        case!(Tasks, "TASK-035", retries::a_forced_retry_resets_any_task),
        case!(Tasks, "TASK-036", retries::forcing_a_missing_task_is_not_found),
        case!(Tasks, "TASK-037", settling::exactly_the_tasks_in_progress_are_settled),
        case!(Tasks, "TASK-038", settling::other_conversations_do_not_change_and_settling_is_idempotent),
        case!(Tasks, "TASK-039", settling::settled_tasks_lose_their_lease),
    ]
}

fn on_claims() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-040", claims::the_first_free_task_is_claimed),
        case!(Tasks, "TASK-040", claims::a_claim_returns_the_end_of_the_lease),
        case!(Tasks, "TASK-040", claims::a_task_with_an_expired_lease_precedes_later_planned_tasks),
        case!(Tasks, "TASK-041", claims::concurrent_claims_share_the_tasks),
        case!(Tasks, "TASK-041", claims::a_task_with_an_expired_lease_goes_to_one_worker),
        case!(Tasks, "TASK-042", claims::each_claim_has_a_greater_token),
        case!(Tasks, "TASK-043", claims::a_task_with_an_expired_lease_is_claimed_again),
        case!(Tasks, "TASK-044", claims::running_tasks_are_not_claimed),
        case!(Tasks, "TASK-045", claims::a_board_without_a_free_task_returns_none),
        case!(Tasks, "TASK-046", leases::an_expired_lease_still_accepts_its_token),
        case!(Tasks, "TASK-046", leases::claims_of_other_tasks_keep_an_expired_lease),
        case!(Tasks, "TASK-046", leases::an_expired_lease_can_be_renewed),
        case!(Tasks, "TASK-040", leases::leases_of_minutes_to_years_end_after_their_duration),
        case!(Tasks, "TASK-047", leases::renewals_of_minutes_to_years_end_after_their_duration),
        case!(Tasks, "TASK-047", leases::a_renewed_lease_ends_after_the_requested_duration),
        case!(Tasks, "TASK-047", leases::a_renewed_lease_blocks_other_claims),
        case!(Tasks, "TASK-048", leases::a_stale_token_renews_nothing),
        case!(Tasks, "TASK-048", leases::renewing_a_missing_task_is_not_found),
    ]
}
