//! Cases of the contract `history`.

mod append;
mod backlog;
mod clear;
mod concurrent;
pub(crate) mod dump;
mod erased;
mod fork;
mod hostile;
mod idempotency;
mod list;
mod matching;
mod read;
mod replace;
mod subscribe;
mod support;
mod ttl;
mod ttl_emptied;

use crate::case::{Case, Level, case};
pub(crate) use support::all;

/// Returns all cases of the contract.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        appending(),
        reading(),
        matching(),
        clearing(),
        forking(),
        replacing(),
        listing(),
        living(),
        subscribing(),
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
        case!(History, "HIST-001", append::the_largest_batch_is_stored_whole_and_in_order),
        case!(History, "HIST-002", append::a_batch_is_numbered_contiguously_and_the_answer_names_its_ends),
        case!(History, "HIST-003", append::a_batch_with_one_bad_message_stores_nothing),
        case!(History, "HIST-003", concurrent::a_reader_never_sees_part_of_a_batch),
        case!(History, "HIST-004", concurrent::concurrent_batches_neither_interleave_nor_get_lost),
        case!(History, "HIST-005", concurrent::concurrent_writers_get_numbers_of_their_own),
        case!(History, "HIST-005", append::numbers_only_grow_whatever_happens_between),
        case!(History, "HIST-006", append::the_first_message_of_each_thread_has_number_1),
        case!(History, "HIST-006", append::a_thread_that_was_only_looked_at_begins_at_1),
        case!(History, "HIST-007", idempotency::repeating_a_key_answers_as_before_and_writes_nothing),
        case!(History, "HIST-007", idempotency::a_new_time_of_writing_is_still_the_same_append),
        case!(History, "HIST-007", idempotency::a_key_may_come_with_a_time_to_live),
        case!(History, "HIST-008", idempotency::a_key_with_other_messages_is_a_conflict),
        case!(History, "HIST-008", idempotency::after_a_conflict_the_first_append_can_still_be_repeated),
        case!(History, "HIST-009", idempotency::a_key_on_another_thread_is_another_append),
        case!(History, "HIST-009", idempotency::a_fork_does_not_take_the_keys),
        case!(History, "HIST-010", idempotency::a_key_is_remembered_after_a_clear),
        case!(History, "HIST-010", idempotency::a_key_is_remembered_when_its_messages_are_gone),
        case!(History, "HIST-011", idempotency::of_concurrent_appends_with_one_key_one_writes),
        case!(History, "HIST-012", append::order_ignores_the_time_of_writing),
        case!(History, "HIST-014", append::a_message_of_the_greatest_size_is_stored),
        case!(History, "HIST-014", append::a_batch_of_the_greatest_size_is_stored),
        case!(History, "HIST-014", append::text_arguments_and_results_may_hold_any_character),
    ]
}

fn reading() -> Vec<Case> {
    vec![
        case!(History, "HIST-020", read::a_thread_that_holds_nothing_reads_as_nothing),
        case!(History, "HIST-021", read::messages_come_oldest_first),
        case!(History, "HIST-022", read::an_offset_counts_messages_and_not_numbers),
        case!(History, "HIST-022", read::an_offset_past_the_end_returns_nothing),
        case!(History, "HIST-023", read::a_window_of_0_is_empty),
        case!(History, "HIST-024", read::a_window_is_as_long_as_limit_and_thread_allow),
        case!(History, "HIST-024", read::long_windows_are_not_cut_short),
        case!(History, "HIST-025", read::the_tail_is_the_newest_oldest_first),
        case!(History, "HIST-026", read::before_considers_only_smaller_numbers),
        case!(History, "HIST-026", read::a_reader_can_walk_back_in_steps),
        case!(History, "HIST-027", read::a_tail_of_0_is_empty_and_a_long_one_is_all),
        case!(History, "HIST-028", read::a_page_holds_only_greater_numbers),
        case!(History, "HIST-028", read::the_page_after_a_message_excludes_it),
        case!(History, "HIST-029", read::a_reader_that_pages_meets_each_message_once),
        case!(History, "HIST-030", read::a_page_of_0_is_empty),
    ]
}

fn matching() -> Vec<Case> {
    vec![
        case!(History, "HIST-034", matching::cleared_messages_are_kept_by_no_filter),
        case!(History, "HIST-090", matching::the_limit_counts_what_the_filter_keeps),
        case!(History, "HIST-090", matching::what_is_kept_is_found_however_far_back_it_stands),
        case!(History, "HIST-091", matching::what_matches_any_included_and_no_excluded_is_kept),
        case!(History, "HIST-091", matching::a_filter_of_the_most_names_is_taken),
        case!(History, "HIST-092", matching::a_role_matches_whoever_plays_it),
        case!(History, "HIST-093", matching::a_message_that_names_no_author_is_of_the_threads_agent),
        case!(History, "HIST-094", matching::authors_and_roles_match_byte_by_byte).at_level(Level::Hostile),
        case!(History, "HIST-095", matching::before_considers_only_smaller_numbers_of_what_is_kept),
        case!(History, "HIST-096", matching::a_filter_that_names_nothing_keeps_everything),
        case!(History, "HIST-097", matching::forks_and_replacements_keep_their_authors),
    ]
}

