//! Conversion of `rig`'s filters to Larder's.

use larder_kernel::Filter;
use rig_core::vector_store::request::Filter as RigFilter;
use serde_json::Value;

/// The metadata key of the document as JSON.
pub(super) const DOCUMENT: &str = "document";

/// Converts a filter into the same condition on the top-level fields of stored documents.
pub(super) fn converted(filter: &RigFilter<Value>) -> Filter {
    match filter {
        RigFilter::Eq(key, value) => Filter::eq(field(key), value.clone()),
        RigFilter::Gt(key, value) => match value {
            // In `rig`, `true` is greater than `false`; in Larder, booleans have no order.
            Value::Bool(false) => Filter::eq(field(key), true),
            Value::Number(_) | Value::String(_) => Filter::gt(field(key), value.clone()),
            _ => Filter::any([]),
        },
        RigFilter::Lt(key, value) => match value {
            Value::Bool(true) => Filter::eq(field(key), false),
            Value::Number(_) | Value::String(_) => Filter::lt(field(key), value.clone()),
            _ => Filter::any([]),
        },
        RigFilter::And(..) => {
            let mut parts = Vec::new();
            conjuncts(filter, &mut parts);
            Filter::all(parts)
        }
        RigFilter::Or(..) => {
            let mut parts = Vec::new();
            disjuncts(filter, &mut parts);
            Filter::any(parts)
        }
    }
}

fn field(key: &str) -> [&str; 2] {
    [DOCUMENT, key]
}

/// Flattens a chain into one level: `rig` builds pairs, and a long chain would exceed the depth limit of
/// filters.
fn conjuncts(filter: &RigFilter<Value>, into: &mut Vec<Filter>) {
    match filter {
        RigFilter::And(left, right) => {
            conjuncts(left, into);
            conjuncts(right, into);
        }
        other => into.push(converted(other)),
    }
}

fn disjuncts(filter: &RigFilter<Value>, into: &mut Vec<Filter>) {
    match filter {
        RigFilter::Or(left, right) => {
            disjuncts(left, into);
            disjuncts(right, into);
        }
        other => into.push(converted(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_kernel::Metadata;
    use rig_core::vector_store::request::SearchFilter;
    use serde_json::json;

    /// Tests every condition of one operator and one value, and pairs of them, on every document.
    #[test]
    fn a_filter_matches_as_in_rig() {
        let values = [
            json!(null),
            json!(true),
            json!(false),
            json!(0),
            json!(-1),
            json!(1.5),
            json!(u64::MAX),
            json!("a"),
            json!("b"),
            json!(""),
            json!([1]),
            json!({"x": 1}),
        ];
        let mut documents: Vec<_> = values.iter().map(|value| json!({"k": value})).collect();
        documents.extend([json!({}), json!({"other": 1}), json!("text"), json!(3)]);
        let mut filters: Vec<RigFilter<Value>> = Vec::new();
        for value in &values {
            filters.push(SearchFilter::eq("k", value.clone()));
            filters.push(SearchFilter::gt("k", value.clone()));
            filters.push(SearchFilter::lt("k", value.clone()));
        }
        let pairs = filters
            .iter()
            .zip(filters.iter().skip(4))
            .flat_map(|(left, right)| [left.clone().and(right.clone()), left.clone().or(right.clone())]);
        let pairs: Vec<_> = pairs.collect();
        for filter in filters.iter().chain(&pairs) {
            for document in &documents {
                let metadata = Metadata::new().with(DOCUMENT, document.clone());
                assert_eq!(
                    converted(filter).matches(&metadata),
                    filter.satisfies(document),
                    "{filter:?} on {document}"
                );
            }
        }
    }

    #[test]
    fn a_long_chain_is_not_a_deep_filter() {
        let one = || <RigFilter<Value> as SearchFilter>::eq("k", json!(1));
        let chain = (0..100).fold(one(), |chain, _| chain.and(one()));
        converted(&chain).check("test").unwrap();
        let chain = (0..100).fold(one(), |chain, _| one().or(chain));
        converted(&chain).check("test").unwrap();
    }
}
