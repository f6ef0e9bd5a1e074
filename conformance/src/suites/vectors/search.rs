//! Searches: scores, order, limits, floors, and the effect of changes.

use larder_kernel::{CollectionName, Filter, Metadata, PutMode, SearchRequest};

use super::support::{
    collection, document, embedding, hit_ids, id, ids, near, put_all, random_documents, random_values,
    reference, same_answer, tagged,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn hits_are_ordered_by_cosine(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    for dimensions in [2, 16, 384] {
        let space = collection(&format!("of-{dimensions}"))?;
        let documents = random_documents(&context, 120, dimensions)?;
        put_all(&*a, &space, &documents).await?;
        for draw in 0..5 {
            let query = embedding(&random_values(&context, 5_000 + draw, dimensions))?;
            for limit in [1, 5, 119, 120, 10_000] {
                let request = SearchRequest::new(query.clone()).with_limit(limit);
                let hits = b.search(&space, &request).await?;
                let what = format!("{dimensions} dimensions, limit {limit}");
                same_answer(&what, &hits, &documents, &request)?;
            }
        }
    }
    Ok(())
}

/// Checks embeddings of extreme lengths, where products of 32-bit norms overflow or underflow.
pub(super) async fn scores_do_not_depend_on_lengths(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let directions: [[f32; 3]; 5] =
        [[0.6, 0.7, 0.4], [-0.6, 0.7, 0.4], [0.5, -0.5, 0.7], [-0.7, -0.5, -0.5], [0.9, 0.3, 0.3]];
    let lengths = [2.0e-19_f32, 1.0e-10, 1.0, 1.0e10, 1.5e19];
    let scaled = |direction: [f32; 3], length: f32| direction.map(|value| value * length);
    let mut documents = Vec::new();
    for (row, direction) in directions.iter().enumerate() {
        for (column, length) in lengths.iter().enumerate() {
            documents.push(document(&format!("d{row}{column}"), &scaled(*direction, *length))?);
        }
    }
    put_all(&*a, &space, &documents).await?;
    for direction in directions {
        for length in lengths {
            let request = SearchRequest::new(embedding(&scaled(direction, length))?).with_limit(100);
            let hits = b.search(&space, &request).await?;
            same_answer(&format!("a query of length {length:e}"), &hits, &documents, &request)?;
        }
    }
    Ok(())
}

/// Checks that scores are clamped: rounding takes a vector's cosine with itself past 1.
pub(super) async fn scores_stay_between_minus_one_and_one(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    for dimensions in [3, 7, 129] {
        let space = collection(&format!("of-{dimensions}"))?;
        let mut documents = random_documents(&context, 60, dimensions)?;
        let turned: Vec<f32> = random_values(&context, 1, dimensions).iter().map(|value| -value).collect();
        documents.push(document("turned", &turned)?);
        put_all(&*a, &space, &documents).await?;
        for document in &documents {
            let own = expect::some("an embedding", document.embedding.clone())?;
            let hits = b.search(&space, &SearchRequest::new(own.clone()).with_limit(100)).await?;
            let outside: Vec<f32> =
                hits.iter().map(|hit| hit.score).filter(|score| !(-1.0..=1.0).contains(score)).collect();
            expect::equal("scores outside [-1, 1]", &outside, &Vec::new())?;
            let itself = expect::some("the document itself", hits.iter().find(|hit| hit.id == document.id))?;
            near("the score with itself", itself.score, 1.0)?;
        }
    }
    Ok(())
}

pub(super) async fn equal_embeddings_are_ordered_by_id(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let in_order = ["10", "9", "A", "B", "a", "a ", "a:b", "aa", "e\u{301}", "z", "é", "\u{ffff}", "🦀"];
    let mut documents = Vec::new();
    // Written in another order than that of the ids, one by one, so that no batch sorts them.
    for place in [7, 3, 12, 0, 9, 5, 1, 11, 4, 8, 2, 10, 6] {
        documents.push(document(in_order[place], &[0.3, 0.1, 0.7])?);
    }
    documents.push(document("0 far", &[-1.0, 0.2, 0.0])?);
    documents.push(document("~ near", &[0.3, 0.1, 0.8])?);
    for one in &documents {
        a.put(&space, vec![one.clone()], PutMode::Upsert).await?;
    }
    let query = embedding(&[0.2, 0.05, 0.9])?;
    for limit in [15, 14, 13, 8, 5, 2, 1] {
        let request = SearchRequest::new(query.clone()).with_limit(limit);
        let hits = b.search(&space, &request).await?;
        let expected: Vec<_> = reference(&documents, &request).into_iter().map(|(one, _)| one.id).collect();
        expect::equal(&format!("ids with a limit of {limit}"), &hit_ids(&hits), &expected)?;
        let tied: Vec<_> = hits.iter().filter(|hit| in_order.contains(&hit.id.as_str())).collect();
        let same = tied.windows(2).all(|pair| pair[0].score.to_bits() == pair[1].score.to_bits());
        expect::that(same, "one score for equal embeddings", &tied)?;
    }
    Ok(())
}

/// Checks matches that are the farthest from the query, where an approximate index looks last.
pub(super) async fn a_limit_is_filled_in_a_large_collection(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let mut documents = random_documents(&context, 1_500, 6)?;
    let query = embedding(&random_values(&context, 42_000, 6))?;
    let all = SearchRequest::new(query.clone()).with_limit(10_000);
    let far: std::collections::BTreeSet<_> =
        reference(&documents, &all).into_iter().rev().take(60).map(|(one, _)| one.id).collect();
    for one in &mut documents {
        one.metadata = Metadata::new().with("far", far.contains(&one.id));
    }
    put_all(&*a, &space, &documents).await?;
    for limit in [100, 1_000, 1_499, 1_500, 10_000] {
        let request = SearchRequest::new(query.clone()).with_limit(limit);
        let hits = b.search(&space, &request).await?;
        same_answer(&format!("a limit of {limit} in 1,500"), &hits, &documents, &request)?;
    }
    for limit in [1, 10, 59, 60, 500] {
        let request =
            SearchRequest::new(query.clone()).with_limit(limit).with_filter(Filter::eq("far", true));
        let hits = b.search(&space, &request).await?;
        same_answer(&format!("a limit of {limit} among the 60 farthest"), &hits, &documents, &request)?;
    }
    Ok(())
}

pub(super) async fn a_request_without_a_limit_returns_five_hits(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let documents = random_documents(&context, 12, 3)?;
    put_all(&*a, &CollectionName::default(), &documents).await?;
    let request = SearchRequest::new(embedding(&random_values(&context, 7, 3))?);
    let hits = b.search(&CollectionName::default(), &request).await?;
    expect::equal("hits", &hits.len(), &5)?;
    same_answer("the defaults", &hits, &documents, &request)
}

pub(super) async fn a_filter_applies_before_the_limit(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let mut documents = random_documents(&context, 60, 5)?;
    for (number, one) in documents.iter_mut().enumerate() {
        one.metadata = Metadata::new().with("third", number % 3).with("tenth", number % 10);
    }
    put_all(&*a, &space, &documents).await?;
    let query = embedding(&random_values(&context, 900, 5))?;
    let filters = [
        Filter::eq("third", 0),
        Filter::eq("tenth", 7) & Filter::ne("third", 1),
        Filter::gt("tenth", 8),
        !Filter::eq("third", 2),
        Filter::eq("third", 4),
        Filter::all([]),
        Filter::any([]),
    ];
    for filter in filters {
        for limit in [0, 1, 3, 20, 60] {
            let request = SearchRequest::new(query.clone()).with_limit(limit).with_filter(filter.clone());
            let hits = b.search(&space, &request).await?;
            same_answer(&format!("{filter:?}, limit {limit}"), &hits, &documents, &request)?;
        }
    }
    Ok(())
}

pub(super) async fn a_floor_excludes_lower_scores(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    // Exact in 32 bits: cosines 1, 0.6, 0, -0.6 and -1 with the query.
    let documents = [
        document("same", &[4.0, 0.0])?,
        document("near", &[3.0, 4.0])?,
        document("across", &[0.0, 2.0])?,
        document("away", &[-3.0, 4.0])?,
        document("opposite", &[-1.0, 0.0])?,
    ];
    put_all(&*a, &space, &documents).await?;
    let names = ["same", "near", "across", "away", "opposite"];
    let floors = [
        (-2.0, 5),
        (-1.0, 5),
        (-0.9, 4),
        (-0.3, 3),
        (0.0, 3),
        (0.3, 2),
        (0.9, 1),
        (1.0, 1),
        (1.1, 0),
        (f32::NEG_INFINITY, 5),
        (f32::INFINITY, 0),
    ];
    for (floor, count) in floors {
        let request = SearchRequest::new(embedding(&[2.0, 0.0])?).with_limit(10).with_score_min(floor);
        let hits = b.search(&space, &request).await?;
        expect::equal(&format!("hits with a floor of {floor}"), &hit_ids(&hits), &ids(&names[..count])?)?;
        let limited = b.search(&space, &request.with_limit(2)).await?;
        let expected = ids(&names[..count.min(2)])?;
        expect::equal(&format!("two hits with a floor of {floor}"), &hit_ids(&limited), &expected)?;
    }
    Ok(())
}

/// Uses floors halfway between two scores, so that rounding has no effect.
pub(super) async fn floors_limits_and_filters_combine(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let mut documents = random_documents(&context, 80, 8)?;
    for (number, one) in documents.iter_mut().enumerate() {
        one.metadata = Metadata::new().with("even", number % 2 == 0);
    }
    put_all(&*a, &space, &documents).await?;
    let query = embedding(&random_values(&context, 31, 8))?;
    let exact = reference(&documents, &SearchRequest::new(query.clone()).with_limit(100));
    let gaps = exact.windows(2).map(|pair| (pair[0].1, pair[1].1)).filter(|(high, low)| high - low > 1e-3);
    for (high, low) in gaps.step_by(7) {
        // Halfway and in 32 bits, to within far less than the gap.
        #[allow(clippy::cast_possible_truncation)]
        let floor = f64::midpoint(high, low) as f32;
        for limit in [1, 10, 100] {
            let request = SearchRequest::new(query.clone()).with_limit(limit).with_score_min(floor);
            let hits = b.search(&space, &request).await?;
            same_answer(&format!("floor {floor}, limit {limit}"), &hits, &documents, &request)?;
            let request = request.with_filter(Filter::eq("even", true));
            let hits = b.search(&space, &request).await?;
            same_answer(&format!("floor {floor}, limit {limit}, filtered"), &hits, &documents, &request)?;
        }
    }
    Ok(())
}

pub(super) async fn a_limit_of_zero_returns_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    put_all(&*a, &space, &[document("a", &[1.0, 0.0])?, document("b", &[0.0, 1.0])?]).await?;
    let request = SearchRequest::new(embedding(&[1.0, 0.0])?);
    expect::equal("hits with the default limit", &b.search(&space, &request).await?.len(), &2)?;
    let request = request.with_limit(0);
    expect::equal("hits with a limit of 0", &b.search(&space, &request).await?, &Vec::new())?;
    let request = request.with_filter(Filter::all([])).with_score_min(-1.0);
    expect::equal("hits with a limit of 0, filtered", &b.search(&space, &request).await?, &Vec::new())
}

