//! A template for a Larder backend: one contract, stored in memory, and a harness that opens it for the
//! suite.

mod harness;
mod state;
mod store;

pub use harness::MyHarness;
pub use store::{MyPlace, MyStore};
