//! Two scans side by side.

use std::cmp::Ordering;

use larder_kernel::{Result, Timestamp};

use super::record::Record;
use super::scan::Ordered;
use super::write::vectors::PLACEHOLDER;

/// What the two scans have at one place of their order.
pub(crate) enum Pair {
    /// Only the source has it.
    Missing(Record),
    /// Only the target has it.
    Extra(Record),
    /// Both have something under this name: first the source's.
    Both(Box<(Record, Record)>),
}

/// The merge of two scans.
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

    /// Whether the target has nothing more: all that follows is missing there.
    pub(crate) fn target_has_ended(&self) -> bool {
        matches!(self.heads, Some((_, None)))
    }
}

/// How a place of the target stands to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It holds what the source holds.
    Same,
    /// It holds a task from which steps lead to the source's.
    OnTheWay,
    /// It holds something else under the same name.
    Different,
}

/// Compares two sealed records of one place.
pub(crate) fn compare(source: &Record, target: &Record) -> Result<Standing> {
    if source.canonical()? == target.canonical()? {
        return Ok(Standing::Same);
    }
    Ok(match (source, target) {
        (Record::Task(goal), Record::Task(task)) if task.is_on_the_way_to(goal) => Standing::OnTheWay,
        _ => Standing::Different,
    })
}

/// Whether a record that only one side has is none of either: a key that is about to expire, or what a copy that was
/// ended from outside had put there for a moment.
pub(crate) fn is_passing(record: &Record) -> bool {
    // As much as two clocks may differ, and a call may take.
    let soon = Timestamp::now().saturating_add(std::time::Duration::from_secs(10));
    record.expired_by(soon) || is_placeholder(record)
}

/// Whether it is the document by which a copy makes a collection that holds none.
pub(crate) fn is_placeholder(record: &Record) -> bool {
    matches!(record, Record::Document(document) if document.id.as_str() == PLACEHOLDER)
}

/// What a comparison counted. No ids, so that it may stand in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Difference {
    /// Records that both sides hold alike.
    pub same: u64,
    /// Records that only the source holds.
    pub missing: u64,
    /// Records that both hold under one name, but differently.
    pub different: u64,
    /// Records that only the target holds.
    pub extra: u64,
}

impl Difference {
    /// Whether both sides hold the same.
    #[must_use]
    pub fn is_none(&self) -> bool {
        (self.missing, self.different, self.extra) == (0, 0, 0)
    }
}
