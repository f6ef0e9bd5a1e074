//! Finding entities and relationships by type, ends and properties.

use larder_kernel::{
    Entity, EntityQuery, EntityType, Filter, Metadata, PageRequest, Relationship, RelationshipQuery,
};

use super::support::{
    edge, edges, entity_id, entity_ids, find_entities, find_relationships, node, nodes, relationship_id,
    relationship_type, store_all, typed,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::vectors::filter_table;

fn of_type(kind: Option<&str>, filter: Option<Filter>) -> CaseResult<EntityQuery> {
    Ok(EntityQuery::default().with_type(kind.map(EntityType::new).transpose()?).with_filter(filter))
}

pub(super) async fn entities_are_found_by_type_and_properties(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let kinds = ["person", "Person", "persons", "perso", "p%", "place"];
    let mut entities = Vec::new();
    for number in 0..36 {
        let properties = Metadata::new().with("number", number).with("odd", number % 2 == 1);
        entities.push(typed(&format!("{:02}", number * 7 % 36), kinds[number % 6], properties)?);
    }
    store_all(&*a, &entities, &edges(&[("person", "person", "00", "01")])?).await?;
    entities.sort_by(|left, right| left.id.cmp(&right.id));
    let mut queries = vec![EntityQuery::default()];
    for kind in ["person", "Person", "p%", "absent", "p_rson", "PLACE"] {
        queries.push(of_type(Some(kind), None)?);
        queries.push(of_type(Some(kind), Some(Filter::gt("number", 15)))?);
    }
    for filter in [
        Filter::eq("odd", true),
        Filter::eq("odd", 1),
        Filter::eq("type", "person"),
        Filter::exists("id"),
        Filter::any([]),
        Filter::lt("number", 9) & !Filter::eq("odd", false),
    ] {
        queries.push(of_type(None, Some(filter))?);
    }
    for query in queries {
        let fits = |one: &&Entity| {
            query.entity_type.as_ref().is_none_or(|kind| one.entity_type == *kind)
                && query.filter.as_ref().is_none_or(|filter| filter.matches(&one.properties))
        };
        let expected: Vec<Entity> = entities.iter().filter(fits).cloned().collect();
        expect::equal(&format!("{query:?}"), &find_entities(&*b, &query, 10_000).await?, &expected)?;
    }
    Ok(())
}

/// Compares the results; a failure names the filter and the stored data of missing and unexpected ids.
fn compare(filter: &Filter, got: &[&str], stored: &[(String, Metadata)]) -> CaseResult {
    let matching = stored.iter().filter(|(_, properties)| filter.matches(properties));
    let expected: Vec<&str> = matching.map(|(id, _)| id.as_str()).collect();
    if got == expected.as_slice() {
        return Ok(());
    }
    let of = |id: &str| stored.iter().find(|(name, _)| name == id).map(|(_, properties)| properties);
    let surplus: Vec<_> = got.iter().filter(|id| !expected.contains(id)).map(|id| of(id)).collect();
    let missing: Vec<_> = expected.iter().filter(|id| !got.contains(id)).map(|id| of(id)).collect();
    Err(expect::broken(
        format!("{filter:?} to match {} in the order of their ids", expected.len()),
        format!("{} of them; surplus: {surplus:?}; missing: {missing:?}", got.len()),
    ))
}

fn stored() -> Vec<(String, Metadata)> {
    let numbered = filter_table::stored().into_iter().enumerate();
    numbered.map(|(number, properties)| (format!("{number:03}"), properties)).collect()
}

async fn entities_follow(context: Context, filters: Vec<Filter>) -> CaseResult {
    entities_of_follow(context, stored(), filters).await
}

async fn entities_of_follow(
    context: Context,
    stored: Vec<(String, Metadata)>,
    filters: Vec<Filter>,
) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let entity = |(id, properties): &(String, Metadata)| typed(id, "node", properties.clone());
    store_all(&*a, &stored.iter().map(entity).collect::<CaseResult<Vec<_>>>()?, &[]).await?;
    for filter in filters {
        let query = EntityQuery::default().with_filter(filter.clone());
        let found = b.find_entities(&query, PageRequest::default()).await?.items;
        compare(&filter, &found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), &stored)?;
    }
    Ok(())
}

pub(super) async fn filters_distinguish_types(context: Context) -> CaseResult {
    entities_follow(context, filter_table::equality()).await
}

