//! Valid and invalid documents. The tests of running workflows are in `tests/scenarios/everywhere/workflow`,
//! for every backend.

mod spec;
