//! Cases of the contract `key_value`.

mod batch_atomic;
mod batch_read;
mod batch_write;
mod concurrency;
mod delete;
pub(crate) mod dump;
mod erased;
mod expiry;
mod fields;
mod generation;
mod hostile;
mod list;
pub(crate) mod many;
mod places;
mod prefix_delete;
mod put;
mod support;
mod watch;
mod watch_backlog;

use crate::case::{Case, case};

/// Returns all cases of the contract.
#[must_use]
pub fn cases() -> Vec<Case> {
    let all = [writing(), expiring(), listing(), watching(), places::cases(), hostile::cases()];
    let several = [batch_read::cases(), batch_write::cases(), batch_atomic::cases(), prefix_delete::cases()];
    all.into_iter().chain(several).flatten().collect()
}

fn writing() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-001", put::values_read_back_byte_for_byte),
        case!(KeyValue, "KV-001", put::a_value_at_the_limit_reads_back),
        case!(KeyValue, "KV-001", fields::every_text_reads_back),
        case!(KeyValue, "KV-041", fields::events_carry_every_text),
        case!(KeyValue, "KV-002", put::each_write_gets_a_greater_revision),
        case!(KeyValue, "KV-002", put::a_deletion_takes_a_revision),
        case!(KeyValue, "KV-002", concurrency::concurrent_writes_get_distinct_revisions),
        case!(KeyValue, "KV-002", expiry::revisions_continue_after_an_expiry),
        case!(KeyValue, "KV-003", put::a_put_without_condition_replaces),
        case!(KeyValue, "KV-004", put::creating_an_existing_key_conflicts),
        case!(KeyValue, "KV-004", put::creating_an_absent_key_succeeds),
        case!(KeyValue, "KV-005", put::a_put_at_the_revision_replaces),
        case!(KeyValue, "KV-006", put::a_put_at_another_revision_conflicts),
        case!(KeyValue, "KV-006", put::a_put_at_a_revision_of_an_absent_key_conflicts),
        case!(KeyValue, "KV-007", concurrency::one_of_concurrent_puts_at_a_revision_succeeds),
        case!(KeyValue, "KV-008", concurrency::one_of_concurrent_creations_succeeds),
        case!(KeyValue, "KV-009", concurrency::counters_lose_no_update),
        case!(KeyValue, "KV-010", put::buckets_are_separate),
        case!(KeyValue, "KV-020", put::the_latest_value_and_revision_are_read),
        case!(KeyValue, "KV-021", put::a_missing_key_reads_as_none),
        case!(KeyValue, "KV-023", delete::a_deleted_key_reads_as_absent),
        case!(KeyValue, "KV-023", delete::a_key_at_the_revision_is_deleted),
        case!(KeyValue, "KV-024", delete::deleting_an_absent_key_changes_nothing),
        case!(KeyValue, "KV-025", delete::a_deletion_at_another_revision_conflicts),
        case!(KeyValue, "KV-025", delete::a_deletion_at_a_revision_of_an_absent_key_conflicts),
        case!(KeyValue, "KV-025", concurrency::one_of_concurrent_deletions_at_a_revision_succeeds),
        case!(KeyValue, "KV-026", delete::a_key_written_again_gets_a_greater_revision),
        case!(KeyValue, "KV-027", delete::keys_that_begin_with_a_deleted_one_remain),
    ]
}

