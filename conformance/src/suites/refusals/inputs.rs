//! Kinds of invalid input for any method: a short name, the rule that the input breaks, and the input.
//!
//! Some inputs are large and appear in hundreds of rows. So each is created once, and a row copies it when it
//! is called.

use std::sync::LazyLock;
use std::time::Duration;

use larder_kernel::limits::{
    FILTER_ELEMENTS_MAX, FILTER_NODES_MAX, FILTER_PATH_KEYS_MAX, ID_BYTES_MAX, JSON_DEPTH_MAX,
    METADATA_BYTES_MAX, PAGE_ITEMS_MAX, TTL_MS_MAX, TTL_MS_MIN,
};
use larder_kernel::{Filter, Metadata, Result};
use serde_json::{Value, json};

use super::Refusal;

/// The rule that an input breaks, as the error states it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// The limit that the error names.
    pub(super) limit: Option<u64>,
    /// The text of the error.
    pub(super) error: &'static str,
}

/// Returns a rule without a limit.
pub(super) const fn rule(error: &'static str) -> Rule {
    Rule { limit: None, error }
}

/// Returns the rule of a greatest size.
pub(super) const fn at_most(limit: usize) -> Rule {
    up_to(limit as u64)
}

/// Returns the rule of a greatest number.
pub(super) const fn up_to(limit: u64) -> Rule {
    Rule { limit: Some(limit), error: "over the limit; reduce it" }
}

/// Returns the rule of a least number.
pub(super) const fn at_least(limit: u64) -> Rule {
    Rule { limit: Some(limit), error: "under the limit; increase it" }
}

/// The rule of every text.
pub(super) const NUL: Rule = rule("contains a NUL character; remove it");
/// The rule of every batch whose items have ids.
pub(super) const TWICE: Rule = rule("contains the same id twice; pass each id once");

/// Invalid input of one kind.
pub(super) type Bad<T> = (&'static str, Rule, T);

/// Texts that are not valid ids.
pub(super) fn ids() -> &'static [Bad<String>] {
    static ALL: LazyLock<Vec<Bad<String>>> = LazyLock::new(make_ids);
    &ALL
}

fn make_ids() -> Vec<Bad<String>> {
    let most = at_most(ID_BYTES_MAX);
    vec![
        ("nothing", at_least(1), String::new()),
        ("513 bytes", most, "x".repeat(513)),
        ("257 letters of two bytes", most, "é".repeat(257)),
        ("171 letters of three bytes", most, "日".repeat(171)),
        ("129 letters of four bytes", most, "🦀".repeat(129)),
        ("a mebibyte", most, "x".repeat(1 << 20)),
        ("513 bytes with NUL", most, format!("{}\0", "x".repeat(512))),
        ("NUL alone", NUL, "\0".to_owned()),
        ("NUL at the beginning", NUL, "\0a".to_owned()),
        ("NUL in the middle", NUL, "a\0b".to_owned()),
        ("NUL at the end", NUL, "a\0".to_owned()),
        ("NUL as the last of 512 bytes", NUL, format!("{}\0", "x".repeat(511))),
    ]
}

/// Returns the rows of an id's type: its constructor rejects every invalid text.
pub(super) fn refused_ids<T: 'static>(field: &'static str, make: fn(String) -> Result<T>) -> Vec<Refusal> {
    let row = |(kind, rule, text): &'static Bad<String>| {
        Refusal::value("id.new", format!("{field} of {kind}"), field, *rule, move || {
            make(text.clone()).map(drop)
        })
    };
    ids().iter().map(row).collect()
}

/// Invalid key prefixes. An empty prefix is valid.
pub(super) fn prefixes() -> impl Iterator<Item = Bad<&'static str>> {
    let all = ids().iter().map(|(what, limit, text)| (*what, *limit, text.as_str()));
    all.filter(|(_, _, text)| !text.is_empty())
}

fn nested(levels: usize, wrap: fn(Value) -> Value) -> Value {
    (0..levels).fold(json!(1), |inner, _| wrap(inner))
}

/// Invalid metadata.
pub(super) fn metadata() -> &'static [Bad<Metadata>] {
    static ALL: LazyLock<Vec<Bad<Metadata>>> = LazyLock::new(make_metadata);
    &ALL
}

