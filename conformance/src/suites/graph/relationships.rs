//! Writes and reads of relationships.

use std::sync::Arc;

use larder_kernel::{ErrorKind, Metadata, NeighborQuery, Outcome, RelationshipQuery};
use tokio::task::JoinSet;

use super::support::{
    all_entities, all_relationships, edge, edges, entity_id, find_relationships, graph_is, node, nodes,
    outline, relationship_id, relationship_ids, rich_properties, store_all,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::vectors::support::joined;

pub(super) async fn relationships_read_back_equal(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let long = "x".repeat(512);
    let entities = nodes(&["a", "b", &long])?;
    let relationships = [
        edge("rich", "Knows", "a", "b")?.with_properties(rich_properties()),
        edge("bare", "knows", "b", "a")?,
        edge("full", "a type with 'quotes' é", "a", &long)?
            .with_properties(Metadata::new().with("k", "x".repeat(65_535))),
        edge(&long, &long, &long, "b")?.with_properties(Metadata::new().with("", "")),
    ];
    store_all(&*a, &entities, &relationships).await?;
    for expected in &relationships {
        let found = b.get_relationships(std::slice::from_ref(&expected.id)).await?;
        expect::equal("the relationship", &found, &vec![Some(expected.clone())])?;
    }
    graph_is("listed", &*b, &entities, &relationships).await
}

pub(super) async fn a_missing_source_or_target_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let entities = nodes(&["a", "b"])?;
    let there = edges(&[("there", "knows", "a", "b")])?;
    store_all(&*a, &entities, &there).await?;
    for (source, target) in [("a", "missing"), ("missing", "b"), ("x", "y"), ("A", "a"), ("z", "z")] {
        let batch = edges(&[
            ("new", "knows", "b", "a"),
            ("there", "hates", "b", "b"),
            ("bad", "knows", source, target),
            ("newer", "knows", "b", "a"),
        ])?;
        let what = format!("a relationship from {source} to {target}");
        let error = expect::error(&what, a.upsert_relationships(batch).await, ErrorKind::NotFound)?;
        expect::equal("the outcome", &error.outcome(), &Outcome::NotApplied)?;
        graph_is("after the refusal", &*b, &entities, &there).await?;
    }
    // Replaces an existing relationship by one with a missing end.
    let lost = edges(&[("there", "knows", "a", "missing")])?;
    expect::error("a replacement without end", a.upsert_relationships(lost).await, ErrorKind::NotFound)?;
    graph_is("after the refused replacement", &*b, &entities, &there).await
}

pub(super) async fn relationships_are_replaced_completely(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let entities = nodes(&["a", "b", "c", "d"])?;
    let old = edge("r", "knows", "a", "b")?.with_properties(Metadata::new().with("old", 1).with("both", 1));
    let other = edge("s", "knows", "a", "b")?;
    store_all(&*a, &entities, &[old, other.clone()]).await?;
    let new = edge("r", "likes", "c", "d")?.with_properties(Metadata::new().with("both", 2));
    a.upsert_relationships(vec![new.clone()]).await?;
    graph_is("after the replacement", &*b, &entities, &[new.clone(), other.clone()]).await?;
    for (start, expected) in [
        ("a", (vec![("a", 0), ("b", 1)], vec!["s"])),
        ("b", (vec![("b", 0), ("a", 1)], vec!["s"])),
        ("c", (vec![("c", 0), ("d", 1)], vec!["r"])),
        ("d", (vec![("d", 0), ("c", 1)], vec!["r"])),
    ] {
        let reached = b.neighbors(&entity_id(start)?, &NeighborQuery::depth(3)).await?;
        expect::equal(&format!("the walk from {start}"), &outline(&reached), &expected)?;
    }
    let at_old_end = RelationshipQuery::default().with_source(entity_id("a")?);
    expect::equal(
        "from the old end",
        &find_relationships(&*b, &at_old_end, 10).await?,
        &vec![other.clone()],
    )?;
    // Deleting an end that the relationship no longer touches does not delete the relationship.
    let gone = a.delete_entity(&entity_id("a")?).await?;
    expect::equal("relationships deleted with their source or target", &gone.relationships, &1)?;
    graph_is("after deleting the old end", &*b, &entities[1..], &[new]).await
}

pub(super) async fn an_entity_may_relate_to_itself(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let entities = nodes(&["a", "b"])?;
    let relationships =
        edges(&[("loop", "is", "a", "a"), ("again", "is", "a", "a"), ("out", "is", "a", "b")])?;
    store_all(&*a, &entities, &relationships).await?;
    graph_is("with loops", &*b, &entities, &relationships).await?;
    let itself = Some(entity_id("a")?);
    let query = RelationshipQuery::default().with_source(itself.clone()).with_target(itself);
    let mut loops = relationships[..2].to_vec();
    loops.reverse();
    expect::equal("the loops", &find_relationships(&*b, &query, 10).await?, &loops)
}

