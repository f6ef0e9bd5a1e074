//! Many concurrent writers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_kernel::{Appended, StoredMessage};

use super::support::{all, append, at_once, counts, either, numbered, seqs, texts, thread};
use crate::case::{CaseResult, implemented};
use crate::context::Context;
use crate::expect;
use crate::suites::background::BackgroundTask;

const WRITERS: usize = 8;
const ROUNDS: usize = 5;

/// HIST-004.
pub(super) async fn concurrent_batches_neither_interleave_nor_get_lost(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("writers")?;
    let answers = at_once(WRITERS, |writer| {
        let (store, thread) = (either(&stores, writer), thread.clone());
        async move {
            let mut answers = Vec::new();
            for round in 0..ROUNDS {
                let prefix = format!("{writer}.{round}.");
                let batch = numbered(&prefix, 2 + (writer + round) % 4);
                answers.push((prefix, batch.len(), append(&*store, &thread, batch).await?));
            }
            Ok(answers)
        }
    })
    .await?;
    let stored = all(&*stores.a, &thread).await?;
    expect::equal("the other handle's view", &all(&*stores.b, &thread).await?, &stored)?;
    let by_seq: BTreeMap<i64, &str> = seqs(&stored).into_iter().zip(texts(&stored)).collect();
    let mut written = 0;
    for (prefix, count, Appended { first, last, .. }) in answers.into_iter().flatten() {
        let got: Vec<_> =
            by_seq.range(first.get()..=last.get()).map(|(_, text)| (*text).to_owned()).collect();
        let expected: Vec<_> = (1..=count).map(|number| format!("{prefix}{number}")).collect();
        expect::equal(&format!("the messages at {first} to {last}"), &got, &expected)?;
        written += count;
    }
    expect::equal("number of messages", &stored.len(), &written)?;
    let Some(info) = counts(&*stores.b, &thread).await? else { return Ok(()) };
    expect::equal("thread_info's messages", &usize::try_from(info.messages).ok(), &Some(written))
}

/// HIST-005: two results never contain the same number, and a writer's numbers increase.
pub(super) async fn concurrent_writers_get_distinct_numbers(context: Context) -> CaseResult {
    let stores = context.history().await?;
    let thread = thread("numbers")?;
    let answers = at_once(WRITERS, |writer| {
        let (store, thread) = (either(&stores, writer), thread.clone());
        async move {
            let mut numbers: Vec<i64> = Vec::new();
            for _ in 0..ROUNDS {
                let answer = append(&*store, &thread, numbered("m", 2)).await?;
                let rises = numbers.last().is_none_or(|last| answer.first.get() > *last);
                expect::that(rises, "a greater number than before", answer)?;
                numbers.extend([answer.first.get(), answer.last.get()]);
            }
            Ok(numbers)
        }
    })
    .await?;
    let numbers: Vec<i64> = answers.into_iter().flatten().collect();
    let distinct: BTreeSet<_> = numbers.iter().collect();
    expect::equal("number of different sequence numbers", &distinct.len(), &numbers.len())
}

/// HIST-003: a reader sees each batch completely or not.
pub(super) async fn a_reader_never_sees_part_of_a_batch(context: Context) -> CaseResult {
    const BATCH: usize = 5;
    let stores = context.history().await?;
    let thread = thread("whole")?;
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (store, thread, done) = (Arc::clone(&stores.b), thread.clone(), Arc::clone(&done));
        BackgroundTask::start(async move {
            loop {
                // Read first, so that the last read follows the last write.
                let last = done.load(Ordering::Acquire);
                whole(&store.get_messages(&thread, 0, 1_000).await?.messages, BATCH)?;
                let tail = implemented(store.tail(&thread, None, 1_000).await)?.map(|page| page.messages);
                whole(&tail.unwrap_or_default(), BATCH)?;
                if let Some(info) = counts(&*store, &thread).await? {
                    expect::that(info.messages.is_multiple_of(5), "the count of whole batches", &info)?;
                }
                if last {
                    return CaseResult::Ok(());
                }
                tokio::task::yield_now().await;
            }
        })
    };
    let written = at_once(4, |writer| {
        let (store, thread) = (either(&stores, writer), thread.clone());
        async move {
            for round in 0..ROUNDS {
                append(&*store, &thread, numbered(&format!("{writer}.{round}."), BATCH)).await?;
            }
            Ok(())
        }
    })
    .await;
    done.store(true, Ordering::Release);
    reader.end().await??;
    written?;
    expect::equal("number of messages", &all(&*stores.b, &thread).await?.len(), &(4 * ROUNDS * BATCH))
}

fn whole(stored: &[StoredMessage], batch: usize) -> CaseResult {
    for part in stored.chunks(batch) {
        let ends: Vec<_> = texts(part).into_iter().filter_map(|text| text.rsplit('.').next()).collect();
        expect::equal("the numbers within a batch", &ends, &vec!["1", "2", "3", "4", "5"])?;
    }
    Ok(())
}
