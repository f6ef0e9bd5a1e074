//! Writes of documents: read-back, modes, batches and dimensions.

use std::sync::Arc;

use larder_kernel::{Document, Metadata, PageRequest, PutMode, PutReport, VectorStore};
use serde_json::json;
use tokio::task::JoinSet;

use super::support::{
    collection, document, embedding, holds, id, ids, joined, list_all, put_all, random_documents,
    random_values, read, same_document, sorted, tagged,
};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn documents_read_back_equal(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let metadata = Metadata::new()
        .with("null", json!(null))
        .with("bools", json!([true, false]))
        .with("numbers", json!([0, -1, 1.5, 1e300, 5e-324, i64::MIN, u64::MAX, 1e16, -0.0]))
        .with("nested", json!({"": {"a.b": [[], {}, ""]}, "é": "e\u{301}"}))
        .with("", "the empty key")
        .with("$ref", "\"'`\\\n\t\u{1f}\u{7f}");
    let texts = [
        "",
        " padded ",
        "line\r\nline\n",
        "é e\u{301} 🦀 \u{FEFF}",
        "a\0b",
        "'; --\\ %_*{}$$",
        "\u{1}\u{7f}\u{ffff}",
    ];
    let mut documents = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let mut one = tagged(&format!("d{number}"), &[0.1, -0.0, 3.0e-20, 1.0 / 3.0], metadata.clone())?;
        one.content = (*text).to_owned();
        documents.push(one);
    }
    documents.push(document("bare", &[f32::MIN_POSITIVE, 1.0e18, -1.0e-30, f32::EPSILON])?);
    put_all(&*a, &notes, &documents).await?;
    for expected in &documents {
        same_document("read by id", &read(&*b, &notes, &expected.id).await?, expected)?;
    }
    holds("listed", &*b, &notes, 3, &sorted(documents)).await
}

pub(super) async fn documents_at_their_limits_read_back_equal(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let mut deep = json!("bottom");
    for _ in 0..31 {
        deep = json!([deep]);
    }
    let long_id = "x".repeat(512);
    let mut large = document(&long_id, &[1.0, 2.0])?;
    large.content = "é".repeat(512 * 1024);
    let full = tagged("full", &[2.0, 1.0], Metadata::new().with("k", "x".repeat(65_535)))?;
    let nested = tagged("nested", &[2.0, 1.5], Metadata::new().with("k", deep))?;
    for one in [&large, &full, &nested] {
        a.put(&notes, vec![one.clone()], PutMode::Upsert).await?;
    }
    for one in [&large, &full, &nested] {
        same_document("at its limit", &read(&*b, &notes, &one.id).await?, one)?;
    }
    Ok(())
}

pub(super) async fn if_absent_keeps_existing_documents(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let old = [tagged("b", &[1.0, 0.0], Metadata::new().with("v", 1))?, document("d", &[0.0, 1.0])?];
    put_all(&*a, &notes, &old).await?;
    let mut again = Vec::new();
    for name in ["e", "d", "c", "b", "a"] {
        let mut one = tagged(name, &[3.0, 4.0], Metadata::new().with("v", 2))?;
        one.content = "new text".to_owned();
        again.push(one);
    }
    let report = a.put(&notes, again.clone(), PutMode::IfAbsent).await?;
    let expected = PutReport::new(ids(&["e", "c", "a"])?, ids(&["d", "b"])?);
    expect::equal("the report, in the order given", &report, &expected)?;
    let kept = [again[4].clone(), old[0].clone(), again[2].clone(), old[1].clone(), again[0].clone()];
    holds("after the put", &*b, &notes, 100, &kept).await?;
    let report = b.put(&notes, again, PutMode::IfAbsent).await?;
    expect::equal("nothing written the second time", &report.written, &Vec::new())?;
    expect::equal("all ignored", &report.ignored, &ids(&["e", "d", "c", "b", "a"])?)
}

pub(super) async fn upsert_replaces_completely(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let metadata = Metadata::new().with("old", 1).with("nested", json!({"x": 1, "y": 2}));
    let old = [tagged("a", &[1.0, 0.0], metadata.clone())?, tagged("b", &[0.0, 1.0], metadata)?];
    put_all(&*a, &notes, &old).await?;
    let mut first = tagged("a", &[-3.0, 0.5], Metadata::new().with("nested", json!({"x": 3})))?;
    first.content = String::new();
    let second = document("c", &[1.0, 1.0])?;
    let report = a.put(&notes, vec![second.clone(), first.clone()], PutMode::Upsert).await?;
    let expected = PutReport::new(ids(&["c", "a"])?, Vec::new());
    expect::equal("the report, in the order given", &report, &expected)?;
    holds("after the upsert", &*b, &notes, 10, &[first, old[1].clone(), second]).await?;
    let bare = document("b", &[2.0, 2.0])?;
    a.put(&notes, vec![bare.clone()], PutMode::Upsert).await?;
    same_document("metadata gone", &read(&*b, &notes, &bare.id).await?, &bare)
}

