//! The Postgres backend against the live server that `LARDER_POSTGRES_URL` names. The user needs permission
//! to create databases: each test creates one and drops it. Without a server the tests are ignored; with
//! `LARDER_SERVICES=required` they fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod blobs;
mod connections;
mod durability;
mod emptied;
mod format;
mod outage;
#[cfg(feature = "sqlx-interop")]
mod plans;
mod pooler;
mod read_only;
mod schema;
mod settings;
mod standby;
mod subscriptions;
mod sweep;
mod vectors;
mod verify;
#[cfg(feature = "age")]
mod verify_age;
mod versions;
mod writers;

use std::future::Future;
use std::process::ExitCode;
use std::task::{Context, Waker};
use std::time::Duration;

use larder_capabilities::postgres::{Postgres, PostgresConfig};
use larder_kernel::{
    BucketName, ChatMessage, HistoryProvider, HistoryProviderExt, Key, KeyValueStore, KeyValueStoreExt,
    Namespace, Seq, Store, Thread,
};
use libtest_mimic::{Arguments, Failed, Trial};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Does the work for which a test started this program.
pub(crate) fn as_child() -> Option<ExitCode> {
    std::env::var(schema::OPEN).ok().map(|url| schema::open_when_told(&url))
}

/// Makes a trial of each test, named after it.
macro_rules! trials {
    ($ignored:ident; $($test:path;)*) => { vec![$(trial(stringify!($test), $test, $ignored)),*] };
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    crate::log_capture::keep();
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let ignored = std::env::var("LARDER_POSTGRES_URL").is_err() && !required;
    let mut trials = trials![
        ignored;
        a_dropped_future_never_poisons_the_pool;
        a_future_dropped_outside_every_runtime_releases_its_permit;
        connections::callers_share_the_connections_that_a_role_may_have;
        connections::more_callers_than_connections_of_a_silent_server_report_the_server;
        durability::each_write_is_flushed_as_the_store_declares;
        emptied::readers_from_before_a_dropped_schema_are_refused;
        emptied::new_generations_refuse_positions_from_before;
        format::a_database_of_a_newer_format_is_refused_by_number_and_not_changed;
        format::a_running_program_does_not_write_after_a_newer_one_upgraded_the_database;
        format::a_running_program_is_refused_by_number_where_the_newer_schema_lacks_a_function;
        format::an_upgrade_waits_for_the_writes_that_have_begun;
        read_only::a_read_only_database_reads_and_refuses_to_write;
        read_only::every_store_reads_from_a_read_only_database;
        read_only::a_database_that_never_held_vectors_reads_as_empty;
        schema::eight_openings_of_a_new_database_migrate_it_once;
        schema::eight_processes_migrate_a_new_database_once;
        schema::a_long_thread_is_read_by_author_without_reading_it_all;
        schema::every_key_begins_with_the_namespace;
        schema::tables_may_be_partitioned_by_the_namespace;
        schema::large_texts_are_stored_compressed;
        schema::large_histories_are_stored_compressed;
        settings::no_setting_of_a_role_changes_what_the_stores_do;
        subscriptions::idle_subscriptions_cost_one_statement_a_second;
        sweep::an_unused_expired_thread_is_removed_in_parts;
        sweep::a_partially_removed_thread_reads_as_empty;
        sweep::popped_messages_are_removed_in_parts_of_bounded_size;
        sweep::an_expired_value_is_removed_from_an_idle_bucket;
        sweep::data_in_use_is_removed_next_time;
        sweep::extending_a_time_to_live_does_not_change_the_index;
        sweep::a_thread_that_cannot_be_swept_does_not_keep_the_others_from_it;
        vectors::an_index_finds_nearly_all_and_never_too_few;
        vectors::dimensions_decide_what_kind_of_index_there_is;
        vectors::ties_past_what_an_index_shows_are_cut_by_id;
        vectors::one_of_eight_handles_builds_the_index_and_a_drop_removes_it;
        vectors::rows_omitted_by_the_server_never_match;
        vectors::directions_are_restored_after_pgvector_was_removed;
        verify::each_planted_corruption_is_found_by_name_and_changes_nothing;
        verify::a_repair_dumps_first_and_is_refused_while_the_database_is_in_use;
        verify::a_verification_sees_one_state_and_disturbs_no_writer;
        versions::a_new_database_has_the_recorded_schema;
        versions::an_older_schema_is_refused_by_name_and_not_changed;
        versions::a_database_of_each_older_format_is_upgraded_to_the_recorded_schema;
        versions::an_upgrade_draws_a_generation_for_each_thread_bucket_and_board;
        outage::an_unreachable_server_is_a_typed_error_without_the_password;
        outage::a_server_that_is_silent_is_given_up_in_time;
        outage::rights_that_are_missing_are_named;
        outage::an_old_pgvector_is_refused_and_its_schema_does_not_matter;
        outage::pgvector_works_in_any_schema_of_the_search_path;
        outage::a_new_connection_looks_up_no_type;
        outage::without_pgvector_vectors_are_refused_and_the_rest_works;
        outage::a_full_pool_and_a_long_lock_end_in_time;
        outage::a_login_ends_in_time_however_many_tasks_are_ready;
        writers::writers_do_not_take_each_other_for_listeners;
        writers::appends_are_announced_where_somebody_follows;
        writers::a_thread_that_somebody_works_on_keeps_its_subscriptions;
        writers::concurrent_appends_share_a_statement;
        writers::a_thread_that_somebody_works_on_holds_up_no_other;
    ];
    trials.extend(trials_of_blobs(ignored));
    trials.extend(trials_with_more_servers());
    #[cfg(feature = "sqlx-interop")]
    trials.extend(trials_of_plans(ignored));
    crate::groups::run("postgres", arguments, trials)
}

