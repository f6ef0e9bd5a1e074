//! The promises of contexts, compaction, sessions and workflows, on every backend.
//!
//! Tests of a backend whose variable is not set are ignored; with `LARDER_SERVICES=required` they fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod context;
mod forgetting;
mod invariants;
#[path = "../embedded/sessions/support.rs"]
mod session_support;
mod sessions;
mod stale;
mod summaries;
mod summarizer;
mod support;
mod workflow;

use std::env;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;

use futures_util::FutureExt;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::{Builder, Runtime};

use crate::test_backend::TestBackend as Backend;

type Scenario = for<'a> fn(&'a Backend) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! scenarios {
    ($($scenario:path,)*) => {
        [$((stringify!($scenario), (|backend| Box::pin($scenario(backend))) as Scenario)),*]
    };
}

/// The live backends, and the variables that name their servers.
const LIVE: [(&str, &str); 3] = [
    ("postgres", "LARDER_POSTGRES_URL"),
    ("redis", "LARDER_REDIS_URL"),
    ("redis_cluster", "LARDER_REDIS_CLUSTER_URL"),
];

type Named = (&'static str, Scenario);

fn of_contexts() -> impl Iterator<Item = Named> {
    scenarios![
        context::the_tokens_of_a_message_are_counted_once_when_it_is_appended,
        context::retention_determines_the_remaining_messages_of_a_run,
        context::a_message_that_could_never_be_cleared_is_refused_and_none_writes_nothing_but_checks,
        context::a_summary_does_not_outlive_its_run_or_thread,
        context::a_window_begins_with_the_summary_and_reads_only_what_follows,
        context::the_scope_names_the_agent_unless_the_context_does,
        context::an_explanation_says_what_each_step_did,
        context::results_without_calls_and_calls_without_results_do_not_reach_the_model,
        context::pipelines::each_strategy_leaves_its_part_of_a_stored_thread,
        context::memory::each_provider_reads_and_writes_what_it_says,
        context::memory::the_oldest_messages_leave_a_limited_window_until_the_rest_fits,
        context::memory::filters_apply_before_the_limit_at_any_distance,
        context::memory::reads_of_a_filtered_window_are_bounded_and_reported,
        context::memory::of_a_long_thread_only_what_the_filter_keeps_is_handed_over,
        context::memory::a_filter_that_names_too_many_is_refused_with_the_settings,
        context::memory::a_filtered_window_neither_shows_nor_feeds_the_summary_of_all,
        context::memory::a_custom_memory_replaces_the_history,
    ]
    .into_iter()
}

fn of_compaction() -> impl Iterator<Item = Named> {
    scenarios![
        stale::a_cleared_thread_is_not_summarized_by_what_was_said_before,
        stale::an_expired_thread_is_not_summarized_by_what_was_said_before,
        stale::a_thread_replaced_in_any_part_is_not_summarized_by_what_was_there,
        stale::removals_after_the_summarized_part_keep_the_summary,
        stale::a_session_with_a_cleared_thread_starts_again,
        summaries::the_newest_messages_stay_and_the_summary_is_updated_not_stacked,
        summaries::two_summarizers_of_one_thread_ask_the_model_once,
        summaries::a_summarizer_that_went_away_costs_nothing_but_time,
        summaries::a_summary_that_fails_leaves_the_window_complete,
        summaries::a_summary_that_is_corrupt_is_not_used,
        summaries::a_long_conversation_is_taken_in_by_parts_and_each_part_that_succeeded_counts,
        summarizer::the_summarizer_waits_for_its_threshold_and_makes_its_summary_denser,
        summarizer::a_failed_pass_ends_the_passes_and_an_open_question_stays,
        summarizer::a_process_that_ends_between_passes_leaves_their_replies_to_the_next,
        summarizer::tools_that_end_as_named_start_the_summarizer,
        summaries::long_term_memory_runs_first_and_its_summary_precedes_the_remaining_messages,
        forgetting::old_interactions_are_erased_from_what_is_stored,
        forgetting::by_default_the_neuralyzer_never_erases,
        forgetting::messages_that_arrive_during_a_compaction_stay_and_a_cleared_thread_does_not_change,
        forgetting::tokens_erase_too_and_the_interaction_that_is_not_over_stays,
        forgetting::the_agent_reads_text_and_keeps_no_memory,
        forgetting::messages_that_arrive_while_the_model_works_stay_behind_the_two,
        forgetting::of_two_agents_one_compacts_and_a_cleared_thread_stays_cleared,
        forgetting::a_response_without_the_requested_json_changes_nothing,
        forgetting::the_watch_compacts_when_a_response_makes_the_thread_too_large,
    ]
    .into_iter()
}

fn of_sessions() -> impl Iterator<Item = Named> {
    scenarios![
        sessions::summaries::past_the_threshold_the_older_half_becomes_a_summary,
        sessions::summaries::at_the_threshold_or_with_a_summary_nothing_is_summarized,
        sessions::summaries::a_rolling_policy_takes_the_last_summary_in,
        sessions::summaries::two_concurrent_summaries_store_one,
        sessions::summaries::a_long_session_is_summarized_by_parts_without_splitting_pairs,
        sessions::summaries::a_replaced_session_keeps_its_summary_and_refuses_late_ones,
        sessions::summaries::an_inference_that_stores_nothing_summarizes_nothing,
        sessions::expiry::an_unused_session_expires_completely_and_a_used_one_remains,
        sessions::expiry::a_session_that_was_replaced_expires_too_and_one_without_a_time_stays,
        sessions::expiry::a_response_after_the_session_expired_stores_nothing,
        sessions::expiry::a_time_to_live_is_checked_by_name,
        sessions::explain::each_step_says_what_it_dropped_and_nothing_is_written,
        sessions::explain::an_existing_summary_is_in_front_and_its_messages_are_not_reported_as_dropped,
        sessions::drafts::a_summary_that_was_paid_for_is_used_by_the_next_process,
        sessions::drafts::a_strategys_summary_that_was_paid_for_is_used_by_the_next_process,
        sessions::drafts::a_draft_of_removed_messages_is_not_used_and_is_deleted_with_its_session,
        sessions::load::a_program_can_continue_without_the_history_and_gets_the_error,
        sessions::load::a_record_that_does_not_read_back_loses_nothing,
        sessions::documents::a_document_runs_long_term_memory_first_and_short_term_memory_on_what_is_kept,
        sessions::documents::summaries_that_fit_the_question_are_found_in_the_vector_store,
        sessions::documents::agents_share_a_session_through_their_own_memories,
        sessions::documents::the_memory_of_agents_is_on_with_156_kib_unless_a_document_says_otherwise,
        sessions::persistence::incremental_is_the_default_and_appends,
        sessions::persistence::flush_replaces_the_session_with_the_conversation_in_one_step,
        sessions::persistence::messages_during_a_flush_stay_and_a_second_flush_of_the_state_conflicts,
        sessions::persistence::messages_that_arrive_while_a_flush_reads_are_stored_once,
        sessions::persistence::ephemeral_reads_and_writes_nothing,
        sessions::persistence::a_cancelled_inference_does_not_change_the_session,
        sessions::persistence::completing_again_after_a_lost_response_writes_once,
        sessions::persistence::an_inference_begun_again_with_its_key_writes_once,
        sessions::persistence::concurrent_inferences_on_one_session_lose_nothing,
        sessions::window::with_memory_the_session_is_prepended_and_without_it_is_neither_read_nor_written,
        sessions::window::over_max_tokens_the_oldest_messages_leave_and_the_system_prompt_stays,
        sessions::window::hints_are_under_their_header_in_the_requested_order,
        sessions::window::without_a_strategy_every_message_is_included,
        sessions::window::a_call_and_its_result_are_dropped_together,
        sessions::window::a_window_reads_only_as_far_back_as_its_tokens,
        sessions::window::with_a_summary_a_window_reads_only_what_follows_it,
        sessions::window::tokens_are_counted_once_and_stored,
        sessions::window::strategies_choose_among_the_stored_messages,
        sessions::lifecycle::a_session_is_created_read_through_another_handle_and_deleted,
        sessions::lifecycle::ids_are_distinct_chosen_ids_are_used_once_and_agents_are_separate,
        sessions::lifecycle::a_document_that_does_not_fit_is_refused_by_name,
        sessions::lifecycle::hints_of_two_workers_are_all_kept,
        sessions::lifecycle::an_inference_that_completes_after_the_deletion_stores_nothing,
        sessions::lifecycle::debug_forms_and_errors_show_no_words,
    ]
    .into_iter()
}

fn of_workflows() -> impl Iterator<Item = Named> {
    scenarios![
        workflow::race::of_two_workers_whose_turns_move_one_run_one_commits_and_the_other_keeps_nothing,
        workflow::race::of_two_concurrent_commits_one_conflicts,
        workflow::race::turns_that_move_nothing_lose_nothing_whatever_others_do,
        workflow::race::under_many_workers_every_transition_leads_on_from_the_one_before,
        workflow::race::workers_with_one_event_id_move_the_run_once_and_all_get_the_result,
        workflow::machine::a_run_has_a_current_state_a_history_with_times_and_a_conversation_per_state,
        workflow::machine::a_transient_conversation_restarts_at_each_entry_and_is_not_stored,
        workflow::machine::a_transient_conversation_kept_until_left_is_shared_and_then_cleared,
        workflow::machine::a_run_is_resumed_by_its_id_through_new_handles,
        workflow::machine::an_id_has_one_run_and_a_missing_or_foreign_one_is_an_error,
        workflow::machine::firing_with_an_event_id_moves_once_through_whichever_handle,
        workflow::machine::a_run_ends_its_loops_at_the_most_transitions,
        workflow::machine::a_window_is_bounded_and_keeps_calls_and_results_together,
        workflow::machine::a_bad_turn_or_setting_is_refused_and_changes_nothing,
        workflow::machine::a_fork_has_the_state_of_its_source_and_is_independent,
        workflow::load::without_a_limit_a_window_has_the_whole_conversation,
        workflow::load::a_program_can_continue_without_the_conversation_and_gets_the_error,
        workflow::control::an_agent_controlled_state_commits_immediately_and_two_transitions_fit_one_turn,
        workflow::control::a_user_controlled_state_is_committed_at_the_end_of_the_turn,
        workflow::control::the_prompt_stays_anchored_over_turns_until_the_chain_lands,
        workflow::control::a_terminal_state_ends_the_chain_even_under_the_agents_control,
        workflow::control::a_mistake_of_the_model_is_a_tool_result_and_changes_nothing,
        workflow::control::a_loop_within_a_turn_ends_at_the_most_transitions_of_a_turn,
        workflow::carry::a_models_summary_of_the_state_that_was_left_opens_the_next_conversation,
        workflow::carry::without_carry_forward_the_next_state_gets_nothing,
        workflow::carry::a_state_that_is_visited_again_is_summarized_on,
        workflow::carry::a_state_left_without_a_word_hands_nothing_on,
        workflow::carry::each_visit_of_a_transient_state_hands_on_what_was_said_in_it,
        workflow::carry::a_transient_state_is_carried_forward_in_memory_and_by_no_store,
        workflow::carry::a_state_made_transient_is_no_longer_carried_or_stored,
        workflow::carry::a_transient_state_is_carried_forward_once_despite_a_lost_response,
        workflow::carry::where_no_summary_can_be_had_the_conversation_itself_is_handed_on,
        workflow::carry::messages_over_the_limit_are_counted_and_the_newest_is_kept,
        workflow::carry::a_summarizer_set_to_fail_stops_the_transition_and_nothing_changes,
        workflow::carry::summaries_beyond_the_most_are_left_out_and_the_window_says_so,
        workflow::carry::a_bad_setting_is_refused_with_its_name,
        workflow::carry::a_fork_summarizes_on_though_its_messages_have_other_numbers,
        workflow::crash::a_crash_before_the_end_of_the_turn_drops_what_waited_for_it,
        workflow::crash::a_crash_within_a_chain_resumes_in_the_committed_state_under_the_anchored_prompt,
        workflow::crash::a_crash_right_after_the_commit_loses_neither_transition_nor_messages,
        workflow::crash::a_chain_that_crashed_at_its_terminal_state_lands_at_the_next_turn,
        workflow::crash::a_dropped_or_failed_call_may_be_repeated_and_moves_once,
        workflow::crash::an_event_with_a_lost_response_is_repeated_without_a_second_effect,
        workflow::crash::a_corrupt_run_is_refused_and_not_shown,
        workflow::crash::a_fork_cut_short_gets_the_conversations_as_they_stood,
    ]
    .into_iter()
}

/// Scenarios for every backend.
fn everywhere() -> impl Iterator<Item = Named> {
    of_contexts().chain(of_compaction()).chain(of_sessions()).chain(of_workflows())
}

/// Scenarios for every backend; in memory the clock skips every pause.
fn leaping_in_memory() -> impl Iterator<Item = Named> {
    scenarios![
        invariants::no_combination_of_settings_loses_or_repeats_anything,
        invariants::a_turn_is_stored_in_a_thread_of_any_length,
        invariants::a_long_thread_loses_only_what_its_strategies_and_its_persistence_say,
        invariants::a_flush_keeps_the_summary_of_a_long_thread,
        invariants::a_large_prompt_leaves_no_gap_between_the_summary_and_the_window,
        invariants::summarizers_of_one_document_ask_a_question_once,
        invariants::a_summary_that_an_earlier_step_dropped_is_read_again,
        invariants::nothing_is_erased_before_a_turn_completes,
        invariants::a_summary_that_was_not_stored_is_stored_by_the_next_attempt,
        invariants::an_ephemeral_inference_can_lose_its_session,
    ]
    .into_iter()
}

/// Scenarios for memory only: thousands of rounds, hours of simulated time, futures that are dropped at each
/// poll.
fn in_memory() -> impl Iterator<Item = Named> {
    scenarios![
        context::settings_are_checked_by_name,
        context::a_default_needs_no_argument_and_is_the_newest_hundred,
        context::a_window_over_a_long_thread_reads_only_its_reach_and_writes_nothing,
        summaries::whatever_model_and_store_do_nothing_is_lost,
        summaries::profiles_deserialize_unchanged,
        forgetting::of_a_large_thread_the_oldest_interactions_are_taken,
        sessions::summaries::a_summary_that_fails_loses_nothing_and_is_reported,
        sessions::persistence::a_completion_dropped_at_any_poll_stores_all_or_nothing,
        sessions::window::no_transcript_makes_a_window_that_is_too_long_or_splits_a_pair,
    ]
    .into_iter()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A runtime whose clock skips every pause.
fn leaping() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

fn run(runtime: &Runtime, url: &str, scenario: Scenario) {
    runtime.block_on(async {
        let backend = Backend::open(url).await;
        let outcome = AssertUnwindSafe(scenario(&backend)).catch_unwind().await;
        backend.leave().await;
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

fn trial(backend: &str, name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(format!("{backend}::{}", name.replace(' ', "")), move || {
        run();
        Ok(())
    })
}

fn on_sqlite(scenario: Scenario) {
    let folder = tempfile::tempdir().unwrap();
    run(&runtime(), &format!("sqlite:{}", folder.path().join("larder.db").display()), scenario);
}

/// Returns a trial that is ignored without its server, and fails if services are required.
fn on_server(backend: &str, variable: &'static str, (name, scenario): Named) -> Trial {
    let required = env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let url = env::var(variable).ok();
    let absent = url.is_none();
    let test = move || run(&runtime(), &url.unwrap_or_else(|| panic!("{variable} is not set")), scenario);
    trial(backend, name, test).with_ignored_flag(absent && !required)
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut trials = Vec::new();
    for (name, scenario) in in_memory().chain(leaping_in_memory()) {
        trials.push(trial("memory", name, move || run(&leaping(), "memory:", scenario)));
    }
    for (name, scenario) in everywhere() {
        trials.push(trial("memory", name, move || run(&runtime(), "memory:", scenario)));
    }
    for (name, scenario) in everywhere().chain(leaping_in_memory()) {
        trials.push(trial("sqlite", name, move || on_sqlite(scenario)));
        for (backend, variable) in LIVE {
            trials.push(on_server(backend, variable, (name, scenario)));
        }
    }
    crate::groups::run("everywhere", arguments, trials)
}
