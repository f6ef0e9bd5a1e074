//! How far a copy has come.

use std::fmt;

use larder_kernel::Contract;

use super::record::Record;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// What the target holds is held against the source.
    Check,
    /// What the target lacks is written.
    Write,
    /// Both sides are read again.
    Verify,
}

/// One record further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Of which contract the record is.
    pub contract: Contract,
    /// About how many bytes it holds.
    pub bytes: u64,
}

/// Who is told of each record.
pub struct Watch<'a>(Option<&'a (dyn Fn(Progress) + Send + Sync)>);

impl<'a> Watch<'a> {
    /// Nobody.
    #[must_use]
    pub fn nobody() -> Self {
        Self(None)
    }

    /// This function.
    #[must_use]
    pub fn new(told: &'a (dyn Fn(Progress) + Send + Sync)) -> Self {
        Self(Some(told))
    }

    pub(crate) fn see(&self, phase: Phase, record: &Record) {
        if let Some(told) = self.0 {
            told(Progress { phase, contract: record.contract(), bytes: record.bytes() });
        }
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.is_some()).finish()
    }
}
