//! Futures dropped before they complete.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use larder_kernel::Contract;

use super::probe::{BATCH, count_batch, dump, populate, write_batch};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;
use crate::harness::OpenOptions;

/// The number of reads in which late writes must stop arriving.
const READS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Polls the future at most `polls` times, yields to other tasks in between, and drops it.
async fn drop_after<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

pub(super) async fn whole_or_absent(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    for polls in 0..24 {
        let marker = format!("drop-{polls}");
        let ended = drop_after(write_batch(&a, contract, &marker), polls).await;
        let seen = count_batch(&b, contract, &marker).await?;
        match ended {
            Some(result) => {
                result?;
                expect::equal("records of a write that ended", &seen, &BATCH)?;
            }
            None => expect::that(
                seen == 0 || seen == BATCH,
                format!("none or all of {BATCH} records of a write dropped after {polls} polls"),
                seen,
            )?,
        }
    }
    write_batch(&a, contract, "after").await?;
    expect::equal("records of a write after the drops", &count_batch(&b, contract, "after").await?, &BATCH)
}

pub(super) async fn usable_after(context: Context, contract: Contract) -> CaseResult {
    let a = context.open().await?;
    let b = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    for polls in [1, 2, 3, 5, 8, 13, 21, 34, 55] {
        let marker = format!("left-{polls}");
        if let Some(result) = drop_after(populate(&a, contract, &marker), polls).await {
            result?;
        }
        drop_after(dump(&a, contract), polls).await.transpose()?;
    }
    populate(&a, contract, "finally").await?;
    let mut tries = 1;
    loop {
        let before = dump(&a, contract).await?;
        let read = dump(&b, contract).await?;
        let after = dump(&a, contract).await?;
        // A dropped write may still arrive, even between the reads; then they are repeated.
        if before == after || tries == READS_MAX {
            expect::that(
                read.to_string().contains("finally"),
                "the data written after the drops",
                "nothing of it",
            )?;
            return expect::equal("the data that the writer reads", &after, &read);
        }
        tries += 1;
        tokio::time::sleep(PAUSE).await;
    }
}
