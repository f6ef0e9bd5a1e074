//! The filter language for metadata and properties.

use std::cmp::Ordering;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check;
use crate::error::Result;
use crate::limits::{
    FILTER_ELEMENTS_MAX, FILTER_NODES_MAX, FILTER_PATH_KEYS_MAX, JSON_DEPTH_MAX, METADATA_BYTES_MAX,
    PAGE_ITEMS_MAX,
};
use crate::metadata::{Metadata, check_value, json_compare, json_equal, value_size_bytes};

/// The path to a value: object keys from the top level, taken literally. A dot is part of a key. Cloning
/// shares the keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct Field(Arc<[String]>);

impl Field {
    /// Returns the keys, outermost first.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.0
    }

    fn resolve<'a>(&self, metadata: &'a Metadata) -> Option<&'a Value> {
        let (first, rest) = self.0.split_first()?;
        let mut value = metadata.get(first)?;
        for key in rest {
            value = value.as_object()?.get(key)?;
        }
        Some(value)
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        check::batch(operation, "filter.field", self.0.len(), FILTER_PATH_KEYS_MAX)?;
        self.0.iter().try_for_each(|key| check::no_nul(operation, "filter.field", key))
    }
}

impl From<&str> for Field {
    fn from(key: &str) -> Self {
        Self([key.to_owned()].into())
    }
}

impl From<String> for Field {
    fn from(key: String) -> Self {
        Self([key].into())
    }
}

impl<const N: usize> From<[&str; N]> for Field {
    fn from(keys: [&str; N]) -> Self {
        Self(keys.iter().map(|key| (*key).to_owned()).collect())
    }
}

impl From<Vec<String>> for Field {
    fn from(keys: Vec<String>) -> Self {
        Self(keys.into())
    }
}

impl From<Field> for Vec<String> {
    fn from(field: Field) -> Self {
        field.0.to_vec()
    }
}

/// A condition on metadata, with the same meaning on every backend.
///
/// Values compare by [`json_equal`] and [`json_compare`]. An absent field equals no value, not even `null`,
/// and has no order. [`Filter::Ne`] and [`Filter::Not`] are the exact complements of the conditions that they
/// negate, so `ne` also matches an absent field. An empty `And` matches everything. An empty `Or` and an
/// empty `In` match nothing. An empty `ContainsAny` matches nothing, and an empty `ContainsAll` matches every
/// array.
///
/// ```
/// use larder_kernel::{Filter, Metadata};
///
/// let filter = Filter::eq("tenant", "acme") & Filter::gte(["score", "quality"], 0.5);
/// let metadata = Metadata::new()
///     .with("tenant", "acme")
///     .with("score", serde_json::json!({ "quality": 1 }));
/// assert!(filter.matches(&metadata));
/// assert!(!(!filter).matches(&metadata));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Filter {
    /// The field exists and equals the value.
    Eq(Field, Value),
    /// The complement of `Eq`: the field is absent or differs from the value.
    Ne(Field, Value),
    /// The field exists, has an order relative to the value, and is greater.
    Gt(Field, Value),
    /// The field is greater than or equal to the value.
    Gte(Field, Value),
    /// The field exists, has an order relative to the value, and is less.
    Lt(Field, Value),
    /// The field is less than or equal to the value.
    Lte(Field, Value),
    /// The field exists and equals one of the values.
    In(Field, Vec<Value>),
    /// The field exists. A field with the value `null` exists.
    Exists(Field),
    /// The field is an object that has the key.
    ContainsKey(Field, String),
    /// The field is an array, and at least one of its elements equals one of the values.
    ContainsAny(Field, Vec<Value>),
    /// The field is an array, and each of the values equals one of its elements.
    ContainsAll(Field, Vec<Value>),
    /// All of these filters match.
    And(Vec<Filter>),
    /// At least one of these filters matches.
    Or(Vec<Filter>),
    /// This filter does not match.
    Not(Box<Filter>),
}

macro_rules! comparison {
    ($(#[$doc:meta])* $name:ident, $variant:ident) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(field: impl Into<Field>, value: impl Into<Value>) -> Self {
            Self::$variant(field.into(), value.into())
        }
    };
}

impl Filter {
    comparison!(
        /// Creates a filter: the field equals the value.
        eq, Eq
    );
    comparison!(
        /// Creates a filter: the field is absent or differs from the value.
        ne, Ne
    );
    comparison!(
        /// Creates a filter: the field is greater than the value.
        gt, Gt
    );
    comparison!(
        /// Creates a filter: the field is greater than or equal to the value.
        gte, Gte
    );
    comparison!(
        /// Creates a filter: the field is less than the value.
        lt, Lt
    );
    comparison!(
        /// Creates a filter: the field is less than or equal to the value.
        lte, Lte
    );

    /// Creates a filter: the field equals one of the values.
    #[must_use]
    pub fn is_in<V: Into<Value>>(field: impl Into<Field>, values: impl IntoIterator<Item = V>) -> Self {
        Self::In(field.into(), values.into_iter().map(Into::into).collect())
    }

    /// Creates a filter: the field exists.
    #[must_use]
    pub fn exists(field: impl Into<Field>) -> Self {
        Self::Exists(field.into())
    }

    /// Creates a filter: the field is an object that has the key.
    #[must_use]
    pub fn contains_key(field: impl Into<Field>, key: impl Into<String>) -> Self {
        Self::ContainsKey(field.into(), key.into())
    }

