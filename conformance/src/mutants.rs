//! Stores that break exactly one rule each, and the clauses that must detect the defect.
//!
//! The mutants test the suite itself. Each [`Mutant`] is the in-memory store of one contract behind a wrapper
//! that forwards all calls but has one defect. A mutant is *killed* if a case of every clause that forbids
//! the defect fails. A case that ended in an error kills no mutant. The same wrapper without a defect is the
//! contract's *control*: it must pass every case. [`matrix`] runs the mutants and returns the clauses that
//! detected each.
//!
//! # Defects that other test suites are known to accept
//!
//! - limit 0 returns all: `history.limit_0_returns_everything`, `vectors.limit_0_returns_everything`,
//!   `graph.limit_0_returns_the_start`.
//! - case-folded ids: `ids_are_case_folded` of all six.
//! - ids cut at 40 characters: `ids_are_cut_at_40_characters` of all six.
//! - non-ASCII stripped: `ids_lose_what_is_not_ascii` of all six, `history.text_loses_what_is_not_ascii`,
//!   `vectors.text_loses_what_is_not_ascii`.
//! - lost updates: `key_value.putting_at_a_revision_loses_updates`, `history.a_replacement_never_conflicts`,
//!   `blobs.matches_replaces_any_version`.
//! - values over 64 KiB dropped: `key_value.values_over_64_kib_are_dropped`,
//!   `key_value.values_over_64_kib_are_cut`, `history.text_over_64_kib_is_dropped`.
//! - deleting a prefix: `key_value.deleting_takes_longer_keys_too`, `blobs.deleting_takes_longer_keys_too`.
//! - timestamp ordering: `history.messages_are_ordered_by_created_at`.
//! - global-serial cursors: `history.numbers_are_shared_by_all_threads`,
//!   `history.numbers_are_taken_before_the_commit`.
//! - last-write-wins status: `tasks.the_last_write_wins`, `tasks.repeating_a_step_succeeds`.
//! - lost tail of a batch: `history.a_batch_loses_its_last_message`,
//!   `vectors.a_batch_loses_its_last_document`.
//! - partial multi-key writes: `a_dropped_write_is_partly_stored` and `a_refused_call_leaves_a_trace` of all
//!   six.
//! - forgotten idempotency: `history.idempotency_is_forgotten`,
//!   `history.idempotency_keys_are_shared_by_all_threads`.
//! - `true` equal to `1`: `vectors.true_equals_1_in_filters`, `graph.true_equals_1_in_filters`.
//! - expired values read: `key_value.expired_values_are_read`, `history.expired_messages_are_read`.
//! - zero vectors dropped: `vectors.short_embeddings_are_not_found`; see below.
//! - limit before filter: `vectors.the_limit_is_applied_before_the_filter`,
//!   `graph.the_limit_is_applied_before_the_filter`.
//! - edge without ends: `graph.a_limit_cuts_entities_and_leaves_their_relationships`,
//!   `graph.a_missing_end_is_made_up`.
//! - dangling relationship: `graph.a_relationship_without_an_end_is_kept`,
//!   `graph.deleting_an_entity_leaves_its_relationships`.
//! - orphaned blob parts: `blobs.a_failed_stream_leaves_its_parts`,
//!   `blobs.parts_are_listed_while_a_stream_runs`, `blobs.parts_outlive_their_stream`.
//! - presign ignoring the method: `blobs.presign_ignores_the_method`; see below.
//! - subscribe that skips: `history.a_subscription_skips_every_seventh_event`,
//!   `key_value.a_watch_skips_every_third_change`.
//! - claims with two winners: `tasks.a_claim_has_two_winners`.
//! - capabilities claimed, not held: `durability_is_declared_and_not_kept` of all six,
//!   `blobs.long_keys_are_declared_but_refused`, `blobs.signed_reads_are_declared_but_unsupported`,
//!   `graph.cypher_is_declared_but_missing`.
//! - capabilities held, not claimed: `blobs.long_keys_are_undeclared_but_kept`,
//!   `blobs.conditions_are_undeclared_but_obeyed`, `blobs.signed_writes_are_undeclared_but_given`,
//!   `graph.cypher_is_there_but_undeclared`.
//!
//! # Limits of the cases
//!
//! - *Zero vectors dropped.* No store ever receives one: [`Embedding::new`](larder_kernel::Embedding::new)
//!   rejects it. The nearest defect, dropping short vectors, is a mutant.
//! - *A signature that ignores its method.* The contract covers the result of `presign`, and a case makes no
//!   HTTP requests. The tests of the S3 backend follow its URLs.
//! - *Orphaned parts without a key.* They use space and can be neither read nor listed. The tests of the S3
//!   backend look for unfinished uploads through the server's interface.
//! - *More durability than declared.* A store may keep more than it promises.

