//! The promises of the workflows.

mod bench;
pub(crate) mod carry;
pub(crate) mod control;
pub(crate) mod crash;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod race;