pub(super) async fn two_entities_may_have_many_relationships(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let entities = nodes(&["a", "b"])?;
    let mut relationships = Vec::new();
    for number in 0..12 {
        let (source, target) = if number % 2 == 0 { ("a", "b") } else { ("b", "a") };
        relationships.push(edge(
            &format!("r{number:02}"),
            ["knows", "likes"][number / 2 % 2],
            source,
            target,
        )?);
    }
    store_all(&*a, &entities, &relationships).await?;
    graph_is("all of them", &*b, &entities, &relationships).await?;
    let reached = b.neighbors(&entity_id("a")?, &NeighborQuery::depth(1)).await?;
    expect::equal("all of them in a walk", &reached.relationships, &relationships)?;
    expect::equal("deleted one", &a.delete_relationship(&relationship_id("r04")?).await?, &true)?;
    relationships.remove(4);
    graph_is("the others", &*b, &entities, &relationships).await
}

pub(super) async fn relationships_never_lack_an_entity(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    for round in 0..6 {
        let name = |number: usize| format!("{round}-{number}");
        let entities = (0..6).map(|number| node(&name(number))).collect::<CaseResult<Vec<_>>>()?;
        a.upsert_entities(entities).await?;
        let mut tasks: JoinSet<CaseResult> = JoinSet::new();
        for task in 0..8_usize {
            let store = Arc::clone(if task % 2 == 0 { &a } else { &b });
            if task < 4 {
                let ends = [name(task), name((task + 1) % 6)];
                let batches: Vec<_> = (0..5)
                    .map(|number| edge(&format!("{round}-{task}-{number}"), "t", &ends[0], &ends[1]))
                    .collect::<CaseResult<_>>()?;
                tasks.spawn(async move {
                    for one in batches {
                        match store.upsert_relationships(vec![one]).await {
                            Err(error) if error.kind() == ErrorKind::NotFound => {}
                            result => drop(result?),
                        }
                    }
                    Ok(())
                });
            } else {
                let gone = entity_id(&name(task - 4))?;
                tasks.spawn(async move {
                    tokio::task::yield_now().await;
                    let answer = store.delete_entity(&gone).await?;
                    expect::equal("the reported existence", &answer.existed, &true)
                });
            }
        }
        joined(tasks).await?;
        let there: Vec<_> = all_entities(&*b).await?.into_iter().map(|one| one.id).collect();
        let lacking: Vec<_> = all_relationships(&*a)
            .await?
            .into_iter()
            .filter(|one| !there.contains(&one.source) || !there.contains(&one.target))
            .collect();
        expect::equal("relationships without a source or target", &lacking, &Vec::new())?;
    }
    Ok(())
}

/// Checks that a new entity with a deleted entity's id does not have its relationships.
pub(super) async fn relationships_do_not_outlive_an_entity(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    store_all(&*a, &nodes(&["a", "b"])?, &edges(&[("r", "t", "a", "b"), ("s", "t", "b", "a")])?).await?;
    let _ = a.delete_entity(&entity_id("a")?).await?;
    a.upsert_entities(nodes(&["a"])?).await?;
    graph_is("with the entity created again", &*b, &nodes(&["a", "b"])?, &[]).await?;
    let reached = b.neighbors(&entity_id("a")?, &NeighborQuery::depth(2)).await?;
    expect::equal("the walk", &outline(&reached), &(vec![("a", 0)], vec![]))
}

pub(super) async fn reads_return_relationships_in_the_order_of_ids(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let stored = edges(&[("a", "t", "x", "y"), ("b", "t", "x", "y"), ("c", "t", "y", "x")])?;
    store_all(&*a, &nodes(&["x", "y"])?, &stored).await?;
    let asked = ["c", "missing", "a", "C", "b", "a", "x", "c"];
    let found = b.get_relationships(&relationship_ids(&asked)?).await?;
    expect::equal("places", &found.len(), &asked.len())?;
    for (asked, found) in asked.iter().zip(found) {
        let expected = stored.iter().find(|one| one.id.as_str() == *asked).cloned();
        expect::equal(&format!("the position of {asked:?}"), &found, &expected)?;
    }
    expect::equal("the result for an empty list of ids", &b.get_relationships(&[]).await?, &Vec::new())?;
    let mut many: Vec<_> = (0..9_999).map(|number| format!("n{number}")).collect();
    many.push("b".to_owned());
    let found = b.get_relationships(&relationship_ids(&many)?).await?;
    expect::equal("places of 10,000", &found.len(), &10_000)?;
    expect::equal("the last place", &found.last().cloned().flatten(), &Some(stored[1].clone()))
}
