//! Defaults that a caller of the handles need not name.

use larder::{CollectionName, NeighborQuery, SearchRequest};

/// Proves: RAVI-13, RAVI-20
#[tokio::test]
async fn a_caller_need_not_name_the_defaults() {
    let stores = larder::open("memory:").await.unwrap();
    let vectors = stores.vectors().unwrap();
    for number in 0..8_u8 {
        let id = format!("note-{number}");
        assert!(vectors.add(&*id, format!("text {number}"), [1.0, f32::from(number)]).await.unwrap());
        assert!(!vectors.add(&*id, "another text", [1.0, 100.0]).await.unwrap(), "it exists");
    }
    vectors.put("other", "note-0", "elsewhere", [1.0, 0.0]).await.unwrap();
    let found: Vec<_> =
        vectors.nearest([1.0, 0.0]).await.unwrap().into_iter().map(|hit| hit.content).collect();
    assert_eq!(found, ["text 0", "text 1", "text 2", "text 3", "text 4"]);
    let named = vectors.search("default", [1.0, 0.0], 5).await.unwrap();
    assert_eq!(vectors.nearest([1.0, 0.0]).await.unwrap(), named);
    assert_eq!(vectors.nearest([0.0, 0.0]).await.unwrap_err().field(), Some("embedding"));
    assert_eq!(CollectionName::default().as_str(), "default");
    assert_eq!(SearchRequest::new([1.0].try_into().unwrap()).limit, 5);

    let graph = stores.graph().unwrap();
    for id in ["a", "b", "c", "d"] {
        graph.put(id, "node").await.unwrap();
    }
    for (id, source, target) in [("ab", "a", "b"), ("bc", "b", "c"), ("cd", "c", "d")] {
        graph.relate(id, source, "next", target).await.unwrap();
    }
    let around = graph.direct_neighbors("b").await.unwrap();
    let reached: Vec<_> = around.entities.iter().map(|one| (one.entity.id.as_str(), one.hops)).collect();
    assert_eq!(reached, [("b", 0), ("a", 1), ("c", 1)]);
    assert_eq!((around, NeighborQuery::default().depth), (graph.neighbors("b", 1).await.unwrap(), 1));
}
