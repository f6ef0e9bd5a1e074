use larder_kernel::{Direction, EntityType, ErrorKind, Filter, Metadata, RelationshipType};
use petgraph::Direction as Way;

use super::*;

fn id(text: &str) -> EntityId {
    EntityId::new(text).unwrap()
}

fn edge(text: &str, relationship_type: &str, source: &str, target: &str) -> Relationship {
    let relationship_type = RelationshipType::new(relationship_type).unwrap();
    Relationship::new(RelationshipId::new(text).unwrap(), relationship_type, id(source), id(target))
}

fn node(text: &str) -> Entity {
    Entity::new(id(text), EntityType::new("t").unwrap())
}

/// a → b → c → a, b ⇉ d, d → d, e → a, f alone.
async fn sample() -> InMemoryGraphStore {
    let store = InMemoryGraphStore::new();
    store.upsert_entities(["a", "b", "c", "d", "e", "f"].map(node).to_vec()).await.unwrap();
    let edges = [
        edge("1ab", "k", "a", "b"),
        edge("2bc", "k", "b", "c"),
        edge("3ca", "k", "c", "a"),
        edge("4bd", "k", "b", "d"),
        edge("5bd", "m", "b", "d"),
        edge("6dd", "k", "d", "d"),
        edge("7ea", "m", "e", "a"),
    ];
    store.upsert_relationships(edges.to_vec()).await.unwrap();
    store
}

fn shape(graph: &SubGraph) -> (String, String) {
    let entities = graph.entities.iter().map(|reached| format!("{}{} ", reached.entity.id, reached.hops));
    let relationships = graph.relationships.iter().map(|edge| edge.id.as_str().chars().next().unwrap());
    (entities.collect::<String>().trim_end().to_owned(), relationships.collect())
}

#[tokio::test]
async fn walks_respect_direction_depth_types_and_limit() {
    let store = sample().await;
    let all = NeighborQuery::depth;
    let typed = |depth, text: &str| all(depth).with_types([RelationshipType::new(text).unwrap()]);
    let cases = [
        ("a", all(0), "a0", ""),
        ("a", all(1), "a0 b1 c1 e1", "137"),
        ("a", all(2), "a0 b1 c1 e1 d2", "123457"),
        ("a", all(3), "a0 b1 c1 e1 d2", "1234567"),
        ("a", all(1).with_direction(Direction::Out), "a0 b1", "1"),
        ("a", all(2).with_direction(Direction::Out), "a0 b1 c2 d2", "1245"),
        ("a", all(3).with_direction(Direction::Out), "a0 b1 c2 d2", "123456"),
        ("a", all(1).with_direction(Direction::In), "a0 c1 e1", "37"),
        ("d", all(1), "d0 b1", "456"),
        ("a", typed(2, "m"), "a0 e1", "7"),
        ("a", all(2).with_limit(3), "a0 b1 c1", "123"),
        ("a", all(2).with_limit(1), "a0", ""),
        ("d", all(2).with_limit(1), "d0", "6"),
        ("a", all(2).with_limit(0), "", ""),
        ("f", all(32), "f0", ""),
        ("x", all(3), "", ""),
    ];
    for (start, query, entities, relationships) in cases {
        let found = store.neighbors(&id(start), &query).await.unwrap();
        assert_eq!(shape(&found), (entities.to_owned(), relationships.to_owned()), "{start} {query:?}");
        let found = store.reach(&id(start), &query).await.unwrap();
        let mut reached: Vec<_> = found.iter().collect();
        assert_eq!((found.len(), found.is_empty()), (reached.len(), reached.is_empty()));
        assert!(reached.is_sorted_by_key(|(_, hops)| *hops));
        reached.sort_unstable_by(|(left, near), (right, far)| near.cmp(far).then(left.cmp(right)));
        let reached: Vec<String> = reached.iter().map(|(id, hops)| format!("{id}{hops}")).collect();
        assert_eq!(reached.join(" "), entities, "{start} {query:?}");
    }
}

#[tokio::test]
async fn a_traversal_finds_the_current_graph_while_it_grows() {
    let store = InMemoryGraphStore::new();
    let name = |number: usize| format!("{number:05}");
    store.upsert_entities(vec![node("hub")]).await.unwrap();
    // The sizes cross the limit of traversals on the caller's thread.
    for (first, last) in [(0, 500), (500, 8_000), (8_000, 9_000)] {
        for batch in (first..last).collect::<Vec<_>>().chunks(500) {
            store.upsert_entities(batch.iter().map(|number| node(&name(*number))).collect()).await.unwrap();
            let edges = batch.iter().map(|number| edge(&name(*number), "k", "hub", &name(*number)));
            store.upsert_relationships(edges.collect()).await.unwrap();
        }
        for depth in [1, 2] {
            let found = store.reach(&id("hub"), &NeighborQuery::depth(depth)).await.unwrap();
            assert_eq!(found.len(), last + 1);
            let found = store.neighbors(&id("hub"), &NeighborQuery::depth(depth)).await.unwrap();
            assert_eq!((found.entities.len(), found.relationships.len()), (last + 1, last));
        }
        let few = store.reach(&id("hub"), &NeighborQuery::depth(2).with_limit(3)).await.unwrap();
        let few: Vec<_> = few.iter().collect();
        assert_eq!(few, [(&id("hub"), 0), (&id("00000"), 1), (&id("00001"), 1)]);
    }
}

