use larder_kernel::DocumentId;
use serde_json::json;

use super::*;

fn values() -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(-0.0),
        json!(1),
        json!(1.0),
        json!(-3.5),
        json!(9_007_199_254_740_993_u64),
        json!(9_007_199_254_740_992.0),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!(""),
        json!("a"),
        json!("a\u{1}"),
        json!("1"),
        json!("é"),
        json!([1, 2]),
        json!([1.0, 2]),
        json!([]),
        json!(["a", [2]]),
        json!({}),
        json!({"k": 1}),
        json!({"k": "deep"}),
    ];
    values.extend((0..12).map(|n| json!(format!("tenant-00000000{n}"))));
    values
}

fn record(number: usize, values: &[Value]) -> Arc<Record> {
    let mut metadata = Metadata::new();
    // Two fields with different periods, each sometimes missing.
    if let Some(value) = values.get(number * 7 % (values.len() + 3)) {
        metadata.insert("one", value.clone());
    }
    if let Some(value) = values.get(number * 11 % (values.len() + 5)) {
        metadata.insert("two", value.clone());
    }
    let id = DocumentId::new(format!("d{number}")).unwrap();
    Arc::new(Record { id, content: String::new(), metadata })
}

fn leaves(values: &[Value]) -> Vec<Filter> {
    let mut filters = Vec::new();
    let fields = [Field::from("one"), Field::from("two"), Field::from(["one", "k"]), Field::from("none")];
    for field in fields {
        filters.extend([
            Filter::exists(field.clone()),
            Filter::contains_key(field.clone(), "k"),
            Filter::contains_any(field.clone(), [json!(2.0), json!("a")]),
            Filter::contains_any(field.clone(), Vec::<Value>::new()),
            Filter::contains_all(field.clone(), [json!(2), json!(1.0)]),
            Filter::contains_all(field.clone(), Vec::<Value>::new()),
            Filter::is_in(field.clone(), values.iter().step_by(3).cloned()),
            Filter::is_in(field.clone(), Vec::<Value>::new()),
        ]);
        for value in
            values.iter().chain([&json!("tenant"), &json!("tenant-000000003"), &json!("z"), &json!(0.5)])
        {
            let makers: [fn(Field, Value) -> Filter; 6] =
                [Filter::Eq, Filter::Ne, Filter::Gt, Filter::Gte, Filter::Lt, Filter::Lte];
            filters.extend(makers.map(|make| make(field.clone(), value.clone())));
        }
    }
    filters
}

#[test]
fn columns_match_the_definition_of_filters() {
    let values = values();
    let records: Vec<_> = (0..333).map(|number| record(number, &values)).collect();
    let columns = Columns::default();
    let leaves = leaves(&values);
    let mut filters = leaves.clone();
    for (at, leaf) in leaves.iter().enumerate() {
        let (other, third) = (&leaves[at * 31 % leaves.len()], &leaves[at * 57 % leaves.len()]);
        filters.push(leaf.clone() & other.clone());
        filters.push(leaf.clone() | !(other.clone() & third.clone()));
    }
    filters.extend([Filter::all([]), Filter::any([])]);
    for count in [0, 1, 63, 64, 65, 333] {
        let columns = if count == 333 { &columns } else { &Columns::default() };
        for filter in &filters {
            let expected: Vec<_> = (0..count).filter(|row| filter.matches(&records[*row].metadata)).collect();
            let rows = columns.matching(filter, &records[..count]);
            assert_eq!(rows.rows(), expected, "{filter:?}");
            assert_eq!(rows.len(), expected.len());
        }
    }
    assert!(columns.cover(&filters[0]));
    assert!(!columns.cover(&Filter::exists("other")));
}

/// The text after the common prefix is shorter than a key, as long, or longer, and ends in a key's padding.
#[test]
fn texts_with_equal_beginnings_are_distinguished() {
    let rests =
        ["", "\0", "\0\0", "a", "a\0", "b", "abcdef", "abcdefg", "abcdefg\0", "abcdefgh", "abcdefghi", "é"];
    let values: Vec<_> = rests.iter().map(|rest| json!(format!("tenant-{rest}"))).collect();
    let records: Vec<_> = values
        .iter()
        .map(|value| {
            let metadata = Metadata::new().with("tenant", value.clone());
            let id = DocumentId::new("d").unwrap();
            Arc::new(Record { id, content: String::new(), metadata })
        })
        .collect();
    let asked =
        ["tenant", "tenant-abcdefgg", "tenant-abcdefg\u{1}", "tenant-ab", "z"].map(|text| json!(text));
    for value in values.iter().chain(&asked) {
        for make in [Filter::Eq, Filter::Gt, Filter::Gte, Filter::Lt, Filter::Lte] {
            let filter = make(Field::from("tenant"), value.clone());
            // One record is left out in turn, so that the common prefix sometimes changes.
            for out in 0..=records.len() {
                let mut some = records.clone();
                if out < some.len() {
                    some.remove(out);
                }
                let expected: Vec<_> =
                    (0..some.len()).filter(|row| filter.matches(&some[*row].metadata)).collect();
                let rows = Columns::default().matching(&filter, &some);
                assert_eq!(rows.rows(), expected, "{filter:?}");
            }
        }
    }
}

#[test]
fn fields_without_a_column_are_filtered_too() {
    let metadata = (0..COLUMNS_MAX + 5).fold(Metadata::new(), |all, n| all.with(format!("f{n}"), n));
    let id = DocumentId::new("d").unwrap();
    let records = [Arc::new(Record { id, content: String::new(), metadata })];
    let columns = Columns::default();
    for n in 0..COLUMNS_MAX + 5 {
        let field = format!("f{n}");
        assert_eq!(columns.matching(&Filter::eq(field.as_str(), n), &records).len(), 1);
        assert_eq!(columns.matching(&Filter::eq(field.as_str(), n + 1), &records).len(), 0);
    }
    assert_eq!(columns.iter().count(), COLUMNS_MAX);
}
