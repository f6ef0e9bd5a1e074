//! The translation of a filter to the server: a condition in SQL's JSON path language that every matching
//! document satisfies.
//!
//! The condition may let other documents pass, which the kernel's filter then rejects. It omits the parts
//! that the server evaluates differently: numbers beyond 2^53, which the server compares by their decimal
//! digits, and all negations, which would turn "too many" into "too few".

use larder_kernel::{Field, Filter};
use serde_json::Value;

/// The maximum number of values of one `In` that the condition lists.
const VALUES_MAX: usize = 64;
/// Up to this value, whole numbers and 32- and 64-bit floats have the same decimal form.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns a condition in SQL's JSON path language that is true wherever one of the filters matches; `None`
/// if no such condition would exclude a document.
pub(super) fn prefilter(filters: &[&Filter]) -> Option<String> {
    join(filters.iter().map(|filter| condition(filter)), "||")
}

fn condition(filter: &Filter) -> Option<String> {
    match filter {
        Filter::Eq(field, value) => Some(equal(field, value)),
        Filter::In(field, values) if values.len() <= VALUES_MAX => {
            join(values.iter().map(|value| Some(equal(field, value))), "||")
        }
        Filter::In(field, _) | Filter::Exists(field) => Some(exists(field)),
        // Comparisons examine the elements of arrays. They let other values pass, too.
        Filter::ContainsAny(field, values) if values.len() <= VALUES_MAX => {
            join(values.iter().map(|value| Some(equal(field, value))), "||")
        }
        Filter::ContainsAll(field, values) if (1..=VALUES_MAX).contains(&values.len()) => {
            join(values.iter().map(|value| Some(equal(field, value))), "&&")
        }
        Filter::ContainsAny(field, _) | Filter::ContainsAll(field, _) => Some(exists(field)),
        Filter::ContainsKey(field, key) => {
            Some(format!("exists ({}.{})", path(field), Value::from(key.as_str())))
        }
        Filter::Gt(field, value) => Some(ordered(field, ">", value)),
        Filter::Gte(field, value) => Some(ordered(field, ">=", value)),
        Filter::Lt(field, value) => Some(ordered(field, "<", value)),
        Filter::Lte(field, value) => Some(ordered(field, "<=", value)),
        Filter::And(filters) => {
            // If some of the filters have no condition, the others still narrow the search.
            let said: Vec<String> = filters.iter().filter_map(condition).collect();
            if said.is_empty() { None } else { join(said.into_iter().map(Some), "&&") }
        }
        Filter::Or(filters) => join(filters.iter().map(condition), "||"),
        _ => None,
    }
}

/// Joins the conditions. The result is `None` if any of them is `None`. An empty list is an `Or` without
/// operands.
fn join(conditions: impl Iterator<Item = Option<String>>, operator: &str) -> Option<String> {
    let conditions = conditions.collect::<Option<Vec<_>>>()?;
    if conditions.is_empty() {
        return Some(nothing());
    }
    Some(format!("({})", conditions.join(operator)))
}

fn nothing() -> String {
    "(1 == 2)".to_owned()
}

fn equal(field: &Field, value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => format!("({} == {value})", path(field)),
        Value::Number(_) if is_plain(value) => format!("({} == {value})", path(field)),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => exists(field),
    }
}

fn ordered(field: &Field, operator: &str, value: &Value) -> String {
    match value {
        Value::String(_) => format!("({} {operator} {value})", path(field)),
        Value::Number(_) if is_plain(value) => format!("({} {operator} {value})", path(field)),
        Value::Number(_) => exists(field),
        // These values have no order.
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => nothing(),
    }
}

fn is_plain(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number.abs() <= EXACT_MAX)
}

fn exists(field: &Field) -> String {
    format!("exists ({})", path(field))
}

/// Returns the path to the field. JSON string literals are also valid in the path language.
fn path(field: &Field) -> String {
    field.keys().iter().fold("$".to_owned(), |path, key| format!("{path}.{}", Value::from(key.as_str())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equality_that_the_server_can_detect_is_documented() {
        let said = [
            (Filter::eq("a", 1), r#"(($."a" == 1))"#),
            (Filter::eq(["a.b", "\"c"], "x\n"), r#"(($."a.b"."\"c" == "x\n"))"#),
            (Filter::gt("a", -2.5), r#"(($."a" > -2.5))"#),
            (Filter::lt("a", true), "((1 == 2))"),
            (Filter::eq("a", json!([1])), r#"(exists ($."a"))"#),
            (Filter::eq("a", u64::MAX), r#"(exists ($."a"))"#),
            (Filter::any([]), "((1 == 2))"),
            (Filter::eq("a", 1) & !Filter::exists("b"), r#"((($."a" == 1)))"#),
            (Filter::contains_any("a", ["x", "y"]), r#"((($."a" == "x")||($."a" == "y")))"#),
            (Filter::contains_all("a", ["x", "y"]), r#"((($."a" == "x")&&($."a" == "y")))"#),
            (Filter::contains_all("a", Vec::<Value>::new()), r#"(exists ($."a"))"#),
            (Filter::contains_any("a", Vec::<Value>::new()), "((1 == 2))"),
            (Filter::is_in("a", ["x", "y"]), r#"((($."a" == "x")||($."a" == "y")))"#),
        ];
        for (filter, expected) in said {
            assert_eq!(prefilter(&[&filter]).as_deref(), Some(expected), "{filter:?}");
        }
        let unsaid = [
            !Filter::eq("a", 1),
            Filter::ne("a", 1),
            Filter::all([]),
            Filter::eq("a", 1) | Filter::ne("b", 1),
            Filter::all([Filter::all([])]),
        ];
        for filter in unsaid {
            assert_eq!(prefilter(&[&filter]), None, "{filter:?}");
        }
    }
}