fn expiring() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-011", expiry::an_expired_key_reads_as_absent),
        case!(KeyValue, "KV-011", expiry::the_shortest_and_the_longest_time_to_live_are_kept),
        case!(KeyValue, "KV-012", expiry::a_put_without_a_time_to_live_removes_the_earlier_one),
        case!(KeyValue, "KV-012", expiry::a_put_with_another_time_to_live_replaces_it),
        case!(KeyValue, "KV-013", expiry::an_expired_key_can_be_created),
        case!(KeyValue, "KV-013", expiry::an_expired_key_is_at_no_revision),
        case!(KeyValue, "KV-022", expiry::instants_of_minutes_to_years_are_read),
        case!(KeyValue, "KV-022", expiry::the_instant_of_expiry_is_read),
        case!(KeyValue, "KV-024", expiry::deleting_an_expired_key_returns_false),
        case!(KeyValue, "KV-033", expiry::expired_keys_are_not_listed),
        case!(KeyValue, "KV-035", expiry::expired_keys_are_not_counted),
        case!(KeyValue, "KV-046", expiry::an_expiry_creates_no_event),
    ]
}

fn listing() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-030", list::exactly_the_keys_with_the_prefix_are_listed),
        case!(KeyValue, "KV-030", list::listed_keys_carry_their_revisions),
        case!(KeyValue, "KV-031", list::keys_are_listed_in_byte_order),
        case!(KeyValue, "KV-032", list::paging_returns_each_key_once),
        case!(KeyValue, "KV-032", list::a_page_begins_after_a_key_that_need_not_exist),
        case!(KeyValue, "KV-032", list::paging_during_writes_returns_remaining_keys_once),
        case!(KeyValue, "KV-033", list::deleted_keys_are_not_listed),
        case!(KeyValue, "KV-034", list::special_characters_of_a_prefix_are_data),
        case!(KeyValue, "KV-035", list::buckets_are_listed_once_with_their_number_of_keys),
        case!(KeyValue, "KV-035", list::an_emptied_bucket_is_not_listed),
    ]
}

fn watching() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-040", watch_backlog::the_latest_change_of_each_key_comes_first),
        case!(KeyValue, "KV-040", watch_backlog::a_watch_begins_after_its_revision),
        case!(KeyValue, "KV-040", watch_backlog::a_missing_bucket_can_be_watched),
        case!(KeyValue, "KV-041", watch::events_carry_the_written_values),
        case!(KeyValue, "KV-042", watch::no_last_change_is_missed_under_concurrent_writers),
        case!(KeyValue, "KV-042", watch::every_watcher_receives_a_change),
        case!(KeyValue, "KV-042", watch::a_waiting_watcher_is_woken_by_every_kind_of_change),
        case!(KeyValue, "KV-043", watch::revisions_of_events_only_increase),
        case!(KeyValue, "KV-044", watch::only_keys_with_the_prefix_are_delivered),
        case!(KeyValue, "KV-044", watch::only_changes_of_the_bucket_are_delivered),
        case!(KeyValue, "KV-045", watch_backlog::a_returning_watcher_receives_deletions),
        case!(KeyValue, "KV-045", watch_backlog::the_last_thousand_deletions_are_remembered),
        case!(KeyValue, "KV-047", watch_backlog::a_watch_from_0_is_never_refused),
        case!(KeyValue, "KV-047", watch_backlog::a_watch_from_0_that_reads_late_is_never_refused),
        case!(KeyValue, "KV-047", watch_backlog::a_watch_from_0_of_future_keys_is_never_refused),
        case!(KeyValue, "KV-047", watch_backlog::a_watch_from_0_survives_an_erasure),
        case!(KeyValue, "KV-048", erased::a_waiting_watch_ends_with_an_erasure),
        case!(KeyValue, "KV-048", erased::events_after_an_erasure_are_not_delivered_as_old_ones),
        case!(KeyValue, "KV-048", generation::a_watch_does_not_continue_in_another_generation),
        case!(KeyValue, "KV-049", generation::every_revision_of_a_bucket_names_its_generation),
        case!(KeyValue, "KV-050", generation::a_put_at_a_revision_of_another_generation_conflicts),
        case!(KeyValue, "KV-051", generation::a_deletion_at_a_revision_of_another_generation_conflicts),
        case!(KeyValue, "KV-052", generation::watching_from_a_lost_revision_conflicts),
    ]
}