fn clearing() -> Vec<Case> {
    vec![
        case!(History, "HIST-031", clear::counts_follow_every_write),
        case!(History, "HIST-032", clear::bytes_count_what_messages_carry),
        case!(History, "HIST-033", clear::last_is_the_greatest_number_given_and_stays),
        case!(History, "HIST-034", clear::a_clear_says_how_many_went_and_leaves_nothing),
        case!(History, "HIST-034", clear::a_long_thread_is_cleared_whole),
        case!(History, "HIST-035", clear::clearing_nothing_answers_0_and_makes_no_event),
        case!(History, "HIST-036", clear::a_clear_leaves_other_threads_as_they_are),
        case!(History, "HIST-037", clear::numbers_go_on_after_a_clear),
        case!(History, "HIST-038", clear::exactly_the_messages_of_a_run_go),
        case!(History, "HIST-038", clear::a_run_is_cleared_from_replacements_and_forks_too),
        case!(History, "HIST-039", clear::clearing_an_absent_run_answers_0_and_makes_no_event),
    ]
}

fn forking() -> Vec<Case> {
    vec![
        case!(History, "HIST-040", fork::a_fork_holds_the_source_equal_and_in_order),
        case!(History, "HIST-040", fork::a_fork_ends_at_up_to),
        case!(History, "HIST-040", fork::a_long_thread_is_forked_whole),
        case!(History, "HIST-041", fork::a_target_that_holds_messages_is_refused),
        case!(History, "HIST-041", fork::a_cleared_target_is_free),
        case!(History, "HIST-042", fork::an_empty_source_is_not_found_and_makes_nothing),
        case!(History, "HIST-043", fork::a_fork_and_its_source_go_their_own_ways),
        case!(History, "HIST-043", fork::a_fork_outlives_its_source),
        case!(History, "HIST-044", fork::a_fork_is_numbered_by_its_target),
        case!(History, "HIST-045", fork::of_concurrent_forks_one_succeeds),
    ]
}

fn replacing() -> Vec<Case> {
    vec![
        case!(History, "HIST-050", replace::the_replacement_stands_in_place_of_the_beginning),
        case!(History, "HIST-050", replace::everything_up_to_the_number_goes),
        case!(History, "HIST-051", replace::what_was_taken_away_since_makes_a_conflict),
        case!(History, "HIST-051", replace::what_was_taken_away_before_makes_no_conflict),
        case!(History, "HIST-052", replace::what_was_appended_since_makes_no_conflict),
        case!(History, "HIST-053", replace::of_concurrent_replacements_one_succeeds),
        case!(History, "HIST-054", replace::a_longer_replacement_reaches_below_1),
        case!(History, "HIST-054", replace::the_longest_replacement_is_stored_whole),
        case!(History, "HIST-055", replace::an_empty_replacement_only_removes),
        case!(History, "HIST-056", replace::a_number_beyond_the_last_is_a_conflict),
        case!(History, "HIST-057", replace::an_empty_thread_takes_a_replacement_at_0),
    ]
}

fn listing() -> Vec<Case> {
    vec![
        case!(History, "HIST-060", list::threads_come_in_byte_order_once_each),
        case!(History, "HIST-061", list::pages_of_any_length_visit_each_thread_once),
        case!(History, "HIST-061", list::a_page_may_begin_anywhere),
        case!(History, "HIST-061", list::threads_that_stay_are_visited_once_while_others_come_and_go),
        case!(History, "HIST-062", list::an_agent_lists_its_own_threads_only),
        case!(History, "HIST-062", list::an_agents_page_may_begin_at_another_agents_thread),
        case!(History, "HIST-063", list::a_thread_that_holds_nothing_is_not_listed),
        case!(History, "HIST-064", list::listed_counts_are_those_of_thread_info),
    ]
}

