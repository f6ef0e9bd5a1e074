//! What the workflows promise, on the stores in memory.

mod bench;
mod carry;
mod control;
mod crash;
mod machine;
mod race;
mod spec;
