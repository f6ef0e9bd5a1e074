//! The numbers of messages in the toolkit's own records and explanations.
//!
//! Records move with a copy of a store and come back with a restore, both of which change generations. So
//! they keep the number alone, and the mark of a message says whether the thread still holds it.

use larder_kernel::Seq;
use serde::{Serialize, Serializer};

/// Writes the number.
pub(crate) fn number<S: Serializer>(seq: &Seq, serializer: S) -> Result<S::Ok, S::Error> {
    seq.get().serialize(serializer)
}

/// Writes the number, if there is one.
pub(crate) fn optional<S: Serializer>(seq: &Option<Seq>, serializer: S) -> Result<S::Ok, S::Error> {
    seq.map(Seq::get).serialize(serializer)
}

/// Writes the numbers.
pub(crate) fn list<S: Serializer>(seqs: &[Seq], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(seqs.iter().map(|seq| seq.get()))
}
