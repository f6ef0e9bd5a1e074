//! What is read and refused; what runs stands in `tests/everywhere/workflow`, on every backend.

mod spec;
