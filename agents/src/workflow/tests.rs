//! What is read and refused; what runs stands in `tests/scenarios/everywhere/workflow`, on every backend.

mod spec;
