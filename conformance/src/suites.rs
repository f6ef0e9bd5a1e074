//! The cases, one folder for each contract.

pub(crate) mod background;
pub mod blobs;
pub mod graph;
pub mod history;
pub(crate) mod ids;
pub mod key_value;
pub(crate) mod known;
pub(crate) mod many;
pub mod refusals;
pub mod shared;
pub mod tasks;
pub(crate) mod values;
pub mod vectors;

use crate::case::Case;

/// Returns every case of the suite, in the order of the contracts.
#[must_use]
pub fn all() -> Vec<Case> {
    let own = [
        history::cases(),
        vectors::cases(),
        graph::cases(),
        blobs::cases(),
        tasks::cases(),
        key_value::cases(),
    ];
    own.into_iter().flatten().chain(shared::cases()).chain(refusals::cases()).collect()
}
