//! Cases of the contract `history`.

mod append;
mod backlog;
mod clear;
mod concurrent;
mod condition;
pub(crate) mod dump;
mod erased;
mod fence;
mod fields;
mod fork;
mod generation;
mod hostile;
mod idempotency;
mod list;
pub(crate) mod many;
mod matching;
mod pages;
mod places;
mod read;
mod remove;
mod remove_once;
mod replace;
mod subscribe;
mod support;
mod ttl;
mod ttl_emptied;
mod update;
mod update_once;

use crate::case::{Case, Level, case};
pub(crate) use support::all;

/// Returns all cases of the contract.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        appending(),
        conditions(),
        fences(),
        reading(),
        paging(),
        matching(),
        clearing(),
        removing(),
        updating(),
        forking(),
        replacing(),
        listing(),
        living(),
        subscribing(),
        places::cases(),
        hostile_ids(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn appending() -> Vec<Case> {
    vec![
        case!(History, "HIST-001", append::messages_read_back_equal_in_every_field),
        case!(History, "HIST-001", append::text_is_kept_byte_for_byte),
        case!(History, "HIST-001", append::the_largest_batch_is_stored_completely_and_in_order),
        case!(History, "HIST-001", fields::every_field_reads_back_by_every_method),
        case!(History, "HIST-040", fields::a_fork_keeps_every_field),
        case!(History, "HIST-050", fields::a_replacement_keeps_every_field),
        case!(History, "HIST-081", fields::events_carry_every_field),
        case!(History, "HIST-002", append::a_batch_gets_contiguous_numbers_and_returns_first_and_last),
        case!(History, "HIST-003", append::a_batch_with_one_invalid_message_stores_nothing),
        case!(History, "HIST-003", concurrent::a_reader_never_sees_part_of_a_batch),
        case!(History, "HIST-004", concurrent::concurrent_batches_neither_interleave_nor_get_lost),
        case!(History, "HIST-005", concurrent::concurrent_writers_get_distinct_numbers),
        case!(History, "HIST-005", append::numbers_only_increase_across_all_operations),
        case!(History, "HIST-006", append::the_first_message_of_each_thread_has_number_1),
        case!(History, "HIST-006", append::a_thread_that_was_only_read_begins_at_1),
        case!(History, "HIST-007", idempotency::repeating_a_key_returns_the_first_result_and_writes_nothing),
        case!(History, "HIST-007", idempotency::a_new_timestamp_is_still_the_same_append),
        case!(History, "HIST-007", idempotency::a_key_works_with_a_time_to_live),
        case!(History, "HIST-008", idempotency::a_key_with_other_messages_is_a_conflict),
        case!(History, "HIST-008", idempotency::after_a_conflict_the_first_append_can_still_be_repeated),
        case!(History, "HIST-009", idempotency::a_key_on_another_thread_is_another_append),
        case!(History, "HIST-009", idempotency::a_fork_does_not_copy_the_keys),
        case!(History, "HIST-010", idempotency::a_key_remains_in_effect_after_a_clear),
        case!(History, "HIST-010", idempotency::a_key_remains_in_effect_after_its_messages_are_removed),
        case!(History, "HIST-011", idempotency::of_concurrent_appends_with_one_key_one_writes),
        case!(History, "HIST-012", append::order_ignores_created_at),
        case!(History, "HIST-014", append::a_message_of_the_maximum_size_is_stored),
        case!(History, "HIST-014", append::a_batch_of_the_maximum_size_is_stored),
        case!(History, "HIST-014", append::text_arguments_and_results_may_contain_any_character),
    ]
}

fn conditions() -> Vec<Case> {
    vec![
        case!(History, "HIST-106", condition::an_append_on_the_last_number_is_written),
        case!(History, "HIST-106", condition::an_append_on_another_number_writes_nothing),
        case!(History, "HIST-107", condition::the_conflict_names_the_last_number),
        case!(History, "HIST-108", condition::every_change_makes_an_earlier_number_conflict),
        case!(History, "HIST-108", condition::reads_and_refused_calls_are_no_change),
        case!(History, "HIST-109", condition::of_concurrent_appends_on_one_number_one_succeeds),
        case!(History, "HIST-110", condition::a_repetition_returns_the_first_result),
        case!(History, "HIST-111", condition::another_generation_conflicts),
        case!(History, "HIST-112", condition::an_expiry_counts_from_its_instant),
    ]
}

fn fences() -> Vec<Case> {
    vec![
        case!(History, "HIST-128", fence::a_lower_token_is_refused),
        case!(History, "HIST-128", fence::tokens_of_any_board_compare_by_their_numbers),
        case!(History, "HIST-129", fence::a_fenced_thread_refuses_writes_without_a_token),
        case!(History, "HIST-130", fence::every_write_is_bound),
        case!(History, "HIST-131", fence::the_conflict_names_the_greatest_token),
        case!(History, "HIST-132", fence::a_write_that_fails_does_not_raise_the_fence),
        case!(History, "HIST-133", fence::every_write_that_succeeds_raises_the_fence),
        case!(History, "HIST-133", fence::a_write_that_finds_nothing_raises_the_fence),
        case!(History, "HIST-134", fence::only_an_erasure_forgets_the_fence),
        case!(History, "HIST-135", fence::a_fork_has_its_own_fence),
        case!(History, "HIST-136", fence::a_repetition_needs_no_token),
        case!(History, "HIST-137", fence::of_concurrent_writers_none_follows_a_greater_token),
    ]
}

fn reading() -> Vec<Case> {
    vec![
        case!(History, "HIST-020", read::a_thread_without_messages_reads_as_empty),
        case!(History, "HIST-021", read::messages_are_returned_oldest_first),
        case!(History, "HIST-022", read::an_offset_counts_messages_and_not_numbers),
        case!(History, "HIST-022", read::an_offset_past_the_end_returns_nothing),
        case!(History, "HIST-023", read::a_window_of_0_is_empty),
        case!(History, "HIST-024", read::a_window_ends_at_the_limit_or_at_the_end_of_the_thread),
        case!(History, "HIST-024", read::long_windows_are_not_cut_short),
        case!(History, "HIST-025", read::the_tail_returns_the_newest_messages_oldest_first),
        case!(History, "HIST-026", read::before_considers_only_smaller_numbers),
        case!(History, "HIST-026", read::a_reader_can_page_backwards),
        case!(History, "HIST-027", read::a_tail_of_0_is_empty_and_a_long_one_is_complete),
        case!(History, "HIST-028", read::a_page_contains_only_greater_numbers),
        case!(History, "HIST-028", read::the_page_after_a_message_excludes_it),
        case!(History, "HIST-029", read::a_paging_reader_receives_each_message_once),
        case!(History, "HIST-030", read::a_page_of_0_is_empty),
    ]
}

fn paging() -> Vec<Case> {
    vec![
        case!(History, "HIST-160", pages::a_page_ends_before_the_message_that_exceeds_16_mib),
        case!(History, "HIST-161", pages::more_is_true_only_if_messages_were_left_out),
        case!(History, "HIST-162", pages::forward_reads_leave_out_the_newest),
        case!(History, "HIST-163", pages::the_tail_leaves_out_the_oldest),
        case!(History, "HIST-164", pages::dropped_messages_do_not_count),
        case!(History, "HIST-165", pages::a_reader_that_continues_gets_every_message_once),
        case!(History, "HIST-166", pages::every_read_returns_the_last_number),
        case!(History, "HIST-166", pages::messages_and_last_number_are_of_one_instant),
        case!(History, "HIST-167", pages::a_read_counts_an_expiry),
        case!(History, "HIST-168", pages::an_append_on_what_was_read_succeeds_once),
    ]
}

fn matching() -> Vec<Case> {
    vec![
        case!(History, "HIST-034", matching::cleared_messages_pass_no_filter),
        case!(History, "HIST-090", matching::the_limit_counts_messages_that_pass_the_filter),
        case!(History, "HIST-090", matching::matching_messages_are_found_however_old),
        case!(History, "HIST-091", matching::include_and_exclude_selectors_combine),
        case!(History, "HIST-091", matching::a_filter_of_the_maximum_size_is_accepted),
        case!(History, "HIST-092", matching::a_role_matches_every_agent_in_that_role),
        case!(History, "HIST-093", matching::a_message_without_an_author_belongs_to_the_threads_agent),
        case!(History, "HIST-094", matching::authors_and_roles_match_byte_by_byte).at_level(Level::Hostile),
        case!(History, "HIST-095", matching::before_considers_only_smaller_numbers_that_pass),
        case!(History, "HIST-096", matching::an_empty_filter_passes_everything),
        case!(History, "HIST-097", matching::forks_and_replacements_keep_their_authors),
    ]
}

fn clearing() -> Vec<Case> {
    vec![
        case!(History, "HIST-031", clear::counts_follow_every_write),
        case!(History, "HIST-032", clear::bytes_is_the_sum_of_message_sizes),
        case!(History, "HIST-033", clear::last_is_the_greatest_number_assigned_and_survives_a_clear),
        case!(History, "HIST-034", clear::a_clear_returns_the_count_and_removes_everything),
        case!(History, "HIST-034", clear::a_long_thread_is_cleared_completely),
        case!(History, "HIST-035", clear::clearing_an_empty_thread_returns_0_and_creates_no_event),
        case!(History, "HIST-036", clear::a_clear_does_not_change_other_threads),
        case!(History, "HIST-037", clear::numbers_continue_after_a_clear),
        case!(History, "HIST-038", clear::exactly_the_messages_of_the_run_are_removed),
        case!(History, "HIST-038", clear::a_run_is_cleared_from_replacements_and_forks_too),
        case!(History, "HIST-039", clear::clearing_a_missing_run_returns_0_and_creates_no_event),
    ]
}

fn removing() -> Vec<Case> {
    vec![
        case!(History, "HIST-051", remove::a_removal_after_seen_makes_a_replacement_conflict),
        case!(History, "HIST-071", remove::removing_the_last_message_removes_the_time_to_live),
        case!(History, "HIST-113", remove::a_removal_by_number_removes_exactly_these_messages),
        case!(History, "HIST-114", remove::a_rewind_removes_everything_after_its_position),
        case!(History, "HIST-114", remove::a_long_thread_is_rewound_completely),
        case!(History, "HIST-115", remove::a_pop_removes_the_newest_messages),
        case!(History, "HIST-116", remove::concurrent_pops_return_each_message_once),
        case!(History, "HIST-117", remove::the_rest_of_the_thread_follows),
        case!(History, "HIST-118", remove::a_removal_is_an_event_without_text),
        case!(History, "HIST-119", remove::a_removal_of_nothing_creates_no_event),
        case!(History, "HIST-120", remove_once::a_removal_may_require_the_last_number),
        case!(History, "HIST-121", remove_once::a_repeated_removal_removes_no_more),
        case!(History, "HIST-122", remove_once::a_key_with_another_removal_conflicts),
        case!(History, "HIST-123", remove_once::a_repeated_pop_returns_its_messages_again),
        case!(History, "HIST-124", remove_once::a_clear_ends_what_a_pop_keeps),
        case!(History, "HIST-125", remove_once::a_repeated_removal_by_number_returns_no_messages),
        case!(History, "HIST-126", remove::messages_that_are_too_large_together_are_refused),
        case!(History, "HIST-127", remove::a_lost_position_conflicts),
    ]
}

fn updating() -> Vec<Case> {
    vec![
        case!(History, "HIST-051", update::an_update_after_seen_makes_a_replacement_conflict),
        case!(History, "HIST-085", update::the_backlog_has_no_update_of_a_missing_message),
        case!(History, "HIST-140", update::an_update_replaces_the_message_under_its_number),
        case!(History, "HIST-140", fields::an_update_keeps_every_field),
        case!(History, "HIST-141", update::an_update_of_another_revision_changes_nothing),
        case!(History, "HIST-142", update::every_read_returns_the_revision),
        case!(History, "HIST-143", update::an_update_takes_a_number),
        case!(History, "HIST-144", update::of_concurrent_updates_one_succeeds),
        case!(History, "HIST-145", update::counts_filters_and_runs_follow),
        case!(History, "HIST-146", update::an_update_is_an_event_with_the_message),
        case!(History, "HIST-147", update::no_reader_receives_the_earlier_content),
        case!(History, "HIST-148", update::a_number_without_a_message_is_not_found),
        case!(History, "HIST-149", update_once::an_update_may_require_the_last_number),
        case!(History, "HIST-150", update_once::a_repeated_update_changes_nothing),
        case!(History, "HIST-151", update_once::a_key_with_another_update_conflicts),
        case!(History, "HIST-152", update_once::an_update_that_names_another_generation_conflicts),
        case!(History, "HIST-153", update_once::the_conflict_names_the_revision),
        case!(History, "HIST-154", update::an_update_does_not_change_the_time_to_live),
    ]
}

fn forking() -> Vec<Case> {
    vec![
        case!(History, "HIST-040", fork::a_fork_contains_the_source_equal_and_in_order),
        case!(History, "HIST-040", fork::a_fork_ends_at_up_to),
        case!(History, "HIST-040", fork::a_long_thread_is_forked_completely),
        case!(History, "HIST-041", fork::a_target_with_messages_is_refused),
        case!(History, "HIST-041", fork::a_cleared_thread_can_be_a_target),
        case!(History, "HIST-042", fork::an_empty_source_is_not_found_and_creates_nothing),
        case!(History, "HIST-043", fork::a_fork_and_its_source_are_independent),
        case!(History, "HIST-043", fork::a_fork_survives_the_removal_of_its_source),
        case!(History, "HIST-044", fork::a_fork_is_numbered_by_its_target),
        case!(History, "HIST-045", fork::of_concurrent_forks_one_succeeds),
    ]
}

fn replacing() -> Vec<Case> {
    vec![
        case!(History, "HIST-050", replace::the_replacement_becomes_the_beginning),
        case!(History, "HIST-050", replace::everything_up_to_the_number_is_removed),
        case!(History, "HIST-051", replace::a_removal_after_seen_is_a_conflict),
        case!(History, "HIST-051", replace::a_removal_before_seen_does_not_conflict),
        case!(History, "HIST-052", replace::an_append_after_seen_does_not_conflict),
        case!(History, "HIST-053", replace::of_concurrent_replacements_one_succeeds),
        case!(History, "HIST-054", replace::a_longer_replacement_reaches_below_1),
        case!(History, "HIST-054", replace::the_longest_replacement_is_stored_completely),
        case!(History, "HIST-055", replace::an_empty_replacement_only_removes),
        case!(History, "HIST-056", replace::a_number_beyond_the_last_is_a_conflict),
        case!(History, "HIST-057", replace::an_empty_thread_accepts_a_replacement_at_0),
    ]
}

fn listing() -> Vec<Case> {
    vec![
        case!(History, "HIST-060", list::threads_are_listed_in_byte_order_once_each),
        case!(History, "HIST-061", list::pages_of_any_length_return_each_thread_once),
        case!(History, "HIST-061", list::a_page_may_begin_anywhere),
        case!(History, "HIST-061", list::threads_that_stay_are_listed_once_during_changes),
        case!(History, "HIST-062", list::an_agent_lists_its_own_threads_only),
        case!(History, "HIST-062", list::an_agents_page_may_begin_at_another_agents_thread),
        case!(History, "HIST-063", list::a_thread_without_messages_is_not_listed),
        case!(History, "HIST-064", list::listed_counts_are_those_of_thread_info),
    ]
}

fn living() -> Vec<Case> {
    vec![
        case!(History, "HIST-013", ttl::an_append_sets_the_time_to_live_of_the_whole_thread),
        case!(History, "HIST-013", ttl::the_time_to_live_of_an_append_replaces_the_earlier_one),
        case!(History, "HIST-063", ttl::an_expired_thread_is_not_listed),
        case!(History, "HIST-065", ttl::an_expired_thread_reads_as_empty),
        case!(History, "HIST-065", ttl::an_expired_thread_is_empty_to_writers),
        case!(History, "HIST-066", ttl::an_append_restarts_the_time_to_live),
        case!(History, "HIST-066", ttl::get_messages_restarts_the_time_to_live),
        case!(History, "HIST-066", ttl::tail_restarts_the_time_to_live),
        case!(History, "HIST-066", ttl::tail_matching_restarts_the_time_to_live),
        case!(History, "HIST-066", ttl::page_after_restarts_the_time_to_live),
        case!(History, "HIST-067", ttl::use_does_not_extend_a_fixed_time_to_live),
        case!(History, "HIST-067", ttl::use_does_not_extend_a_fixed_time_to_live_of_an_append),
        case!(History, "HIST-068", ttl::a_thread_without_a_time_to_live_remains),
        case!(History, "HIST-068", ttl::a_longer_time_to_live_replaces_a_shorter_one),
        case!(History, "HIST-069", ttl::a_thread_without_messages_refuses_a_time_to_live),
        case!(History, "HIST-070", ttl::numbers_continue_after_an_expiry),
        case!(History, "HIST-070", ttl::a_later_append_does_not_restore_expired_messages),
        case!(History, "HIST-071", ttl::a_clear_removes_the_time_to_live),
        case!(History, "HIST-071", ttl_emptied::clearing_the_last_run_removes_the_time_to_live),
        case!(History, "HIST-071", ttl_emptied::an_empty_replacement_removes_the_time_to_live),
        case!(History, "HIST-071", ttl::messages_after_an_expiry_do_not_expire),
    ]
}

fn subscribing() -> Vec<Case> {
    vec![
        case!(History, "HIST-080", subscribe::the_backlog_is_delivered_before_live_events),
        case!(History, "HIST-080", subscribe::a_long_backlog_is_delivered_completely),
        case!(History, "HIST-080", subscribe::a_forks_messages_reach_the_targets_subscriber),
        case!(History, "HIST-081", subscribe::an_appended_message_carries_the_size_of_the_thread),
        case!(History, "HIST-081", subscribe::the_size_is_that_of_the_time_of_the_write),
        case!(History, "HIST-082", subscribe::a_clear_is_an_event_with_the_number_of_messages),
        case!(History, "HIST-083", subscribe::the_clear_of_a_run_is_an_event_that_names_the_run),
        case!(History, "HIST-084", subscribe::a_replacement_is_an_event_that_carries_its_messages),
        case!(History, "HIST-085", backlog::the_backlog_contains_surviving_messages_and_events),
        case!(History, "HIST-085", backlog::a_replacement_never_shares_its_numbers_with_an_event),
        case!(History, "HIST-085", backlog::a_covered_replacement_is_not_in_the_backlog),
        case!(History, "HIST-086", subscribe::events_of_every_handle_arrive_once_under_concurrent_writers),
        case!(History, "HIST-086", subscribe::removals_by_other_handles_arrive_once),
        case!(History, "HIST-086", subscribe::a_waiting_subscriber_is_woken_by_every_kind_of_event),
        case!(History, "HIST-087", subscribe::a_subscriber_to_an_empty_thread_waits_for_the_first_event),
        case!(History, "HIST-087", erased::a_subscription_to_an_empty_thread_survives_an_erasure),
        case!(History, "HIST-088", backlog::a_start_from_the_last_number_misses_and_repeats_nothing),
        case!(History, "HIST-088", backlog::a_returning_subscriber_receives_the_removals),
        case!(History, "HIST-089", ttl::an_expiry_is_a_clear_before_the_next_event),
        case!(History, "HIST-089", ttl::an_expiry_is_in_the_backlog),
        case!(History, "HIST-098", erased::a_waiting_subscription_ends_with_an_erasure),
        case!(History, "HIST-098", erased::events_after_an_erasure_are_not_delivered_as_old_ones),
        case!(History, "HIST-098", generation::a_subscription_does_not_continue_in_another_generation),
        case!(History, "HIST-099", generation::every_position_of_a_thread_names_its_generation),
        case!(History, "HIST-100", generation::a_page_after_a_lost_position_conflicts),
        case!(History, "HIST-101", generation::the_tail_before_a_lost_position_conflicts),
        case!(History, "HIST-102", generation::a_fork_up_to_a_lost_position_conflicts),
        case!(History, "HIST-103", generation::a_replacement_at_a_lost_position_conflicts),
        case!(History, "HIST-104", generation::subscribing_after_a_lost_position_conflicts),
        case!(History, "HIST-105", generation::matches_before_a_lost_position_conflict),
    ]
}

fn hostile_ids() -> Vec<Case> {
    let cases = vec![
        case!(History, "STORE-003", hostile::sessions_that_differ_in_any_byte_are_different_threads),
        case!(History, "STORE-003", hostile::agents_that_differ_in_any_byte_have_different_threads),
        case!(History, "STORE-003", hostile::agent_and_session_do_not_merge),
        case!(History, "STORE-003", hostile::the_longest_names_of_agent_and_session_fit),
        case!(History, "STORE-003", hostile::each_agent_lists_only_its_own_threads),
        case!(History, "STORE-003", hostile::runs_that_differ_in_any_byte_are_cleared_separately),
        case!(History, "STORE-003", hostile::session_and_run_do_not_merge),
        case!(History, "STORE-003", hostile::author_and_role_do_not_merge),
        case!(History, "STORE-003", hostile::keys_that_differ_in_any_byte_are_different_appends),
        case!(History, "STORE-003", hostile::subscribers_receive_only_their_own_thread),
    ];
    cases.into_iter().map(|case| case.at_level(Level::Hostile)).collect()
}