fn living() -> Vec<Case> {
    vec![
        case!(History, "HIST-013", ttl::an_append_sets_the_time_to_live_of_the_whole_thread),
        case!(History, "HIST-013", ttl::an_appends_time_to_live_replaces_the_one_before),
        case!(History, "HIST-063", ttl::an_expired_thread_is_not_listed),
        case!(History, "HIST-065", ttl::an_expired_thread_reads_as_empty),
        case!(History, "HIST-065", ttl::an_expired_thread_is_empty_to_writers),
        case!(History, "HIST-066", ttl::an_append_starts_the_time_to_live_anew),
        case!(History, "HIST-066", ttl::get_messages_starts_the_time_to_live_anew),
        case!(History, "HIST-066", ttl::tail_starts_the_time_to_live_anew),
        case!(History, "HIST-066", ttl::tail_matching_starts_the_time_to_live_anew),
        case!(History, "HIST-066", ttl::page_after_starts_the_time_to_live_anew),
        case!(History, "HIST-067", ttl::use_does_not_prolong_a_fixed_life),
        case!(History, "HIST-067", ttl::use_does_not_prolong_a_fixed_life_that_an_append_set),
        case!(History, "HIST-068", ttl::without_a_time_to_live_the_thread_stays),
        case!(History, "HIST-068", ttl::a_longer_time_to_live_takes_the_place_of_a_shorter),
        case!(History, "HIST-069", ttl::a_thread_that_holds_nothing_takes_no_time_to_live),
        case!(History, "HIST-070", ttl::numbers_go_on_after_an_expiry),
        case!(History, "HIST-070", ttl::a_new_life_does_not_bring_the_expired_back),
        case!(History, "HIST-071", ttl::a_clear_removes_the_time_to_live),
        case!(History, "HIST-071", ttl_emptied::clearing_the_last_run_removes_the_time_to_live),
        case!(History, "HIST-071", ttl_emptied::an_empty_replacement_removes_the_time_to_live),
        case!(History, "HIST-071", ttl::what_follows_an_expiry_does_not_expire),
    ]
}

fn subscribing() -> Vec<Case> {
    vec![
        case!(History, "HIST-080", subscribe::the_backlog_comes_first_then_what_happens),
        case!(History, "HIST-080", subscribe::a_long_backlog_comes_whole),
        case!(History, "HIST-080", subscribe::a_forks_messages_reach_the_targets_subscriber),
        case!(History, "HIST-081", subscribe::an_appended_message_comes_with_the_size_after_it),
        case!(History, "HIST-081", subscribe::the_size_is_that_of_the_moment_of_writing),
        case!(History, "HIST-082", subscribe::a_clear_is_an_event_that_says_how_many_went),
        case!(History, "HIST-083", subscribe::a_runs_clear_is_an_event_that_names_it),
        case!(History, "HIST-084", subscribe::a_replacement_is_an_event_that_carries_its_messages),
        case!(History, "HIST-085", backlog::the_backlog_is_what_survives),
        case!(History, "HIST-085", backlog::a_replacement_never_shares_its_numbers_with_an_event),
        case!(History, "HIST-085", backlog::a_covered_replacement_is_not_in_the_backlog),
        case!(History, "HIST-086", subscribe::every_handles_events_arrive_once_under_concurrent_writers),
        case!(History, "HIST-086", subscribe::removals_by_other_handles_arrive_once),
        case!(History, "HIST-086", subscribe::a_waiting_subscriber_is_woken_by_every_kind_of_event),
        case!(History, "HIST-087", subscribe::a_subscriber_to_nothing_waits_for_the_first_event),
        case!(History, "HIST-087", erased::a_subscription_to_nothing_outlives_an_erasure),
        case!(History, "HIST-088", backlog::starting_from_the_last_number_seen_misses_and_repeats_nothing),
        case!(History, "HIST-088", backlog::a_subscriber_that_was_away_learns_what_went),
        case!(History, "HIST-089", ttl::an_expiry_shows_as_a_clear_before_the_next_event),
        case!(History, "HIST-089", ttl::an_expiry_is_in_the_backlog),
        case!(History, "HIST-098", erased::a_waiting_subscription_ends_with_an_erasure),
        case!(History, "HIST-098", erased::a_new_life_is_not_told_as_the_old_one),
    ]
}

fn hostile_ids() -> Vec<Case> {
    let cases = vec![
        case!(History, "STORE-003", hostile::sessions_that_differ_in_any_byte_are_different_threads),
        case!(History, "STORE-003", hostile::agents_that_differ_in_any_byte_have_different_threads),
        case!(History, "STORE-003", hostile::agent_and_session_do_not_run_together),
        case!(History, "STORE-003", hostile::the_longest_names_of_agent_and_session_fit),
        case!(History, "STORE-003", hostile::each_agent_lists_only_its_own_threads),
        case!(History, "STORE-003", hostile::runs_that_differ_in_any_byte_are_cleared_apart),
        case!(History, "STORE-003", hostile::keys_that_differ_in_any_byte_are_different_appends),
        case!(History, "STORE-003", hostile::subscribers_hear_only_their_own_thread),
    ];
    cases.into_iter().map(|case| case.at_level(Level::Hostile)).collect()
}