fn trials_of_blobs(ignored: bool) -> Vec<Trial> {
    trials![
        ignored;
        blobs::a_reader_gets_the_old_bytes_for_ten_minutes_after_an_overwrite;
        blobs::a_dropped_or_failed_write_leaves_no_chunks;
        blobs::an_abandoned_write_is_swept_after_an_hour_and_not_before;
        blobs::a_write_whose_chunks_are_lost_fails_and_changes_nothing;
        blobs::a_write_from_before_a_crash_never_gets_the_content_of_a_later_one;
        blobs::an_erasure_removes_the_bytes_that_a_sweep_uses;
        blobs::missing_and_altered_chunks_are_corrupt_and_never_short_data;
        blobs::a_write_keeps_few_pieces_of_its_body;
        blobs::a_read_keeps_few_chunks_and_no_transaction_between_polls;
        blobs::a_blob_goes_through_one_connection_in_both_directions;
    ]
}

/// Returns the tests that use a pool of the program.
#[cfg(feature = "sqlx-interop")]
fn trials_of_plans(ignored: bool) -> Vec<Trial> {
    trials![
        ignored;
        plans::the_last_messages_are_read_backwards_and_no_others;
        plans::no_statement_reads_a_whole_thread_for_a_few_rows;
        plans::a_task_is_claimed_and_found_without_reading_the_board;
        outage::a_pool_of_the_program_is_used_and_left_open;
    ]
}

/// Returns the tests that need a second server in front of the first, or behind it.
fn trials_with_more_servers() -> Vec<Trial> {
    macro_rules! trials {
        ($variable:literal: $($test:path),*) => {
            [$(trial(stringify!($test), $test, std::env::var($variable).is_err())),*]
        };
    }
    let mut trials: Vec<Trial> =
        trials!["LARDER_POSTGRES_REPLICA_URL": standby::a_standby_is_unavailable_and_not_forbidden].into();
    trials.extend(trials![
        "LARDER_PGBOUNCER_URL":
        pooler::every_contract_works_through_a_pooler_and_disturbs_no_other_client,
        pooler::changes_are_found_through_a_pooler_within_two_seconds,
        pooler::a_pooler_is_diagnosed_and_its_refusals_are_named
    ]);
    #[cfg(feature = "age")]
    trials.extend(trials!["LARDER_AGE_URL": verify_age::planted_corruptions_of_graphs_are_found_by_name]);
    trials
}

