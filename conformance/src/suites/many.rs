//! Many items: rows of the table of methods and sizes, and functions that write many items.

use std::future::Future;
use std::ops::Range;

use futures_util::{TryStreamExt, stream};

use crate::case::{Case, CaseResult, Failure};

/// The number of concurrent calls that write many items. Fewer than a usual pool has connections, so that the
/// calls of other cases do not wait until their time limit on a slow disk.
const CALLS_AT_ONCE: usize = 8;

/// A method, and a case that calls it on many items.
pub(crate) type Row = (&'static str, Case);

/// Makes one call for each number, several at a time.
///
/// # Errors
/// The first error of a call.
pub(crate) async fn each<R>(numbers: Range<usize>, call: impl Fn(usize) -> R) -> CaseResult
where
    R: Future<Output = CaseResult>,
{
    stream::iter(numbers.map(Ok::<_, Failure>)).try_for_each_concurrent(CALLS_AT_ONCE, call).await
}

/// Returns a number of items as the contracts count them.
pub(crate) fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}
