//! Cases of the contract `tasks`.

mod adding;
mod boards;
mod claims;
pub(crate) mod dump;
mod hostile;
mod leases;
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
    [on_boards(), on_steps(), on_retries(), on_claims(), hostile::cases()].into_iter().flatten().collect()
}

fn on_boards() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-001", boards::a_board_reads_back_with_its_tasks),
        case!(Tasks, "TASK-001", boards::a_board_may_have_no_tasks),
        case!(Tasks, "TASK-001", boards::a_board_of_a_thousand_tasks_reads_back),
        case!(Tasks, "TASK-002", boards::a_board_that_is_there_stays),
        case!(Tasks, "TASK-003", boards::boards_are_separate),
        case!(Tasks, "TASK-004", boards::a_parent_need_not_exist),
        case!(Tasks, "TASK-005", boards::one_of_concurrent_creations_wins),
        case!(Tasks, "TASK-006", adding::added_tasks_follow_in_order),
        case!(Tasks, "TASK-006", adding::retries_are_three_unless_said),
        case!(Tasks, "TASK-007", adding::a_batch_with_an_id_that_is_there_adds_nothing),
        case!(Tasks, "TASK-008", adding::adding_to_an_absent_board_is_not_found),
        case!(Tasks, "TASK-009", adding::concurrent_additions_lose_no_task),
        case!(Tasks, "TASK-009", adding::of_concurrent_additions_of_one_task_one_wins),
        case!(Tasks, "TASK-010", reading::an_absent_board_is_none),
        case!(Tasks, "TASK-011", reading::counts_are_those_of_the_tasks),
        case!(Tasks, "TASK-012", reading::a_task_reads_back_as_it_was_written),
        case!(Tasks, "TASK-012", reading::texts_at_their_limits_read_back),
        case!(Tasks, "TASK-012", reading::an_absent_task_is_none),
        case!(Tasks, "TASK-013", reading::tasks_in_the_statuses_are_listed_in_board_order),
        case!(Tasks, "TASK-014", reading::paging_visits_each_task_once),
        case!(Tasks, "TASK-014", reading::paging_under_changes_visits_what_matches_throughout),
        case!(Tasks, "TASK-015", reading::an_absent_board_lists_nothing),
        case!(Tasks, "TASK-016", boards::boards_are_listed_once_in_order),
        case!(Tasks, "TASK-016", boards::boards_of_one_conversation_are_listed),
        case!(Tasks, "TASK-050", removal::a_removed_board_is_gone_and_others_stay),
        case!(Tasks, "TASK-051", removal::a_board_made_anew_holds_nothing_old),
        case!(Tasks, "TASK-051", removal::tokens_and_revisions_go_on),
    ]
}

fn on_steps() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-020", steps::steps_in_the_table_succeed),
        case!(Tasks, "TASK-021", steps::steps_not_in_the_table_conflict),
        case!(Tasks, "TASK-022", steps::a_step_at_another_revision_conflicts),
        case!(Tasks, "TASK-022", steps::a_step_at_the_revision_succeeds),
        case!(Tasks, "TASK-023", steps::each_change_gives_a_greater_revision),
        case!(Tasks, "TASK-024", steps::one_of_concurrent_steps_wins),
        case!(Tasks, "TASK-025", leases::a_task_under_a_lease_moves_only_with_its_token),
        case!(Tasks, "TASK-026", leases::a_step_out_of_in_progress_ends_the_lease),
        case!(Tasks, "TASK-027", steps::a_result_is_stored_and_stays),
        case!(Tasks, "TASK-028", steps::a_step_of_what_is_not_there_is_not_found),
    ]
}

fn on_retries() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-030", retries::a_retry_counts_and_plans_again),
        case!(Tasks, "TASK-030", retries::a_retry_ends_the_lease),
        case!(Tasks, "TASK-031", retries::a_task_without_retries_left_is_exhausted),
        case!(Tasks, "TASK-032", retries::only_begun_and_failed_tasks_are_retried),
        case!(Tasks, "TASK-033", retries::concurrent_increments_stay_within_the_limit),
        case!(Tasks, "TASK-034", retries::a_retry_under_a_lease_needs_the_token),
        case!(Tasks, "TASK-035", retries::a_forced_retry_plans_any_task_afresh),
        case!(Tasks, "TASK-036", retries::forcing_what_is_not_there_is_not_found),
        case!(Tasks, "TASK-037", settling::exactly_the_tasks_in_progress_are_settled),
        case!(Tasks, "TASK-038", settling::other_conversations_stay_and_settling_twice_is_once),
        case!(Tasks, "TASK-039", settling::settled_tasks_lose_their_lease),
    ]
}

fn on_claims() -> Vec<Case> {
    vec![
        case!(Tasks, "TASK-040", claims::the_first_free_task_is_claimed),
        case!(Tasks, "TASK-040", claims::a_claim_says_when_the_lease_ends),
        case!(Tasks, "TASK-040", claims::a_passed_lease_comes_before_later_planned_tasks),
        case!(Tasks, "TASK-041", claims::concurrent_claims_share_the_tasks),
        case!(Tasks, "TASK-041", claims::a_passed_lease_goes_to_one_worker),
        case!(Tasks, "TASK-042", claims::each_claim_has_a_greater_token),
        case!(Tasks, "TASK-043", claims::a_passed_lease_is_claimed_again),
        case!(Tasks, "TASK-044", claims::running_tasks_are_not_claimed),
        case!(Tasks, "TASK-045", claims::nothing_free_gives_none),
        case!(Tasks, "TASK-046", leases::a_passed_lease_still_obeys_its_token),
        case!(Tasks, "TASK-046", leases::claims_of_other_tasks_leave_a_passed_lease),
        case!(Tasks, "TASK-046", leases::a_passed_lease_can_be_renewed),
        case!(Tasks, "TASK-047", leases::a_renewed_lease_ends_as_far_ahead_as_asked),
        case!(Tasks, "TASK-047", leases::a_renewed_lease_keeps_others_away),
        case!(Tasks, "TASK-048", leases::a_stale_token_renews_nothing),
        case!(Tasks, "TASK-048", leases::renewing_what_is_not_there_is_not_found),
    ]
}
