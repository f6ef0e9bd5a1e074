//! The time to live of a thread that was emptied without a clear.

use std::time::{Duration, Instant};

use larder_kernel::{AppendOptions, ChatMessage, HistoryProvider, Replacement, Thread, Ttl};

use super::support::{holds, messages, run, thread};
use crate::case::CaseResult;
use crate::context::{Context, in_time};

const TTL: Duration = Duration::from_millis(300);

/// Empties a thread that has a time to live, writes to it again, and checks that it stays past the old end.
async fn stays_after(context: &Context, how: &str) -> CaseResult {
    let stores = context.history().await?;
    let store = &*stores.a;
    let (thread, set) = in_time(TTL, |attempt| async move {
        let thread = thread(&format!("{how} {attempt}"))?;
        let tagged = ChatMessage::user("gone").with_run(run("r")?);
        let living = AppendOptions::default().with_ttl(Ttl::fixed(TTL));
        let last = store.append_many(&thread, vec![tagged], living).await?.last;
        let set = Instant::now();
        match how {
            "run" => drop(store.clear_run(&thread, &run("r")?, None).await?),
            _ => drop(store.replace(&thread, Replacement::new(last, Vec::new())).await?),
        }
        append_again(store, &thread).await?;
        Ok((thread, set))
    })
    .await?;
    tokio::time::sleep((TTL + Duration::from_millis(50)).saturating_sub(set.elapsed())).await;
    holds(&*stores.b, &thread, &["new"]).await
}

async fn append_again(store: &dyn HistoryProvider, thread: &Thread) -> CaseResult {
    store.append_many(thread, messages(&["new"]), AppendOptions::default()).await?;
    Ok(())
}

/// HIST-071.
pub(super) async fn clearing_the_last_run_removes_the_time_to_live(context: Context) -> CaseResult {
    stays_after(&context, "run").await
}

/// HIST-071.
pub(super) async fn an_empty_replacement_removes_the_time_to_live(context: Context) -> CaseResult {
    stays_after(&context, "replacement").await
}
