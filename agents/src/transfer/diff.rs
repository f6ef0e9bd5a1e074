//! Comparison of two scans.

use std::cmp::Ordering;

use larder_kernel::{Result, Timestamp};

use super::record::Record;
use super::scan::Ordered;
use super::write::vectors::PLACEHOLDER;

/// The records of both scans at one position of their order.
pub(crate) enum Pair {
    /// Only the source has the record.
    Missing(Record),
    /// Only the target has the record.
    Extra(Record),
    /// Both have a record with this name. The first is the source's.
    Both(Box<(Record, Record)>),
}

/// A merge of two scans.
pub(crate) struct Merge {
    source: Ordered,
    target: Ordered,
    heads: Option<(Option<Record>, Option<Record>)>,
}

impl Merge {
    pub(crate) fn new(source: Ordered, target: Ordered) -> Self {
        Self { source, target, heads: None }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Pair>> {
        let (from, to) = match self.heads.take() {
            Some(heads) => heads,
            None => (self.source.next().await?, self.target.next().await?),
        };
        let (from, to) = match (from, to) {
            (None, None) => {
                self.heads = Some((None, None));
                return Ok(None);
            }
            (from, to) => (from, to),
        };
        let order = match (&from, &to) {
            (Some(from), Some(to)) => from.sort_key().cmp(&to.sort_key()),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        Ok(match (order, from, to) {
            (Ordering::Less, Some(from), to) => {
                self.heads = Some((self.source.next().await?, to));
                Some(Pair::Missing(from))
            }
            (Ordering::Greater, from, Some(to)) => {
                self.heads = Some((from, self.target.next().await?));
                Some(Pair::Extra(to))
            }
            (_, Some(from), Some(to)) => {
                self.heads = Some((self.source.next().await?, self.target.next().await?));
                Some(Pair::Both(Box::new((from, to))))
            }
            _ => None,
        })
    }

    /// Returns `true` if the target has ended, so that all further records are missing there.
    pub(crate) fn target_has_ended(&self) -> bool {
        matches!(self.heads, Some((_, None)))
    }
}

/// The result of comparing a record of the target with one of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Both records are equal.
    Same,
    /// The target has the task in a state from which steps lead to the source's.
    OnTheWay,
    /// The target has a different record with the same name.
    Different,
}

/// Compares two sealed records with the same name.
pub(crate) fn compare(source: &Record, target: &Record) -> Result<Standing> {
    if source.canonical()? == target.canonical()? {
        return Ok(Standing::Same);
    }
    Ok(match (source, target) {
        (Record::Task(goal), Record::Task(task)) if task.is_on_the_way_to(goal) => Standing::OnTheWay,
        _ => Standing::Different,
    })
}

/// Returns `true` if a record on one side can be ignored: a key that is about to expire, or the placeholder
/// of an interrupted copy.
pub(crate) fn is_passing(record: &Record) -> bool {
    // This covers the difference between two clocks and the duration of a call.
    let soon = Timestamp::now().saturating_add(std::time::Duration::from_secs(10));
    record.expired_by(soon) || is_placeholder(record)
}

/// Returns `true` for the document with which a copy creates an empty collection.
pub(crate) fn is_placeholder(record: &Record) -> bool {
    matches!(record, Record::Document(document) if document.id.as_str() == PLACEHOLDER)
}

/// The counts of a comparison. They contain no ids, so that an error may include them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Difference {
    /// The number of records that are equal on both sides.
    pub same: u64,
    /// The number of records that only the source has.
    pub missing: u64,
    /// The number of records with the same name and different content.
    pub different: u64,
    /// The number of records that only the target has.
    pub extra: u64,
}

impl Difference {
    /// Returns `true` if both sides are equal.
    #[must_use]
    pub fn is_none(&self) -> bool {
        (self.missing, self.different, self.extra) == (0, 0, 0)
    }
}