#[tokio::test]
async fn a_relationship_between_two_entities_of_the_last_ring_is_not_taken() {
    // b → c connects two entities one hop from a; at depth 1 it is followed from neither.
    let store = InMemoryGraphStore::new();
    store.upsert_entities(["a", "b", "c"].map(node).to_vec()).await.unwrap();
    let edges = [edge("1", "k", "a", "b"), edge("2", "k", "a", "c"), edge("3", "k", "b", "c")];
    store.upsert_relationships(edges.to_vec()).await.unwrap();
    let found = store.neighbors(&id("a"), &NeighborQuery::depth(1)).await.unwrap();
    assert_eq!(shape(&found), ("a0 b1 c1".to_owned(), "12".to_owned()));
    let found = store.neighbors(&id("a"), &NeighborQuery::depth(2)).await.unwrap();
    assert_eq!(shape(&found).1, "123");
}

#[tokio::test]
async fn batches_are_atomic_replacements_move_ends_and_deletions_detach() {
    let backend = MemoryBackend::new();
    let store = InMemoryGraphStore::open(&backend, Namespace::new("n").unwrap());
    store.upsert_entities(["a", "b", "c"].map(node).to_vec()).await.unwrap();
    let batch = vec![edge("1", "k", "a", "b"), edge("2", "k", "a", "x")];
    let error = store.upsert_relationships(batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(store.count().await.unwrap().relationships, 0);

    let batch = vec![edge("1", "k", "a", "b"), edge("2", "k", "a", "a"), edge("3", "k", "b", "c")];
    store.upsert_relationships(batch).await.unwrap();
    let report = store.upsert_relationships(vec![edge("1", "m", "c", "a")]).await.unwrap();
    assert_eq!(report, UpsertReport::new(0, 1));
    let find = |source: Option<&str>, of_type: Option<&str>| {
        RelationshipQuery::default()
            .with_source(source.map(id))
            .with_type(of_type.map(|text| RelationshipType::new(text).unwrap()))
    };
    let count = |query: RelationshipQuery| {
        let store = &store;
        async move { store.find_relationships(&query, PageRequest::default()).await.unwrap().items.len() }
    };
    assert_eq!(count(find(Some("a"), None)).await, 1);
    assert_eq!(count(find(Some("c"), Some("m"))).await, 1);
    assert_eq!(count(find(None, Some("k"))).await, 2);

    let deleted = store.delete_entity(&id("a")).await.unwrap();
    assert_eq!(deleted, DeletedEntity::new(true, 2));
    assert_eq!(store.count().await.unwrap(), GraphCounts::new(2, 1));
    assert!(store.delete_entity(&id("b")).await.unwrap().existed);
    assert!(store.delete_entity(&id("c")).await.unwrap().existed);
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn finding_by_type_follows_a_changed_type_and_pages_in_order() {
    let store = sample().await;
    let changed =
        Entity::new(id("b"), EntityType::new("u").unwrap()).with_properties(Metadata::new().with("n", 1));
    store.upsert_entities(vec![changed]).await.unwrap();
    let of_type = |text: &str| EntityQuery::default().with_type(EntityType::new(text).unwrap());
    let page = store.find_entities(&of_type("t"), PageRequest::after(id("a"), 2)).await.unwrap();
    assert_eq!(page.items.iter().map(|entity| entity.id.as_str()).collect::<Vec<_>>(), ["c", "d"]);
    assert_eq!(page.next, Some(id("d")));
    let query = of_type("u").with_filter(Filter::eq("n", 1.0));
    assert_eq!(store.find_entities(&query, PageRequest::default()).await.unwrap().items.len(), 1);
    let around = store.neighbors(&id("b"), &NeighborQuery::depth(1)).await.unwrap();
    assert_eq!(around.relationships.len(), 4);
}

#[tokio::test]
async fn the_cost_of_writing_a_hub_grows_with_its_relationships() {
    const RELATIONSHIPS: usize = 20_000;
    let store = InMemoryGraphStore::new();
    store.upsert_entities(vec![node("hub"), node("rim")]).await.unwrap();
    let edges: Vec<_> =
        (0..RELATIONSHIPS).map(|number| edge(&format!("r{number:05}"), "k", "hub", "rim")).collect();
    let begun = std::time::Instant::now();
    for _ in 0..2 {
        for batch in edges.chunks(1_000) {
            store.upsert_relationships(batch.to_vec()).await.unwrap();
        }
    }
    let half = DeletedEntity::new(true, 10_000);
    assert_eq!(store.delete_entity(&id("hub")).await.unwrap(), half.with_more(true));
    assert_eq!(store.delete_entity(&id("hub")).await.unwrap(), half);
    let counts = store.count().await.unwrap();
    assert_eq!((counts.entities, counts.relationships), (1, 0));
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_relationship_that_moves_or_changes_its_type_is_found_only_as_it_is_now() {
    let store = sample().await;
    let find = async |text: &str| {
        let query =
            RelationshipQuery::default().with_type(RelationshipType::new(text).unwrap()).with_source(id("b"));
        let page = store.find_relationships(&query, PageRequest::default()).await.unwrap();
        page.items.iter().map(|edge| edge.id.to_string()).collect::<Vec<_>>()
    };
    store.upsert_relationships(vec![edge("2bc", "m", "b", "c"), edge("4bd", "k", "f", "d")]).await.unwrap();
    assert_eq!((find("k").await, find("m").await), (vec![], vec!["2bc".to_owned(), "5bd".to_owned()]));
}

#[tokio::test]
async fn the_cost_of_a_traversal_grows_with_the_relationships_visited() {
    let store = InMemoryGraphStore::new();
    let ids: Vec<String> = (0..2_000).map(|number| format!("{number:04}")).collect();
    store.upsert_entities(ids[..1_000].iter().map(|id| node(id)).collect()).await.unwrap();
    store.upsert_entities(ids[1_000..].iter().map(|id| node(id)).collect()).await.unwrap();
    // A chain of four at the beginning, and separately a hub with all the others.
    let chain = (0..3).map(|at| edge(&format!("chain {at}"), "k", &ids[at], &ids[at + 1]));
    store.upsert_relationships(chain.collect()).await.unwrap();
    for others in ids[11..].chunks(900) {
        let star = others.iter().map(|id| edge(&format!("star {id}"), "k", &ids[10], id));
        store.upsert_relationships(star.collect()).await.unwrap();
    }
    let walk = |depth, direction, most| {
        let query = NeighborQuery::depth(depth).with_direction(direction);
        let found = store.state.traverse(traversal::reach, &id(&ids[0]), &query, most);
        found.map(|found| found.len())
    };
    for (depth, direction, visits, found) in
        [(1, Direction::Out, 1, 2), (3, Direction::Out, 3, 4), (2, Direction::Both, 3, 3)]
    {
        assert_eq!(walk(depth, direction, visits), Some(found), "{depth} {direction:?}");
        assert_eq!(walk(depth, direction, visits - 1), None, "{depth} {direction:?}");
    }
}

#[tokio::test]
async fn traversals_follow_every_change_of_the_graph() {
    let store = InMemoryGraphStore::new();
    let names: Vec<String> = (0..12).map(|number| format!("{number:02}")).collect();
    let mut random = larder_kernel::random::Random::new(7);
    let mut roll = |sides: usize| random.below(sides);
    for _ in 0..2_000 {
        let (left, right) = (&names[roll(12)], &names[roll(12)]);
        match roll(8) {
            0 => drop(store.delete_entity(&id(left)).await.unwrap()),
            1 => {
                drop(
                    store.delete_relationship(&RelationshipId::new(format!("r{}", roll(40))).unwrap()).await,
                );
            }
            _ => {
                for name in [left, right] {
                    store.upsert_entities(vec![node(name)]).await.unwrap();
                }
                let moved = edge(&format!("r{}", roll(40)), "k", left, right);
                store.upsert_relationships(vec![moved]).await.unwrap();
            }
        }
        let graph = store.state.read();
        for (name, node) in &graph.entities {
            assert_eq!(graph.ids.get(*node), Some(name));
            for way in [Way::Outgoing, Way::Incoming] {
                let mut near = graph.adjacency[way.index()].of(*node).to_vec();
                let mut edges: Vec<_> = graph.graph.neighbors_directed(*node, way).collect();
                near.sort_unstable();
                edges.sort_unstable();
                assert_eq!(near, edges);
            }
        }
        assert_eq!(graph.ids.count(), graph.entities.len());
    }
}

#[tokio::test]
async fn a_long_traversal_or_change_blocks_no_other_task() {
    let store = sample().await;
    for reading in [true, false] {
        let ((begun, begins), (told, tells)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let state = store.state.clone();
        let holder = std::thread::spawn(move || {
            let _locks = if reading { (Some(state.read()), None) } else { (None, Some(state.write())) };
            begun.send(()).unwrap();
            tells.recv_timeout(std::time::Duration::from_secs(20)).is_ok()
        });
        begins.recv().unwrap();
        let (a, f, query, all) = (id("a"), id("f"), NeighborQuery::default(), EntityQuery::default());
        let calls = async {
            tokio::join!(
                store.neighbors(&a, &query),
                store.get_entities(std::slice::from_ref(&a)),
                store.find_entities(&all, PageRequest::first(10)),
                store.count(),
                store.upsert_entities(vec![node("g")]),
                store.delete_entity(&f),
            )
        };
        let (calls, ()) = tokio::join!(calls, async { told.send(()).unwrap() });
        assert!(holder.join().unwrap(), "the other task did not run during the calls");
        assert_eq!(calls.0.unwrap().entities.len(), 4);
        assert!(calls.1.is_ok() && calls.2.is_ok() && calls.3.is_ok() && calls.4.is_ok() && calls.5.is_ok());
    }
}