fn trial<F: Future<Output = ()>>(
    name: &str,
    test: impl FnOnce() -> F + Send + 'static,
    ignored: bool,
) -> Trial {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(Failed::from)?.block_on(test());
        crate::log_capture::keeps(outage::CANARY);
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(ignored)
}

fn server() -> String {
    std::env::var("LARDER_POSTGRES_URL").expect("LARDER_POSTGRES_URL names a server")
}

/// Returns the server's URL with another database.
fn url_of(database: &str) -> String {
    let server = server();
    let location = server.split('?').next().unwrap_or_default();
    let (place, _) = location.rsplit_once('/').unwrap();
    format!("{place}/{database}")
}

/// Runs a test on a separate database.
async fn with_database<F: Future<Output = ()>>(name: &str, test: impl FnOnce(String) -> F) {
    let mut admin = PgConnection::connect(&server()).await.unwrap();
    let name = format!("larder_test_{name}_{}", std::process::id());
    let make = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'");
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut admin).await.unwrap();
    test(url_of(&name)).await;
    let remove = format!("DROP DATABASE {name} WITH (FORCE)");
    sqlx::raw_sql(AssertSqlSafe(remove)).execute(&mut admin).await.unwrap();
}

async fn open(url: &str) -> larder_kernel::Result<Postgres> {
    Postgres::open(PostgresConfig::from_url(url)?).await
}

/// Polls a future this number of times, with pauses, and drops it.
pub(crate) async fn drop_after<F: Future>(polls: u32, future: F) {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
}

/// Simulates a program that polls a call in a runtime and drops the call after the runtime has ended or
/// outside of it.
async fn a_future_dropped_outside_every_runtime_releases_its_permit() {
    with_database("left", async |url: String| {
        let postgres = open(&format!("{url}?pool_size=1")).await.unwrap();
        let thread = Thread::new("a", "s").unwrap();
        for polls in 1..8 {
            let (history, to) = (postgres.history(Namespace::new("n").unwrap()), thread.clone());
            let mut call =
                Box::pin(async move { history.append(&to, ChatMessage::user("dropped")).await.map(drop) });
            for _ in 0..polls {
                if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            std::thread::spawn(move || drop(call)).join().unwrap();
            let history = postgres.history(Namespace::new("n").unwrap());
            history.tail(&thread, None, 1).await.unwrap();
        }
        postgres.close().await;
    })
    .await;
}

async fn a_dropped_future_never_poisons_the_pool() {
    with_database("dropped", async |url: String| {
        let postgres = open(&format!("{url}?pool_size=1")).await.unwrap();
        let namespace = Namespace::new("n").unwrap();
        let history = postgres.history(namespace.clone());
        let values = postgres.key_value(namespace);
        let thread = Thread::new("a", "s").unwrap();
        let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
        let mut acknowledged = 0_u64;
        for polls in 0..40 {
            drop_after(polls % 10, values.erase()).await;
            drop_after(polls % 10, history.append(&thread, ChatMessage::user("dropped"))).await;
            drop_after(polls % 10, history.tail(&thread, None, 10)).await;
            drop_after(polls % 10, values.set(&bucket, &key, "dropped".into())).await;
            // With one connection, a transaction that the dropped calls left open would include these writes
            // and lose them.
            values.set(&bucket, &key, "kept".into()).await.unwrap();
            history.append(&thread, ChatMessage::user("kept")).await.unwrap();
            acknowledged += 1;
            let other = open(&url).await.unwrap();
            let namespace = Namespace::new("n").unwrap();
            let seen = other.history(namespace.clone()).page_after(&thread, Seq::ZERO, 1_000).await.unwrap();
            let kept = seen.iter().filter(|stored| stored.message.text == "kept").count();
            assert_eq!(u64::try_from(kept).unwrap(), acknowledged, "an acknowledged append vanished");
            let value = other.key_value(namespace).get(&bucket, &key).await.unwrap().unwrap().value;
            assert!(value == "kept" || value == "dropped");
            other.close().await;
        }
        postgres.close().await;
    })
    .await;
}