pub(super) async fn a_missing_collection_has_no_hits(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    put_all(&*a, &collection("there")?, &[document("a", &[1.0, 0.0])?]).await?;
    for name in ["not there", "ther", "There", "there/"] {
        for values in [&[1.0, 0.0][..], &[1.0], &[1.0, 2.0, 3.0]] {
            let hits = b.search(&collection(name)?, &SearchRequest::new(embedding(values)?)).await?;
            expect::equal("hits", &hits, &Vec::new())?;
        }
    }
    Ok(())
}

pub(super) async fn a_query_of_another_dimension_is_refused(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    put_all(&*a, &space, &[document("a", &[1.0, 0.0, 0.5])?]).await?;
    for values in [&[1.0][..], &[1.0, 0.0], &[1.0, 0.0, 0.5, 0.0]] {
        let request = SearchRequest::new(embedding(values)?);
        let what = format!("{} dimensions instead of 3", values.len());
        expect::invalid(&what, b.search(&space, &request).await, "embedding")?;
    }
    a.delete(&space, &[id("a")?]).await?;
    let request = SearchRequest::new(embedding(&[1.0, 0.0])?);
    expect::invalid("the collection is empty", b.search(&space, &request).await, "embedding")?;
    Ok(())
}

pub(super) async fn hits_carry_text_and_metadata(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let metadata = Metadata::new().with("n", 1.5).with("nested", serde_json::json!({"a": [null, "é"]}));
    let mut first = tagged("first", &[1.0, 0.0], metadata)?;
    first.content = "line\n\0'quoted' 🦀".to_owned();
    let mut second = document("second", &[0.0, 1.0])?;
    second.content = String::new();
    put_all(&*a, &space, &[second.clone(), first.clone()]).await?;
    let hits = b.search(&space, &SearchRequest::new(embedding(&[2.0, 1.0])?)).await?;
    expect::equal("hits", &hits.len(), &2)?;
    for (hit, expected) in hits.iter().zip([&first, &second]) {
        expect::equal("the hit's id", &hit.id, &expected.id)?;
        expect::equal("the hit's text", &hit.content, &expected.content)?;
        expect::equal("the hit's metadata", &hit.metadata, &expected.metadata)?;
    }
    Ok(())
}