pub(super) async fn filters_order_numbers_and_strings_only(context: Context) -> CaseResult {
    entities_follow(context, filter_table::order()).await
}

pub(super) async fn filters_take_paths_literally(context: Context) -> CaseResult {
    entities_follow(context, filter_table::paths()).await
}

pub(super) async fn filters_examine_the_elements_of_arrays(context: Context) -> CaseResult {
    entities_follow(context, filter_table::arrays()).await
}

pub(super) async fn filters_combine(context: Context) -> CaseResult {
    entities_follow(context, filter_table::groups()).await
}

pub(super) async fn filters_at_their_limits_work(context: Context) -> CaseResult {
    // Every seventh entity, because ten thousand operands for each entity are slow.
    let some = stored().into_iter().step_by(7).collect();
    entities_of_follow(context, some, filter_table::at_limits()).await
}

pub(super) async fn relationship_filters_follow_the_same_table(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let stored = stored();
    let relationship = |(id, properties): &(String, Metadata)| {
        Ok(edge(id, "t", "a", "b")?.with_properties(properties.clone()))
    };
    let relationships = stored.iter().map(relationship).collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &nodes(&["a", "b"])?, &relationships).await?;
    let table = [filter_table::equality(), filter_table::order(), filter_table::paths()].concat();
    let table = table.into_iter().step_by(2);
    for filter in table.chain(filter_table::groups()) {
        let query = RelationshipQuery::default().with_filter(filter.clone());
        let found = b.find_relationships(&query, PageRequest::default()).await?.items;
        compare(&filter, &found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), &stored)?;
    }
    Ok(())
}

pub(super) async fn relationships_satisfy_every_part_given(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let (names, kinds) = (["a", "b", "A"], ["knows", "Knows"]);
    let mut all: Vec<Relationship> = Vec::new();
    for source in names {
        for target in names {
            for kind in kinds {
                for number in 0..2 {
                    let one = edge(&format!("{target}{number}{kind}{source}"), kind, source, target)?;
                    all.push(one.with_properties(Metadata::new().with("number", number)));
                }
            }
        }
    }
    store_all(&*a, &nodes(&names)?, &all).await?;
    all.sort_by(|left, right| left.id.cmp(&right.id));
    let ends = [None, Some("a"), Some("b"), Some("A"), Some("absent")];
    for kind in [None, Some("knows"), Some("Knows"), Some("know_")] {
        for source in ends {
            for target in ends {
                for filter in [None, Some(Filter::eq("number", 1)), Some(Filter::eq("number", true))] {
                    let query = RelationshipQuery::default()
                        .with_type(kind.map(relationship_type).transpose()?)
                        .with_source(source.map(entity_id).transpose()?)
                        .with_target(target.map(entity_id).transpose()?)
                        .with_filter(filter);
                    let expected: Vec<_> = all.iter().filter(|one| fits(&query, one)).cloned().collect();
                    let found = find_relationships(&*b, &query, 10_000).await?;
                    expect::equal(&format!("{query:?}"), &found, &expected)?;
                }
            }
        }
    }
    Ok(())
}

fn fits(query: &RelationshipQuery, one: &Relationship) -> bool {
    query.relationship_type.as_ref().is_none_or(|kind| one.relationship_type == *kind)
        && query.source.as_ref().is_none_or(|source| one.source == *source)
        && query.target.as_ref().is_none_or(|target| one.target == *target)
        && query.filter.as_ref().is_none_or(|filter| filter.matches(&one.properties))
}

pub(super) async fn paging_returns_each_entity_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let mut entities = Vec::new();
    for number in 0..60 {
        let id = format!("{:04x}", context.random(number) % 0xFFFF / 60 * 60 + number);
        let kind = ["even", "odd"][usize::from(number % 2 == 1)];
        entities.push(typed(&id, kind, Metadata::new().with("third", number % 3))?);
    }
    store_all(&*a, &entities, &[]).await?;
    entities.sort_by(|left, right| left.id.cmp(&right.id));
    let thirds = of_type(Some("odd"), Some(Filter::eq("third", 1)))?;
    let queries = [EntityQuery::default(), of_type(Some("even"), None)?, thirds];
    for (query, count) in queries.iter().zip([60, 30, 10]) {
        let kind = query.entity_type.as_ref();
        let filter = query.filter.as_ref();
        let fits = |one: &&Entity| {
            kind.is_none_or(|kind| one.entity_type == *kind)
                && filter.is_none_or(|filter| filter.matches(&one.properties))
        };
        let expected: Vec<_> = entities.iter().filter(fits).cloned().collect();
        expect::equal("the case's own count", &expected.len(), &count)?;
        for limit in [1, 2, 7, count - 1, count, count + 1, 10_000] {
            let found = find_entities(&*b, query, limit).await?;
            expect::equal(&format!("{query:?} by pages of {limit}"), &found, &expected)?;
        }
        let exact = b.find_entities(query, PageRequest::first(count)).await?;
        expect::equal("what follows the page that holds all", &exact.next, &None)?;
        let none = b.find_entities(query, PageRequest::first(0)).await?;
        expect::equal("a limit of 0", &none.items, &Vec::new())?;
        let between = entity_id(&format!("{}!", expected[3].id))?;
        let page = b.find_entities(query, PageRequest::after(between, 2)).await?;
        expect::equal("after a missing id", &page.items, &expected[4..6].to_vec())?;
    }
    Ok(())
}