pub(super) async fn a_full_batch_of_documents_is_stored_completely(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let documents = random_documents(&context, 1_000, 3)?;
    for mode in [PutMode::IfAbsent, PutMode::Upsert] {
        let report = a.put(&notes, documents.clone(), mode).await?;
        let given: Vec<_> = documents.iter().map(|one| one.id.clone()).collect();
        expect::equal("the ids written, in the order given", &report.written, &given)?;
    }
    expect::equal("the count", &b.count(&notes, None).await?, &1_000)?;
    holds("all of the batch", &*b, &notes, 400, &sorted(documents)).await
}

/// Checks that readers never see a part of a batch, for any interleaving of writes and reads.
pub(super) async fn batches_are_visible_completely_or_not_at_all(context: Context) -> CaseResult {
    const BATCH: u64 = 50;
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let mut tasks: JoinSet<CaseResult> = JoinSet::new();
    for writer in 0..4_u64 {
        let (store, notes) = (if writer % 2 == 0 { Arc::clone(&a) } else { Arc::clone(&b) }, notes.clone());
        let mut batches = Vec::new();
        for batch in 0..3 {
            let name = |number| format!("{writer}-{batch}-{number}");
            let one = |number| document(&name(number), &random_values(&context, number, 4));
            batches.push((0..BATCH).map(one).collect::<CaseResult<Vec<Document>>>()?);
        }
        tasks.spawn(async move {
            for batch in batches {
                store.put(&notes, batch, PutMode::IfAbsent).await?;
            }
            Ok(())
        });
    }
    for store in [a, Arc::clone(&b)] {
        let notes = notes.clone();
        tasks.spawn(async move {
            for _ in 0..25 {
                let count = store.count(&notes, None).await?;
                expect::that(count % BATCH == 0, format!("a count of whole batches of {BATCH}"), count)?;
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    }
    joined(tasks).await?;
    expect::equal("the count in the end", &b.count(&notes, None).await?, &(4 * 3 * BATCH))
}

pub(super) async fn another_dimension_is_refused(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    let first = [document("a", &[1.0, 0.0, 0.0])?, document("b", &[0.0, 1.0, 0.0])?];
    put_all(&*a, &notes, &first).await?;
    for values in [&[1.0, 0.0][..], &[1.0, 0.0, 0.0, 0.0], &[1.0]] {
        for (mode, name) in [(PutMode::IfAbsent, "new"), (PutMode::Upsert, "a"), (PutMode::Upsert, "new")] {
            let bad = vec![document(name, values)?, document("other", values)?];
            let what = format!("{} dimensions instead of 3, {mode:?}", values.len());
            let refusal = expect::invalid(&what, b.put(&notes, bad, mode).await, "embedding")?;
            expect::equal("the limit is the collection's dimension", &refusal.limit(), &Some(3))?;
        }
    }
    holds("after the refusals", &*a, &notes, 10, &first).await?;
    let info = b.list_collections(PageRequest::default()).await?.items;
    let listed: Vec<_> = info.iter().map(|one| (one.dimensions, one.documents)).collect();
    expect::equal("the collection's dimension and count", &listed, &vec![(3, 2)])
}

pub(super) async fn mixed_dimensions_and_repeated_ids_are_refused(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let fresh = collection("fresh")?;
    for mode in [PutMode::IfAbsent, PutMode::Upsert] {
        let mixed = vec![document("a", &[1.0, 0.0])?, document("b", &[1.0, 0.0])?, document("c", &[1.0])?];
        expect::invalid("mixed dimensions", a.put(&fresh, mixed, mode).await, "embedding")?;
        let twice =
            vec![document("a", &[1.0, 0.0])?, document("b", &[1.0, 0.0])?, document("a", &[1.0, 0.0])?];
        expect::invalid("an id twice", a.put(&fresh, twice, mode).await, "documents.id")?;
    }
    expect::equal("documents after the refusals", &b.count(&fresh, None).await?, &0)?;
    let listed = b.list_collections(PageRequest::default()).await?.items;
    expect::equal("collections after the refusals", &listed, &Vec::new())?;
    let kept = document("a", &[1.0, 2.0, 3.0])?;
    put_all(&*a, &fresh, std::slice::from_ref(&kept)).await?;
    let twice = vec![document("a", &[4.0, 5.0, 6.0])?, document("a", &[7.0, 8.0, 9.0])?];
    expect::invalid(
        "an id twice over an existing one",
        a.put(&fresh, twice, PutMode::Upsert).await,
        "documents.id",
    )?;
    same_document("the earlier data", &read(&*b, &fresh, &id("a")?).await?, &kept)
}

pub(super) async fn one_to_sixteen_thousand_dimensions_are_accepted(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    for dimensions in [1, 2, 3, 1_999, 2_001, 4_001, 16_000] {
        let space = collection(&format!("of-{dimensions}"))?;
        let mut documents = Vec::new();
        for number in 0..3 {
            documents.push(document(&format!("d{number}"), &random_values(&context, number, dimensions))?);
        }
        put_all(&*a, &space, &documents).await?;
        holds("all dimensions", &*b, &space, 10, &documents).await?;
        let query = larder_kernel::SearchRequest::new(embedding(&random_values(&context, 77, dimensions))?);
        let hits = b.search(&space, &query).await?;
        super::support::same_answer(
            &format!("a search of {dimensions} dimensions"),
            &hits,
            &documents,
            &query,
        )?;
    }
    Ok(())
}

pub(super) async fn collections_separate_ids_and_dimensions(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let names = [collection("notes")?, collection("Notes")?, collection("notes ")?];
    let stored =
        [document("same", &[1.0])?, document("same", &[0.0, 1.0])?, document("same", &[1.0, 2.0, 3.0])?];
    for (name, one) in names.iter().zip(&stored) {
        let report = a.put(name, vec![one.clone()], PutMode::IfAbsent).await?;
        expect::equal("written in its own collection", &report.written.len(), &1)?;
    }
    for (name, one) in names.iter().zip(&stored) {
        same_document("the id in its collection", &read(&*b, name, &one.id).await?, one)?;
    }
    expect::equal("deleted from one", &b.delete(&names[1], &[id("same")?]).await?, &1)?;
    for place in [0, 2] {
        let found = read(&*a, &names[place], &id("same")?).await?;
        same_document("left in the others", &found, &stored[place])?;
    }
    Ok(())
}

pub(super) async fn concurrent_puts_if_absent_write_an_id_once(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    for round in 0..5 {
        let name = format!("contested-{round}");
        let mut tasks: JoinSet<CaseResult<(Document, PutReport)>> = JoinSet::new();
        for task in 0..8_u8 {
            let (store, notes) = (if task % 2 == 0 { Arc::clone(&a) } else { Arc::clone(&b) }, notes.clone());
            let mut mine = document(&name, &[1.0, f32::from(task)])?;
            mine.content = format!("by {task}");
            let own = document(&format!("own-{round}-{task}"), &[1.0, 1.0])?;
            tasks.spawn(async move {
                let report = store.put(&notes, vec![own, mine.clone()], PutMode::IfAbsent).await?;
                Ok((mine, report))
            });
        }
        let ended = joined(tasks).await?;
        let wrote = |(mine, report): &&(Document, PutReport)| report.written.contains(&mine.id);
        let winners: Vec<_> = ended.iter().filter(wrote).collect();
        expect::equal("puts that wrote the id", &winners.len(), &1)?;
        for (mine, report) in &ended {
            let named = report.written.iter().chain(&report.ignored).filter(|one| **one == mine.id).count();
            expect::equal("times that a report names the id", &named, &1)?;
            expect::equal("ids that a report names", &(report.written.len() + report.ignored.len()), &2)?;
        }
        for (mine, _) in winners {
            same_document("the winner's document", &read(&*b, &notes, &mine.id).await?, mine)?;
        }
    }
    expect::equal("documents in all", &VectorStore::count(&*a, &notes, None).await?, &(5 * 9))
}

pub(super) async fn concurrent_first_puts_set_one_dimension(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    for round in 0..5 {
        let fresh = collection(&format!("fresh-{round}"))?;
        let mut tasks: JoinSet<CaseResult<(usize, Result<PutReport, larder_kernel::Error>)>> = JoinSet::new();
        for task in 1..=8_u8 {
            let store = if task % 2 == 0 { Arc::clone(&a) } else { Arc::clone(&b) };
            let fresh = fresh.clone();
            let values = vec![1.0; usize::from(task)];
            let mine = document(&format!("d{task}"), &values)?;
            tasks.spawn(
                async move { Ok((values.len(), store.put(&fresh, vec![mine], PutMode::IfAbsent).await)) },
            );
        }
        let mut winners = Vec::new();
        for (dimensions, result) in joined(tasks).await? {
            match result {
                Ok(report) => {
                    expect::equal("the winner wrote", &report.written.len(), &1)?;
                    winners.push(dimensions);
                }
                refused => drop(expect::invalid("a put of another dimension", refused, "embedding")?),
            }
        }
        expect::equal("puts that fixed a dimension", &winners.len(), &1)?;
        let kept = list_all(&*b, &fresh, 100).await?;
        let kept: Vec<_> = kept.iter().map(|one| one.id.as_str().to_owned()).collect();
        expect::equal("the stored data", &kept, &vec![format!("d{}", winners[0])])?;
        let listed = a.list_collections(PageRequest::default()).await?.items;
        let fixed = listed.into_iter().find(|info| info.collection == fresh).map(|info| info.dimensions);
        expect::equal("the dimension listed", &fixed, &winners.first().copied())?;
    }
    Ok(())
}