fn make_metadata() -> Vec<Bad<Metadata>> {
    let (bytes, depth) = (at_most(METADATA_BYTES_MAX), at_most(JSON_DEPTH_MAX));
    let one = |value: Value| Metadata::new().with("k", value);
    let many = (0..8_192).fold(Metadata::new(), |all, number| all.with(format!("{number:04}"), number));
    vec![
        ("one text too large", bytes, one(json!("x".repeat(METADATA_BYTES_MAX)))),
        ("texts too large together", bytes, one(json!(["x".repeat(40_000), "y".repeat(40_000)]))),
        ("a key too large", bytes, Metadata::new().with("k".repeat(METADATA_BYTES_MAX), 1)),
        ("too many numbers", bytes, many),
        ("too many nulls in a list", bytes, one(Value::Array(vec![Value::Null; 8_192]))),
        ("too many empty lists in a list", bytes, one(Value::Array(vec![json!([]); 8_192]))),
        ("too many empty objects in a list", bytes, one(Value::Array(vec![json!({}); 8_192]))),
        ("too many empty texts in a list", bytes, one(Value::Array(vec![json!(""); 8_192]))),
        ("lists too deep", depth, one(nested(JSON_DEPTH_MAX, |inner| json!([inner])))),
        ("objects too deep", depth, one(nested(JSON_DEPTH_MAX, |inner| json!({ "k": inner })))),
        ("a list too deep among numbers", depth, {
            one(json!([1, nested(JSON_DEPTH_MAX - 1, |inner| json!([inner])), 2]))
        }),
        ("NUL as a key", NUL, Metadata::new().with("\0", 1)),
        ("NUL in a key after a good one", NUL, Metadata::new().with("a", 1).with("b\0", 1)),
        ("NUL in a key further in", NUL, one(json!([{ "a\0b": null }]))),
        ("NUL as a text", NUL, one(json!("\0"))),
        ("NUL in a text of a list", NUL, one(json!(["a", "b\0"]))),
        ("NUL in a text of an object", NUL, one(json!({ "a": { "b": "\0c" } }))),
    ]
}

/// Invalid times to live and leases.
pub(super) fn durations() -> Vec<Bad<Duration>> {
    let (least, most) = (at_least(TTL_MS_MIN), up_to(TTL_MS_MAX));
    vec![
        ("no time", least, Duration::ZERO),
        ("a nanosecond", least, Duration::from_nanos(1)),
        ("a microsecond", least, Duration::from_micros(1)),
        ("just under a millisecond", least, Duration::from_nanos(999_999)),
        ("a millisecond over a hundred years", most, Duration::from_millis(TTL_MS_MAX + 1)),
        ("two hundred years", most, Duration::from_millis(TTL_MS_MAX * 2)),
        ("more milliseconds than 64 bits hold", most, Duration::from_secs(u64::MAX / 1_000 + 1)),
        ("all time", most, Duration::MAX),
    ]
}

/// Invalid page limits.
pub(super) fn limits() -> Vec<Bad<usize>> {
    let most = at_most(PAGE_ITEMS_MAX);
    vec![
        ("one too many", most, PAGE_ITEMS_MAX + 1),
        ("ten times too many", most, PAGE_ITEMS_MAX * 10),
        // A number whose low 32 bits are a valid limit.
        ("2^32 and one", most, usize::try_from((1_u64 << 32) + 1).unwrap_or(usize::MAX)),
        ("all that counts", most, usize::MAX),
    ]
}

/// An invalid filter: its name, the field of the error, the rule, and its constructor.
pub(super) type BadFilter = (String, &'static str, Rule, fn(Operator) -> Filter, Operator);

/// The operators, as functions of a field's keys and an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    In,
    ContainsAny,
    ContainsAll,
    Exists,
    ContainsKey,
}

impl Operator {
    const ALL: [Self; 11] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::In,
        Self::ContainsAny,
        Self::ContainsAll,
        Self::Exists,
        Self::ContainsKey,
    ];

    fn has_operand(self) -> bool {
        !matches!(self, Self::Exists | Self::ContainsKey)
    }

    fn on(self, keys: Vec<String>, operand: Value) -> Filter {
        match self {
            Self::Eq => Filter::eq(keys, operand),
            Self::Ne => Filter::ne(keys, operand),
            Self::Gt => Filter::gt(keys, operand),
            Self::Gte => Filter::gte(keys, operand),
            Self::Lt => Filter::lt(keys, operand),
            Self::Lte => Filter::lte(keys, operand),
            Self::In => Filter::is_in(keys, [json!(1), operand]),
            Self::ContainsAny => Filter::contains_any(keys, [json!(1), operand]),
            Self::ContainsAll => Filter::contains_all(keys, [json!(1), operand]),
            Self::Exists => Filter::exists(keys),
            Self::ContainsKey => Filter::contains_key(keys, "k"),
        }
    }
}

fn marker() -> Vec<String> {
    vec!["marker".to_owned()]
}