    /// Creates a filter: the field is an array with at least one of the values.
    ///
    /// ```
    /// use larder_kernel::{Filter, Metadata};
    ///
    /// let metadata = Metadata::new().with("tags", serde_json::json!(["tea", "london"]));
    /// assert!(Filter::contains_any("tags", ["tea", "coffee"]).matches(&metadata));
    /// assert!(!Filter::contains_all("tags", ["tea", "coffee"]).matches(&metadata));
    /// ```
    #[must_use]
    pub fn contains_any<V: Into<Value>>(
        field: impl Into<Field>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self::ContainsAny(field.into(), values.into_iter().map(Into::into).collect())
    }

    /// Creates a filter: the field is an array with all of the values.
    #[must_use]
    pub fn contains_all<V: Into<Value>>(
        field: impl Into<Field>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self::ContainsAll(field.into(), values.into_iter().map(Into::into).collect())
    }

    /// Creates a filter: all of these filters match.
    #[must_use]
    pub fn all(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::And(filters.into_iter().collect())
    }

    /// Creates a filter: at least one of these filters matches.
    #[must_use]
    pub fn any(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::Or(filters.into_iter().collect())
    }

    /// Creates a filter: this filter and the other both match. Same as `&`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self & other
    }

    /// Creates a filter: this filter or the other matches. Same as `|`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self | other
    }

    /// Returns `true` if the metadata matches the filter. This function is the reference: the evaluation of
    /// every backend returns the same result.
    #[must_use]
    pub fn matches(&self, metadata: &Metadata) -> bool {
        let ordered = |field: &Field, value: &Value, accept: fn(Ordering) -> bool| {
            field.resolve(metadata).and_then(|found| json_compare(found, value)).is_some_and(accept)
        };
        let equals = |field: &Field, value: &Value| {
            field.resolve(metadata).is_some_and(|found| json_equal(found, value))
        };
        let elements = |field: &Field| field.resolve(metadata).and_then(Value::as_array);
        let has = |array: &[Value], value: &Value| array.iter().any(|element| json_equal(element, value));
        match self {
            Self::Eq(field, value) => equals(field, value),
            Self::Ne(field, value) => !equals(field, value),
            Self::Gt(field, value) => ordered(field, value, Ordering::is_gt),
            Self::Gte(field, value) => ordered(field, value, Ordering::is_ge),
            Self::Lt(field, value) => ordered(field, value, Ordering::is_lt),
            Self::Lte(field, value) => ordered(field, value, Ordering::is_le),
            Self::In(field, values) => values.iter().any(|value| equals(field, value)),
            Self::Exists(field) => field.resolve(metadata).is_some(),
            Self::ContainsKey(field, key) => {
                field.resolve(metadata).and_then(Value::as_object).is_some_and(|map| map.contains_key(key))
            }
            Self::ContainsAny(field, values) => {
                elements(field).is_some_and(|array| values.iter().any(|value| has(array, value)))
            }
            Self::ContainsAll(field, values) => {
                elements(field).is_some_and(|array| values.iter().all(|value| has(array, value)))
            }
            Self::And(filters) => filters.iter().all(|filter| filter.matches(metadata)),
            Self::Or(filters) => filters.iter().any(|filter| filter.matches(metadata)),
            Self::Not(filter) => !filter.matches(metadata),
        }
    }

    /// Checks the depth, size and content of the filter for `operation`.
    ///
    /// # Errors
    /// `InvalidInput` naming the part of the filter and the limit.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        let mut nodes = 0;
        self.check_node(operation, 1, &mut nodes)
    }

    fn check_node(&self, operation: &'static str, depth: usize, nodes: &mut usize) -> Result<()> {
        *nodes += 1;
        check::at_most(operation, "filter", *nodes, FILTER_NODES_MAX)?;
        check::at_most(operation, "filter.depth", depth, JSON_DEPTH_MAX)?;
        let value = |value: &Value| {
            check_value(operation, "filter.value", value, 1)?;
            check::at_most(operation, "filter.value", value_size_bytes(value), METADATA_BYTES_MAX)
        };
        match self {
            Self::Eq(field, operand)
            | Self::Ne(field, operand)
            | Self::Gt(field, operand)
            | Self::Gte(field, operand)
            | Self::Lt(field, operand)
            | Self::Lte(field, operand) => {
                field.check(operation)?;
                value(operand)
            }
            Self::In(field, operands) => {
                field.check(operation)?;
                check::at_most(operation, "filter.values", operands.len(), PAGE_ITEMS_MAX)?;
                operands.iter().try_for_each(value)
            }
            Self::ContainsAny(field, operands) | Self::ContainsAll(field, operands) => {
                field.check(operation)?;
                check::at_most(operation, "filter.values", operands.len(), FILTER_ELEMENTS_MAX)?;
                operands.iter().try_for_each(value)
            }
            Self::Exists(field) => field.check(operation),
            Self::ContainsKey(field, key) => {
                field.check(operation)?;
                check::no_nul(operation, "filter.key", key)
            }
            Self::And(filters) | Self::Or(filters) => {
                filters.iter().try_for_each(|filter| filter.check_node(operation, depth + 1, nodes))
            }
            Self::Not(filter) => filter.check_node(operation, depth + 1, nodes),
        }
    }
}

impl std::ops::BitAnd for Filter {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self::And(vec![self, other])
    }
}

impl std::ops::BitOr for Filter {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self::Or(vec![self, other])
    }
}

impl std::ops::Not for Filter {
    type Output = Self;
    fn not(self) -> Self {
        Self::Not(Box::new(self))
    }
}

#[cfg(test)]
mod tests;
