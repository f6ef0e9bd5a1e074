//! Metadata of every type and filters over them, for every contract with filters.
//!
//! The expected result is always [`Filter::matches`], the definition. The values cover known differences of
//! databases: types that convert, numbers that round, strings that collate, arrays that contain, paths that
//! index.

use larder_kernel::{Filter, Metadata};
use serde_json::{Value, json};

fn numbers() -> Vec<Value> {
    vec![
        json!(0),
        json!(-0.0),
        json!(1),
        json!(1.0),
        json!(-1),
        json!(1.5),
        json!(2),
        json!(10),
        json!(0.1),
        json!(9_007_199_254_740_992_i64),
        json!(9_007_199_254_740_993_i64),
        json!(9_007_199_254_740_992.0),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(9_223_372_036_854_775_808_u64),
        json!(9_223_372_036_854_775_808.0),
        json!(18_446_744_073_709_551_616.0),
        json!(1e16),
        json!(1e300),
        json!(-1e300),
        json!(5e-324),
    ]
}

fn strings() -> Vec<Value> {
    [
        "", "0", "1", "1.0", "10", "2", "true", "null", "a", "A", "ab", "B", "a ", "é", "e\u{301}", "z", "%",
        "_", "a%", "\"a\"", "'", "\\", "\n", "{}", "[]", "ß", "ss", "\u{e000}", "\u{ffff}", "🦀",
    ]
    .into_iter()
    .map(Value::from)
    .collect()
}

fn others() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(false),
        json!([]),
        json!([1]),
        json!([1.0]),
        json!([1, 2]),
        json!([2, 1]),
        json!(["a"]),
        json!([null]),
        json!([[]]),
        json!([true]),
        json!(["a", 1, null, {"a": 1}, [1]]),
        json!(["1", 2, "ab", "é"]),
        json!({}),
        json!({"a": 1}),
        json!({"a": 1.0}),
        json!({"a": true}),
        json!({"a": null}),
        json!({"a": 1, "b": 2}),
        json!({"b": 2.0, "a": 1}),
        json!({"A": 1}),
        json!({"a": [1, {"b": "c"}]}),
    ]
}

fn values() -> Vec<Value> {
    [numbers(), strings(), others()].concat()
}

/// Returns the metadata to store: one for each value of the table under `v`, and some of other shapes.
pub(crate) fn stored() -> Vec<Metadata> {
    let mut all: Vec<Metadata> = values().into_iter().map(|value| Metadata::new().with("v", value)).collect();
    all.push(Metadata::new());
    all.push(Metadata::new().with("V", 1));
    all.push(Metadata::new().with("w", 1).with("x", "a"));
    all.push(Metadata::new().with("v", 1).with("w", true).with("x", "A"));
    all.push(Metadata::new().with("v", json!({"v": {"v": 1}})));
    all.push(Metadata::new().with("v", json!([{"a": 1}, {"0": 2}])));
    all.push(Metadata::new().with("v", json!({"0": {"a": 1}})));
    all.extend(odd_keys().into_iter().map(|key| Metadata::new().with(key, 1)));
    all.extend(odd_keys().into_iter().map(|key| Metadata::new().with("v", json!({ key: "in" }))));
    all.push(Metadata::new().with("a", json!({"b": {"c": {"d": {"e": {"f": {"g": {"h": 8}}}}}}})));
    all
}

