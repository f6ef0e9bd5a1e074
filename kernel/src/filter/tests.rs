use super::*;
use serde_json::json;

fn metadata() -> Metadata {
    Metadata::new()
        .with("flag", true)
        .with("one", 1)
        .with("name", "larder")
        .with("nothing", Value::Null)
        .with("a.b", "dot")
        .with("deep", json!({"a": {"b": 2.5}}))
}

#[test]
fn each_operator_follows_its_definition() {
    let holds = [
        Filter::eq("one", 1.0),
        Filter::ne("flag", 1),
        Filter::ne("absent", Value::Null),
        Filter::gt(["deep", "a", "b"], 2),
        Filter::lte("name", "larder"),
        Filter::is_in("one", [json!(true), json!(1.0)]),
        Filter::exists("nothing"),
        Filter::eq("nothing", Value::Null),
        Filter::contains_key("deep", "a"),
        Filter::eq("a.b", "dot"),
        Filter::all([]),
        !Filter::any([]),
        !Filter::gt("name", 1),
    ];
    for filter in holds {
        assert!(filter.matches(&metadata()), "{filter:?}");
    }
    let fails = [
        Filter::eq("flag", 1),
        Filter::eq("one", true),
        Filter::eq("absent", Value::Null),
        Filter::lt("flag", true),
        Filter::gte("absent", 0),
        Filter::exists(["deep", "b"]),
        Filter::contains_key("name", "l"),
        Filter::is_in("one", Vec::<Value>::new()),
        Filter::eq(["a", "b"], "dot"),
    ];
    for filter in fails {
        assert!(!filter.matches(&metadata()), "{filter:?}");
    }
}

#[test]
fn checks_bound_the_tree() {
    let mut deep = Filter::exists("a");
    for _ in 0..JSON_DEPTH_MAX {
        deep = !deep;
    }
    assert_eq!(deep.check("test").unwrap_err().field(), Some("filter.depth"));
    let wide = Filter::any((0..FILTER_NODES_MAX).map(|_| Filter::exists("a")));
    assert_eq!(wide.check("test").unwrap_err().limit(), Some(256));
    assert_eq!(Filter::exists(Vec::<String>::new()).check("test").unwrap_err().field(), Some("filter.field"));
    assert_eq!(Filter::eq("a", "\0").check("test").unwrap_err().field(), Some("filter.value"));
}

#[test]
fn a_filter_is_a_json_document() {
    let filter = Filter::eq("a", 1) & !Filter::exists("b");
    let text = serde_json::to_string(&filter).unwrap();
    assert_eq!(text, r#"{"and":[{"eq":[["a"],1]},{"not":{"exists":["b"]}}]}"#);
    assert_eq!(serde_json::from_str::<Filter>(&text).unwrap(), filter);
}

#[test]
fn arrays_match_by_their_elements() {
    let metadata = Metadata::new()
        .with("tags", json!(["tea", 1, null, [2], {"k": true}]))
        .with("none", json!([]))
        .with("text", "tea")
        .with("keys", json!({"tea": 1}))
        .with("deep", json!({"list": [true]}));
    let holds = [
        Filter::contains_any("tags", [json!("coffee"), json!(1.0)]),
        Filter::contains_all("tags", [json!(null), json!({"k": true}), json!([2.0]), json!("tea")]),
        Filter::contains_all("tags", ["tea", "tea"]),
        Filter::contains_any(["deep", "list"], [true]),
        Filter::contains_all("none", Vec::<Value>::new()),
    ];
    for filter in holds {
        assert!(filter.matches(&metadata), "{filter:?}");
        assert!(!(!filter).matches(&metadata));
    }
    let fails = [
        Filter::contains_any("tags", [json!(true), json!("TEA"), json!(2), json!("k")]),
        Filter::contains_all("tags", [json!("tea"), json!("coffee")]),
        Filter::contains_any("tags", Vec::<Value>::new()),
        Filter::contains_any("none", [json!(null)]),
        Filter::contains_any("text", ["tea", "t"]),
        Filter::contains_any("keys", ["tea"]),
        Filter::contains_all("text", Vec::<Value>::new()),
        Filter::contains_all("absent", Vec::<Value>::new()),
        Filter::contains_any("absent", [json!(null)]),
    ];
    for filter in fails {
        assert!(!filter.matches(&metadata), "{filter:?}");
    }
}

#[test]
fn an_array_filter_is_a_json_document_with_a_bounded_list() {
    let filter = Filter::contains_any("a", [1, 2]) & Filter::contains_all(["b", "c"], ["d"]);
    let text = serde_json::to_string(&filter).unwrap();
    assert_eq!(text, r#"{"and":[{"contains_any":[["a"],[1,2]]},{"contains_all":[["b","c"],["d"]]}]}"#);
    assert_eq!(serde_json::from_str::<Filter>(&text).unwrap(), filter);
    let most = FILTER_ELEMENTS_MAX;
    assert!(Filter::contains_any("a", 0..most).check("test").is_ok());
    for filter in [Filter::contains_any("a", 0..=most), Filter::contains_all("a", 0..=most)] {
        let error = filter.check("test").unwrap_err();
        assert_eq!((error.field(), error.limit()), (Some("filter.values"), Some(256)));
    }
}
