//! What a contract brings: its operations, its model, and the comparison of both at every step.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Capabilities, Contract};

use super::compare::Checked;
use super::recorder::Recorder;
use super::rng::Rng;
use crate::harness::StoreSet;

/// One contract under the level.
#[async_trait]
pub(super) trait Subject: Sized + Send + Sync + 'static {
    /// The contract.
    const CONTRACT: Contract;
    /// The field of [`StoreSet`] that holds its store.
    const FIELD: &'static str;
    /// Its trait.
    type Store: ?Sized + Send + Sync;
    /// An operation with everything that it is given.
    type Operation: Debug + Clone + Send + Sync;

    /// The model of an empty namespace.
    fn new(declared: &Capabilities) -> Self;

    /// The contract's store.
    fn store(stores: &StoreSet) -> Option<Arc<Self::Store>>;

    /// Whether an id may be used in scripts.
    fn allows(_declared: &Capabilities, _id: &str) -> bool {
        true
    }

    /// Draws an operation.
    fn draw(rng: &mut Rng<'_>) -> Self::Operation;

    /// Does the operation on the store and on the model, and compares.
    async fn step(
        &mut self,
        store: &Self::Store,
        operation: &Self::Operation,
        recorder: &mut Recorder,
    ) -> Checked;

    /// Reads everything there is, and compares.
    async fn dump(&mut self, store: &Self::Store, recorder: &mut Recorder) -> Checked;
}