fn odd_keys() -> Vec<String> {
    let long = "k".repeat(300);
    [
        "", "a.b", "a", "b", "0", "$", "$.v", "*", "a b", "a\"b", "a'b", "a\\b", "[0]", "#", "é", "e\u{301}",
        "?", "@", "-1", "v'", "{}", &long,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Returns filters of equality, its complement, and membership.
pub(crate) fn equality() -> Vec<Filter> {
    let mut filters = Vec::new();
    for value in values() {
        filters.push(Filter::eq("v", value.clone()));
        filters.push(Filter::ne("v", value));
    }
    filters.extend([
        Filter::is_in("v", Vec::<Value>::new()),
        Filter::is_in("v", [json!(null)]),
        Filter::is_in("v", [json!(1), json!("1")]),
        Filter::is_in("v", [json!(true), json!(0.0), json!("A"), json!([1]), json!({"a": 1})]),
        Filter::is_in("v", [json!([1, 2])]),
        Filter::is_in("absent", [json!(null), json!(1)]),
        Filter::eq("absent", json!(null)),
        Filter::ne("absent", json!(null)),
        !Filter::is_in("v", [json!(1), json!(null)]),
        !Filter::eq("v", 1),
        !Filter::ne("v", json!(null)),
    ]);
    filters
}

/// Returns the four comparisons with every value, including types without an order.
pub(crate) fn order() -> Vec<Filter> {
    let mut filters = Vec::new();
    for value in values() {
        filters.push(Filter::gt("v", value.clone()));
        filters.push(Filter::gte("v", value.clone()));
        filters.push(Filter::lt("v", value.clone()));
        filters.push(Filter::lte("v", value));
    }
    filters.extend([
        !Filter::gt("v", 0),
        !Filter::lte("v", "a"),
        Filter::lt("absent", 1),
        !Filter::lt("absent", 1),
    ]);
    filters
}

/// Returns filters of presence, keys of objects, and paths to nested values.
pub(crate) fn paths() -> Vec<Filter> {
    let mut filters = vec![
        Filter::exists("v"),
        Filter::exists("V"),
        Filter::exists("absent"),
        Filter::exists(["v", "v"]),
        Filter::eq(["v", "v", "v"], 1),
        Filter::ne(["v", "v", "v"], 1),
        Filter::exists(["v", "0"]),
        Filter::exists(["v", "1"]),
        Filter::eq(["v", "0", "a"], 1),
        Filter::exists(["v", "a", "b"]),
        Filter::exists(["v", "a", "1", "b"]),
        Filter::eq(["v", "length"], 1),
        Filter::eq(["a", "b"], 1),
        Filter::exists(["a", "b"]),
        Filter::eq(["a", "b", "c", "d", "e", "f", "g", "h"], 8),
        Filter::exists(["a", "b", "c", "d", "e", "f", "g", "i"]),
        Filter::contains_key(["v", "v"], "v"),
        Filter::contains_key(["a", "b"], "c"),
        Filter::contains_key("absent", "a"),
        !Filter::contains_key("v", "a"),
        !Filter::exists("v"),
    ];
    for key in odd_keys() {
        filters.push(Filter::exists(key.clone()));
        filters.push(Filter::eq(key.clone(), 1));
        filters.push(Filter::eq(vec!["v".to_owned(), key.clone()], "in"));
        filters.push(Filter::exists(vec!["v".to_owned(), key.clone()]));
        filters.push(Filter::contains_key("v", key));
    }
    filters
}

/// Returns filters over the elements of arrays.
pub(crate) fn arrays() -> Vec<Filter> {
    let mut filters = Vec::new();
    for value in values() {
        filters.push(Filter::contains_any("v", [value.clone()]));
        filters.push(Filter::contains_all("v", [value.clone(), value]));
    }
    let none = Vec::<Value>::new;
    filters.extend([
        Filter::contains_any("v", none()),
        Filter::contains_all("v", none()),
        Filter::contains_any("v", [json!("a"), json!(2)]),
        Filter::contains_all("v", [json!("a"), json!(1.0)]),
        Filter::contains_all("v", [json!(2), json!(1)]),
        Filter::contains_all("v", [json!(1), json!(2), json!(3)]),
        Filter::contains_any("v", [json!(true), json!({"a": 1.0})]),
        Filter::contains_all("v", [json!([1.0]), json!(null)]),
        Filter::contains_any(["v", "a"], [json!(1)]),
        Filter::contains_all(["v", "a"], [json!({"b": "c"})]),
        Filter::contains_any(["v", "0"], [json!(1)]),
        Filter::contains_any("absent", [json!(null)]),
        Filter::contains_all("absent", none()),
        !Filter::contains_any("v", [json!(1)]),
        !Filter::contains_all("v", none()),
        Filter::contains_any("v", [json!(1)]) & !Filter::contains_all("v", [json!("a")]),
        Filter::contains_any("v", (0..256).map(|number| json!(number))),
        Filter::contains_all("v", (0..256).map(|_| json!(1))),
    ]);
    filters
}

/// Returns groups, empty groups and negations of them.
pub(crate) fn groups() -> Vec<Filter> {
    let (one, flag, name) = (Filter::eq("v", 1), Filter::eq("w", true), Filter::eq("x", "A"));
    vec![
        Filter::all([]),
        Filter::any([]),
        !Filter::all([]),
        !Filter::any([]),
        Filter::all([one.clone()]),
        Filter::any([flag.clone()]),
        one.clone() & flag.clone(),
        one.clone() | flag.clone(),
        !(one.clone() & flag.clone()),
        !(one.clone() | flag.clone()),
        !!one.clone(),
        (one.clone() | flag.clone()) & !name.clone(),
        one.clone() | (flag.clone() & !name.clone()),
        !(!one.clone() & !flag.clone()),
        Filter::ne("w", 1) & Filter::exists("w"),
        !Filter::gt("v", 1) & !Filter::lte("v", 1),
        Filter::all([Filter::any([]), one.clone()]),
        Filter::any([Filter::all([]), flag]),
        !(!Filter::any([Filter::gt("v", 5), Filter::lt("v", "b")]) | name),
        !Filter::all([Filter::exists("v"), !Filter::any([one])]),
    ]
}

/// Returns filters of the maximum width, depth and length.
pub(crate) fn at_limits() -> Vec<Filter> {
    let mut deep = Filter::eq("v", 1);
    for _ in 0..31 {
        deep = !deep;
    }
    let mut groups = Filter::eq("v", 2);
    for level in 0..31 {
        groups = if level % 2 == 0 { Filter::any([groups]) } else { Filter::all([groups]) };
    }
    vec![
        deep,
        groups,
        Filter::any((0..255).map(|number| Filter::eq("v", number - 5))),
        Filter::all((0..255).map(|number| Filter::ne("v", number))),
        Filter::is_in("v", (0..10_000).map(|number| number * 2)),
        !Filter::is_in("v", (0..10_000).map(|number| format!("{number}"))),
        Filter::eq("v", "x".repeat(65_536)),
        Filter::exists("k".repeat(300)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_in_the_table_is_allowed() {
        for filter in [equality(), order(), paths(), arrays(), groups(), at_limits()].concat() {
            filter.check("test").unwrap();
        }
        for metadata in stored() {
            metadata.check("test", "metadata").unwrap();
        }
    }

    #[test]
    fn each_part_of_the_table_distinguishes_documents() {
        for filters in [equality(), order(), paths(), groups()] {
            let tells = |filter: &&Filter| {
                let matching = stored().iter().filter(|metadata| filter.matches(metadata)).count();
                (1..stored().len()).contains(&matching)
            };
            assert!(filters.iter().filter(tells).count() * 4 >= filters.len());
        }
    }
}