pub(super) async fn entity_pages_continue_during_changes(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let stable = (0..20).map(|number| node(&format!("m{number:02}"))).collect::<CaseResult<Vec<_>>>()?;
    let going = (0..20).map(|number| node(&format!("m{number:02}-gone"))).collect::<CaseResult<Vec<_>>>()?;
    store_all(&*a, &[stable.clone(), going.clone()].concat(), &[]).await?;
    let mut seen = Vec::new();
    let mut request = PageRequest::first(3);
    for step in 0..100 {
        let page = b.find_entities(&EntityQuery::default(), request).await?;
        seen.extend(page.items.into_iter().map(|one| one.id));
        let Some(next) = page.next else { break };
        let _ = a.delete_entity(&going[step % 20].id).await?;
        a.upsert_entities(vec![node(&format!("a{step}"))?, node(&format!("{next}~{step}"))?]).await?;
        request = PageRequest::after(next, 3);
        expect::that(step < 99, "an end of the pages", "100 pages")?;
    }
    for one in &stable {
        let times = seen.iter().filter(|id| **id == one.id).count();
        expect::equal(&format!("visits of {}", one.id), &times, &1)?;
    }
    let ascending = seen.windows(2).all(|pair| pair[0] < pair[1]);
    expect::that(ascending, "entities in byte order", &seen)
}

pub(super) async fn paging_returns_each_relationship_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.graph().await?;
    let mut all = Vec::new();
    for number in 0..40 {
        let id = format!("{:04x}", context.random(number) % 0xFFFF / 40 * 40 + number);
        let (source, target) = if number % 4 == 0 { ("b", "a") } else { ("a", "b") };
        all.push(edge(&id, ["t", "u"][usize::from(number % 2 == 1)], source, target)?);
    }
    store_all(&*a, &nodes(&["a", "b"])?, &all).await?;
    all.sort_by(|left, right| left.id.cmp(&right.id));
    let from_a = RelationshipQuery::default().with_source(entity_ids(&["a"])?.pop());
    let of_u = from_a.clone().with_type(relationship_type("u")?);
    for (query, count) in [RelationshipQuery::default(), from_a, of_u].iter().zip([40, 30, 20]) {
        let expected: Vec<_> = all.iter().filter(|one| fits(query, one)).cloned().collect();
        expect::equal("the case's own count", &expected.len(), &count)?;
        for limit in [1, 3, 7, count - 1, count, count + 1] {
            let found = find_relationships(&*b, query, limit).await?;
            expect::equal(&format!("{query:?} by pages of {limit}"), &found, &expected)?;
        }
        let exact = b.find_relationships(query, PageRequest::first(count)).await?;
        expect::equal("what follows the page that holds all", &exact.next, &None)?;
        let none = b.find_relationships(query, PageRequest::first(0)).await?;
        expect::equal("a limit of 0", &none.items, &Vec::new())?;
        // Changes before and after the page do not affect the remaining pages.
        let page = b.find_relationships(query, PageRequest::first(4)).await?;
        a.delete_relationship(&page.items[3].id).await?;
        a.upsert_relationships(edges(&[("!", "u", "a", "b")])?).await?;
        let rest = b.find_relationships(query, PageRequest::after(page.items[3].id.clone(), 10_000)).await?;
        expect::equal("after a page whose last entity was deleted", &rest.items, &expected[4..].to_vec())?;
        a.upsert_relationships(vec![page.items[3].clone()]).await?;
        a.delete_relationship(&relationship_id("!")?).await?;
    }
    Ok(())
}