#[macro_use]
mod declare;
mod blobs;
mod evaluate;
mod filters;
mod graph;
mod history;
mod key_value;
mod many;
mod narrow;
mod serve;
mod tasks;
mod vectors;

use std::fmt;
use std::sync::Arc;

use larder_kernel::Contract;

pub use evaluate::{Evaluation, Matrix, Scope, Tally, Verdict, evaluate, matrix, options};

use crate::harness::Harness;

/// The name of each contract's control.
const CONTROL: &str = "the_control_passes";

type Make = dyn Fn() -> Arc<dyn Harness> + Send + Sync;

/// A store with one defect, or the control.
#[derive(Clone)]
pub struct Mutant {
    /// The contract that it serves.
    pub contract: Contract,
    /// The stable name: the contract, then the defect.
    pub name: String,
    /// The defect, in one sentence.
    pub defect: String,
    /// The clauses that forbid the defect; a case of each must fail. Empty for a control.
    pub clauses: &'static [&'static str],
    narrow: bool,
    make: Arc<Make>,
}

impl Mutant {
    fn new(
        contract: Contract,
        name: &str,
        clauses: &'static [&'static str],
        make: impl Fn() -> Arc<dyn Harness> + Send + Sync + 'static,
    ) -> Self {
        let defect = if clauses.is_empty() { "Nothing is wrong.".to_owned() } else { sentence(name) };
        Self {
            contract,
            name: format!("{contract}.{name}"),
            defect,
            clauses,
            narrow: false,
            make: Arc::new(make),
        }
    }

    /// Returns `true` for a control, in which every case must pass.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.clauses.is_empty()
    }

    /// Returns `true` if the store is wrong for many items, one value or one size only. The cases try these;
    /// the other levels reach them by chance.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        self.narrow
    }

    /// Returns a harness with a new in-memory backend.
    #[must_use]
    pub fn harness(&self) -> Arc<dyn Harness> {
        (self.make)()
    }
}

impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutant")
            .field("name", &self.name)
            .field("clauses", &self.clauses)
            .finish_non_exhaustive()
    }
}

/// Returns every mutant in the order of the contracts, the control of each first, and then the mutants
/// that are wrong for many items, one field or one method only.
#[must_use]
pub fn all() -> Vec<Mutant> {
    let all = [
        history::mutants(),
        vectors::mutants(),
        graph::mutants(),
        blobs::mutants(),
        tasks::mutants(),
        key_value::mutants(),
    ];
    let narrow = [many::mutants(), narrow::mutants()].into_iter().flatten();
    let narrow = narrow.map(|mutant| Mutant { narrow: true, ..mutant });
    all.into_iter().flatten().chain(narrow).collect()
}

/// Converts a name such as `limit_0_returns_everything` to a sentence.
fn sentence(name: &str) -> String {
    let words = name.split('_').map(|word| match word {
        "ascii" => "ASCII",
        "etag" => "ETag",
        "kib" => "KiB",
        "mib" => "MiB",
        "nul" => "NUL",
        other => other,
    });
    let text = words.collect::<Vec<_>>().join(" ");
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
