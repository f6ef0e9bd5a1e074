//! Stores that are right for a few items and wrong for many.
//!
//! Each passes every call on to an in-memory store, except for the calls that its defect concerns.

mod blobs;
mod graph;
mod history;
mod key_value;
mod tasks;
mod vectors;

use larder_kernel::Page;

use super::Mutant;

/// The largest number of rows that the database returns for one call.
const ROWS_MAX: usize = 5_000;
/// The largest number of items that a method counts, changes or remembers.
const ITEMS_MAX: usize = 10_000;
/// The same as the contracts count items.
const COUNT_MAX: u64 = 10_000;

/// Returns the mutants of all contracts.
pub(super) fn mutants() -> Vec<Mutant> {
    let all = [
        history::mutants(),
        vectors::mutants(),
        graph::mutants(),
        blobs::mutants(),
        tasks::mutants(),
        key_value::mutants(),
    ];
    all.into_iter().flatten().collect()
}

/// Cuts a page to the rows that the database returns. The store takes a short page for the last one.
fn cut<T, K>(mut page: Page<T, K>) -> Page<T, K> {
    if page.items.len() > ROWS_MAX {
        page.items.truncate(ROWS_MAX);
        page.next = None;
    }
    page
}
