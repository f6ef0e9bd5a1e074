//! Methods × sizes: each method that reads or changes many items, called on at least 12,000 of them, or
//! 2,500 if the backend needs a request for each.
//!
//! The rows of a contract are in its folder, in `many.rs`. A method with a lower limit is called at the
//! limit, and again until all items are covered. A test compares the rows and [`SINGLE`] with the methods of
//! the traits, so a new method without a row fails the test.

use larder_kernel::Contract;

use crate::case::Case;
use crate::suites;
use crate::suites::many::Row;

/// Methods that read or change one item.
#[cfg(test)]
const SINGLE: &[(Contract, &[&str])] = &[
    (Contract::History, &[]),
    (Contract::Vectors, &[]),
    (Contract::Graph, &["cypher", "delete_relationship"]),
    (
        Contract::Blobs,
        &[
            "copy",
            "delete",
            "delete_version",
            "get",
            "get_version",
            "head",
            "list_versions",
            "presign",
            "rename",
        ],
    ),
    (Contract::Tasks, &["force_retry", "get_task", "increment_retry", "renew_lease", "update_status"]),
    (Contract::KeyValue, &["delete", "get"]),
];

/// Returns the rows of a contract.
pub(crate) fn rows(contract: Contract) -> Vec<Row> {
    match contract {
        Contract::History => suites::history::many::rows(),
        Contract::Vectors => suites::vectors::many::rows(),
        Contract::Graph => suites::graph::many::rows(),
        Contract::Blobs => suites::blobs::many::rows(),
        Contract::Tasks => suites::tasks::many::rows(),
        Contract::KeyValue => suites::key_value::many::rows(),
    }
}

/// Returns the cases of all rows.
pub(super) fn cases() -> Vec<Case> {
    let rows = Contract::ALL.iter().copied().flat_map(rows);
    rows.map(|(_, case)| case.with_many_calls()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn declared(source: &str) -> BTreeSet<&str> {
        let lines = source.lines().map(str::trim);
        lines.filter_map(|line| line.strip_prefix("async fn ")?.split(['(', '<']).next()).collect()
    }

    #[test]
    fn every_method_has_a_row_or_handles_one_item() {
        for &contract in Contract::ALL {
            let mut expected = declared(contract.source());
            expected.extend(declared(Contract::shared_source()));
            let single = SINGLE.iter().filter(|(of, _)| *of == contract).flat_map(|(_, names)| *names);
            let single: BTreeSet<&str> = single.copied().collect();
            let many: BTreeSet<&str> = rows(contract).into_iter().map(|(method, _)| method).collect();
            assert!(single.is_disjoint(&many), "{contract}: {single:?}");
            assert_eq!(many.union(&single).copied().collect::<BTreeSet<_>>(), expected, "{contract}");
        }
    }
}