pub(super) async fn searches_follow_replacements_and_deletions(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let mut documents = vec![
        tagged("moved", &[1.0, 0.0, 0.0], Metadata::new().with("old", true))?,
        document("deleted", &[0.9, 0.1, 0.0])?,
        document("kept", &[0.0, 1.0, 0.0])?,
        document("matched", &[0.8, 0.0, 0.1])?,
    ];
    put_all(&*a, &space, &documents).await?;
    let near_old = SearchRequest::new(embedding(&[1.0, 0.0, 0.0])?).with_limit(10);
    // A first search lets the store create an index or a cache.
    same_answer("before", &b.search(&space, &near_old).await?, &documents, &near_old)?;
    documents[0] = document("moved", &[0.0, 0.0, 1.0])?;
    a.put(&space, vec![documents[0].clone()], PutMode::Upsert).await?;
    let near_new = SearchRequest::new(embedding(&[0.0, 0.0, 1.0])?).with_limit(10);
    for request in [&near_old, &near_new] {
        same_answer("after the replacement", &b.search(&space, request).await?, &documents, request)?;
    }
    let by_old = near_old.clone().with_filter(Filter::exists("old"));
    expect::equal("found by the old metadata", &b.search(&space, &by_old).await?, &Vec::new())?;
    let deleted = documents.remove(1);
    a.delete(&space, &[deleted.id]).await?;
    same_answer("after the deletion", &b.search(&space, &near_old).await?, &documents, &near_old)?;
    documents.pop();
    a.put(&space, vec![tagged("matched", &[0.8, 0.0, 0.1], Metadata::new().with("go", 1))?], PutMode::Upsert)
        .await?;
    a.delete_matching(&space, &Filter::eq("go", 1)).await?;
    same_answer("after a deletion by filter", &b.search(&space, &near_old).await?, &documents, &near_old)?;
    documents.push(document("deleted", &[0.5, 0.5, 0.0])?);
    a.put(&space, vec![documents[2].clone()], PutMode::IfAbsent).await?;
    same_answer("put again", &b.search(&space, &near_old).await?, &documents, &near_old)
}
