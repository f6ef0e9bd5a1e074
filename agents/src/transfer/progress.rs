//! Progress of a copy.

use std::fmt;

use larder_kernel::Contract;

use super::record::Record;

/// A phase of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The target is compared with the source.
    Check,
    /// Missing records are written to the target.
    Write,
    /// Both sides are read again.
    Verify,
}

/// The progress of a copy by one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// The contract of the record.
    pub contract: Contract,
    /// The approximate size of the record, in bytes.
    pub bytes: u64,
}

/// An observer of each record.
pub struct Watch<'a>(Option<&'a (dyn Fn(Progress) + Send + Sync)>);

impl<'a> Watch<'a> {
    /// Creates an observer that does nothing.
    #[must_use]
    pub fn nobody() -> Self {
        Self(None)
    }

    /// Creates an observer from a function.
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