/// Invalid filters: each operator with each invalid field and operand, and groups that are too large and too
/// deep.
pub(super) fn filters() -> Vec<BadFilter> {
    let mut all: Vec<BadFilter> = Vec::new();
    for operator in Operator::ALL {
        let mut add = |what: &str, field, limit, make: fn(Operator) -> Filter| {
            all.push((format!("{operator:?} {what}"), field, limit, make, operator));
        };
        add("of no field", "filter.field", at_least(1), |it| it.on(Vec::new(), json!(1)));
        add("of nine keys", "filter.field", at_most(FILTER_PATH_KEYS_MAX), |it| {
            it.on(vec!["k".to_owned(); FILTER_PATH_KEYS_MAX + 1], json!(1))
        });
        add("of a field with NUL", "filter.field", NUL, |it| it.on(vec!["a\0".to_owned()], json!(1)));
        if operator.has_operand() {
            add("with NUL", "filter.value", NUL, |it| it.on(marker(), json!(["a", "\0"])));
            add("with an operand too deep", "filter.value", at_most(JSON_DEPTH_MAX), |it| {
                it.on(marker(), nested(JSON_DEPTH_MAX + 1, |inner| json!([inner])))
            });
            add("with an operand too large", "filter.value", at_most(METADATA_BYTES_MAX), |it| {
                it.on(marker(), json!("x".repeat(METADATA_BYTES_MAX + 1)))
            });
        }
    }
    all.extend(groups());
    all
}

fn groups() -> Vec<BadFilter> {
    const NODES: Rule = at_most(FILTER_NODES_MAX);
    const DEPTH: Rule = at_most(JSON_DEPTH_MAX);
    fn some() -> Filter {
        Filter::exists("marker")
    }
    let row = |what: &str, field, limit, make: fn(Operator) -> Filter| {
        (what.to_owned(), field, limit, make, Operator::Exists)
    };
    vec![
        row("all of too many", "filter", NODES, |_| Filter::all((0..FILTER_NODES_MAX).map(|_| some()))),
        row("any of too many", "filter", NODES, |_| Filter::any((0..FILTER_NODES_MAX).map(|_| some()))),
        row("groups of too many together", "filter", NODES, |_| {
            let group = || Filter::all((0..FILTER_NODES_MAX / 2).map(|_| some()));
            Filter::any([group(), group()])
        }),
        row("negations too deep", "filter.depth", DEPTH, |_| {
            (0..JSON_DEPTH_MAX).fold(some(), |inner, _| !inner)
        }),
        row("conjunctions too deep", "filter.depth", DEPTH, |_| {
            (0..JSON_DEPTH_MAX).fold(some(), |inner, _| Filter::all([inner]))
        }),
        row("disjunctions too deep", "filter.depth", DEPTH, |_| {
            (0..JSON_DEPTH_MAX).fold(some(), |inner, _| Filter::any([inner]))
        }),
        row("one of too many values", "filter.values", at_most(PAGE_ITEMS_MAX), |_| {
            Filter::is_in("marker", 0..10_001)
        }),
        row("any of too many elements", "filter.values", at_most(FILTER_ELEMENTS_MAX), |_| {
            Filter::contains_any("marker", 0..=FILTER_ELEMENTS_MAX)
        }),
        row("all of too many elements", "filter.values", at_most(FILTER_ELEMENTS_MAX), |_| {
            Filter::contains_all("marker", 0..=FILTER_ELEMENTS_MAX)
        }),
        row("NUL as the key of a filter", "filter.key", NUL, |_| Filter::contains_key("marker", "\0")),
        row("NUL in the key of a filter", "filter.key", NUL, |_| Filter::contains_key("marker", "a\0b")),
    ]
}

/// Puts an invalid part into a filter.
pub(super) type Stand = fn(Filter) -> Filter;

/// The position of the invalid part in a filter: a check of the top level only accepts it elsewhere.
pub(super) const STANDS: [(&str, Stand); 3] = [
    ("alone", |bad| bad),
    ("negated", |bad| !bad),
    ("after_good_ones", |bad| Filter::any([Filter::exists("marker"), !Filter::eq("marker", 1), bad])),
];

/// The position of the invalid item in a batch of valid items.
pub(super) const PLACES: [(&str, usize); 3] = [("first", 0), ("in the middle", 1), ("last", 2)];

/// Returns two valid items with an invalid one among them.
pub(super) fn among<T>(good: [T; 2], bad: T, place: usize) -> Vec<T> {
    let mut items = Vec::from(good);
    items.insert(place, bad);
    items
}
