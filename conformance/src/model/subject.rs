//! The parts that a contract provides: its operations, its model, and the comparison of both at every step.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Capabilities, Contract};

use super::compare::Checked;
use super::recorder::Recorder;
use super::rng::Rng;
use crate::harness::StoreSet;

/// One contract in the level.
#[async_trait]
pub(super) trait Subject: Sized + Send + Sync + 'static {
    /// The contract.
    const CONTRACT: Contract;
    /// The field of [`StoreSet`] with its store.
    const FIELD: &'static str;
    /// The trait of the store.
    type Store: ?Sized + Send + Sync;
    /// An operation with all its arguments.
    type Operation: Debug + Clone + Send + Sync;

    /// Creates the model of an empty namespace.
    fn new(declared: &Capabilities) -> Self;

    /// Returns the contract's store.
    fn store(stores: &StoreSet) -> larder_kernel::Result<Arc<Self::Store>>;

    /// Returns `true` if scripts may use the id.
    fn allows(_declared: &Capabilities, _id: &str) -> bool {
        true
    }

    /// Draws an operation.
    fn draw(rng: &mut Rng<'_>) -> Self::Operation;

    /// Applies the operation to the store and to the model, and compares the results.
    async fn step(
        &mut self,
        store: &Self::Store,
        operation: &Self::Operation,
        recorder: &mut Recorder,
    ) -> Checked;

    /// Reads all data and compares it.
    async fn dump(&mut self, store: &Self::Store, recorder: &mut Recorder) -> Checked;
}
